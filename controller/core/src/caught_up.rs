//! When somebody who follows a log last had all of it, told from what it is heard to have now and then.

use proto_types::ids::Millis;

/// One follower's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CaughtUp {
    at: Option<Millis>,
    /// The last entry that there was at a moment.
    probe: Option<(u64, Millis)>,
}

impl CaughtUp {
    /// At `now` the log ends with entry `last`, and the follower is known to have all up to `matched`.
    pub fn look(&mut self, matched: u64, last: u64, now: Millis) {
        if let Some((_, then)) = self.probe.filter(|(end, _)| matched >= *end) {
            self.at = Some(then);
            self.probe = None;
        }
        if matched >= last {
            self.at = Some(now);
        }
        self.probe.get_or_insert((last, now));
    }

    /// The newest time at which it is known to have had everything.
    pub fn at(&self) -> Option<Millis> {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_the_end_which_was_reached() {
        let mut clock = CaughtUp::default();
        clock.look(3, 5, Millis(10));
        assert_eq!(clock.at(), None);
        clock.look(5, 9, Millis(20));
        assert_eq!(clock.at(), Some(Millis(10)), "the end of then, though the log has grown");
        clock.look(8, 12, Millis(30));
        assert_eq!(clock.at(), Some(Millis(10)));
        clock.look(12, 12, Millis(40));
        assert_eq!(clock.at(), Some(Millis(40)));
        clock.look(12, 15, Millis(50));
        assert_eq!(clock.at(), Some(Millis(40)));
    }
}
