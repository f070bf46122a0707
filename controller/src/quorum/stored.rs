//! Our own form of raft's data, for disk and wire, with conversions.
//!
//! openraft's types may change their layout between releases; these may not (golden bytes below). On disk each value
//! stands in an envelope of kind and version; on the wire the transport's envelope says the same.

use super::type_config::{Changes, Entry, LogId, Member, Membership, SnapshotMeta, TypeConfig, Vote};
use openraft::EntryPayload;
use openraft::alias::LeaderIdOf;
use openraft::entry::RaftEntry;
use proto_types::metadata::MetadataChange;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Kinds of values on disk. Persisted: never reuse, never renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum DiskKind {
    Identity = 1,
    Vote = 2,
    Progress = 3,
    Segment = 4,
    Entry = 5,
    SnapshotMeta = 6,
    SnapshotData = 7,
    Peers = 8,
    Voted = 9,
}

/// The version of every kind so far.
pub(crate) const DISK_VERSION: u16 = 1;
/// Bytes of the envelope.
pub(crate) const ENVELOPE_LEN: usize = 4;

/// Puts a value into its envelope.
pub(crate) fn seal<T: Serialize>(kind: DiskKind, value: &T) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64);
    bytes.extend_from_slice(&(kind as u16).to_le_bytes());
    bytes.extend_from_slice(&DISK_VERSION.to_le_bytes());
    postcard::to_extend(value, bytes).expect("our stored types have no unencodable state")
}

/// Takes a value out of its envelope; every byte must be used. The error is for people.
pub(crate) fn unseal<T: DeserializeOwned>(kind: DiskKind, bytes: &[u8]) -> Result<T, String> {
    let Some((envelope, body)) = bytes.split_at_checked(ENVELOPE_LEN) else {
        return Err("shorter than its envelope".to_owned());
    };
    let found = u16::from_le_bytes([envelope[0], envelope[1]]);
    let version = u16::from_le_bytes([envelope[2], envelope[3]]);
    if found != kind as u16 {
        return Err(format!("holds kind {found} instead of {}", kind as u16));
    }
    if version != DISK_VERSION {
        return Err(format!("has version {version}; this program knows {DISK_VERSION}"));
    }
    proto_types::decode(body).map_err(|e| e.to_string())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredVote {
    pub(crate) term: u64,
    pub(crate) node: u64,
    pub(crate) committed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct StoredLogId {
    pub(crate) term: u64,
    pub(crate) node: u64,
    pub(crate) index: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredMembers {
    /// Voters; two sets while the membership changes.
    pub(crate) configs: Vec<Vec<u64>>,
    /// All members with their addresses.
    pub(crate) members: Vec<(u64, String)>,
}

/// Append-only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StoredPayload {
    Blank,
    Changes(Vec<MetadataChange>),
    Membership(StoredMembers),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredEntry {
    pub(crate) id: StoredLogId,
    pub(crate) payload: StoredPayload,
}

/// [`StoredEntry`] for encoding without a copy of the changes: the same bytes.
#[derive(Serialize)]
pub(crate) struct BorrowedEntry<'a> {
    id: StoredLogId,
    payload: BorrowedPayload<'a>,
}

#[derive(Serialize)]
enum BorrowedPayload<'a> {
    Blank,
    Changes(&'a [MetadataChange]),
    Membership(StoredMembers),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredSnapshotMeta {
    pub(crate) last_log_id: Option<StoredLogId>,
    pub(crate) membership_log_id: Option<StoredLogId>,
    pub(crate) membership: StoredMembers,
}

impl From<&Vote> for StoredVote {
    fn from(vote: &Vote) -> Self {
        Self { term: vote.leader_id.term, node: vote.leader_id.node_id, committed: vote.committed }
    }
}

impl From<StoredVote> for Vote {
    fn from(vote: StoredVote) -> Self {
        Self { leader_id: leader_id(vote.term, vote.node), committed: vote.committed }
    }
}

fn leader_id(term: u64, node: u64) -> LeaderIdOf<TypeConfig> {
    LeaderIdOf::<TypeConfig> { term, node_id: node }
}

impl From<&LogId> for StoredLogId {
    fn from(id: &LogId) -> Self {
        Self { term: id.leader_id.term, node: id.leader_id.node_id, index: id.index }
    }
}

impl From<StoredLogId> for LogId {
    fn from(id: StoredLogId) -> Self {
        LogId { leader_id: leader_id(id.term, id.node), index: id.index }
    }
}

impl From<&Membership> for StoredMembers {
    fn from(membership: &Membership) -> Self {
        Self {
            configs: membership
                .get_joint_config()
                .iter()
                .map(|config| config.iter().copied().collect())
                .collect(),
            members: membership.nodes().map(|(id, member)| (*id, member.address.clone())).collect(),
        }
    }
}

impl TryFrom<StoredMembers> for Membership {
    type Error = String;

    fn try_from(stored: StoredMembers) -> Result<Self, String> {
        let configs: Vec<BTreeSet<u64>> =
            stored.configs.into_iter().map(|config| config.into_iter().collect()).collect();
        let members: BTreeMap<u64, Member> =
            stored.members.into_iter().map(|(id, address)| (id, Member { address })).collect();
        if configs.is_empty() && members.is_empty() {
            return Ok(Membership::default());
        }
        Membership::new(configs, members).map_err(|e| e.to_string())
    }
}

impl<'a> From<&'a Entry> for BorrowedEntry<'a> {
    fn from(entry: &'a Entry) -> Self {
        let payload = match &entry.payload {
            EntryPayload::Blank => BorrowedPayload::Blank,
            EntryPayload::Normal(changes) => BorrowedPayload::Changes(&changes.0),
            EntryPayload::Membership(membership) => BorrowedPayload::Membership(membership.into()),
        };
        Self { id: StoredLogId::from(&entry.log_id), payload }
    }
}

impl StoredEntry {
    /// Raft's form of the entry.
    pub(crate) fn into_entry(self) -> Result<Entry, String> {
        let payload = match self.payload {
            StoredPayload::Blank => EntryPayload::Blank,
            StoredPayload::Changes(changes) => EntryPayload::Normal(Changes(Arc::new(changes))),
            StoredPayload::Membership(members) => EntryPayload::Membership(members.try_into()?),
        };
        Ok(Entry::new(self.id.into(), payload))
    }
}

impl From<&SnapshotMeta> for StoredSnapshotMeta {
    fn from(meta: &SnapshotMeta) -> Self {
        Self {
            last_log_id: meta.last_log_id.as_ref().map(Into::into),
            membership_log_id: meta.last_membership.log_id().as_ref().map(Into::into),
            membership: meta.last_membership.membership().into(),
        }
    }
}

impl TryFrom<StoredSnapshotMeta> for SnapshotMeta {
    type Error = String;

    fn try_from(stored: StoredSnapshotMeta) -> Result<Self, String> {
        let log_id = stored.membership_log_id.map(Into::into);
        Ok(SnapshotMeta {
            last_log_id: stored.last_log_id.map(Into::into),
            last_membership: openraft::StoredMembership::new(log_id, stored.membership.try_into()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto_types::ids::ProducerId;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn id() -> StoredLogId {
        StoredLogId { term: 3, node: 2, index: 300 }
    }

    fn members() -> StoredMembers {
        StoredMembers { configs: vec![vec![1, 2]], members: vec![(1, "a:1".into()), (2, "b:2".into())] }
    }

    #[test]
    fn golden_bytes() {
        let vote = StoredVote { term: 3, node: 2, committed: true };
        assert_eq!(hex(&seal(DiskKind::Vote, &vote)), "02000100030201");
        let entry = |payload| StoredEntry { id: id(), payload };
        assert_eq!(hex(&seal(DiskKind::Entry, &entry(StoredPayload::Blank))), "050001000302ac0200");
        let change = MetadataChange::ProducerIdsAllocated { next: ProducerId(1000) };
        let changes = entry(StoredPayload::Changes(vec![change]));
        assert_eq!(hex(&seal(DiskKind::Entry, &changes)), "050001000302ac02010107d00f");
        let membership = entry(StoredPayload::Membership(members()));
        assert_eq!(
            hex(&seal(DiskKind::Entry, &membership)),
            "050001000302ac020201020102020103613a310203623a32"
        );
        let meta =
            StoredSnapshotMeta { last_log_id: Some(id()), membership_log_id: None, membership: members() };
        assert_eq!(
            hex(&seal(DiskKind::SnapshotMeta, &meta)),
            "06000100010302ac020001020102020103613a310203623a32"
        );
    }

    #[test]
    fn entries_survive_the_way_through_their_stored_form() {
        let change = MetadataChange::ProducerIdsAllocated { next: ProducerId(1000) };
        for payload in
            [StoredPayload::Blank, StoredPayload::Changes(vec![change]), StoredPayload::Membership(members())]
        {
            let stored = StoredEntry { id: id(), payload };
            let entry = stored.clone().into_entry().expect("valid");
            let borrowed = seal(DiskKind::Entry, &BorrowedEntry::from(&entry));
            assert_eq!(borrowed, seal(DiskKind::Entry, &stored), "both forms have the same bytes");
            assert_eq!(unseal::<StoredEntry>(DiskKind::Entry, &borrowed), Ok(stored));
        }
    }

    #[test]
    fn a_wrong_envelope_is_an_error() {
        let bytes = seal(DiskKind::Vote, &StoredVote { term: 1, node: 1, committed: false });
        assert!(unseal::<StoredVote>(DiskKind::Entry, &bytes).is_err());
        let mut newer = bytes.clone();
        newer[2] = 9;
        assert!(unseal::<StoredVote>(DiskKind::Vote, &newer).expect_err("newer").contains("version 9"));
        let mut longer = bytes;
        longer.push(0);
        assert!(unseal::<StoredVote>(DiskKind::Vote, &longer).is_err());
        assert!(unseal::<StoredVote>(DiskKind::Vote, &[]).is_err());
    }
}
