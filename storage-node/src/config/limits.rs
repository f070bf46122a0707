//! The table `[limits]` of the configuration: what is bounded, and why by so much.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use storage_node_core::clock_guard::ClockLimits;

/// Longest wait of anything that somebody waits for.
const DAY_MS: u64 = 86_400_000;
/// Longest time of anything.
const TEN_YEARS_MS: u64 = 3_650 * DAY_MS;
/// Largest number of things that are counted one by one.
const COUNT_MAX: u64 = 10_000_000;
/// More threads, or connections to one node, than this share disks and cores to nobody's good.
const THREADS_MAX: u64 = 256;
/// Largest number of bytes that are counted in 32 bits.
const QUEUED_BYTES_MAX: u64 = u32::MAX as u64;
/// Largest number of bytes on a disk, or in a second.
const BYTES_MAX: u64 = 1 << 50;

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

    /// Every number and its range, by the name that a person wrote.
    fn ranges(&self) -> Vec<(&'static str, u64, RangeInclusive<u64>)> {
        macro_rules! rows {
            ($($field:ident: $range:expr,)*) => {
                // What does not fit (a negative number) is out of each range.
                vec![$((stringify!($field), u64::try_from(self.$field).unwrap_or(u64::MAX), $range)),*]
            };
        }
        rows! {
            admin_request_ms_max: 1..=DAY_MS,
            admin_requests_in_flight_max: 1..=COUNT_MAX,
            topics_in_creation_max: 1..=COUNT_MAX,
            controller_retry_ms_min: 1..=DAY_MS,
            controller_retry_ms_max: 1..=DAY_MS,
            controller_connect_ms_min: 1..=DAY_MS,
            controller_answer_ms_max: 1..=DAY_MS,
            controller_call_ms_max: 1..=DAY_MS,
            stop_handover_ms_max: 0..=DAY_MS,
            stop_linger_ms: 0..=DAY_MS,
            stop_drain_ms_max: 0..=DAY_MS,
            departed_node_told_ms: 0..=DAY_MS,
            metadata_stall_ms_max: 1..=DAY_MS,
            descriptors_per_directory_max: 1..=COUNT_MAX,
            disk_stall_ms_max: 1..=DAY_MS,
            copy_open_wait_ms_max: 1..=DAY_MS,
            scrub_bytes_per_second: 0..=BYTES_MAX,
            scrub_period_ms: 1..=TEN_YEARS_MS,
            compaction_metrics_partitions_max: 0..=COUNT_MAX,
            write_queue_events_max: 1..=COUNT_MAX,
            write_queue_bytes_max: 1..=QUEUED_BYTES_MAX,
            read_threads: 1..=THREADS_MAX,
            read_queue_max: 1..=COUNT_MAX,
            fetch_session_partitions_max: 0..=COUNT_MAX,
            fetch_session_eviction_ms: 0..=TEN_YEARS_MS,
            metadata_deltas_pending_max: 1..=COUNT_MAX,
            forwarded_requests_max: 1..=COUNT_MAX,
            coordinator_recheck_ms_max: 0..=DAY_MS,
            replication_lanes: 1..=THREADS_MAX,
            replication_connect_ms_max: 1..=DAY_MS,
            replication_credit_bytes_max: 1..=QUEUED_BYTES_MAX,
            replication_credit_bytes_min: 1..=QUEUED_BYTES_MAX,
            replication_peer_bytes_max: 1..=QUEUED_BYTES_MAX,
            replication_push_bytes_max: 1..=QUEUED_BYTES_MAX,
            replication_catch_up_reads_max: 1..=COUNT_MAX,
            replication_tail_bytes_max: 0..=BYTES_MAX,
            replication_sessions_max: 1..=COUNT_MAX,
            isr_proposals_max: 1..=COUNT_MAX,
            clock_jump_ms_max: 1_000..=TEN_YEARS_MS,
            clock_down_ms_max: 0..=TEN_YEARS_MS,
            // With nothing in between a jump would be believed at the next look, and the guard be none.
            clock_doubt_ms: 60_000..=TEN_YEARS_MS,
            disk_reserve_bytes: 0..=BYTES_MAX,
        }
    }

    pub(super) fn validate(&self, faults: &mut Vec<String>) {
        for (name, value, range) in self.ranges() {
            if !range.contains(&value) {
                let (from, to) = range.into_inner();
                faults.push(format!("limits.{name} = {value} must be from {from} to {to}"));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(limits: &Limits) -> Vec<String> {
        let mut faults = Vec::new();
        limits.validate(&mut faults);
        faults
    }

    #[test]
    fn the_defaults_are_in_range_and_every_number_has_a_range() {
        assert_eq!(faults(&Limits::default()), Vec::<String>::new());
        let fields = toml::Value::try_from(Limits::default()).unwrap();
        let ranges = Limits::default().ranges();
        let mut named: Vec<&str> = ranges.iter().map(|(name, ..)| *name).collect();
        named.sort_unstable();
        let mut fields: Vec<&str> = fields.as_table().unwrap().keys().map(String::as_str).collect();
        fields.sort_unstable();
        assert_eq!(named, fields);
    }

    #[test]
    fn below_and_above_a_range_is_refused_with_the_range() {
        for (name, _, range) in Limits::default().ranges() {
            let (from, to) = range.into_inner();
            for value in [from.checked_sub(1), Some(to + 1)].into_iter().flatten() {
                let text = format!("{name} = {value}");
                // What the type does not hold is refused when the file is read.
                let Ok(limits) = toml::from_str::<Limits>(&text) else { continue };
                let told = faults(&limits);
                assert!(
                    told.contains(&format!("limits.{name} = {value} must be from {from} to {to}")),
                    "{text}: {told:?}"
                );
            }
            for value in [from, to] {
                let limits: Limits = toml::from_str(&format!("{name} = {value}")).unwrap();
                let told = faults(&limits);
                assert!(
                    !told.iter().any(|fault| fault.contains("must be from")),
                    "{name} = {value}: {told:?}"
                );
            }
        }
    }

    #[test]
    fn a_clock_guard_that_guards_nothing_is_refused() {
        let limits = Limits { clock_doubt_ms: 0, ..Limits::default() };
        assert_eq!(faults(&limits), ["limits.clock_doubt_ms = 0 must be from 60000 to 315360000000"]);
    }

    #[test]
    fn no_contradiction_passes() {
        let limits =
            Limits { replication_credit_bytes_max: 1, controller_retry_ms_max: 1, ..Limits::default() };
        assert_eq!(faults(&limits).len(), 2);
    }
}
