//! The metadata quorum: raft by openraft, with our own files, wire messages and state machine around it.

pub mod store_error;

pub(crate) mod disk;
pub(crate) mod levels;
pub(crate) mod log_files;
pub(crate) mod log_store;
#[cfg(test)]
mod log_tests;
pub(crate) mod network;
pub(crate) mod peers;
pub(crate) mod rpc;
pub(crate) mod segment;
#[cfg(test)]
mod sim;
pub(crate) mod slot_file;
pub(crate) mod snapshot_files;
pub(crate) mod state_machine;
pub(crate) mod stored;
pub(crate) mod type_config;
pub(crate) mod voters;
mod wire;
