//! Whether the wall clock can be believed when records are deleted for their age.
//!
//! A clock that jumps ahead by a year would delete everything. So the wall clock is compared with the monotonic one, and
//! at a start with the last time that the disk remembers: after a jump beyond a limit nothing is deleted by age until the
//! clock has come back, or has stood where it is for so long that somebody must have seen the alarm.

use proto_types::ids::Millis;

/// What counts as a jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockLimits {
    /// Largest difference between the progress of the two clocks between two looks, milliseconds.
    pub jump_ms_max: i64,
    /// Longest time that the node may have been down, milliseconds; more is taken for a jump of the clock.
    pub down_ms_max: i64,
    /// For how long a jump is doubted, milliseconds.
    pub doubt_ms: i64,
}

/// What a look at the clocks has brought up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockEvent {
    /// The wall clock has jumped: it is not believed from now on.
    Jumped { by_ms: i64 },
    /// It has come back: it is believed again.
    CameBack,
    /// It stayed where it was: it is believed from now on.
    Accepted { by_ms: i64 },
}

/// See the module.
#[derive(Debug)]
pub struct ClockGuard {
    limits: ClockLimits,
    /// Wall time less monotonic time, as it was when it was believed.
    believed: i64,
    doubted_since: Option<Millis>,
    /// How far ahead of `believed` the wall clock may be; more after a start, since nobody knows how long the node was down.
    ahead_max: i64,
    append_offset: i64,
}

impl ClockGuard {
    /// A guard that begins now. `last_known` is the wall time at which the node is known to have run before.
    pub fn new(limits: ClockLimits, monotonic: Millis, wall: Millis, last_known: Option<Millis>) -> Self {
        let offset = wall.0.saturating_sub(monotonic.0);
        let believed = last_known.map_or(offset, |known| known.0.saturating_sub(monotonic.0));
        let mut guard = Self {
            limits,
            believed,
            doubted_since: None,
            ahead_max: limits.down_ms_max.max(limits.jump_ms_max),
            append_offset: offset.max(believed),
        };
        if !guard.is_near(offset) {
            guard.doubted_since = Some(monotonic);
        } else {
            guard.believe(offset);
        }
        guard
    }

    /// Whether records may be deleted for their age.
    pub fn is_believed(&self) -> bool {
        self.doubted_since.is_none()
    }

    /// By how much the wall clock differs from where it should be.
    pub fn jumped_by_ms(&self, monotonic: Millis, wall: Millis) -> i64 {
        wall.0.saturating_sub(monotonic.0).saturating_sub(self.believed)
    }

    /// What to add to the monotonic time for the time of an append, if the wall clock does not say later: it never follows
    /// the wall clock back further than a jump, so that no record is taken for older than it is.
    pub fn append_offset_ms(&self) -> i64 {
        self.append_offset
    }

    /// Compares the clocks; to be called often.
    pub fn look(&mut self, monotonic: Millis, wall: Millis) -> Option<ClockEvent> {
        let offset = wall.0.saturating_sub(monotonic.0);
        if offset.saturating_add(self.limits.jump_ms_max) >= self.append_offset {
            self.append_offset = offset;
        }
        let by_ms = offset.saturating_sub(self.believed);
        match (self.is_near(offset), self.doubted_since) {
            (true, None) => {
                self.believe(offset);
                None
            }
            (true, Some(_)) => {
                self.believe(offset);
                Some(ClockEvent::CameBack)
            }
            (false, None) => {
                self.doubted_since = Some(monotonic);
                Some(ClockEvent::Jumped { by_ms })
            }
            (false, Some(since)) if monotonic.0.saturating_sub(since.0) >= self.limits.doubt_ms => {
                self.believe(offset);
                Some(ClockEvent::Accepted { by_ms })
            }
            (false, Some(_)) => None,
        }
    }

    fn is_near(&self, offset: i64) -> bool {
        let by_ms = offset.saturating_sub(self.believed);
        by_ms >= -self.limits.jump_ms_max && by_ms <= self.ahead_max
    }

    fn believe(&mut self, offset: i64) {
        self.believed = offset;
        self.doubted_since = None;
        self.ahead_max = self.limits.jump_ms_max;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;
    const YEAR: i64 = 365 * 24 * HOUR;
    const NOW: i64 = 1_700_000_000_000;
    const LIMITS: ClockLimits =
        ClockLimits { jump_ms_max: HOUR, down_ms_max: 100 * HOUR, doubt_ms: 24 * HOUR };

    fn guard(last_known: Option<i64>) -> ClockGuard {
        ClockGuard::new(LIMITS, Millis(0), Millis(NOW), last_known.map(Millis))
    }

    #[test]
    fn small_steps_and_drift_are_followed() {
        let mut guard = guard(None);
        let mut wall = NOW;
        for minute in 1..100_000 {
            wall += 60_000 + if minute % 2 == 0 { HOUR - 1 } else { -59 * 60_000 };
            assert_eq!(guard.look(Millis(minute * 60_000), Millis(wall)), None);
        }
        assert!(guard.is_believed());
    }

    #[test]
    fn a_jump_is_doubted_until_the_clock_comes_back_or_stays() {
        for by_ms in [YEAR, -YEAR, HOUR + 1, -HOUR - 1, i64::MAX / 2, i64::MIN / 2] {
            let mut guard = guard(None);
            assert_eq!(guard.look(Millis(1), Millis(NOW + 1 + by_ms)), Some(ClockEvent::Jumped { by_ms }));
            assert!(!guard.is_believed());
            assert_eq!(guard.look(Millis(2), Millis(NOW + 2 + by_ms)), None);
            assert_eq!(guard.look(Millis(3), Millis(NOW + 3)), Some(ClockEvent::CameBack));
            assert!(guard.is_believed());
            guard.look(Millis(4), Millis(NOW + 4 + by_ms));
            assert_eq!(guard.look(Millis(3 + 24 * HOUR), Millis(NOW + 3 + 24 * HOUR + by_ms)), None);
            let accepted = guard.look(Millis(4 + 24 * HOUR), Millis(NOW + 4 + 24 * HOUR + by_ms));
            assert_eq!(accepted, Some(ClockEvent::Accepted { by_ms }));
            assert!(guard.is_believed());
        }
    }

    #[test]
    fn a_start_with_another_clock_than_before_is_doubted() {
        assert!(guard(Some(NOW - 99 * HOUR)).is_believed(), "it was down for some days");
        assert!(guard(Some(NOW + HOUR)).is_believed());
        for last_known in [NOW - YEAR, NOW + YEAR, NOW + HOUR + 1] {
            let mut guard = guard(Some(last_known));
            assert!(!guard.is_believed(), "{last_known}");
            assert_eq!(guard.look(Millis(1), Millis(NOW + 1)), None);
            let right = last_known + 50 * HOUR;
            assert_eq!(guard.look(Millis(2), Millis(right)), Some(ClockEvent::CameBack));
        }
    }

    #[test]
    fn appends_are_never_stamped_too_early() {
        let mut guard = guard(None);
        let append = |guard: &ClockGuard, mono: i64, wall: i64| wall.max(mono + guard.append_offset_ms());
        // Back by a year, and it stays so: the right time goes on.
        guard.look(Millis(10), Millis(NOW + 10 - YEAR));
        assert_eq!(append(&guard, 20, NOW + 20 - YEAR), NOW + 20);
        guard.look(Millis(YEAR / 2), Millis(NOW - YEAR / 2));
        assert_eq!(append(&guard, YEAR / 2, NOW - YEAR / 2), NOW + YEAR / 2);
        // A machine that slept wakes up later than the monotonic clock thinks.
        guard.look(Millis(YEAR), Millis(NOW + 2 * YEAR));
        assert_eq!(append(&guard, YEAR, NOW + 2 * YEAR), NOW + 2 * YEAR);
    }

    /// A machine without a clock of its own starts in 1970, until somebody tells it the time.
    #[test]
    fn appends_after_a_start_with_a_clock_in_the_past_are_not_stamped_with_it() {
        let mut guard = ClockGuard::new(LIMITS, Millis(0), Millis(1_000), Some(Millis(NOW)));
        assert!(!guard.is_believed());
        assert_eq!(guard.append_offset_ms(), NOW);
        guard.look(Millis(10), Millis(1_010));
        assert_eq!(guard.append_offset_ms(), NOW);
        guard.look(Millis(20), Millis(NOW + 5_020));
        assert!(guard.is_believed());
        assert_eq!(guard.append_offset_ms(), NOW + 5_000);
    }
}
