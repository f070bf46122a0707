//! How far the opening of copies has got, for people who wait for a node to start: in the log and on `/readyz`.

use parking_lot::Mutex;
use proto_types::ids::Millis;

use crate::clock::Clock;

/// Pause between two lines in the log.
const LINE_EVERY_MS: i64 = 2_000;

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

#[derive(Debug, Clone, Copy)]
struct Opening {
    began: i64,
    said: i64,
    total: usize,
    opened: usize,
}

impl OpeningProgress {
    /// So many copies are about to be opened.
    pub(crate) fn begin(&self, total: usize) {
        let Millis(now) = self.clock.monotonic();
        let opening = Opening { began: now, said: now, total, opened: 0 };
        *self.opening.lock() = (total > 0).then_some(opening);
    }

    /// One of them is open, or has failed. Says so in the log now and then.
    pub(crate) fn on_opened(&self) {
        let now = self.clock.monotonic();
        let Some(opening) = &mut *self.opening.lock() else { return };
        opening.opened += 1;
        if now.0 - opening.said >= LINE_EVERY_MS {
            opening.said = now.0;
            let (opened, total) = (opening.opened, opening.total);
            tracing::info!(
                opened,
                total,
                seconds_left = opening.seconds_left(now),
                "opening partition copies"
            );
        }
    }

    /// All are open. How many there were, and how many milliseconds it took.
    pub(crate) fn end(&self) -> Option<(usize, i64)> {
        let opening = self.opening.lock().take()?;
        Some((opening.total, self.clock.monotonic().0 - opening.began))
    }

    /// A sentence, while copies are being opened.
    pub(crate) fn sentence(&self) -> Option<String> {
        let opening = (*self.opening.lock())?;
        Some(opening.sentence(self.clock.monotonic()))
    }
}

impl Opening {
    fn sentence(&self, now: Millis) -> String {
        let left = match self.seconds_left(now) {
            Some(seconds) => format!("about {seconds} s left"),
            None => "no telling yet how long it takes".to_owned(),
        };
        format!("opening: {} of {} partition copies are open, {left}", self.opened, self.total)
    }

    /// If the rest goes as fast as what is done.
    fn seconds_left(&self, Millis(now): Millis) -> Option<i64> {
        let opened = i64::try_from(self.opened).ok().filter(|opened| *opened > 0)?;
        let left = i64::try_from(self.total.saturating_sub(self.opened)).unwrap_or(i64::MAX);
        Some((now - self.began).saturating_mul(left) / opened / 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_taken_to_go_as_fast_as_the_beginning() {
        let mut opening = Opening { began: 1_000, said: 1_000, total: 4, opened: 0 };
        let sentence = opening.sentence(Millis(1_500));
        assert_eq!(sentence, "opening: 0 of 4 partition copies are open, no telling yet how long it takes");
        opening.opened = 1;
        let sentence = opening.sentence(Millis(9_000));
        assert_eq!(sentence, "opening: 1 of 4 partition copies are open, about 24 s left");
    }

    #[test]
    fn there_is_something_to_say_only_while_copies_are_opened() {
        let progress = OpeningProgress::default();
        assert_eq!(progress.sentence(), None);
        progress.begin(2);
        progress.on_opened();
        assert!(progress.sentence().is_some_and(|sentence| sentence.starts_with("opening: 1 of 2 ")));
        progress.on_opened();
        assert_eq!(progress.end().map(|(copies, _)| copies), Some(2));
        assert_eq!((progress.sentence(), progress.end()), (None, None));
        progress.begin(0);
        assert_eq!(progress.sentence(), None);
    }
}
