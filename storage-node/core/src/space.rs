//! Whether a data directory has room for more records, and for how long it will.
//!
//! A reserve is kept free for what must go on when clients may write no more: deleting, the controllers' log, the partitions
//! of coordinators. Below it clients are refused, until there is a quarter more than the reserve, so that a disk at its edge
//! does not change its mind with every batch.

use std::collections::VecDeque;

use proto_types::ids::Millis;

/// The reserve is at most this part of the file system.
const RESERVE_PART_MAX: u64 = 16;
/// How far apart the samples lie from which the forecast is made.
const SAMPLE_MS: i64 = 5_000;
/// So many of them are kept.
const SAMPLES_MAX: usize = 60;

/// Room of the file system that holds a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    pub total_bytes: u64,
    pub available_bytes: u64,
}

/// What a look has brought up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceEvent {
    /// The reserve is reached: clients write no more.
    Low,
    /// There is room again.
    Enough,
}

/// See the module.
#[derive(Debug)]
pub struct SpaceWatch {
    reserve_bytes_max: u64,
    space: Space,
    is_low: bool,
    has_refused: bool,
    samples: VecDeque<(Millis, u64)>,
}

impl SpaceWatch {
    /// `reserve_bytes_max` are kept free, on a small disk a sixteenth.
    pub fn new(reserve_bytes_max: u64, now: Millis, space: Space) -> Self {
        let mut watch =
            Self { reserve_bytes_max, space, is_low: false, has_refused: false, samples: VecDeque::new() };
        watch.look(now, space);
        watch
    }

    /// Takes in how much room there is now.
    pub fn look(&mut self, now: Millis, space: Space) -> Option<SpaceEvent> {
        self.space = space;
        let due = |last: &(Millis, u64)| now.0.saturating_sub(last.0.0) >= SAMPLE_MS;
        if self.samples.back().is_none_or(due) {
            if self.samples.len() == SAMPLES_MAX {
                self.samples.pop_front();
            }
            self.samples.push_back((now, space.available_bytes));
        }
        let reserve = self.reserve_bytes();
        let was_low = self.is_low;
        let at_the_edge = std::mem::take(&mut self.has_refused) || was_low;
        let needed = if at_the_edge { reserve + reserve / 4 } else { reserve };
        self.is_low = space.available_bytes < needed;
        match (was_low, self.is_low) {
            (false, true) => Some(SpaceEvent::Low),
            (true, false) => Some(SpaceEvent::Enough),
            (true, true) | (false, false) => None,
        }
    }

    /// A batch was refused because it would have reached into the reserve: close to it, that is as good as having reached it.
    pub fn on_refused(&mut self) {
        self.has_refused = true;
    }

    /// What is kept free.
    pub fn reserve_bytes(&self) -> u64 {
        self.reserve_bytes_max.min(self.space.total_bytes / RESERVE_PART_MAX)
    }

    /// Whether clients are refused.
    pub fn is_low(&self) -> bool {
        self.is_low
    }

    /// Bytes that may be written until the reserve is reached.
    pub fn room_bytes(&self) -> u64 {
        self.space.available_bytes.saturating_sub(self.reserve_bytes())
    }

    /// Seconds until the reserve is reached if it goes on as in the last minutes; infinite if the room does not shrink.
    pub fn seconds_to_full(&self) -> f64 {
        if self.is_low || self.room_bytes() == 0 {
            return 0.0;
        }
        let (Some(first), Some(last)) = (self.samples.front(), self.samples.back()) else {
            return f64::INFINITY;
        };
        let used = first.1.saturating_sub(last.1) as f64;
        let seconds = (last.0.0 - first.0.0) as f64 / 1000.0;
        if used > 0.0 { self.room_bytes() as f64 * seconds / used } else { f64::INFINITY }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn space(available_mib: u64) -> Space {
        Space { total_bytes: 64 * MIB, available_bytes: available_mib * MIB }
    }

    #[test]
    fn the_reserve_is_a_part_of_a_small_disk() {
        assert_eq!(SpaceWatch::new(256 * MIB, Millis(0), space(60)).reserve_bytes(), 4 * MIB);
        assert_eq!(SpaceWatch::new(MIB, Millis(0), space(60)).reserve_bytes(), MIB);
        assert!(!SpaceWatch::new(0, Millis(0), space(0)).is_low(), "no reserve: the disk itself refuses");
    }

    #[test]
    fn what_refuses_a_large_batch_is_low() {
        let mut watch = SpaceWatch::new(256 * MIB, Millis(0), space(60));
        watch.on_refused();
        assert_eq!(watch.look(Millis(1), space(20)), None, "far from the reserve it was the batch's fault");
        assert_eq!(watch.look(Millis(2), space(4)), None);
        watch.on_refused();
        assert_eq!(watch.look(Millis(3), space(4)), Some(SpaceEvent::Low));
        assert_eq!(watch.look(Millis(4), space(4)), None, "and stays so");
        assert_eq!(watch.seconds_to_full(), 0.0);
        assert_eq!(watch.look(Millis(5), space(5)), Some(SpaceEvent::Enough));
    }

    #[test]
    fn it_changes_its_mind_only_when_there_is_clearly_more() {
        let mut watch = SpaceWatch::new(256 * MIB, Millis(0), space(60));
        let mut look = |mib| watch.look(Millis(1), space(mib));
        assert_eq!(look(4), None);
        assert_eq!(look(3), Some(SpaceEvent::Low));
        assert_eq!(look(4), None, "at its edge");
        assert_eq!(look(5), Some(SpaceEvent::Enough));
        assert_eq!(look(4), None);
        assert!(SpaceWatch::new(256 * MIB, Millis(0), space(3)).is_low(), "a start on a full disk");
    }

    #[test]
    fn the_forecast_follows_what_is_used() {
        let mut watch = SpaceWatch::new(256 * MIB, Millis(0), space(60));
        assert_eq!(watch.seconds_to_full(), f64::INFINITY);
        for second in 1..=10 {
            watch.look(Millis(second * 1000), space(60 - second as u64));
        }
        let seconds = watch.seconds_to_full();
        assert!((seconds - 46.0).abs() < 0.1, "{seconds}");
        for second in 11..=1000 {
            watch.look(Millis(second * 1000), space(50));
        }
        assert_eq!(watch.seconds_to_full(), f64::INFINITY);
        assert!(watch.samples.len() <= SAMPLES_MAX);
        watch.look(Millis(2_000_000), space(4));
        assert_eq!(watch.seconds_to_full(), 0.0);
    }
}
