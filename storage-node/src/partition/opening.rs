//! How far the opening of copies has got, for people who wait for a node to start: in the log and on `/readyz`.

use std::collections::HashMap;

use log_engine::RecoveryProgress;
use parking_lot::Mutex;
use proto_types::ids::{Millis, TopicPartition};

use crate::clock::Clock;

/// Pause between two lines in the log.
const LINE_EVERY_MS: i64 = 2_000;
/// A log is named if so much is to be gone through of it.
const LONG_BYTES: u64 = 64 << 20;

/// Copies that are being opened; one node has one.
#[derive(Debug)]
pub(crate) struct OpeningProgress {
    clock: Clock,
    opening: Mutex<Option<Opening>>,
}

impl Default for OpeningProgress {
    fn default() -> Self {
        Self { clock: Clock::start(), opening: Mutex::default() }
    }
}

#[derive(Debug, Clone)]
struct Opening {
    began: i64,
    said: i64,
    total: usize,
    opened: usize,
    recovering: HashMap<TopicPartition, Recovering>,
}

/// A log of which something is to be gone through.
#[derive(Debug, Clone, Copy)]
struct Recovering {
    began: i64,
    progress: RecoveryProgress,
}

impl OpeningProgress {
    /// So many copies are about to be opened, beside those that are being opened still.
    pub(crate) fn begin(&self, total: usize) {
        let Millis(now) = self.clock.monotonic();
        if let Some(opening) = &mut *self.opening.lock() {
            opening.total += total;
            return;
        }
        let opening = Opening { began: now, said: now, total, opened: 0, recovering: HashMap::new() };
        *self.opening.lock() = (total > 0).then_some(opening);
    }

    /// One of them is open, or has failed. Says so in the log now and then. Of the last one, how many there were, and how many
    /// milliseconds all took.
    pub(crate) fn on_opened(&self) -> Option<(usize, i64)> {
        let now = self.clock.monotonic();
        let mut slot = self.opening.lock();
        let opening = slot.as_mut()?;
        opening.opened += 1;
        if opening.opened < opening.total {
            opening.say(now);
            return None;
        }
        let (copies, took_ms) = (opening.total, now.0 - opening.began);
        *slot = None;
        Some((copies, took_ms))
    }

    /// The recovery of a log gets on. Says so in the log now and then.
    pub(crate) fn on_recovering(&self, id: TopicPartition, progress: RecoveryProgress) {
        let now = self.clock.monotonic();
        let Some(opening) = &mut *self.opening.lock() else { return };
        let began = opening.recovering.get(&id).map_or(now.0, |recovering| recovering.began);
        opening.recovering.insert(id, Recovering { began, progress });
        opening.say(now);
    }

    /// The recovery of a log is over.
    pub(crate) fn on_recovered(&self, id: TopicPartition) {
        if let Some(opening) = &mut *self.opening.lock() {
            opening.recovering.remove(&id);
        }
    }

    /// A sentence, while copies are being opened.
    pub(crate) fn sentence(&self) -> Option<String> {
        let opening = self.opening.lock();
        Some(opening.as_ref()?.sentence(self.clock.monotonic()))
    }
}

impl Opening {
    fn sentence(&self, now: Millis) -> String {
        let left = match self.seconds_left(now) {
            Some(seconds) => format!("about {seconds} s left"),
            None => "no telling yet how long it takes".to_owned(),
        };
        let mut sentence =
            format!("opening: {} of {} partition copies are open, {left}", self.opened, self.total);
        if let Some((id, RecoveryProgress { bytes_done, bytes_total })) = self.longest() {
            let (done, total) = (bytes_done >> 20, bytes_total >> 20);
            sentence.push_str(&format!("; {id} is being recovered, {done} of {total} MiB are done"));
        }
        sentence
    }

    /// A line in the log, unless there was one a moment ago.
    fn say(&mut self, now: Millis) {
        if now.0 - self.said >= LINE_EVERY_MS {
            self.said = now.0;
            tracing::info!("{}", self.sentence(now));
        }
    }

    /// The recovery that has the most before it.
    fn longest(&self) -> Option<(TopicPartition, RecoveryProgress)> {
        let all = self.recovering.iter().map(|(id, recovering)| (*id, recovering.progress));
        let left = |progress: &RecoveryProgress| progress.bytes_total.saturating_sub(progress.bytes_done);
        all.max_by_key(|(id, progress)| (left(progress), *id))
            .filter(|(_, progress)| left(progress) >= LONG_BYTES)
    }

    /// If each log that is at work goes on as fast as it went, and the rest goes as fast as what is done.
    fn seconds_left(&self, Millis(now): Millis) -> Option<i64> {
        let long = self.recovering.values().filter_map(|recovering| recovering.ms_left(now)).max();
        let rest = self.total.saturating_sub(self.opened + self.recovering.len());
        let rest = match (rest, self.opened) {
            (0, 0) => None,
            (_, 0) => return None,
            (rest, opened) => {
                let of = |count| i64::try_from(count).unwrap_or(i64::MAX);
                Some((now - self.began).saturating_mul(of(rest)) / of(opened))
            }
        };
        Some(long.max(rest)? / 1000)
    }
}

impl Recovering {
    /// `None` before it has gone through anything.
    fn ms_left(&self, now: i64) -> Option<i64> {
        let RecoveryProgress { bytes_done, bytes_total } = self.progress;
        let left = i128::from(bytes_total.saturating_sub(bytes_done));
        let left = (i128::from(now - self.began) * left).checked_div(i128::from(bytes_done))?;
        i64::try_from(left).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto_types::ids::TopicId;
    use proto_types::metadata::topic_partition;
    use uuid::Uuid;

    #[test]
    fn the_rest_is_taken_to_go_as_fast_as_the_beginning() {
        let mut opening =
            Opening { began: 1_000, said: 1_000, total: 4, opened: 0, recovering: HashMap::new() };
        let sentence = opening.sentence(Millis(1_500));
        assert_eq!(sentence, "opening: 0 of 4 partition copies are open, no telling yet how long it takes");
        opening.opened = 1;
        let sentence = opening.sentence(Millis(9_000));
        assert_eq!(sentence, "opening: 1 of 4 partition copies are open, about 24 s left");
    }

    #[test]
    fn a_long_recovery_is_named_and_tells_how_long_it_takes() {
        let id = topic_partition(TopicId(Uuid::from_u128(1)), 7);
        let progress = RecoveryProgress { bytes_done: 100 << 20, bytes_total: 400 << 20 };
        let long = Recovering { began: 1_000, progress };
        let mut opening =
            Opening { began: 0, said: 0, total: 4, opened: 3, recovering: HashMap::from([(id, long)]) };
        let sentence = opening.sentence(Millis(11_000));
        let is = format!(
            "opening: 3 of 4 partition copies are open, about 30 s left; {id} is being recovered, 100 of 400 MiB are done"
        );
        assert_eq!(sentence, is);
        (opening.opened, opening.total) = (1, 12);
        assert_eq!(opening.seconds_left(Millis(11_000)), Some(110), "ten more, at eleven seconds each");
        opening.opened = 0;
        assert_eq!(opening.seconds_left(Millis(11_000)), None, "nothing is known of those that wait");
        opening.total = 1;
        assert_eq!(opening.seconds_left(Millis(11_000)), Some(30));
    }

    #[test]
    fn there_is_something_to_say_only_while_copies_are_opened() {
        let progress = OpeningProgress::default();
        assert_eq!(progress.sentence(), None);
        progress.begin(2);
        assert_eq!(progress.on_opened(), None);
        assert!(progress.sentence().is_some_and(|sentence| sentence.starts_with("opening: 1 of 2 ")));
        progress.begin(1);
        assert_eq!(progress.on_opened(), None, "there is one more now");
        assert_eq!(progress.on_opened().map(|(copies, _)| copies), Some(3));
        assert_eq!((progress.sentence(), progress.on_opened()), (None, None));
        progress.begin(0);
        assert_eq!(progress.sentence(), None);
    }
}
