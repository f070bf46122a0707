//! [`Lease`]: whether this process may still answer for its shards.
//!
//! Fencing at the log stops a deposed coordinator from writing, not from answering out of its memory: a process that was
//! paused for a minute would still say what it knew a minute ago. So each answer asks the lease when it is written. The
//! lease runs from the *sending* of the last heartbeat that the controller acknowledged: the controller counts from its
//! arrival, which is later, and gives the shards to another only when the session is over.

/// Right to answer until a moment. Times are milliseconds of one clock that also runs while the machine sleeps
/// (CLOCK_BOOTTIME).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    session_ms: i64,
    margin_ms: i64,
    acknowledged: Option<i64>,
}

impl Lease {
    /// No right yet. `margin_ms` allows for clocks that run at different speeds and for the answer's way out.
    #[must_use]
    pub const fn new(session_ms: i64, margin_ms: i64) -> Self {
        Lease { session_ms, margin_ms, acknowledged: None }
    }

    /// The controller acknowledged a heartbeat that was sent at `sent_at`.
    pub fn acknowledged(&mut self, sent_at: i64) {
        self.acknowledged = Some(self.acknowledged.map_or(sent_at, |before| before.max(sent_at)));
    }

    /// The session is lost: no right until the next acknowledgement.
    pub fn lost(&mut self) {
        self.acknowledged = None;
    }

    /// Whether an answer may be written at `now`.
    #[must_use]
    pub fn holds(&self, now: i64) -> bool {
        self.end().is_some_and(|end| now < end)
    }

    /// When the right ends, unless extended.
    #[must_use]
    pub fn end(&self) -> Option<i64> {
        self.acknowledged.map(|sent_at| sent_at + self.session_ms - self.margin_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_from_the_sending_of_the_last_acknowledged_heartbeat() {
        let mut lease = Lease::new(3_000, 500);
        assert!(!lease.holds(0));
        lease.acknowledged(1_000);
        assert!(lease.holds(3_499));
        assert!(!lease.holds(3_500));
        // An acknowledgement that was overtaken takes nothing away.
        lease.acknowledged(2_000);
        lease.acknowledged(1_500);
        assert_eq!(lease.end(), Some(4_500));
        lease.lost();
        assert!(!lease.holds(0));
    }
}
