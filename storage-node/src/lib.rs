//! A storage node: holds partitions and serves Kafka clients.
//!
//! Start reading at `kafka/api_table.rs` (what is served) and `start.rs` (how a node comes up and goes down). A request
//! runs from the door (`kafka-wire`) to its handler, which reads the published image, asks the partitions, or asks the
//! controllers. The node owns no cluster state: `metadata_feed` follows the metadata log, `session` keeps the node's
//! place in the cluster.

mod boot;
mod clock;
pub mod config;
mod control_thread;
mod controller_client;
mod controller_port;
mod coordinator_port;
mod coordinator_stream;
mod coordinators;
#[cfg(test)]
mod coordinators_tests;
mod descriptors;
mod directories;
mod disk;
mod error;
mod handle;
mod kafka;
mod metadata_feed;
mod metrics;
mod mover;
mod node;
mod open_partitions;
mod partition;
mod produce_legs;
mod producer_ids;
mod published_image;
mod repairer;
mod replication;
mod resigner;
mod session;
mod shard_logs;
#[cfg(test)]
mod shard_logs_tests;
mod start;
mod supervisor;
#[cfg(test)]
mod test_node;

pub use config::{Config, ConfigError};
pub use error::{NodeFailure, StartError};
pub use handle::{KafkaAddress, NodeHandle};
pub use start::start;
