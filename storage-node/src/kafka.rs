//! The Kafka door: the list of APIs, one handler per file, and Kafka's numbers for our errors.

pub(crate) mod alter_resources;
pub(crate) mod api_table;
pub(crate) mod authorize;
pub(crate) mod config_resource;
pub(crate) mod error_code;
pub(crate) mod fetch_sessions;
pub(crate) mod find_partition;
pub(crate) mod first_use;
pub(crate) mod groups;
pub(crate) mod handlers;
pub(crate) mod read_replica;

#[cfg(test)]
mod data_handlers_tests;
#[cfg(test)]
mod group_handlers_tests;
#[cfg(test)]
mod read_committed_tests;
#[cfg(test)]
mod replica_handlers_tests;
