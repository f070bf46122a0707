//! The name of a partition's directory: topic id and partition number, never a client's string.

use std::fmt;

use uuid::Uuid;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const ID_CHARS: usize = 22;

/// Names one log within a data directory. Shown as `<topic id in Kafka's base64>-<partition>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogName {
    pub topic_id: Uuid,
    pub partition: i32,
}

impl LogName {
    pub fn new(topic_id: Uuid, partition: i32) -> LogName {
        LogName { topic_id, partition }
    }

    /// Reads a directory name; `None` if it is not one of ours.
    pub fn parse(name: &str) -> Option<LogName> {
        let id = name.get(..ID_CHARS)?;
        let partition = name.get(ID_CHARS..)?.strip_prefix('-')?;
        let mut value: u128 = 0;
        for (i, c) in id.bytes().enumerate() {
            let digit = ALPHABET.iter().position(|&a| a == c)? as u128;
            // The last character carries two bits; the four below them are zero.
            value = match i {
                21 if digit & 0xf != 0 => return None,
                21 => (value << 2) | (digit >> 4),
                _ => (value << 6) | digit,
            };
        }
        let number: i32 = partition.parse().ok()?;
        let parsed = LogName { topic_id: Uuid::from_u128(value), partition: number };
        (number >= 0 && parsed.to_string() == name).then_some(parsed)
    }
}

impl fmt::Display for LogName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.topic_id.as_u128();
        let mut id = [0u8; ID_CHARS];
        for (i, c) in id.iter_mut().enumerate() {
            let digit = match i {
                21 => (value << 4) & 0x30,
                _ => (value >> (122 - 6 * i)) & 0x3f,
            };
            *c = ALPHABET[digit as usize];
        }
        let id = std::str::from_utf8(&id).expect("the alphabet is ASCII");
        write!(f, "{id}-{}", self.partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kafkas_base64_and_round_trip() {
        let id = Uuid::from_u128(0x0123_4567_89ab_cdef_fedc_ba98_7654_3210);
        let name = LogName::new(id, 12);
        assert_eq!(name.to_string(), "ASNFZ4mrze_-3LqYdlQyEA-12");
        assert_eq!(LogName::parse("ASNFZ4mrze_-3LqYdlQyEA-12"), Some(name));
        for id in [0, 1, u128::MAX, u128::MAX - 1, 1 << 127] {
            let name = LogName::new(Uuid::from_u128(id), i32::MAX);
            assert_eq!(LogName::parse(&name.to_string()), Some(name));
        }
    }

    #[test]
    fn foreign_names_are_not_ours() {
        for name in [
            "",
            "topic-0",
            "../../etc/passwd",
            "ASNFZ4mrze_-3LqYdlQyEA",
            "ASNFZ4mrze_-3LqYdlQyEA-",
            "ASNFZ4mrze_-3LqYdlQyEA--1",
            "ASNFZ4mrze_-3LqYdlQyEA-01",
            "ASNFZ4mrze_-3LqYdlQyEB-1",
            "ASNFZ4mrze_-3LqYdlQyéé-1",
            "ASNFZ4mrze_-3LqYdlQyEA-0.deleted",
        ] {
            assert_eq!(LogName::parse(name), None, "{name}");
        }
    }
}
