//! Consumed records as text or JSON.

use std::str::FromStr;

use serde_json::{Value, json};

use crate::time_text;

/// A record that was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadRecord<'a> {
    pub(crate) topic: &'a str,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    /// None if the record carries none.
    pub(crate) timestamp_ms: Option<i64>,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) headers: &'a [(&'a str, Option<&'a [u8]>)],
}

/// A part of a record that can be printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    Topic,
    Partition,
    Offset,
    Timestamp,
    Key,
    Value,
    Headers,
}

/// Names of the fields, as `--print` takes them.
const FIELDS: [(&str, Field); 7] = [
    ("topic", Field::Topic),
    ("partition", Field::Partition),
    ("offset", Field::Offset),
    ("timestamp", Field::Timestamp),
    ("key", Field::Key),
    ("value", Field::Value),
    ("headers", Field::Headers),
];

impl FromStr for Field {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = FIELDS.iter().find(|(name, _)| *name == text.trim());
        found.map(|(_, field)| *field).ok_or_else(|| {
            let names: Vec<_> = FIELDS.iter().map(|(name, _)| *name).collect();
            format!("{text:?} is no part of a record; these are: {}", names.join(", "))
        })
    }
}

/// How records are printed as text.
#[derive(Debug, Clone)]
pub(crate) struct TextLayout {
    fields: Vec<Field>,
    separator: Vec<u8>,
}

impl TextLayout {
    /// These fields in this order, the value last unless it is among them.
    pub(crate) fn new(mut fields: Vec<Field>, separator: Vec<u8>) -> Self {
        if !fields.contains(&Field::Value) {
            fields.push(Field::Value);
        }
        Self { fields, separator }
    }

    /// Appends one line. Keys and values go out as the bytes that they are; what is absent is `null`.
    pub(crate) fn append(&self, record: &ReadRecord<'_>, line: &mut Vec<u8>) {
        for (index, field) in self.fields.iter().enumerate() {
            if index > 0 {
                line.extend_from_slice(&self.separator);
            }
            match field {
                Field::Topic => line.extend_from_slice(record.topic.as_bytes()),
                Field::Partition => line.extend_from_slice(record.partition.to_string().as_bytes()),
                Field::Offset => line.extend_from_slice(record.offset.to_string().as_bytes()),
                Field::Timestamp => {
                    let text = time_text::format(record.timestamp_ms.unwrap_or(-1));
                    line.extend_from_slice(text.as_bytes());
                }
                Field::Key => line.extend_from_slice(record.key.unwrap_or(b"null")),
                Field::Value => line.extend_from_slice(record.value.unwrap_or(b"null")),
                Field::Headers => append_headers(record.headers, line),
            }
        }
        line.push(b'\n');
    }
}

/// `name=value,name=value`.
fn append_headers(headers: &[(&str, Option<&[u8]>)], line: &mut Vec<u8>) {
    for (index, (name, value)) in headers.iter().enumerate() {
        if index > 0 {
            line.push(b',');
        }
        line.extend_from_slice(name.as_bytes());
        line.push(b'=');
        line.extend_from_slice(value.unwrap_or(b"null"));
    }
}

/// The record as JSON, in the form that `weir produce --input json` takes. Bytes that are not UTF-8 are `…_hex` fields.
pub(crate) fn to_json(record: &ReadRecord<'_>) -> Value {
    let mut json = json!({
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
    });
    put_bytes(&mut json, "key", record.key);
    put_bytes(&mut json, "value", record.value);
    if !record.headers.is_empty() {
        let header = |(name, value): &(&str, Option<&[u8]>)| {
            let mut json = json!({ "name": name });
            put_bytes(&mut json, "value", *value);
            json
        };
        json["headers"] = record.headers.iter().map(header).collect();
    }
    json
}

fn put_bytes(json: &mut Value, name: &str, bytes: Option<&[u8]>) {
    match bytes.map(std::str::from_utf8) {
        None => json[name] = Value::Null,
        Some(Ok(text)) => json[name] = Value::from(text),
        Some(Err(_)) => json[format!("{name}_hex")] = Value::from(to_hex(bytes.unwrap_or_default())),
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes from pairs of hexadecimal digits.
pub(crate) fn from_hex(digits: &str) -> Option<Vec<u8>> {
    if !digits.bytes().all(|b| b.is_ascii_hexdigit()) || !digits.len().is_multiple_of(2) {
        return None;
    }
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input_record::LineFormat;

    const RECORD: ReadRecord<'_> = ReadRecord {
        topic: "t",
        partition: 1,
        offset: 42,
        timestamp_ms: Some(1_795_973_400_000),
        key: Some(b"k"),
        value: Some(b"v"),
        headers: &[("a", Some(b"b")), ("c", None)],
    };

    fn text(fields: &str, record: &ReadRecord<'_>) -> String {
        let fields = fields.split(',').filter(|f| !f.is_empty()).map(|f| f.parse().unwrap()).collect();
        let mut line = Vec::new();
        TextLayout::new(fields, b"|".to_vec()).append(record, &mut line);
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn fields_are_printed_in_the_order_asked_for() {
        assert_eq!(text("", &RECORD), "v\n");
        assert_eq!(text("key,partition,offset", &RECORD), "k|1|42|v\n");
        assert_eq!(text("value,headers,topic", &RECORD), "v|a=b,c=null|t\n");
        assert_eq!(text("timestamp", &RECORD), "2026-11-29T17:30:00.000Z|v\n");
        let bare = ReadRecord { key: None, value: None, timestamp_ms: None, headers: &[], ..RECORD };
        assert_eq!(text("timestamp,key,headers", &bare), "-|null||null\n");
        assert!("size".parse::<Field>().unwrap_err().contains("timestamp"));
    }

    #[test]
    fn json_can_be_produced_again() {
        let binary = ReadRecord { value: Some(&[0xff, 0]), ..RECORD };
        let json = to_json(&binary).to_string();
        let read = LineFormat::Record.read(json.as_bytes()).unwrap();
        assert_eq!(read.key.as_deref(), RECORD.key);
        assert_eq!(read.value.as_deref(), binary.value);
        assert_eq!((read.partition, read.timestamp_ms), (Some(1), RECORD.timestamp_ms));
        assert_eq!(read.headers.len(), 2);
        assert_eq!(read.headers[1].value, None);
    }
}
