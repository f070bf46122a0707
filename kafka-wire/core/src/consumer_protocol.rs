//! What consumers hide in the opaque bytes of the group protocol: the part that each member was given.
//!
//! The bytes come from other clients by way of the coordinator, which does not look into them. They are read with the same
//! bounds as a frame; fields of later versions stand at the end and are left unread, as Kafka leaves them.

use bytes::Bytes;

use crate::error::DecodeError;
use crate::reader::Reader;
use crate::text::Str;
use crate::wire::{NullableWire, Wire, WireVersion};
use crate::{DecodeErrorKind, KafkaStruct};

/// The protocol type of groups whose members speak this.
pub const CONSUMER: &str = "consumer";

/// All versions so far are of the inflexible kind.
const LAYOUT: WireVersion = WireVersion { number: 0, flexible: false };

/// Partitions of one topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct AssignedTopic {
    /// The topic.
    pub name: Str,
    /// Its partitions.
    pub partitions: Vec<i32>,
}

/// Kafka's `ConsumerProtocolAssignment`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConsumerAssignment {
    /// What the member was given.
    pub topics: Vec<AssignedTopic>,
    /// Bytes of the assignor.
    pub user_data: Option<Bytes>,
}

impl ConsumerAssignment {
    /// Reads the assignment of a member. No bytes at all, as before the first generation is complete, are no partitions.
    pub fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let mut reader = Reader::new(bytes);
        let version = reader.i16()?;
        if version < 0 {
            return Err(DecodeErrorKind::UnknownVersion(version).into());
        }
        let topics = Vec::decode_wire(&mut reader, LAYOUT)?;
        let user_data = Bytes::decode_nullable(&mut reader, LAYOUT)?;
        Ok(Self { topics, user_data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Version 1, topic "t" with partitions 0 and 2, topic "u" with none, two bytes for the assignor.
    const BYTES: &[u8] = b"\0\x01\0\0\0\x02\0\x01t\0\0\0\x02\0\0\0\0\0\0\0\x02\0\x01u\0\0\0\0\0\0\0\x02ab";

    #[test]
    fn an_assignment_is_read_and_later_fields_are_left_alone() {
        let expected = ConsumerAssignment {
            topics: vec![
                AssignedTopic { name: Str::from("t"), partitions: vec![0, 2] },
                AssignedTopic { name: Str::from("u"), partitions: vec![] },
            ],
            user_data: Some(Bytes::from_static(b"ab")),
        };
        assert_eq!(ConsumerAssignment::decode(Bytes::from_static(BYTES)), Ok(expected.clone()));
        let later = [BYTES, b"later"].concat();
        assert_eq!(ConsumerAssignment::decode(Bytes::from(later)), Ok(expected));
        assert_eq!(ConsumerAssignment::decode(Bytes::new()), Ok(ConsumerAssignment::default()));
        let none = Bytes::from_static(b"\0\0\0\0\0\0\xff\xff\xff\xff");
        assert_eq!(ConsumerAssignment::decode(none), Ok(ConsumerAssignment::default()));
    }

    #[test]
    fn bytes_of_anything_else_are_errors_and_take_no_memory() {
        for cut in 1..BYTES.len() {
            assert!(ConsumerAssignment::decode(Bytes::from_static(&BYTES[..cut])).is_err(), "{cut} bytes");
        }
        assert!(ConsumerAssignment::decode(Bytes::from_static(b"\xff\xff\0\0\0\0")).is_err());
        let endless = Bytes::from_static(b"\0\0\x7f\xff\xff\xff\0\x01t\x7f\xff\xff\xff");
        assert!(ConsumerAssignment::decode(endless).is_err());
    }
}
