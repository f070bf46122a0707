//! The share that runs with every change: the quick suites whole, and of one other family as many tests as fit into the
//! time, both chosen by the commit, so that over many commits everything has its turn.

use super::list::List;
use super::suite::{Prepared, SUITES, Suite};

/// Seconds of a suite's tests, measured on Apache Kafka, one after the other.
const QUICK: f64 = 20.0;
/// What the tests of one suite may take, by the same measure.
const BUDGET: f64 = 60.0;

/// `commit` as a number.
fn number(commit: &str) -> usize {
    commit.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)))
}

/// The suites that have their turn: those called quick by their own name, and one more.
pub(super) fn suites(commit: &str) -> Vec<&'static Suite> {
    let (always, others): (Vec<&Suite>, Vec<&Suite>) = SUITES.iter().partition(|suite| suite.name == "kcat");
    let chosen = others.get(number(commit) % others.len().max(1)).copied();
    always.into_iter().chain(chosen).collect()
}

/// Of the tests that Weir passes, all if they are quick, else those from a place that the commit chooses on.
pub(super) fn choose(suite: &Suite, list: &List, prepared: &Prepared, commit: &str) -> Vec<String> {
    let seconds = |test: &String| list.kafka_passed.get(test).copied().unwrap_or_default();
    let passed: Vec<&String> =
        prepared.tests.iter().filter(|test| list.weir_passed.contains(*test)).collect();
    if passed.iter().map(|test| seconds(test)).sum::<f64>() <= QUICK || passed.is_empty() {
        return passed.into_iter().cloned().collect();
    }
    let begin = number(commit) % passed.len();
    let limit = BUDGET * f64::from(u32::try_from(suite.at_once).unwrap_or(1));
    let mut sum = 0.0;
    let order = passed.iter().cycle().skip(begin).take(passed.len());
    let fits = |test: &&&String| {
        let fits = sum + seconds(test) <= limit;
        sum += if fits { seconds(test) } else { 0.0 };
        fits
    };
    order.filter(fits).map(|test| (*test).clone()).collect()
}
