//! Who compacts what, what is set aside, and who sleeps.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use proto_types::ids::{Millis, TopicPartition};

/// The longest that a partition that failed is left alone.
const RETRY_MS_MAX: i64 = 3_600_000;
/// The least.
const RETRY_MS_MIN: i64 = 1_000;
/// How long a partition rests after a pass that came to nothing.
const REST_MS: i64 = 2_000;

#[derive(Debug, Default)]
pub(super) struct Board {
    state: Mutex<State>,
    woken: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stopping: bool,
    /// Threads that are wanted.
    wanted: usize,
    threads: HashSet<usize>,
    /// Counts what a sleeper should look at again.
    news: u64,
    in_progress: HashSet<TopicPartition>,
    /// Partitions whose last pass failed.
    failed: HashMap<TopicPartition, Failed>,
    /// Partitions whose last pass came to nothing: until when they are left alone.
    resting: HashMap<TopicPartition, Millis>,
}

#[derive(Debug)]
struct Failed {
    times: u32,
    since: Millis,
    retry_at: Millis,
    reason: String,
}

/// Partitions that could not be compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SetAside {
    pub(super) partitions: usize,
    /// How long the first of them has failed.
    pub(super) oldest_ms: i64,
}

impl Board {
    /// So many threads are wanted. Answers the indexes of those that are not there.
    pub(super) fn admit(&self, wanted: usize) -> Vec<usize> {
        let mut state = self.state.lock();
        if state.stopping {
            return Vec::new();
        }
        state.wanted = wanted;
        let all: Range<usize> = 0..wanted;
        all.filter(|&index| state.threads.insert(index)).collect()
    }

    /// Whether a thread goes on. If not, it has left: whoever wants it again starts another.
    pub(super) fn stays(&self, index: usize) -> bool {
        let mut state = self.state.lock();
        let stays = !state.stopping && index < state.wanted;
        if !stays {
            state.threads.remove(&index);
        }
        stays
    }

    pub(super) fn leave(&self, index: usize) {
        self.state.lock().threads.remove(&index);
    }

    pub(super) fn stop(&self) {
        self.state.lock().stopping = true;
        self.woken.notify_all();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.state.lock().stopping
    }

    /// Whoever sleeps should look again.
    pub(super) fn wake(&self) {
        self.state.lock().news += 1;
        self.woken.notify_all();
    }

    /// Sleeps so long, or until there is something new.
    pub(super) fn pause(&self, pause: Duration) {
        let mut state = self.state.lock();
        let news = state.news;
        self.woken.wait_while_for(&mut state, |s| !s.stopping && s.news == news, pause);
    }

    /// Sleeps so long; `false` if everything stops.
    pub(super) fn sleep(&self, pause: Duration) -> bool {
        let mut state = self.state.lock();
        self.woken.wait_while_for(&mut state, |s| !s.stopping, pause);
        !state.stopping
    }

    /// Whether a thread may take the partition now.
    pub(super) fn is_free(&self, id: TopicPartition, now: Millis) -> bool {
        self.state.lock().is_free(id, now)
    }

    /// Takes it, unless another was quicker.
    pub(super) fn take(&self, id: TopicPartition, now: Millis) -> bool {
        let mut state = self.state.lock();
        state.is_free(id, now) && state.in_progress.insert(id)
    }

    pub(super) fn released(&self, id: TopicPartition) {
        self.state.lock().in_progress.remove(&id);
    }

    /// Its pass came to nothing: others come first for a while.
    pub(super) fn rests(&self, id: TopicPartition, now: Millis) {
        let mut state = self.state.lock();
        state.in_progress.remove(&id);
        state.resting.retain(|_, until| *until > now);
        state.resting.insert(id, Millis(now.0 + REST_MS));
    }

    /// Whether its last pass failed.
    pub(super) fn has_failed(&self, id: TopicPartition) -> bool {
        self.state.lock().failed.contains_key(&id)
    }

    pub(super) fn succeeded(&self, id: TopicPartition) {
        let mut state = self.state.lock();
        state.in_progress.remove(&id);
        if let Some(failed) = state.failed.remove(&id) {
            tracing::info!(partition = %id, reason = failed.reason, "the partition can be compacted again");
        }
    }

    /// Sets it aside; answers for how many milliseconds.
    pub(super) fn failed(&self, id: TopicPartition, reason: String, now: Millis, backoff_ms: u64) -> i64 {
        let mut state = self.state.lock();
        state.in_progress.remove(&id);
        let (times, since) = state.failed.get(&id).map_or((0, now), |f| (f.times, f.since));
        let base = i64::try_from(backoff_ms).unwrap_or(RETRY_MS_MAX).clamp(RETRY_MS_MIN, RETRY_MS_MAX);
        let pause = base.saturating_mul(1 << times.min(20)).min(RETRY_MS_MAX);
        let retry_at = Millis(now.0 + pause);
        state.failed.insert(id, Failed { times: times + 1, since, retry_at, reason });
        pause
    }

    pub(super) fn set_aside(&self, now: Millis) -> SetAside {
        let state = self.state.lock();
        let oldest = state.failed.values().map(|f| now.0 - f.since.0).max();
        SetAside { partitions: state.failed.len(), oldest_ms: oldest.unwrap_or(0) }
    }

    /// Forgets failures of partitions that are not here, or not compacted, any more.
    pub(super) fn forget_absent(&self, present: &[TopicPartition]) {
        let mut state = self.state.lock();
        if !state.failed.is_empty() {
            let present: HashSet<_> = present.iter().collect();
            state.failed.retain(|id, _| present.contains(id));
        }
    }
}

impl State {
    fn is_free(&self, id: TopicPartition, now: Millis) -> bool {
        !self.in_progress.contains(&id)
            && self.failed.get(&id).is_none_or(|f| f.retry_at <= now)
            && self.resting.get(&id).is_none_or(|until| *until <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto_types::ids::{PartitionIndex, TopicId};
    use uuid::Uuid;

    fn id(partition: i32) -> TopicPartition {
        TopicPartition { topic: TopicId(Uuid::from_u128(1)), partition: PartitionIndex(partition) }
    }

    #[test]
    fn one_thread_at_a_time_and_failures_wait_longer_each_time() {
        let board = Board::default();
        assert!(board.take(id(0), Millis(0)) && !board.take(id(0), Millis(0)));
        assert!(board.take(id(1), Millis(0)), "others go on");
        assert_eq!(board.failed(id(0), "rot".into(), Millis(10), 2_000), 2_000);
        assert!(!board.is_free(id(0), Millis(2_009)) && board.take(id(0), Millis(2_010)));
        assert_eq!(board.failed(id(0), "rot".into(), Millis(2_020), 2_000), 4_000);
        assert_eq!(board.set_aside(Millis(3_010)), SetAside { partitions: 1, oldest_ms: 3_000 });
        for _ in 0..40 {
            board.failed(id(0), "rot".into(), Millis(0), 2_000);
        }
        assert_eq!(board.failed(id(0), "rot".into(), Millis(0), 2_000), RETRY_MS_MAX);
        board.succeeded(id(0));
        assert_eq!(board.set_aside(Millis(9_000)), SetAside::default());
        board.failed(id(1), "rot".into(), Millis(0), 0);
        assert!(board.has_failed(id(1)) && !board.has_failed(id(0)));
        board.forget_absent(&[id(0)]);
        assert_eq!(board.set_aside(Millis(9_000)).partitions, 0);
    }

    #[test]
    fn what_comes_to_nothing_lets_others_go_first() {
        let board = Board::default();
        assert!(board.take(id(0), Millis(0)));
        board.rests(id(0), Millis(10));
        assert!(!board.is_free(id(0), Millis(9 + REST_MS)) && board.is_free(id(1), Millis(10)));
        assert!(board.take(id(0), Millis(10 + REST_MS)));
        assert_eq!(board.set_aside(Millis(10)), SetAside::default(), "it has not failed");
    }

    #[test]
    fn threads_are_those_that_are_wanted() {
        let board = Board::default();
        assert_eq!(board.admit(2), [0, 1]);
        assert_eq!(board.admit(3), [2]);
        board.leave(1);
        assert_eq!(board.admit(3), [1]);
        // Fewer, and more again: one that has not noticed yet goes on, one that has left is started anew.
        assert!(board.admit(1).is_empty() && board.stays(0) && !board.stays(1));
        assert_eq!(board.admit(3), [1]);
        assert!(board.stays(2));
        board.stop();
        assert!(!board.stays(0) && board.admit(9).is_empty());
        assert!(!board.sleep(Duration::from_secs(60)));
    }
}
