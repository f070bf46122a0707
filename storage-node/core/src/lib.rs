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
//! Consumers with `isolation.level=read_committed` read up to the *last stable offset*: the first record of the oldest
//! transaction that has no marker below the high watermark, or the high watermark itself.
//!
//! A copy of a partition is a [`Replica`]; [`Replica::step`] takes one [`Input`] and answers with [`Action`]s. It leads
//! from the moment the metadata says so, in a leader epoch of its own, until the metadata names another leader or its
//! log fails. Its high watermark is the least position of the in-sync replicas; with one replica that is the leader's
//! own flushed end (or appended end, by [`FlushMode`]).
//!
//! Else it follows:
//!
//! ```text
//!  metadata names ──▶ waiting ──▶ opening ──────begins──────▶ begun: append, take marks over, ack
//!  another leader       ▲  ▲         │ diverged / starts later   │
//!                       │  │         ▼                           │
//!                       │  └─────── cutting                      │
//!                       └── refused, lost, refused by the disk ──┘
//! ```
//!
//! The leader's side of a session is [`Replica`] for what counts (who is in sync, what is committed) and a [`Pump`] for
//! what is sent next. Reading order: `replica`, `leader`, `followers`, `isr_proposal`, `following`, `divergence`, `pump`.

mod action;
mod backoff;
pub mod clock_guard;
mod copies;
mod departed;
mod divergence;
pub mod effective_config;
mod followers;
mod following;
pub mod image;
mod input;
mod invariants;
mod isr_proposal;
mod lag_clock;
mod leader;
mod pump;
mod refusals;
mod replica;
pub mod space;
pub mod topic_name;
mod view;
mod waiters;

pub use action::{Action, DeleteRecordsError, Duplicate, ProduceError, Produced};
pub use copies::{CopyChange, copy_changes};
pub use departed::Departed;
pub use effective_config::{ConfigSource, ConfigView, EffectiveConfig};
pub use followers::FollowerStatus;
pub use input::{
    Acks, FollowerAck, FromLeader, Input, IsrAnswered, IsrOutcome, LeaderBatches, LogFacts, MarkerProposal,
    NewEpoch, OpenSession, ProducerStamp, Proposal, SessionKey, Ticket,
};
pub use pump::{Pump, PumpStep, Push};
pub use replica::{Counters, FlushMode, InSyncStatus, Positions, Replica, ReplicaConfig};
pub use view::{Isolation, LeadershipError, Standing, View};
