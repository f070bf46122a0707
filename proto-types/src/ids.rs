//! Newtypes for everything that is counted or named, so that a leader epoch is never passed where an offset is meant.

use serde::{Deserialize, Serialize};
use std::fmt;
use uuid::Uuid;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            /// Kafka's text form: 22 characters of URL-safe base64 without padding.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&uuid_text(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }

        impl $name {
            /// Reads Kafka's text form of a UUID.
            pub fn from_text(text: &str) -> Option<Self> {
                uuid_from_text(text).map(Self)
            }
        }
    };
}

number! {
    /// A storage node: what Kafka clients see as the broker id.
    NodeId(i32)
}
number! {
    /// A voter of the metadata quorum. Never reused: a replaced controller gets a new id.
    ControllerId(u64)
}
number! {
    /// A coordinator daemon.
    CoordinatorId(i32)
}
number! {
    /// Counts the owners of a shard: every assignment to a coordinator gets a larger one.
    CoordinatorEpoch(i32)
}
number! {
    /// Names one registration of one incarnation of a coordinator; grows with every new incarnation.
    RegistrationEpoch(i64)
}
number! {
    /// Index of a partition within its topic.
    PartitionIndex(i32)
}
number! {
    /// Position of a record in a partition.
    Offset(i64)
}
number! {
    /// Counts the leaderships of a partition; grows with every new leader incarnation.
    LeaderEpoch(i32)
}
number! {
    /// Counts the changes of a partition's state in the metadata.
    PartitionEpoch(i32)
}
number! {
    /// Names one registration of one incarnation of a storage node; the index of the change that made it.
    BrokerEpoch(i64)
}
number! {
    /// An idempotent or transactional producer.
    ProducerId(i64)
}
number! {
    /// Counts the changes of the cluster's feature level; larger than the index of every change before it.
    FeatureEpoch(i64)
}
number! {
    /// A position in the committed metadata log: the raft index of an applied entry.
    MetadataIndex(u64)
}
number! {
    /// Milliseconds of a clock that the context names (wall clock since the Unix epoch, or monotonic since start).
    Millis(i64)
}

uuid_id! {
    /// A topic. Never reused, not even for a topic of the same name.
    TopicId
}
uuid_id! {
    /// A data directory, stored inside it.
    DirectoryId
}
uuid_id! {
    /// One run of a storage node's process.
    Incarnation
}

/// One partition of one topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TopicPartition {
    /// The topic.
    pub topic: TopicId,
    /// The partition's index in it.
    pub partition: PartitionIndex,
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn uuid_text(uuid: Uuid) -> String {
    let mut text = String::with_capacity(22);
    let mut bits = 0_u32;
    let mut held = 0_u32;
    for &byte in uuid.as_bytes() {
        held = (held << 8) | u32::from(byte);
        bits += 8;
        while bits >= 6 {
            bits -= 6;
            text.push(char::from(ALPHABET[((held >> bits) & 63) as usize]));
        }
    }
    text.push(char::from(ALPHABET[((held << (6 - bits)) & 63) as usize]));
    text
}

fn uuid_from_text(text: &str) -> Option<Uuid> {
    if text.len() != 22 {
        return None;
    }
    let mut value = 0_u128;
    for (i, byte) in text.bytes().enumerate() {
        let digit = ALPHABET.iter().position(|&c| c == byte)? as u128;
        if i < 21 {
            value = (value << 6) | digit;
        } else {
            // The last character carries two bits; the four below them are padding and must be zero.
            if digit & 15 != 0 {
                return None;
            }
            value = (value << 2) | (digit >> 4);
        }
    }
    Some(Uuid::from_u128(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_have_kafkas_text_form() {
        let id = TopicId(Uuid::from_u128(0x0123_4567_89ab_cdef_fedc_ba98_7654_3210));
        assert_eq!(id.to_string(), "ASNFZ4mrze_-3LqYdlQyEA");
        assert_eq!(TopicId::from_text("ASNFZ4mrze_-3LqYdlQyEA"), Some(id));
        assert_eq!(TopicId::from_text("ASNFZ4mrze_-3LqYdlQyEB"), None, "padding bits must be zero");
        assert_eq!(TopicId::from_text("short"), None);
        assert_eq!(TopicId(Uuid::nil()).to_string(), "A".repeat(22));
    }
}
