//! [`Config`]: time-outs and bounds, under Kafka's names where Kafka has them.

/// Settings of every shard of a coordinator. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `group.min.session.timeout.ms`: a shorter session time-out is refused.
    pub group_min_session_timeout_ms: i32,
    /// `group.max.session.timeout.ms`: a longer session time-out is refused.
    pub group_max_session_timeout_ms: i32,
    /// `group.initial.rebalance.delay.ms`: how long an empty group waits for more members.
    pub group_initial_rebalance_delay_ms: i32,
    /// `group.max.size`: members of one group.
    pub group_max_size: usize,
    /// How long a join of a new member may stay parked; without it, clients that give up and join again pile up.
    pub new_member_join_timeout_ms: i64,
    /// `offset.metadata.max.bytes`: length of the text that a client may store with an offset.
    pub offset_metadata_max_bytes: usize,
    /// `offsets.retention.minutes`, in milliseconds: how long a group without members keeps its offsets (KIP-211).
    pub offsets_retention_ms: i64,
    /// `offsets.retention.check.interval.ms`: pause between two looks for expired offsets.
    pub offsets_retention_check_interval_ms: i64,
    /// Offsets and groups looked at in one turn of expiry; the rest follows in the next turn.
    pub expiry_turn_max: usize,

    /// `weir.group.shard.groups.max`: groups of one shard.
    pub groups_max: usize,
    /// `weir.group.offsets.max`: offsets of one group.
    pub group_offsets_max: usize,
    /// `weir.group.metadata.bytes.max`: subscriptions (all protocols) and assignments of one group, each taken by itself.
    pub group_metadata_bytes_max: usize,
    /// `weir.group.record.bytes.max`: the record that holds a group: the names of its members, what they said and their
    /// parts. It is one append, so it is below what a shard's log takes as one batch.
    pub group_record_bytes_max: usize,
    /// `weir.group.protocols.max`: protocols that one member offers.
    pub member_protocols_max: usize,
    /// `weir.group.pending.max`: members of one group that were given an id and have not come back with it. The oldest
    /// makes room for a new one.
    pub pending_members_max: usize,
    /// `weir.group.shard.pending.max`: the same over all groups of a shard; beyond it a join is refused.
    pub shard_pending_members_max: usize,
    /// `weir.group.log.append.bytes.max`: bytes of the batch of one append, unless a single record is larger.
    pub append_bytes_max: usize,
    /// `weir.group.log.queue.bytes.max`: bytes of records that wait for an append; beyond it requests are refused.
    pub queue_bytes_max: usize,
    /// `weir.group.log.waiting.max`: replies that wait for an append; beyond it requests are refused.
    pub waiting_max: usize,
    /// Pause before an append or claim of unknown outcome is sent again.
    pub append_retry_ms: i64,
    /// How long an append may stay without an outcome; then the shard is dropped and loaded again.
    pub append_timeout_ms: i64,
}

impl Default for Config {
    /// Kafka's defaults, and finite bounds.
    fn default() -> Self {
        Config {
            group_min_session_timeout_ms: 6_000,
            group_max_session_timeout_ms: 1_800_000,
            group_initial_rebalance_delay_ms: 3_000,
            group_max_size: 10_000,
            new_member_join_timeout_ms: 300_000,
            offset_metadata_max_bytes: 4_096,
            offsets_retention_ms: 7 * 24 * 3_600_000,
            offsets_retention_check_interval_ms: 600_000,
            expiry_turn_max: 1_000,
            groups_max: 100_000,
            group_offsets_max: 1_000_000,
            group_metadata_bytes_max: 900_000,
            group_record_bytes_max: 2_500_000,
            member_protocols_max: 64,
            pending_members_max: 1_000,
            shard_pending_members_max: 100_000,
            append_bytes_max: 1_000_000,
            queue_bytes_max: 32_000_000,
            waiting_max: 100_000,
            append_retry_ms: 100,
            append_timeout_ms: 5_000,
        }
    }
}
