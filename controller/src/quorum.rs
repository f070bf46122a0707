//! The metadata quorum: raft by openraft, with our own files, wire messages and state machine around it.

pub mod store_error;
pub mod type_config;

pub(crate) mod log_files;
pub(crate) mod log_store;
#[cfg(test)]
mod log_tests;
mod segment;
mod slot_file;
pub(crate) mod snapshot_files;
pub(crate) mod state_machine;
pub(crate) mod stored;
