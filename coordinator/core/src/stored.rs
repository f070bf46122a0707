//! The records of `__consumer_offsets` in Kafka's own formats, so that tools that read the topic keep working.
//!
//! A key is two bytes that name its kind, then its body; a value is two bytes of version, then its body; a null value
//! is a tombstone. Written are the versions that Kafka 4.4 writes: groups in version 3, offsets in version 4, offsets
//! with a retention of their own (OffsetCommit v2–v4) in version 1. Read is every version. Kinds and versions of a newer
//! release are told apart from damage.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_wire_core::{KafkaMessage, KafkaStruct, Message, Reader, Str, Writer};
use thiserror::Error;
use uuid::Uuid;

/// Kind of offset keys of Kafka before 0.9; the body is the same.
const LEGACY_OFFSET_KIND: i16 = 0;
/// Kind of offset keys.
const OFFSET_KIND: i16 = 1;
/// Kind of group keys.
const GROUP_KIND: i16 = 2;
/// Version in which groups are written.
const GROUP_VERSION: i16 = 3;
/// Version in which offsets are written.
const OFFSET_VERSION: i16 = 4;
/// The only version that has an expiry of its own.
const OFFSET_VERSION_WITH_EXPIRY: i16 = 1;
/// Neither keys nor legacy ones have more than one version.
const KEY_VERSION: i16 = 0;

/// Names an offset.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, KafkaMessage)]
#[kafka(versions = 0..=0)]
pub struct OffsetCommitKey {
    /// The group.
    pub group: Str,
    /// Name of the topic.
    pub topic: Str,
    /// Index of the partition.
    pub partition: i32,
}

/// A committed offset.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=4, flexible = 4..)]
pub struct OffsetCommitValue {
    /// Next offset to read.
    pub offset: i64,
    /// Leader epoch of the last record read, or -1 (KIP-320).
    #[kafka(versions = 3.., default = -1, ignorable)]
    pub leader_epoch: i32,
    /// Whatever the client wanted to keep.
    pub metadata: Str,
    /// Wall clock of the commit, in milliseconds.
    pub commit_timestamp: i64,
    /// Wall clock at which the offset expires, in milliseconds, or -1 = by the rules of its group.
    #[kafka(versions = 1, default = -1, ignorable)]
    pub expire_timestamp: i64,
    /// Id of the topic that was meant, or zero.
    #[kafka(versions = 4.., tag = 0, ignorable)]
    pub topic_id: Uuid,
}

/// Names a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, KafkaMessage)]
#[kafka(versions = 0..=0)]
pub struct GroupMetadataKey {
    /// The group.
    pub group: Str,
}

/// A group of the classic protocol, as its last complete rebalance left it.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=4, flexible = 4..)]
pub struct GroupMetadataValue {
    /// Kind of the protocols, "consumer" for consumers.
    pub protocol_type: Str,
    /// The generation.
    pub generation: i32,
    /// The chosen protocol, or null without members.
    pub protocol: Option<Str>,
    /// Id of the leader, or null without members.
    pub leader: Option<Str>,
    /// Wall clock of the last change of state, in milliseconds, or -1.
    #[kafka(versions = 2.., default = -1, ignorable)]
    pub current_state_timestamp: i64,
    /// The members.
    pub members: Vec<MemberMetadata>,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct MemberMetadata {
    /// Id of the member.
    pub member_id: Str,
    /// Name of a static member, or null (KIP-345).
    #[kafka(versions = 3.., ignorable)]
    pub group_instance_id: Option<Str>,
    /// Client id of its last join.
    pub client_id: Str,
    /// Host of its last join.
    pub client_host: Str,
    /// Its rebalance time-out in milliseconds, or -1 = its session time-out.
    #[kafka(versions = 1.., default = -1, ignorable)]
    pub rebalance_timeout: i32,
    /// Its session time-out in milliseconds.
    pub session_timeout: i32,
    /// What it said in the chosen protocol.
    pub subscription: Bytes,
    /// Its part.
    pub assignment: Bytes,
}

/// A record of the log: sets or removes an offset or a group.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// An offset; `None` removes it.
    Offset(OffsetCommitKey, Option<OffsetCommitValue>),
    /// A group; `None` removes it.
    Group(GroupMetadataKey, Option<GroupMetadataValue>),
}

/// Why a record says nothing to this release.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unreadable {
    /// A kind or version of a newer release: to be passed over.
    #[error("{0} of a newer release")]
    Newer(&'static str),
    /// Not what any release writes.
    #[error("damaged record: {0}")]
    Damaged(String),
}

impl Record {
    /// The group that the record belongs to.
    #[must_use]
    pub fn group(&self) -> &Str {
        match self {
            Record::Offset(key, _) => &key.group,
            Record::Group(key, _) => &key.group,
        }
    }

    /// Key and value for the log.
    ///
    /// # Panics
    /// If a text is longer than its field can say; what clients send is checked before.
    #[must_use]
    pub fn encode(&self) -> (Bytes, Option<Bytes>) {
        match self {
            Record::Offset(key, value) => {
                let value = value.as_ref().map(|value| match value.expire_timestamp {
                    -1 => prefixed(OFFSET_VERSION, value, OFFSET_VERSION),
                    _ => prefixed(OFFSET_VERSION_WITH_EXPIRY, value, OFFSET_VERSION_WITH_EXPIRY),
                });
                (prefixed(OFFSET_KIND, key, KEY_VERSION), value)
            }
            Record::Group(key, value) => {
                let value = value.as_ref().map(|value| prefixed(GROUP_VERSION, value, GROUP_VERSION));
                (prefixed(GROUP_KIND, key, KEY_VERSION), value)
            }
        }
    }

    /// Reads key and value from the log.
    pub fn decode(key: &Bytes, value: Option<&Bytes>) -> Result<Self, Unreadable> {
        let (kind, mut rest) = split(key)?;
        match kind {
            LEGACY_OFFSET_KIND | OFFSET_KIND => {
                let key = read(&mut rest, KEY_VERSION)?;
                Ok(Record::Offset(key, value.map(decode_value).transpose()?))
            }
            GROUP_KIND => {
                let key = read(&mut rest, KEY_VERSION)?;
                Ok(Record::Group(key, value.map(decode_value).transpose()?))
            }
            kind if kind < 0 => Err(Unreadable::Damaged(format!("kind {kind}"))),
            _ => Err(Unreadable::Newer("record kind")),
        }
    }
}

fn prefixed<M: Message>(prefix: i16, message: &M, version: i16) -> Bytes {
    let mut writer = Writer::new();
    message.encode(&mut writer, version).expect("lengths were checked when the request came in");
    let gathered = writer.finish();
    let body = gathered.into_bytes().expect("stored records hold no file regions");
    let mut bytes = BytesMut::with_capacity(2 + body.len());
    bytes.put_i16(prefix);
    bytes.put_slice(&body);
    bytes.freeze()
}

fn split(bytes: &Bytes) -> Result<(i16, Reader), Unreadable> {
    let mut reader = Reader::new(bytes.clone());
    let prefix = reader.i16().map_err(|e| Unreadable::Damaged(e.to_string()))?;
    Ok((prefix, reader))
}

fn decode_value<M: Message>(bytes: &Bytes) -> Result<M, Unreadable> {
    let (version, mut rest) = split(bytes)?;
    if version < *M::VERSIONS.start() {
        return Err(Unreadable::Damaged(format!("{} version {version}", M::NAME)));
    }
    if version > *M::VERSIONS.end() {
        return Err(Unreadable::Newer("value version"));
    }
    read(&mut rest, version)
}

fn read<M: Message>(rest: &mut Reader, version: i16) -> Result<M, Unreadable> {
    M::decode_exact(rest.rest(), version).map_err(|e| Unreadable::Damaged(e.to_string()))
}
