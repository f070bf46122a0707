//! Consumed records as text or JSON.

use std::str::FromStr;

use serde::ser::{Serialize, SerializeMap, Serializer};

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

/// Appends the record as a line of JSON, in the form that `weir produce --input json` takes. Bytes that are not UTF-8 are
/// `…_hex` fields.
pub(crate) fn append_json(record: &ReadRecord<'_>, line: &mut Vec<u8>) -> serde_json::Result<()> {
    serde_json::to_writer(&mut *line, record)?;
    line.push(b'\n');
    Ok(())
}

impl Serialize for ReadRecord<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("topic", self.topic)?;
        map.serialize_entry("partition", &self.partition)?;
        map.serialize_entry("offset", &self.offset)?;
        map.serialize_entry("timestamp", &self.timestamp_ms)?;
        serialize_bytes(&mut map, ["key", "key_hex"], self.key)?;
        serialize_bytes(&mut map, ["value", "value_hex"], self.value)?;
        if !self.headers.is_empty() {
            let headers: Vec<_> =
                self.headers.iter().map(|(name, value)| HeaderJson { name, value: *value }).collect();
            map.serialize_entry("headers", &headers)?;
        }
        map.end()
    }
}

struct HeaderJson<'a> {
    name: &'a str,
    value: Option<&'a [u8]>,
}

impl Serialize for HeaderJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", self.name)?;
        serialize_bytes(&mut map, ["value", "value_hex"], self.value)?;
        map.end()
    }
}

/// Text in the first field, or digits in the second.
fn serialize_bytes<M: SerializeMap>(
    map: &mut M,
    [text, hex]: [&str; 2],
    bytes: Option<&[u8]>,
) -> Result<(), M::Error> {
    match bytes.map(|bytes| (std::str::from_utf8(bytes), bytes)) {
        None => map.serialize_entry(text, &None::<&str>),
        Some((Ok(valid), _)) => map.serialize_entry(text, valid),
        Some((Err(_), bytes)) => map.serialize_entry(hex, &to_hex(bytes)),
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
        let mut json = Vec::new();
        append_json(&binary, &mut json).unwrap();
        assert!(
            json.starts_with(
                br#"{"topic":"t","partition":1,"offset":42,"timestamp":1795973400000,"key":"k","#
            )
        );
        assert_eq!(json.pop(), Some(b'\n'));
        let read = LineFormat::Record.read(&json).unwrap();
        assert_eq!(read.key.as_deref(), RECORD.key);
        assert_eq!(read.value.as_deref(), binary.value);
        assert_eq!((read.partition, read.timestamp_ms), (Some(1), RECORD.timestamp_ms));
        assert_eq!(read.headers.len(), 2);
        assert_eq!(read.headers[1].value, None);
    }
}
