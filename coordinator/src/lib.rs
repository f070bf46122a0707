//! The coordinator: groups and their offsets as a daemon. It keeps nothing on disk but the keys of its endpoint.
//!
//! A storage node forwards a client's request on its stream ([`forward`]) to the task of the shard that the group belongs
//! to ([`shard_task`]), which drives the state machine of `coordinator-core`: claim, load, decide, append to the shard's
//! log ([`group_log`]), and answer once the log holds what the answer rests on. [`runtime`] starts and stops the tasks as
//! the cluster's metadata ([`metadata_feed`], [`image`]) says; [`session`] keeps our place in the cluster and the
//! `lease` without which no answer leaves. [`start`] puts it together; `weir-coordinator` is a thin shell around it.

pub mod config;
pub mod process;

mod clock;
mod controllers;
mod error;
mod forward;
#[cfg(test)]
mod forward_tests;
mod group_log;
mod image;
mod lease;
mod metadata_feed;
mod metrics;
mod node;
mod runtime;
mod session;
mod shard_task;

pub use config::{Config, ControllerAddress};
pub use error::{CoordinatorFailure, StartError};
pub use node::{CoordinatorHandle, start};
