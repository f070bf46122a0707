//! Who may do what. There are no access rules yet: everybody may do everything, except with the topics that Weir keeps
//! for itself.

/// Bits of Kafka's operations, as a broker without an authorizer reports them.
mod operation {
    pub(super) const READ: i32 = 1 << 3;
    pub(super) const WRITE: i32 = 1 << 4;
    pub(super) const CREATE: i32 = 1 << 5;
    pub(super) const DELETE: i32 = 1 << 6;
    pub(super) const ALTER: i32 = 1 << 7;
    pub(super) const DESCRIBE: i32 = 1 << 8;
    pub(super) const CLUSTER_ACTION: i32 = 1 << 9;
    pub(super) const DESCRIBE_CONFIGS: i32 = 1 << 10;
    pub(super) const ALTER_CONFIGS: i32 = 1 << 11;
    pub(super) const IDEMPOTENT_WRITE: i32 = 1 << 12;
}

/// All that can be allowed on a topic.
pub(crate) const TOPIC_OPERATIONS: i32 = operation::READ
    | operation::WRITE
    | operation::CREATE
    | operation::DELETE
    | operation::ALTER
    | operation::DESCRIBE
    | operation::DESCRIBE_CONFIGS
    | operation::ALTER_CONFIGS;

/// All that can be allowed on a group.
pub(crate) const GROUP_OPERATIONS: i32 = operation::READ
    | operation::DELETE
    | operation::DESCRIBE
    | operation::DESCRIBE_CONFIGS
    | operation::ALTER_CONFIGS;

/// All that can be allowed on the cluster.
pub(crate) const CLUSTER_OPERATIONS: i32 = operation::CREATE
    | operation::ALTER
    | operation::DESCRIBE
    | operation::CLUSTER_ACTION
    | operation::DESCRIBE_CONFIGS
    | operation::ALTER_CONFIGS
    | operation::IDEMPOTENT_WRITE;

/// What an answer carries when the client did not ask for the operations.
pub(crate) const OPERATIONS_NOT_ASKED: i32 = i32::MIN;

/// The topics that Weir keeps for itself: clients read them and do nothing else with them.
pub(crate) const INTERNAL_TOPICS: [&str; 2] = ["__consumer_offsets", "__transaction_state"];

/// Whether a topic is one of [`INTERNAL_TOPICS`]. Other names that begin with `__` are ordinary.
pub(crate) fn is_internal(topic: &str) -> bool {
    INTERNAL_TOPICS.contains(&topic)
}

/// The bits to answer with.
pub(crate) fn operations(asked: bool, all: i32) -> i32 {
    if asked { all } else { OPERATIONS_NOT_ASKED }
}
