//! One file per noun or verb of the command line: its arguments and what it does.

pub(crate) mod cluster;
pub(crate) mod config;
pub(crate) mod consume;
pub(crate) mod controller;
pub(crate) mod dev;
pub(crate) mod feature;
pub(crate) mod group;
pub(crate) mod log;
pub(crate) mod node;
pub(crate) mod partition;
pub(crate) mod produce;
pub(crate) mod topic;
