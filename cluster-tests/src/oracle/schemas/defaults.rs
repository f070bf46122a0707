//! Requests of any API, whether there is code for it or not, with every field at its default: written after Kafka's
//! descriptions.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use super::{bad, common_struct, fields_of, is_in, text_of, without_comments};
use crate::oracle::{OracleError, jars};

/// Kafka's descriptions of requests, by API key.
#[derive(Clone, Debug)]
pub struct Requests(BTreeMap<i16, Value>);

impl Requests {
    /// Reads all descriptions.
    pub fn load() -> Result<Requests, OracleError> {
        jars::require()?;
        let dir = jars::messages_dir();
        let entries = fs::read_dir(&dir).map_err(OracleError::io(format!("list {}", dir.display())))?;
        let mut requests = BTreeMap::new();
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if !name.ends_with("Request") {
                continue;
            }
            let text =
                fs::read_to_string(&path).map_err(OracleError::io(format!("read {}", path.display())))?;
            let message: Value = serde_json::from_str(&without_comments(&text))
                .map_err(|error| bad(&name, error.to_string()))?;
            if let Some(key) = message.get("apiKey").and_then(Value::as_i64) {
                let key = i16::try_from(key).map_err(|error| bad(&name, error.to_string()))?;
                requests.insert(key, message);
            }
        }
        Ok(Requests(requests))
    }

    /// What follows the client id in the request `key` of `version`: the tagged fields of the header, if it has any, and the
    /// body. Nothing if Kafka does not describe the request.
    pub fn after_client_id(&self, key: i16, version: i16) -> Option<Result<Vec<u8>, OracleError>> {
        let message = self.0.get(&key)?;
        let flexible = is_in(text_of(message, "flexibleVersions").unwrap_or("none"), version);
        let structs = message.get("commonStructs").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut bytes = if flexible { vec![0] } else { Vec::new() };
        let writer = Writer { structs, version, flexible };
        let name = text_of(message, "name").unwrap_or("?");
        Some(
            writer
                .fields(&mut bytes, fields_of(message))
                .map(|()| bytes)
                .map_err(|kind| bad(name, format!("there is no type {kind}"))),
        )
    }
}

struct Writer<'a> {
    structs: &'a [Value],
    version: i16,
    flexible: bool,
}

impl Writer<'_> {
    /// Fails with the name of an unknown type.
    fn fields(&self, bytes: &mut Vec<u8>, fields: &[Value]) -> Result<(), String> {
        for field in fields {
            let tagged = text_of(field, "taggedVersions").is_some_and(|range| is_in(range, self.version));
            // A tagged field at its default is not sent.
            if is_in(text_of(field, "versions").unwrap_or("0+"), self.version) && !tagged {
                self.field(bytes, field)?;
            }
        }
        if self.flexible {
            bytes.push(0);
        }
        Ok(())
    }

    fn field(&self, bytes: &mut Vec<u8>, field: &Value) -> Result<(), String> {
        let kind = text_of(field, "type").unwrap_or("?");
        let default = field.get("default").map_or(String::new(), plain);
        let nullable = text_of(field, "nullableVersions").is_some_and(|range| is_in(range, self.version));
        let null = nullable && default == "null";
        match kind {
            "bool" => bytes.push(u8::from(default == "true")),
            "int8" => bytes.extend(number(&default).to_be_bytes().last()),
            "int16" | "uint16" => bytes.extend(&number(&default).to_be_bytes()[6..]),
            "int32" | "uint32" => bytes.extend(&number(&default).to_be_bytes()[4..]),
            "int64" | "float64" => bytes.extend(number(&default).to_be_bytes()),
            "uuid" => bytes.extend([0; 16]),
            "string" if null => self.length(bytes, None, 2),
            "string" => {
                self.length(bytes, Some(default.len()), 2);
                bytes.extend(default.as_bytes());
            }
            "bytes" | "records" => self.length(bytes, (!null).then_some(0), 4),
            list if list.starts_with("[]") => self.length(bytes, (!null).then_some(0), 4),
            name if !common_struct(self.structs, name).is_empty() || !fields_of(field).is_empty() => {
                if nullable {
                    bytes.push(if null { 0xff } else { 1 });
                }
                let own = fields_of(field);
                let fields = if own.is_empty() { common_struct(self.structs, name) } else { own };
                if !null {
                    self.fields(bytes, fields)?;
                }
            }
            unknown => return Err(unknown.to_owned()),
        }
        Ok(())
    }

    /// The length of a text or a list, none for null; in `width` bytes where it is not a variable number.
    fn length(&self, bytes: &mut Vec<u8>, length: Option<usize>, width: usize) {
        // Defaults are short: one byte is enough.
        let length = length.map(|length| u8::try_from(length).unwrap_or(u8::MAX));
        match (self.flexible, length) {
            (true, length) => bytes.push(length.map_or(0, |length| length.saturating_add(1))),
            (false, None) => bytes.extend(vec![0xff; width]),
            (false, Some(length)) => {
                bytes.extend(vec![0; width - 1]);
                bytes.push(length);
            }
        }
    }
}

/// A default as text, whether it is written as a number, a word or a text.
fn plain(default: &Value) -> String {
    default.as_str().map_or_else(|| default.to_string(), str::to_owned)
}

fn number(default: &str) -> i64 {
    match default.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).unwrap_or_default(),
        None => default.parse().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_at_their_defaults() {
        let message = r#"{ "apiKey": 9, "name": "SampleRequest", "validVersions": "0-1", "flexibleVersions": "1+",
          "commonStructs": [ { "name": "Item", "versions": "0+", "fields": [
            { "name": "Word", "type": "string", "versions": "0+", "default": "ab" } ] } ],
          "fields": [
            { "name": "Id", "type": "int32", "versions": "0+", "default": "-1" },
            { "name": "Name", "type": "string", "versions": "0+", "nullableVersions": "0+", "default": "null" },
            { "name": "Many", "type": "[]Item", "versions": "0+" },
            { "name": "One", "type": "Item", "versions": "1+" },
            { "name": "Perhaps", "type": "Item", "versions": "1+", "nullableVersions": "1+", "default": "null" },
            { "name": "Flag", "type": "bool", "versions": "0", "default": "true" },
            { "name": "Extra", "type": "int64", "versions": "1+", "taggedVersions": "1+", "tag": 3 } ] }"#;
        let message: Value = serde_json::from_str(message).unwrap();
        let requests = Requests(BTreeMap::from([(9, message)]));
        let written = |version| requests.after_client_id(9, version).unwrap().unwrap();
        assert_eq!(written(0), [255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 1]);
        assert_eq!(written(1), [0, 255, 255, 255, 255, 0, 1, 3, b'a', b'b', 0, 255, 0]);
        assert!(requests.after_client_id(8, 0).is_none());
    }
}
