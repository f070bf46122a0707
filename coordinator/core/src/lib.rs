//! Consumer groups as decisions: requests and time in, records and replies out. Pure: no sockets, no clock, no threads.
//!
//! Reading order: [`stored`] (the records of `__consumer_offsets`, Kafka's own formats) → [`State`] (what replaying them
//! gives) → [`Shard`] (one partition: the classic protocol, offsets, time-outs) → [`ShardLog`] (which reply waits for
//! which append) → [`ShardOwner`] (claim, load, serve, drop and reload: what a daemon drives) → [`Lease`] (may this
//! process still answer?).
//!
//! Promises:
//! - State that survives changes only by [`State::apply`] of a record, live and on replay alike. Members' deadlines and
//!   parked requests are soft: lost with the process, given afresh after a load.
//! - A reply leaves [`ShardOwner`] only once the log holds, below its high watermark, every record that the reply could
//!   have seen.
//! - Bytes from clients and from the log never panic. Everything that grows has a bound in [`Config`].

extern crate self as coordinator_core;

mod config;
mod deadlines;
mod group;
mod lease;
mod owner;
mod request;
mod shard;
mod shard_log;
mod state;
pub mod stored;
mod subscription;

pub use config::Config;
pub use group::GroupState;
pub use lease::Lease;
pub use owner::{Attempt, ClaimOutcome, Effect, LoadedRecord, Owned, Resignation, ShardOwner};
pub use request::{
    Completion, Decision, GroupReply, GroupRequest, Now, RequestContext, RequestError, StoredRecord, Token,
    Topic, TopicImage,
};
pub use shard::Shard;
pub use shard_log::{Append, AppendOutcome, Epoch, Fate, ShardLog};
pub use state::{Replayed, State};
