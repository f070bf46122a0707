//! Bounds of the partition runtime.

use log_engine::FlusherConfig;

use crate::disk::HousekeepingLimits;
use crate::disk::event_queue::QueueLimits;
use crate::disk::scrub::ScrubLimits;
use crate::partition::settings::TopicLimits;

/// Bounds of the partition runtime that Kafka has no name for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartitionLimits {
    /// Of each topic's partitions.
    pub(crate) topic: TopicLimits,
    /// Of the queue in front of each data directory's log thread.
    pub(crate) queue: QueueLimits,
    /// Of each data directory's flushers.
    pub(crate) flusher: FlusherConfig,
    /// Threads that wait for cold reads and unpack large batches.
    pub(crate) read_threads: usize,
    /// Jobs that may wait for a read thread.
    pub(crate) read_queue_max: usize,
    /// A disk that keeps somebody waiting for so long makes the node unhealthy.
    pub(crate) disk_stall_ms: i64,
    /// Copies are not waited for any longer when none was opened for so long.
    pub(crate) open_wait_ms: u64,
    /// Of the look at everything that lies on the disks.
    pub(crate) scrub: ScrubLimits,
    /// Of retention.
    pub(crate) housekeeping: HousekeepingLimits,
}

impl Default for PartitionLimits {
    fn default() -> Self {
        Self {
            topic: TopicLimits::default(),
            // Two requests of the largest size, or many small ones.
            queue: QueueLimits { events_max: 10_000, bytes_max: 128 << 20 },
            flusher: FlusherConfig::default(),
            read_threads: 4,
            read_queue_max: 1_000,
            // A hiccup of a cloud disk lasts seconds and must not move every leader away.
            disk_stall_ms: 10_000,
            open_wait_ms: 10_000,
            // A hundredth of what a disk can, and 5 TB a week.
            scrub: ScrubLimits { bytes_per_second: 8 << 20, period_ms: 7 * 24 * 3600 * 1000 },
            housekeeping: HousekeepingLimits::default(),
        }
    }
}
