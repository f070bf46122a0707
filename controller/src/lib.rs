//! The metadata quorum as a daemon.

pub mod quorum;

pub(crate) mod change_feed;
