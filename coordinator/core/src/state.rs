//! [`State`]: what the records of a shard add up to. It changes by [`State::apply`] alone, while serving and on replay.

use std::collections::BTreeMap;

use bytes::Bytes;
use kafka_wire_core::Str;

use crate::stored::{GroupMetadataValue, OffsetCommitKey, OffsetCommitValue, Record, Unreadable};

/// Offsets of one group, by topic and partition.
pub(crate) type Offsets = BTreeMap<(Str, i32), OffsetCommitValue>;

/// Groups and offsets of one shard, as far as they are stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    groups: BTreeMap<Str, GroupMetadataValue>,
    offsets: BTreeMap<Str, Offsets>,
}

/// What a record of the log was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replayed {
    /// Applied.
    Applied,
    /// Of a newer release: passed over.
    Skipped,
}

impl State {
    /// Applies a record of the log. An error is damage: the shard must not serve.
    pub fn replay(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<Replayed, Unreadable> {
        match Record::decode(key, value) {
            Ok(record) => {
                self.apply(record);
                Ok(Replayed::Applied)
            }
            Err(Unreadable::Newer(_)) => Ok(Replayed::Skipped),
            Err(damaged @ Unreadable::Damaged(_)) => Err(damaged),
        }
    }

    /// Applies a record. Asks for no order: a tombstone may come first, an offset before its group.
    pub fn apply(&mut self, record: Record) {
        match record {
            Record::Group(key, Some(value)) => {
                self.groups.insert(key.group.detach(), detached(value));
            }
            Record::Group(key, None) => {
                self.groups.remove(&key.group);
            }
            Record::Offset(key, Some(mut value)) => {
                value.metadata = value.metadata.detach();
                let offsets = self.offsets.entry(key.group.detach()).or_default();
                offsets.insert((key.topic.detach(), key.partition), value);
            }
            Record::Offset(key, None) => self.remove_offset(key),
        }
    }

    fn remove_offset(&mut self, key: OffsetCommitKey) {
        let Some(offsets) = self.offsets.get_mut(&key.group) else { return };
        offsets.remove(&(key.topic, key.partition));
        if offsets.is_empty() {
            self.offsets.remove(&key.group);
        }
    }

    /// The stored form of a group.
    #[must_use]
    pub fn group(&self, group: &str) -> Option<&GroupMetadataValue> {
        self.groups.get(group)
    }

    /// All stored groups, by id.
    pub fn groups(&self) -> impl Iterator<Item = (&Str, &GroupMetadataValue)> {
        self.groups.iter()
    }

    /// A committed offset.
    #[must_use]
    pub fn offset(&self, group: &str, topic: &Str, partition: i32) -> Option<&OffsetCommitValue> {
        self.offsets.get(group)?.get(&(topic.clone(), partition))
    }

    /// Offsets of a group, by topic and partition.
    pub fn offsets(&self, group: &str) -> impl Iterator<Item = (&(Str, i32), &OffsetCommitValue)> {
        self.offsets.get(group).into_iter().flatten()
    }

    /// Number of offsets of a group.
    #[must_use]
    pub fn offset_count(&self, group: &str) -> usize {
        self.offsets.get(group).map_or(0, BTreeMap::len)
    }

    /// Groups that have offsets, by id.
    pub fn groups_with_offsets(&self) -> impl Iterator<Item = &Str> {
        self.offsets.keys()
    }

    /// Whether anything is stored of the group.
    #[must_use]
    pub fn knows(&self, group: &str) -> bool {
        self.groups.contains_key(group) || self.offsets.contains_key(group)
    }

    /// The first group, stored or with offsets, behind `after`.
    pub(crate) fn next_group(&self, after: Option<&Str>) -> Option<Str> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        let range = (from, Unbounded);
        let stored = self.groups.range::<Str, _>(range).next().map(|(group, _)| group);
        let with_offsets = self.offsets.range::<Str, _>(range).next().map(|(group, _)| group);
        [stored, with_offsets].into_iter().flatten().min().cloned()
    }

    /// Number of stored groups and of groups that have offsets, whichever is larger.
    pub(crate) fn group_count(&self) -> usize {
        self.groups.len().max(self.offsets.len())
    }
}

/// A copy that does not keep the frame or batch alive that it came in.
fn detached(mut value: GroupMetadataValue) -> GroupMetadataValue {
    value.protocol_type = value.protocol_type.detach();
    value.protocol = value.protocol.map(|text| text.detach());
    value.leader = value.leader.map(|text| text.detach());
    for member in &mut value.members {
        member.member_id = member.member_id.detach();
        member.group_instance_id = member.group_instance_id.take().map(|text| text.detach());
        member.client_id = member.client_id.detach();
        member.client_host = member.client_host.detach();
        member.subscription = Bytes::copy_from_slice(&member.subscription);
        member.assignment = Bytes::copy_from_slice(&member.assignment);
    }
    value
}
