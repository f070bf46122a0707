//! The settings of one log and of one data directory. Every bound of the engine is a field here.

use log_engine_core::RollLimits;
use log_engine_core::roll::with_jitter;

/// Settings of one log; all may be changed while it runs ([`Log::update_config`](crate::Log::update_config)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// Largest size of one segment's records in bytes (`segment.bytes`).
    pub segment_bytes: u64,
    /// Largest age of a segment in milliseconds (`segment.ms`).
    pub segment_ms: i64,
    /// By how much less at most, so that segments do not all end together (`segment.jitter.ms`).
    pub segment_jitter_ms: i64,
    /// Bytes of records between two index entries (`index.interval.bytes`).
    pub index_interval_bytes: u64,
    /// Largest size of one index file in bytes (`segment.index.bytes`).
    pub index_bytes_max: u64,
    /// Index entries of the active segment that stay in memory; older ones are in the file. 16 bytes each.
    pub index_entries_in_memory_max: usize,
    /// Producers remembered; beyond it the longest idle are forgotten.
    pub producers_max: usize,
    /// Bytes of records after which the producers are saved again, so that a start need not replay more than this.
    pub producer_snapshot_interval_bytes: u64,
    /// Space reserved ahead of a growing segment in bytes, once it holds as much; 0 turns it off. Appends into
    /// reserved space cost a third less.
    pub reserve_bytes: u64,
    /// Largest decompressed size of one batch in bytes that a lookup by time unpacks.
    pub unpacked_batch_bytes_max: usize,
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        LogConfig {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3600 * 1000,
            segment_jitter_ms: 0,
            index_interval_bytes: 4096,
            index_bytes_max: 10 << 20,
            index_entries_in_memory_max: 1024,
            producers_max: 100_000,
            producer_snapshot_interval_bytes: 64 << 20,
            reserve_bytes: 8 << 20,
            unpacked_batch_bytes_max: 128 << 20,
        }
    }
}

impl LogConfig {
    /// The limits of one segment; `seed` says which share of the jitter it has.
    pub(crate) fn roll_limits(&self, seed: u64) -> RollLimits {
        RollLimits {
            segment_bytes: self.segment_bytes,
            segment_ms: with_jitter(self.segment_ms, self.segment_jitter_ms, seed),
            index_bytes_max: self.index_bytes_max,
        }
    }
}

/// Settings of the pool of flusher threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlusherConfig {
    /// Threads that sync files; the journal of the file system merges what they commit together.
    pub threads: usize,
    /// Flushes that may wait. One log has at most one, so the number of logs is always enough.
    pub queue_max: usize,
    /// More dirty files than this in one round are synced by one `syncfs`, if the data directory is a mount of its
    /// own (else it would flush other people's data too).
    pub syncfs_above_files: usize,
    /// Rounds of one thread after which the record of flushed ends is synced too. Each round *writes* the ends of those
    /// before it, so only a power cut can find an older record: what lies above it counts as a tail that may be torn.
    pub record_sync_rounds: usize,
    /// Milliseconds without a flush after which that record is synced in any case.
    pub record_sync_idle_ms: u64,
}

impl Default for FlusherConfig {
    fn default() -> FlusherConfig {
        FlusherConfig {
            threads: 4,
            queue_max: 100_000,
            syncfs_above_files: 8,
            record_sync_rounds: 32,
            record_sync_idle_ms: 20,
        }
    }
}

/// File descriptors that one data directory keeps open, if nothing else is configured.
pub const DESCRIPTORS_MAX_DEFAULT: usize = 20_000;
