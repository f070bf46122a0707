//! The table `[limits]` of the configuration: what is bounded, and why by so much.

use serde::{Deserialize, Serialize};
use storage_node_core::clock_guard::ClockLimits;

/// Bounds that Kafka has no name for. Times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Longest that an admin request waits for the controller, whatever time-out the client gives.
    pub admin_request_ms_max: u64,
    /// Admin requests that may wait for the controller at once; more are told to come again.
    pub admin_requests_in_flight_max: usize,
    /// Topics that may be in creation on first use at once; the others' turn comes when they are asked for again.
    pub topics_in_creation_max: usize,
    /// Shortest pause between two attempts to reach a controller.
    pub controller_retry_ms_min: u64,
    /// Longest pause between two attempts to reach a controller.
    pub controller_retry_ms_max: u64,
    /// How long a controller may take to be connected to before another one is tried; doubles in each round.
    pub controller_connect_ms_min: u64,
    /// How long one controller may take to answer what can be asked again of another.
    pub controller_answer_ms_max: u64,
    /// Longest that one call to a controller waits for its answer before another controller is tried.
    pub controller_call_ms_max: u64,
    /// Longest that a stopping node waits for the controller to move its leaderships.
    pub stop_handover_ms_max: u64,
    /// How long a stopping node that leads nothing any more still answers clients, so that those that are at work hear from it
    /// who leads instead; shorter if none is connected.
    pub stop_linger_ms: u64,
    /// Longest that a stopping node lets clients finish their requests.
    pub stop_drain_ms_max: u64,
    /// How long Metadata still names a node that was fenced; 0 leaves it out at once, as Kafka does. librdkafka from 2.10 on
    /// loses the partitions that a dead node led for a second if one answer leaves it out and names their new leaders. But
    /// if it is named longer, the client also remembers for longer how long to wait before it connects to it again.
    pub departed_node_told_ms: u64,
    /// How long a metadata feed may stay behind the quorum's commit index before another controller is asked.
    pub metadata_stall_ms_max: u64,
    /// Files that the partitions of one data directory may have open at once; fewer if the system allows the process fewer
    /// descriptors.
    pub descriptors_per_directory_max: usize,
    /// A disk that keeps a write or flush waiting for so long makes the node give up its leaderships.
    pub disk_stall_ms_max: u64,
    /// The node goes on without the copies that are left to open when none was opened for so long, and takes them in later.
    pub copy_open_wait_ms_max: u64,
    /// Bytes per second that are read of one data directory to find what has rotted; 0 turns it off.
    pub scrub_bytes_per_second: u64,
    /// From the beginning of one such look at everything to that of the next.
    pub scrub_period_ms: u64,
    /// Compacted partitions whose dirtiness is told one by one, the dirtiest first; 0 tells of all together only.
    pub compaction_metrics_partitions_max: usize,
    /// Writes that may wait for one data directory.
    pub write_queue_events_max: usize,
    /// Bytes of writes that may wait for one data directory.
    pub write_queue_bytes_max: usize,
    /// Threads that wait for reads from disk and unpack large batches.
    pub read_threads: usize,
    /// Reads that may wait for those threads.
    pub read_queue_max: usize,
    /// Partitions that one fetch session remembers; a larger fetch works without a session.
    pub fetch_session_partitions_max: usize,
    /// A fetch session may make room for another once it was idle for so long.
    pub fetch_session_eviction_ms: i64,
    /// Changes of the metadata that may be applied while the partitions of earlier ones are still being opened.
    pub metadata_deltas_pending_max: usize,
    /// Requests of groups at one coordinator without an answer, the parked ones included.
    pub forwarded_requests_max: usize,
    /// How long the metadata may take to tell of a new owner when a coordinator says that it does not own a shard.
    pub coordinator_recheck_ms_max: u64,
    /// Connections on which a follower's node follows one leader's node; partitions are spread over them.
    pub replication_lanes: u16,
    /// Longest that opening one of them may take.
    pub replication_connect_ms_max: u64,
    /// Bytes of one partition that a leader may have on their way to a follower, while few partitions share the memory.
    pub replication_credit_bytes_max: usize,
    /// The same, however many partitions share the memory. A single larger batch may always come.
    pub replication_credit_bytes_min: usize,
    /// Bytes from one leader's node that may wait to be appended here.
    pub replication_peer_bytes_max: usize,
    /// Bytes of one partition that are sent to a follower before it is the turn of the next partition.
    pub replication_push_bytes_max: usize,
    /// Reads for the followers on one connection that may wait for a disk at once.
    pub replication_catch_up_reads_max: usize,
    /// Bytes of the ends of all led partitions that are kept in memory for followers that keep pace.
    pub replication_tail_bytes_max: usize,
    /// Partitions that one connection carries.
    pub replication_sessions_max: usize,
    /// Changes of in-sync sets that are proposed to the controllers in one request.
    pub isr_proposals_max: usize,
    /// A wall clock that goes so far off the monotonic one at once has jumped: records are not deleted for their age.
    pub clock_jump_ms_max: u64,
    /// A node that seems to have been down for longer than this at its start has a clock that jumped.
    pub clock_down_ms_max: u64,
    /// A clock that has stayed for so long where it jumped to is believed.
    pub clock_doubt_ms: u64,
    /// Bytes of each disk with partitions that are kept free for what must go on when producers are refused: deleting, the
    /// partitions of coordinators, a controller on the same disk. On a disk of less than sixteen times as much, a sixteenth
    /// of it; 0 for none.
    pub disk_reserve_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // Java's admin client gives up after 60 s by default; an answer after that reaches nobody.
            admin_request_ms_max: 60_000,
            admin_requests_in_flight_max: 256,
            // A client that subscribes to more at once gets them in several rounds.
            topics_in_creation_max: 1_000,
            controller_retry_ms_min: 20,
            controller_retry_ms_max: 1_000,
            // A handshake over a continent, and no more.
            controller_connect_ms_min: 200,
            controller_answer_ms_max: 2_000,
            // Below the session (3 s), so that one dead controller costs no session.
            controller_call_ms_max: 1_000,
            stop_handover_ms_max: 5_000,
            // Several pauses between a client's attempts (retry.backoff.ms, 100 ms everywhere).
            stop_linger_ms: 500,
            stop_drain_ms_max: 5_000,
            departed_node_told_ms: 0,
            metadata_stall_ms_max: 2_000,
            // Two files for each of 10,000 partitions.
            descriptors_per_directory_max: 20_000,
            // A hiccup of a cloud disk lasts seconds and must not move every leader away.
            disk_stall_ms_max: 10_000,
            // A log of a full segment that was not flushed.
            copy_open_wait_ms_max: 10_000,
            // A hundredth of what a disk can, and 5 TB a week.
            scrub_bytes_per_second: 8 << 20,
            scrub_period_ms: 7 * 24 * 3_600_000,
            // A hundred bytes each in every scrape.
            compaction_metrics_partitions_max: 1_000,
            write_queue_events_max: 10_000,
            // More than one request of the largest size, many of the usual ones.
            write_queue_bytes_max: 128 << 20,
            read_threads: 4,
            read_queue_max: 1_000,
            fetch_session_partitions_max: 100_000,
            // As in Kafka (min.incremental.fetch.session.eviction.ms).
            fetch_session_eviction_ms: 120_000,
            metadata_deltas_pending_max: 1_024,
            // As many as a coordinator takes of one node by default.
            forwarded_requests_max: 20_000,
            coordinator_recheck_ms_max: 500,
            // A connection uses about one core for its encryption.
            replication_lanes: 2,
            replication_connect_ms_max: 1_000,
            // Several batches of the largest default size.
            replication_credit_bytes_max: 4 << 20,
            replication_credit_bytes_min: 64 << 10,
            replication_peer_bytes_max: 64 << 20,
            // So that a partition that catches up delays the others by a millisecond at most.
            replication_push_bytes_max: 256 << 10,
            replication_catch_up_reads_max: 4,
            replication_tail_bytes_max: 64 << 20,
            replication_sessions_max: 100_000,
            isr_proposals_max: 1_000,
            // More than daylight saving done wrong.
            clock_jump_ms_max: 2 * 3_600_000,
            clock_down_ms_max: 7 * 86_400_000,
            // Somebody has seen the alarm by then.
            clock_doubt_ms: 86_400_000,
            disk_reserve_bytes: 256 << 20,
        }
    }
}

impl Limits {
    /// When the clock is not believed.
    pub(crate) fn clock(&self) -> ClockLimits {
        let ms = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        ClockLimits {
            jump_ms_max: ms(self.clock_jump_ms_max),
            down_ms_max: ms(self.clock_down_ms_max),
            doubt_ms: ms(self.clock_doubt_ms),
        }
    }

    pub(super) fn validate(&self, faults: &mut Vec<String>) {
        let positive = [
            ("admin_request_ms_max", self.admin_request_ms_max),
            ("admin_requests_in_flight_max", self.admin_requests_in_flight_max as u64),
            ("topics_in_creation_max", self.topics_in_creation_max as u64),
            ("controller_retry_ms_min", self.controller_retry_ms_min),
            ("controller_connect_ms_min", self.controller_connect_ms_min),
            ("controller_answer_ms_max", self.controller_answer_ms_max),
            ("controller_call_ms_max", self.controller_call_ms_max),
            ("metadata_stall_ms_max", self.metadata_stall_ms_max),
            ("descriptors_per_directory_max", self.descriptors_per_directory_max as u64),
            ("disk_stall_ms_max", self.disk_stall_ms_max),
            ("copy_open_wait_ms_max", self.copy_open_wait_ms_max),
            ("scrub_period_ms", self.scrub_period_ms),
            ("write_queue_events_max", self.write_queue_events_max as u64),
            ("write_queue_bytes_max", self.write_queue_bytes_max as u64),
            ("read_threads", self.read_threads as u64),
            ("read_queue_max", self.read_queue_max as u64),
            ("metadata_deltas_pending_max", self.metadata_deltas_pending_max as u64),
            ("forwarded_requests_max", self.forwarded_requests_max as u64),
            ("replication_lanes", u64::from(self.replication_lanes)),
            ("replication_connect_ms_max", self.replication_connect_ms_max),
            ("replication_credit_bytes_max", self.replication_credit_bytes_max as u64),
            ("replication_credit_bytes_min", self.replication_credit_bytes_min as u64),
            ("replication_peer_bytes_max", self.replication_peer_bytes_max as u64),
            ("replication_push_bytes_max", self.replication_push_bytes_max as u64),
            ("replication_catch_up_reads_max", self.replication_catch_up_reads_max as u64),
            ("replication_sessions_max", self.replication_sessions_max as u64),
            ("isr_proposals_max", self.isr_proposals_max as u64),
            ("clock_jump_ms_max", self.clock_jump_ms_max),
        ];
        for (name, value) in positive {
            if value == 0 {
                faults.push(format!("limits.{name} must be at least 1"));
            }
        }
        if self.replication_credit_bytes_max < self.replication_credit_bytes_min {
            faults.push(
                "limits.replication_credit_bytes_max must not be below replication_credit_bytes_min"
                    .to_owned(),
            );
        }
        if self.controller_retry_ms_max < self.controller_retry_ms_min {
            faults
                .push("limits.controller_retry_ms_max must not be below controller_retry_ms_min".to_owned());
        }
    }
}
