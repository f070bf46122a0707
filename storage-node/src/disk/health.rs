//! Whether a disk still works: how long the log thread has been at one piece of work, and how long the oldest flush has
//! been under way. A node whose disk stalls must not look alive, so this ends up in its heartbeats.

use std::sync::atomic::{AtomicI64, Ordering};

use proto_types::ids::Millis;

const IDLE: i64 = i64::MIN;

/// The state of one data directory's threads; written by the log thread, read by whoever watches.
#[derive(Debug)]
pub(crate) struct DiskHealth {
    /// Monotonic milliseconds since when the log thread works on one thing.
    working_since: AtomicI64,
    /// Monotonic milliseconds since when the oldest flush is under way.
    flushing_since: AtomicI64,
}

impl DiskHealth {
    pub(crate) fn new() -> Self {
        Self { working_since: AtomicI64::new(IDLE), flushing_since: AtomicI64::new(IDLE) }
    }

    /// The log thread takes up a piece of work.
    pub(crate) fn on_work(&self, now: Millis) {
        self.working_since.store(now.0, Ordering::Relaxed);
    }

    /// The log thread waits for the next.
    pub(crate) fn on_idle(&self) {
        self.working_since.store(IDLE, Ordering::Relaxed);
    }

    /// The oldest flush that is under way, if any.
    pub(crate) fn set_oldest_flush(&self, since: Option<Millis>) {
        self.flushing_since.store(since.map_or(IDLE, |since| since.0), Ordering::Relaxed);
    }

    /// Milliseconds that the disk has kept somebody waiting; 0 if nobody waits.
    pub(crate) fn stalled_ms(&self, now: Millis) -> i64 {
        [&self.working_since, &self.flushing_since]
            .into_iter()
            .map(|since| since.load(Ordering::Relaxed))
            .filter(|&since| since != IDLE)
            .map(|since| now.0.saturating_sub(since).max(0))
            .max()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_wait_counts() {
        let health = DiskHealth::new();
        assert_eq!(health.stalled_ms(Millis(500)), 0);
        health.on_work(Millis(100));
        assert_eq!(health.stalled_ms(Millis(500)), 400);
        health.set_oldest_flush(Some(Millis(50)));
        assert_eq!(health.stalled_ms(Millis(500)), 450);
        health.on_idle();
        health.set_oldest_flush(None);
        assert_eq!(health.stalled_ms(Millis(500)), 0);
    }
}
