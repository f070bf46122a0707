//! Turns lines of input into records: plain values, `key<separator>value`, a key out of a JSON field, or whole records as
//! the JSON that `weir consume --output json` writes.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer as _, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::record_text;

/// A record to be sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct InputRecord {
    pub(crate) key: Option<Vec<u8>>,
    /// None is a tombstone.
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<Header>,
    pub(crate) partition: Option<i32>,
    pub(crate) timestamp_ms: Option<i64>,
}

/// A header: a name, and a value or null.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) name: String,
    pub(crate) value: Option<Vec<u8>>,
}

impl std::str::FromStr for Header {
    type Err = String;

    /// `name=value`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => {
                Ok(Self { name: name.to_owned(), value: Some(value.as_bytes().to_vec()) })
            }
            _ => Err(format!("{text:?} is not NAME=VALUE")),
        }
    }
}

/// How a line becomes a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LineFormat {
    /// The whole line is the value, the key is null.
    Value,
    /// The key ends at the first separator.
    KeySeparator(Vec<u8>),
    /// The line is a JSON object and the value; the key is the text of this field, null where it is absent or null.
    KeyField(String),
    /// The line is a record in JSON.
    Record,
}

impl LineFormat {
    /// Reads a line, without its end. The error completes "line 7: …".
    pub(crate) fn read(&self, line: &[u8]) -> Result<InputRecord, String> {
        match self {
            Self::Value => Ok(InputRecord { value: Some(line.to_vec()), ..InputRecord::default() }),
            Self::KeySeparator(separator) => {
                let at = line.windows(separator.len()).position(|window| window == separator);
                let at = at.ok_or_else(|| {
                    format!("the key separator {:?} is missing", String::from_utf8_lossy(separator))
                })?;
                Ok(InputRecord {
                    key: Some(line[..at].to_vec()),
                    value: Some(line[at + separator.len()..].to_vec()),
                    ..InputRecord::default()
                })
            }
            Self::KeyField(field) => Ok(InputRecord {
                key: key_field(line, field)?,
                value: Some(line.to_vec()),
                ..InputRecord::default()
            }),
            Self::Record => record(line),
        }
    }
}

/// The text of `field` of the JSON object in `line`; the rest is checked and skipped.
fn key_field(line: &[u8], field: &str) -> Result<Option<Vec<u8>>, String> {
    let mut deserializer = serde_json::Deserializer::from_slice(line);
    let key = deserializer
        .deserialize_map(FieldVisitor(field))
        .and_then(|key| deserializer.end().map(|()| key))
        .map_err(|error| format!("not a JSON object with a key in {field:?}: {error}"))?;
    match key {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.into_bytes())),
        Some(value @ (Value::Number(_) | Value::Bool(_))) => Ok(Some(value.to_string().into_bytes())),
        Some(Value::Array(_) | Value::Object(_)) => {
            Err(format!("field {field:?} is no text, number or boolean, and cannot be a key"))
        }
    }
}

/// Keeps one field of an object.
struct FieldVisitor<'a>(&'a str);

impl<'de> Visitor<'de> for FieldVisitor<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(is_field) = map.next_key_seed(IsText(self.0))? {
            if !is_field {
                map.next_value::<IgnoredAny>()?;
            } else if found.replace(map.next_value()?).is_some() {
                return Err(A::Error::custom(format!("field {:?} is there twice", self.0)));
            }
        }
        Ok(found)
    }
}

/// Compares a name in place instead of copying each.
struct IsText<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for IsText<'_> {
    type Value = bool;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for IsText<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

/// Fields of a record in JSON. Those that only say where a record was read are taken and left aside.
const RECORD_FIELDS: [&str; 9] =
    ["key", "key_hex", "value", "value_hex", "headers", "partition", "timestamp", "topic", "offset"];

fn record(line: &[u8]) -> Result<InputRecord, String> {
    let value: Value = serde_json::from_slice(line).map_err(|error| format!("not JSON: {error}"))?;
    let Value::Object(fields) = value else { return Err("not a JSON object".to_owned()) };
    if let Some(unknown) = fields.keys().find(|name| !RECORD_FIELDS.contains(&name.as_str())) {
        return Err(format!("unknown field {unknown:?}; these are known: {}", RECORD_FIELDS.join(", ")));
    }
    let number = |name: &str| match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_i64().map(Some).ok_or_else(|| format!("field {name:?} is no whole number")),
    };
    let partition = match number("partition")? {
        Some(partition) => Some(
            i32::try_from(partition).ok().filter(|p| *p >= 0).ok_or("field \"partition\" is no partition")?,
        ),
        None => None,
    };
    Ok(InputRecord {
        key: bytes_field(&fields, "key", "key_hex")?,
        value: bytes_field(&fields, "value", "value_hex")?,
        headers: match fields.get("headers") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(headers)) => headers.iter().map(header).collect::<Result<_, _>>()?,
            Some(_) => return Err("field \"headers\" is no list".to_owned()),
        },
        partition,
        timestamp_ms: number("timestamp")?,
    })
}

fn header(value: &Value) -> Result<Header, String> {
    let fields = value.as_object().ok_or("a header is no object with name and value")?;
    let name = fields.get("name").and_then(Value::as_str).ok_or("a header has no \"name\"")?;
    Ok(Header { name: name.to_owned(), value: bytes_field(fields, "value", "value_hex")? })
}

/// Bytes as text in one field or as hexadecimal digits in the other.
fn bytes_field(
    fields: &serde_json::Map<String, Value>,
    text_name: &str,
    hex_name: &str,
) -> Result<Option<Vec<u8>>, String> {
    match (fields.get(text_name), fields.get(hex_name)) {
        (None | Some(Value::Null), None | Some(Value::Null)) => Ok(None),
        (Some(Value::String(text)), None) => Ok(Some(text.clone().into_bytes())),
        (None, Some(Value::String(digits))) => record_text::from_hex(digits)
            .map(Some)
            .ok_or_else(|| format!("field {hex_name:?} is not made of pairs of hexadecimal digits")),
        (Some(_), Some(_)) => Err(format!("{text_name:?} and {hex_name:?} are both there")),
        (Some(_), None) => Err(format!("field {text_name:?} is no text")),
        (None, Some(_)) => Err(format!("field {hex_name:?} is no text")),
    }
}

/// A separator as written on the command line: `\t`, `\n`, `\0`, `\\` and `\xHH` stand for bytes.
pub(crate) fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let escape = &rest[at + 1..];
        let (byte, length) = match escape.as_bytes().first() {
            Some(b't') => (b'\t', 1),
            Some(b'n') => (b'\n', 1),
            Some(b'0') => (0, 1),
            Some(b'\\') => (b'\\', 1),
            Some(b'x') => match escape.get(1..3).and_then(record_text::from_hex) {
                Some(byte) => (byte[0], 3),
                None => return Err(format!("\\x in {text:?} is not followed by two hexadecimal digits")),
            },
            _ => return Err(format!("unknown escape in {text:?}; known are \\t \\n \\0 \\\\ \\xHH")),
        };
        bytes.push(byte);
        rest = &escape[length..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    if bytes.is_empty() { Err("it is empty".to_owned()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(format: &LineFormat, line: &str) -> Result<(Option<String>, Option<String>), String> {
        let text = |bytes: Option<Vec<u8>>| bytes.map(|bytes| String::from_utf8(bytes).unwrap());
        format.read(line.as_bytes()).map(|record| (text(record.key), text(record.value)))
    }

    fn pair(key: &str, value: &str) -> Result<(Option<String>, Option<String>), String> {
        Ok((Some(key.to_owned()), Some(value.to_owned())))
    }

    #[test]
    fn keys_end_at_the_first_separator() {
        let format = LineFormat::KeySeparator(b"::".to_vec());
        assert_eq!(read(&format, "user-1::click::x"), pair("user-1", "click::x"));
        assert_eq!(read(&format, "::v"), pair("", "v"));
        assert_eq!(read(&format, "k::"), pair("k", ""));
        assert_eq!(read(&format, "k:v"), Err("the key separator \"::\" is missing".to_owned()));
        assert_eq!(read(&LineFormat::Value, "a:b"), Ok((None, Some("a:b".to_owned()))));
    }

    #[test]
    fn keys_come_out_of_a_json_field() {
        let format = LineFormat::KeyField("tailnum".to_owned());
        let line = r#"{"year":2013,"x":{"tailnum":"no"},"tail\u006eum":"N14228","y":[1]}"#;
        assert_eq!(read(&format, line), pair("N14228", line));
        for line in [r#"{"tailnum":null}"#, r#"{"a":1}"#, "{}"] {
            assert_eq!(read(&format, line), Ok((None, Some(line.to_owned()))));
        }
        assert_eq!(read(&format, r#"{"tailnum":17}"#), pair("17", r#"{"tailnum":17}"#));
        for line in ["", "x", "[]", r#"{"tailnum":"a""#, r#"{"tailnum":"a"} x"#, r#"{"tailnum":[1]}"#] {
            assert!(read(&format, line).is_err(), "{line}");
        }
        let twice = read(&format, r#"{"tailnum":"a","tailnum":"b"}"#).unwrap_err();
        assert!(twice.contains("there twice"), "{twice}");
    }

    #[test]
    fn whole_records_are_read_from_json() {
        let line = r#"{"topic":"t","offset":9,"partition":2,"timestamp":5,"key":"k","value_hex":"00fF",
            "headers":[{"name":"a","value":"b"},{"name":"n","value":null}]}"#;
        let record = LineFormat::Record.read(line.as_bytes()).unwrap();
        assert_eq!((record.partition, record.timestamp_ms), (Some(2), Some(5)));
        assert_eq!((record.key, record.value), (Some(b"k".to_vec()), Some(vec![0, 255])));
        assert_eq!(record.headers[0], "a=b".parse().unwrap());
        assert_eq!(record.headers[1], Header { name: "n".to_owned(), value: None });
        let tombstone = LineFormat::Record.read(br#"{"key":"k","value":null}"#).unwrap();
        assert_eq!(tombstone.value, None);
        for (line, part) in [
            ("7", "not a JSON object"),
            (r#"{"kex":1}"#, "unknown field \"kex\""),
            (r#"{"key":1}"#, "field \"key\" is no text"),
            (r#"{"value_hex":"0"}"#, "pairs of hexadecimal digits"),
            (r#"{"key":"a","key_hex":"00"}"#, "both there"),
            (r#"{"partition":-1}"#, "no partition"),
            (r#"{"headers":[{"value":"x"}]}"#, "no \"name\""),
        ] {
            let error = LineFormat::Record.read(line.as_bytes()).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn headers_and_separators_are_read_from_arguments() {
        let header: Header = "trace=a=b".parse().unwrap();
        assert_eq!((header.name.as_str(), header.value), ("trace", Some(b"a=b".to_vec())));
        assert!("novalue".parse::<Header>().is_err());
        assert!("=x".parse::<Header>().is_err());
        assert_eq!(unescape(":"), Ok(b":".to_vec()));
        assert_eq!(unescape(r"\t|\x1F\\"), Ok(b"\t|\x1f\\".to_vec()));
        for bad in ["", r"\", r"\q", r"\x1", r"\xzz"] {
            assert!(unescape(bad).is_err(), "{bad}");
        }
    }
}
