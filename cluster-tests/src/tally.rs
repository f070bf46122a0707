//! The row that the probe and the witness end with, which `cargo xtask conformance` puts into its table.

use std::fmt;

/// Counts of answers, or of bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// As Apache Kafka has them.
    pub passed: usize,
    /// Otherwise.
    pub failed: usize,
    /// Of the failed, those with a verdict.
    pub named: usize,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { passed, failed, named } = self;
        write!(
            f,
            "row: {passed} passed, {} expected, {failed} failed, {named} named",
            passed + failed - named
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_verdict_is_not_expected() {
        let tally = Tally { passed: 90, failed: 10, named: 7 };
        assert_eq!(tally.to_string(), "row: 90 passed, 93 expected, 10 failed, 7 named");
    }
}
