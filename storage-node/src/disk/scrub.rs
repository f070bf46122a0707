//! The thread of a data directory that works on finished segments: it seals them, and reads all of them again now and
//! then, within a rate, to find what has rotted before somebody needs it.
//!
//! Damage takes the copy offline, here and over restarts; what then becomes of it is the [`Repairer`]'s. A copy that
//! gave a reader trouble is looked at out of turn and at full speed.
//!
//! [`Repairer`]: crate::repairer::Repairer

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use log_engine::{DataDir, ReadError, Scrubbed, Sealing, WrittenSegment};
use parking_lot::Mutex;
use proto_types::ids::{Millis, TopicPartition};
use storage_node_core::Standing;

use crate::clock::Clock;
use crate::disk::log_thread::partition_of;
use crate::partition::{PartitionHandle, PartitionMetrics};

/// The thread looks around at least so often.
const IDLE_WAIT: Duration = Duration::from_millis(250);
/// Longest that the thread sleeps at a time to keep its rate.
const PACE_WAIT_MS: i64 = 100;
/// The first look at everything comes so long after the start, when the node has other things to do.
const FIRST_PASS_AFTER_MS: i64 = 60_000;
/// Least pause between two looks at copies out of turn, which keep no rate: readers that meet damage come again and again.
const SUSPECTS_PAUSE_MS: i64 = 10_000;
/// Copies that may wait to be looked at out of turn.
const SUSPECTS_MAX: usize = 1_000;

/// How much a scrub may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScrubLimits {
    /// Bytes read per second from one directory; 0 turns the regular look at everything off.
    pub(crate) bytes_per_second: u64,
    /// From the beginning of one look at everything to that of the next.
    pub(crate) period_ms: i64,
}

/// What others say to the thread.
#[derive(Debug, Default)]
pub(crate) struct ScrubRequests {
    stopping: AtomicBool,
    suspects: Mutex<BTreeSet<TopicPartition>>,
}

impl ScrubRequests {
    /// Has a copy looked at out of turn.
    pub(crate) fn suspect(&self, id: TopicPartition) {
        let mut suspects = self.suspects.lock();
        if suspects.len() < SUSPECTS_MAX {
            suspects.insert(id);
        }
    }

    /// Ends the thread soon.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }
}

/// The copies of the directory, as the thread asks for them.
pub(crate) trait Copies: Send + 'static {
    /// Whether the node is still there.
    fn alive(&self) -> bool;
    /// Those that are open, also where the log has failed; `None` when the node is going away.
    fn open_copies(&self) -> Option<Vec<PartitionHandle>>;
    /// The records of one are damaged.
    fn on_damaged(&self, id: TopicPartition, reason: String);
}

/// What the thread is made of.
pub(crate) struct Scrubber<C> {
    pub(crate) data: DataDir,
    /// The directory's place in the configuration.
    pub(crate) directory: usize,
    pub(crate) copies: C,
    pub(crate) limits: ScrubLimits,
    pub(crate) requests: Arc<ScrubRequests>,
    pub(crate) clock: Clock,
    pub(crate) metrics: PartitionMetrics,
}

impl<C: Copies> Scrubber<C> {
    /// Starts the thread.
    pub(crate) fn start(self) -> io::Result<JoinHandle<()>> {
        let name = format!("weir-scrub-{}", self.directory);
        std::thread::Builder::new().name(name).spawn(move || self.run())
    }

    fn run(self) {
        let mut next_pass = self.now() + self.limits.period_ms.min(FIRST_PASS_AFTER_MS);
        let next_suspects = Cell::new(self.now());
        while !self.stopping() {
            self.seal_one(IDLE_WAIT);
            self.scrub_suspects(&next_suspects);
            if self.limits.bytes_per_second == 0 || self.now() < next_pass {
                // Whoever dropped the partitions without closing them does not say so.
                if !self.copies.alive() {
                    return;
                }
                continue;
            }
            let Some(copies) = self.copies.open_copies() else { return };
            next_pass = self.now() + self.limits.period_ms;
            self.pass(&copies, &next_suspects);
        }
    }

    /// Looks at the copies that gave a reader trouble, as fast as it goes. `next` is when it may do so again.
    fn scrub_suspects(&self, next: &Cell<i64>) {
        if self.now() < next.get() {
            return;
        }
        let suspects = std::mem::take(&mut *self.requests.suspects.lock());
        if suspects.is_empty() {
            return;
        }
        let copies = self.copies.open_copies().unwrap_or_default();
        for copy in copies.iter().filter(|copy| suspects.contains(&copy.id())) {
            self.scrub(copy, &mut |_| !self.stopping());
        }
        next.set(self.now() + SUSPECTS_PAUSE_MS);
    }

    fn now(&self) -> i64 {
        let Millis(now) = self.clock.monotonic();
        now
    }

    fn stopping(&self) -> bool {
        self.requests.stopping.load(Ordering::Acquire)
    }

    /// Seals what waits; waits for it at most so long.
    fn seal_one(&self, wait: Duration) {
        let Some((segment, sealing)) = self.data.seal_next(wait) else { return };
        match sealing {
            Ok(Sealing::Sealed) => self.metrics.on_sealed(),
            Ok(Sealing::Gone | Sealing::Stopped) => {}
            Err(error) => self.on_error(&segment, &error),
        }
    }

    /// Looks at every copy, within the rate. It may take days: what was suspected meanwhile does not wait for its end.
    fn pass(&self, copies: &[PartitionHandle], next_suspects: &Cell<i64>) {
        let (began, mut bytes) = (self.now(), 0_u64);
        let mut pace = |more: u64| {
            bytes += more;
            let due = began
                + i64::try_from(bytes.saturating_mul(1000) / self.limits.bytes_per_second)
                    .unwrap_or(i64::MAX);
            while !self.stopping() && self.now() < due {
                let wait = (due - self.now()).clamp(0, PACE_WAIT_MS);
                self.seal_one(Duration::from_millis(wait.unsigned_abs()));
                self.scrub_suspects(next_suspects);
            }
            !self.stopping()
        };
        for copy in copies.iter().filter(|copy| copy.view().standing != Standing::Failed) {
            self.scrub(copy, &mut pace);
        }
        if !self.stopping() {
            let took_ms = self.now() - began;
            tracing::info!(directory = self.directory, copies = copies.len(), bytes, took_ms, "scrubbed");
        }
    }

    /// Looks at all segments of a copy, until one is damaged.
    fn scrub(&self, copy: &PartitionHandle, pace: &mut dyn FnMut(u64) -> bool) {
        let interval = copy.settings().log.index_interval_bytes;
        let pace: &mut dyn FnMut(u64) -> bool = &mut |bytes| {
            self.metrics.on_scrubbed(bytes);
            pace(bytes)
        };
        for segment in copy.reader().written_segments() {
            match segment.scrub(&self.data, interval, pace) {
                Ok(Scrubbed::Stopped) => return,
                Ok(scrubbed) => self.on_scrubbed(&segment, scrubbed),
                Err(error) => return self.on_error(&segment, &error),
            }
        }
    }

    fn on_scrubbed(&self, segment: &WrittenSegment, scrubbed: Scrubbed) {
        match scrubbed {
            // The log says of a snapshot what was done.
            Scrubbed::Sound | Scrubbed::SnapshotRebuilt | Scrubbed::Gone | Scrubbed::Stopped => {}
            Scrubbed::Sealed => self.metrics.on_sealed(),
            Scrubbed::IndexesRebuilt => {
                let partition = partition_of(segment.log());
                tracing::warn!(%partition, segment = segment.base_offset(), "indexes had rotted and were built anew");
            }
        }
    }

    /// A segment that is not what it was, or that the device does not give back, makes the copy useless. A node that
    /// is short of something (descriptors, memory, space) proves nothing about it.
    fn on_error(&self, segment: &WrittenSegment, error: &ReadError) {
        let (partition, base) = (partition_of(segment.log()), segment.base_offset());
        if !is_damage(error) {
            tracing::warn!(%partition, segment = base, %error, "cannot look at a segment now");
            return;
        }
        let reason = error.to_string();
        tracing::error!(%partition, segment = base, reason, "a segment is damaged: the copy goes offline");
        match segment.mark_damaged(&self.data, &reason) {
            Ok(false) => return,
            Ok(true) => {}
            Err(error) => tracing::error!(%partition, %error, "a restart will not remember the damage"),
        }
        self.metrics.on_damaged_segment();
        self.copies.on_damaged(partition, reason);
    }
}

fn is_damage(error: &ReadError) -> bool {
    match error {
        ReadError::Damaged { .. } => true,
        // The records are not in the seal: the next look may be able to read it, and a start does not go on without.
        ReadError::Io(error) if log_engine::is_seal(&error.path) => false,
        ReadError::Io(error) => {
            let kind = error.source.kind();
            // EIO has no kind of its own.
            kind == io::ErrorKind::NotFound || error.source.raw_os_error() == Some(5)
        }
        ReadError::OffsetOutOfRange { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_device_says_of_the_bytes_is_damage() {
        let io = |source: io::Error| {
            ReadError::Io(log_engine::FileError { action: "read", path: "x.log".into(), source })
        };
        assert!(is_damage(&io(io::Error::from_raw_os_error(5))));
        assert!(is_damage(&io(io::ErrorKind::NotFound.into())));
        assert!(!is_damage(&io(io::Error::from_raw_os_error(24))), "too many open files");
        assert!(!is_damage(&io(io::ErrorKind::StorageFull.into())));
        let path = "00000000000000000000.seal".into();
        let of_seal = log_engine::FileError { action: "read", path, source: io::Error::from_raw_os_error(5) };
        assert!(!is_damage(&ReadError::Io(of_seal)), "the records are not there");
        let damaged = ReadError::Damaged { reason: "x".into(), path: "x.log".into(), position: 0 };
        assert!(is_damage(&damaged));
    }
}
