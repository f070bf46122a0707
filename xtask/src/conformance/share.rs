//! The share that runs with every change: the quick suites whole, and of one other family as many tests as fit into the
//! time, both chosen by the day, so that over many days everything has its turn.

use super::list::List;
use super::suite::{Prepared, SUITES, Suite};
use crate::rotation::Day;

/// Seconds of a suite's tests, measured on Apache Kafka, one after the other.
const QUICK: f64 = 20.0;
/// What the tests of one suite may take, by the same measure.
const BUDGET: f64 = 60.0;
/// The suite that has its turn every day.
const ALWAYS: &str = "kcat";

/// How far the place where a suite's share begins moves from one turn to the next: a prime number that is more than the tests of
/// a suite, so that the places are spread and none is left out.
const STRIDE: usize = 7_919;

/// The suites that are not run every time.
fn others() -> Vec<&'static Suite> {
    SUITES.iter().filter(|suite| suite.name != ALWAYS).collect()
}

/// The suites that have their turn: the one that always has, and one more.
pub(super) fn suites(day: Day) -> Vec<&'static Suite> {
    let others = others();
    let chosen = others.get(day.turn(others.len()).0).copied();
    SUITES.iter().filter(|suite| suite.name == ALWAYS).chain(chosen).collect()
}

/// Of the tests that Weir passes, all if they are quick, else those from a place that the day chooses on.
pub(super) fn choose(suite: &Suite, list: &List, prepared: &Prepared, day: Day) -> Vec<String> {
    let seconds = |test: &String| list.kafka_passed.get(test).copied().unwrap_or_default();
    let passed: Vec<&String> =
        prepared.tests.iter().filter(|test| list.weir_passed.contains(*test)).collect();
    if passed.iter().map(|test| seconds(test)).sum::<f64>() <= QUICK || passed.is_empty() {
        return passed.into_iter().cloned().collect();
    }
    let begin = day.turn(others().len()).1.wrapping_mul(STRIDE) % passed.len();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_as_many_days_as_there_are_suites_each_has_its_turn() {
        let count = others().len();
        let mut chosen: Vec<&str> = Vec::new();
        for day in 1..=count {
            let suites = suites(Day::parse(&format!("2026-12-{day:02}")).unwrap());
            assert_eq!((suites.len(), suites[0].name), (2, ALWAYS));
            chosen.push(suites[1].name);
        }
        chosen.sort_unstable();
        chosen.dedup();
        assert_eq!(chosen.len(), count, "{chosen:?}");
    }

    #[test]
    fn a_long_suite_is_run_from_changing_places_and_a_quick_one_whole() {
        let suite = others()[0];
        let mut list = List::default();
        let tests: Vec<String> = (0..40).map(|number| format!("test {number}")).collect();
        for test in &tests {
            list.kafka_passed.insert(test.clone(), 30.0);
            list.weir_passed.insert(test.clone());
        }
        let prepared = Prepared { version: String::new(), tests: tests.clone() };
        let mut seen: Vec<String> = Vec::new();
        for year in 1970..2070 {
            let share = choose(suite, &list, &prepared, Day::parse(&format!("{year}-07-01")).unwrap());
            assert_eq!(share.len(), 2 * suite.at_once, "two of half a minute at a time");
            seen.extend(share);
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), tests.len(), "nothing is left out over the years");
        list.kafka_passed.values_mut().for_each(|seconds| *seconds = 0.1);
        let day = Day::parse("2026-11-30").unwrap();
        assert_eq!(choose(suite, &list, &prepared, day), tests);
    }
}
