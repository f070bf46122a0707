//! The pure half of the storage node: what it knows of the cluster, and what a partition does next.
//!
//! Nothing here does I/O, reads a clock or draws a random number: everything comes in as an argument.
//!
//! ```text
//!  a partition's log       start        high watermark      flushed          end
//!  (flush = ack)             │ committed      │ on this disk    │  appended    │
//!    ─────deleted────────────┼────────────────┼─────────────────┼──────────────┼──▶ offsets
//!                            └── consumers ───┘ acks=all waits  └ acks=1 was answered
//! ```
//!
//! A copy of a partition is a [`Replica`]; [`Replica::step`] takes one [`Input`] and answers with [`Action`]s. It leads
//! from the moment the metadata says so, in a leader epoch of its own, until the metadata names another leader or its
//! log fails. Its high watermark is the least position of the in-sync replicas; with one replica that is the leader's
//! own flushed end (or appended end, by [`FlushMode`]).

mod action;
pub mod effective_config;
pub mod image;
mod in_sync;
mod input;
mod invariants;
mod leader;
mod replica;
pub mod topic_name;
mod view;
mod waiters;

pub use action::{Action, DeleteRecordsError, Duplicate, ProduceError, Produced};
pub use effective_config::{ConfigSource, ConfigView, EffectiveConfig};
pub use input::{Acks, FollowerAck, Input, NewEpoch, ProducerStamp, Proposal, Ticket};
pub use replica::{FlushMode, Positions, Replica, ReplicaConfig};
pub use view::{LeadershipError, Standing, View};
