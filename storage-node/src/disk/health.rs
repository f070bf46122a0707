//! Whether a disk still works: how long the log thread has been at one piece of work, how long the oldest flush has been
//! under way, and for how long the opening of a log has not got on. A node whose disk stalls must not look alive, so this ends up in its heartbeats.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::Mutex;
use proto_types::ids::{Millis, TopicPartition};

const IDLE: i64 = i64::MIN;

/// The state of one data directory's threads; written by the log thread, read by whoever watches.
#[derive(Debug)]
pub(crate) struct DiskHealth {
    /// Monotonic milliseconds since when the log thread works on one thing.
    working_since: AtomicI64,
    /// Monotonic milliseconds since when the oldest flush is under way.
    flushing_since: AtomicI64,
    /// Monotonic milliseconds when the openings that are under way last got on.
    opening: Mutex<HashMap<TopicPartition, i64>>,
    /// Why the directory is offline, once it is.
    failure: Mutex<Option<String>>,
    /// The reserve is touched.
    space_is_low: AtomicBool,
}

impl DiskHealth {
    pub(crate) fn new() -> Self {
        Self {
            working_since: AtomicI64::new(IDLE),
            flushing_since: AtomicI64::new(IDLE),
            opening: Mutex::default(),
            failure: Mutex::new(None),
            space_is_low: AtomicBool::new(false),
        }
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

    /// The opening of a log gets on, as it must now and then however long it takes.
    pub(crate) fn on_opening(&self, id: TopicPartition, now: Millis) {
        self.opening.lock().insert(id, now.0);
    }

    /// The opening of a log is over.
    pub(crate) fn on_opened(&self, id: TopicPartition) {
        self.opening.lock().remove(&id);
    }

    /// A write or sync has failed: the directory is offline until the node starts again. Answers whether that is new.
    pub(crate) fn fail(&self, reason: &str) -> bool {
        let mut failure = self.failure.lock();
        let is_new = failure.is_none();
        failure.get_or_insert_with(|| reason.to_owned());
        is_new
    }

    /// Why the directory is offline, if it is.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Whether there is less room than the reserve.
    pub(crate) fn set_space_low(&self, is_low: bool) {
        self.space_is_low.store(is_low, Ordering::Relaxed);
    }

    /// Whether logs may be written, as far as that is known.
    pub(crate) fn has_space(&self) -> bool {
        !self.space_is_low.load(Ordering::Relaxed)
    }

    /// Milliseconds that the disk has kept somebody waiting; 0 if nobody waits.
    pub(crate) fn stalled_ms(&self, now: Millis) -> i64 {
        let opening = self.opening.lock().values().copied().min();
        [&self.working_since, &self.flushing_since]
            .into_iter()
            .map(|since| since.load(Ordering::Relaxed))
            .filter(|&since| since != IDLE)
            .chain(opening)
            .map(|since| now.0.saturating_sub(since).max(0))
            .max()
            .unwrap_or(0)
    }
}

/// Tells a disk that stalls from a process that stood still: while the watcher itself does not run, nobody else did, and no
/// disk is to blame for it.
#[derive(Debug)]
pub(crate) struct StallWatch {
    /// Pause between two looks.
    interval_ms: i64,
    looked: Millis,
    /// When the last pause of the process ended.
    paused_until: Millis,
    /// How long it stood still since the oldest work that was under way then.
    paused_ms: i64,
}

impl StallWatch {
    /// Looks from `now` on, every `interval_ms`.
    pub(crate) fn new(now: Millis, interval_ms: i64) -> Self {
        Self { interval_ms, looked: now, paused_until: now, paused_ms: 0 }
    }

    /// Takes what [`DiskHealth::stalled_ms`] says at `now`, and returns it without the time that the process stood still.
    pub(crate) fn look(&mut self, now: Millis, stalled_ms: i64) -> i64 {
        let late = now.0.saturating_sub(self.looked.0).saturating_sub(self.interval_ms);
        let begun = now.0.saturating_sub(stalled_ms);
        if begun >= self.paused_until.0 {
            self.paused_ms = 0;
        }
        // A look that is late by less was late for want of a processor, as everybody is now and then.
        if late > self.interval_ms {
            self.paused_ms = self.paused_ms.saturating_add(late).min(stalled_ms);
            self.paused_until = now;
        }
        self.looked = now;
        stalled_ms.saturating_sub(self.paused_ms).max(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto_types::ids::TopicId;
    use proto_types::metadata::topic_partition;
    use uuid::Uuid;

    const INTERVAL: i64 = 250;

    /// What is made of these looks: when, and what the disk says.
    fn looks(looks: &[(i64, i64)]) -> Vec<i64> {
        let mut watch = StallWatch::new(Millis(0), INTERVAL);
        looks.iter().map(|&(now, stalled)| watch.look(Millis(now), stalled)).collect()
    }

    #[test]
    fn a_disk_that_stalls_is_told_as_it_is() {
        assert_eq!(looks(&[(250, 0), (500, 100), (760, 360), (1_200, 800)]), [0, 100, 360, 800]);
    }

    #[test]
    fn time_that_the_process_stood_still_is_not_the_disks() {
        // Work that began at 400; the process stops at 500 for a minute.
        assert_eq!(looks(&[(250, 0), (500, 100), (60_500, 60_100), (60_750, 60_350)]), [0, 100, 350, 600]);
        // Work that began after a pause has no share in it.
        assert_eq!(looks(&[(60_000, 59_900), (60_250, 0), (60_500, 200), (60_750, 450)]), [150, 0, 200, 450]);
        assert_eq!(looks(&[(60_000, 0), (60_250, 250), (60_500, 500)]), [0, 250, 500]);
    }

    #[test]
    fn a_disk_that_stalls_before_and_after_a_pause_is_found() {
        let mut all = vec![(250, 200)];
        all.extend((0..60).map(|n| (60_000 + n * 250, 59_950 + n * 250)));
        let told = looks(&all);
        assert!(told.iter().take(39).all(|&stalled| stalled < 10_000), "{told:?}");
        assert!(told[59] >= 10_000, "{told:?}");
    }

    #[test]
    fn the_first_failure_is_the_reason() {
        let health = DiskHealth::new();
        assert_eq!(health.failure(), None);
        assert!(health.fail("a") && !health.fail("b"));
        assert_eq!(health.failure().as_deref(), Some("a"));
    }

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

    #[test]
    fn an_opening_may_take_long_but_must_get_on() {
        let health = DiskHealth::new();
        let [long, hung] = [1, 2].map(|topic| topic_partition(TopicId(Uuid::from_u128(topic)), 0));
        for now in (0..100_000).step_by(1_000) {
            health.on_opening(long, Millis(now));
            assert_eq!(health.stalled_ms(Millis(now + 999)), 999);
        }
        health.on_opening(hung, Millis(100_000));
        health.on_opening(long, Millis(110_000));
        assert_eq!(health.stalled_ms(Millis(110_000)), 10_000, "another that gets on does not hide it");
        health.on_opened(hung);
        assert_eq!(health.stalled_ms(Millis(110_500)), 500);
        health.on_opened(long);
        assert_eq!(health.stalled_ms(Millis(110_500)), 0);
    }
}
