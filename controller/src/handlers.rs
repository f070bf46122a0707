//! One file per request.

pub(crate) mod allocate_producer_ids;
pub(crate) mod alter_configs;
pub(crate) mod alter_partition;
pub(crate) mod alter_reassignments;
pub(crate) mod alter_voters;
pub(crate) mod coordinator_heartbeat;
pub(crate) mod create_internal_topic;
pub(crate) mod create_partitions;
pub(crate) mod create_topics;
pub(crate) mod delete_topics;
pub(crate) mod describe_quorum;
pub(crate) mod elect_leaders;
pub(crate) mod heartbeat;
pub(crate) mod lose_copies;
pub(crate) mod register_coordinator;
pub(crate) mod register_node;
pub(crate) mod unregister_node;
pub(crate) mod update_features;
