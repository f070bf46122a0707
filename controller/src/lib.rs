//! The controller: the metadata quorum as a daemon.
//!
//! A request comes in by [`api_table`], is planned by the [`proposer`] with `controller-core`, committed by raft
//! ([`quorum`]), applied by [`quorum::state_machine`], and told to all nodes by the [`change_feed`]. The
//! [`liveness`] watch fences nodes that fall silent. [`start`] puts it together; `weir-controller` is a thin shell
//! around it.

pub mod config;
pub mod process;
pub mod quorum;

mod api_table;
mod breakdown;
mod change_feed;
mod clock;
#[cfg(test)]
mod cluster_tests;
#[cfg(test)]
mod damage_tests;
mod data_dir;
mod error;
mod handlers;
mod liveness;
mod metrics;
mod node;
mod proposer;
mod room;

pub use config::{Config, Voter};
pub use data_dir::DataDirError;
pub use error::StartError;
pub use node::{ControllerHandle, start};
