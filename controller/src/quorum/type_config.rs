//! The types that raft is instantiated with.
//!
//! Everything around raft is written for any [`Environment`]: [`TypeConfig`] is the world, and the simulator of the tests
//! is another one, with its own clock, chance and scheduler.

use openraft::RaftTypeConfig;
use openraft::alias::{OneshotReceiverOf, WriteResponderOf};
use openraft::impls::ProgressResponder;
use openraft::raft::ClientWriteResult;
use proto_types::ids::Millis;
use proto_types::metadata::MetadataChange;
use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use uuid::Uuid;

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
    /// `host:port` of its endpoint, as of the time when it became a member; a controller's own config has the last word.
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

pub(crate) type LeaderId = openraft::impls::leader_id_adv::LeaderId<u64, u64>;
pub(crate) type LogId = openraft::alias::LogIdOf<TypeConfig>;
pub(crate) type Vote = openraft::impls::Vote<LeaderId>;
pub(crate) type Payload = openraft::EntryPayload<Changes, u64, Member>;
pub(crate) type Entry = openraft::alias::EntryOf<TypeConfig>;
pub(crate) type StoredMembership = openraft::alias::StoredMembershipOf<TypeConfig>;
pub(crate) type SnapshotMeta = openraft::alias::SnapshotMetaOf<TypeConfig>;
pub(crate) type Membership = openraft::Membership<u64, Member>;
pub(crate) type Raft<C = TypeConfig> = openraft::Raft<C, super::state_machine::StateMachine>;

/// What raft and everything around it run in: openraft's runtime (scheduler, timers, chance), and what that leaves out.
pub(crate) trait Environment:
    RaftTypeConfig<
        D = Changes,
        R = (),
        NodeId = u64,
        Node = Member,
        Term = u64,
        LeaderId = LeaderId,
        Vote = Vote,
        Payload = Payload,
        Entry = Entry,
    >
{
    /// The wall clock.
    fn wall_clock() -> Millis;
    /// A seed for decisions by chance.
    fn chance() -> u128;
    /// Runs work that waits for the disk where it holds up nobody.
    fn blocking<T: Send + 'static>(
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = io::Result<T>> + Send;
    /// Both ends of the answer to a write.
    fn write_answer() -> (WriteResponderOf<Self>, OneshotReceiverOf<Self, ClientWriteResult<Self>>);
}

impl Environment for TypeConfig {
    fn wall_clock() -> Millis {
        crate::clock::wall_clock()
    }

    fn chance() -> u128 {
        Uuid::new_v4().as_u128()
    }

    async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
    }

    fn write_answer() -> (WriteResponderOf<Self>, OneshotReceiverOf<Self, ClientWriteResult<Self>>) {
        ProgressResponder::complete_only()
    }
}
