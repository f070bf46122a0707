//! The types that raft is instantiated with.

use proto_types::metadata::MetadataChange;
use std::fmt;
use std::sync::Arc;

/// What one log entry of ours carries: changes that were planned together. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes(pub Arc<Vec<MetadataChange>>);

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} changes", self.0.len())
    }
}

/// Where a member of the quorum is reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Member {
    /// `host:port` of its endpoint, as of the time when the quorum was formed; a controller's own config has the last word.
    pub address: String,
}

openraft::declare_raft_types!(
    /// Raft over [`Changes`].
    pub TypeConfig:
        D = Changes,
        R = (),
        NodeId = u64,
        Node = Member,
);

pub(crate) type LogId = openraft::alias::LogIdOf<TypeConfig>;
pub(crate) type Vote = openraft::alias::VoteOf<TypeConfig>;
pub(crate) type Entry = openraft::alias::EntryOf<TypeConfig>;
pub(crate) type StoredMembership = openraft::alias::StoredMembershipOf<TypeConfig>;
pub(crate) type SnapshotMeta = openraft::alias::SnapshotMetaOf<TypeConfig>;
pub(crate) type Membership = openraft::Membership<u64, Member>;
pub(crate) type Raft = openraft::Raft<TypeConfig, super::state_machine::StateMachine>;
