//! The share that runs with every change: the quick suites whole, and of one other family as many tests as fit into the
//! time, both chosen by the day, so that over many days everything has its turn. The witness is such a family too.

use super::list::List;
use super::suite::{Prepared, SUITES, Suite};
use super::wire::{WITNESS, Wire};
use crate::rotation::Day;

/// Seconds of a suite's tests, measured on Apache Kafka, one after the other.
const QUICK: f64 = 20.0;
/// What the tests of one suite may take, by the same measure.
const BUDGET: f64 = 60.0;
/// The quick suites, which have their turn every day, whole.
const ALWAYS: &[&str] = &["kafka-go", "rskafka", "kcat"];

/// How far the place where a suite's share begins moves from one turn to the next: a prime number that is more than the tests of
/// a suite, so that the places are spread and none is left out.
const STRIDE: usize = 7_919;

fn is_always(suite: &Suite) -> bool {
    ALWAYS.contains(&suite.name)
}

/// The suites that are not run every time.
fn others() -> Vec<&'static Suite> {
    SUITES.iter().filter(|suite| !is_always(suite)).collect()
}

/// In so many days all have their turn: the other suites and the witness.
fn turns() -> usize {
    others().len() + 1
}

/// What has its turn: the suites that always have, and one more, or the witness.
pub(super) fn of(day: Day) -> (Vec<&'static Suite>, Option<&'static Wire>) {
    let chosen = others().get(day.turn(turns()).0).copied();
    let wire = if chosen.is_none() { Some(&WITNESS) } else { None };
    (SUITES.iter().filter(|suite| is_always(suite)).chain(chosen).collect(), wire)
}

/// Of the tests that Weir passes, all if they are quick or always run, else those from a place that the day chooses on, and at
/// least one.
pub(super) fn choose(suite: &Suite, list: &List, prepared: &Prepared, day: Day) -> Vec<String> {
    let seconds = |test: &String| list.kafka_passed.get(test).copied().unwrap_or_default();
    let passed: Vec<&String> =
        prepared.tests.iter().filter(|test| list.weir_passed.contains(*test)).collect();
    let is_whole = is_always(suite) || passed.iter().map(|test| seconds(test)).sum::<f64>() <= QUICK;
    if is_whole || passed.is_empty() {
        return passed.into_iter().cloned().collect();
    }
    let begin = day.turn(turns()).1.wrapping_mul(STRIDE) % passed.len();
    let limit = BUDGET * f64::from(u32::try_from(suite.at_once).unwrap_or(1));
    let mut sum = 0.0;
    let order = passed.iter().cycle().skip(begin).take(passed.len());
    let fits = |test: &&&String| {
        // The first one whatever it takes: one that is longer than the time would never be run.
        let fits = sum == 0.0 || sum + seconds(test) <= limit;
        sum += if fits { seconds(test) } else { 0.0 };
        fits
    };
    order.filter(fits).map(|test| (*test).clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn days(count: usize) -> impl Iterator<Item = Day> {
        (1..=count).map(|day| Day::parse(&format!("2026-12-{day:02}")).unwrap())
    }

    #[test]
    fn in_as_many_days_as_there_are_suites_and_one_more_each_and_the_witness_has_its_turn() {
        let mut chosen: Vec<&str> = Vec::new();
        for day in days(turns()) {
            let (suites, wire) = of(day);
            let (always, others): (Vec<&Suite>, Vec<&Suite>) =
                suites.into_iter().partition(|suite| is_always(suite));
            assert_eq!(always.iter().map(|suite| suite.name).collect::<Vec<_>>(), ALWAYS, "{day}");
            assert_eq!(others.len() + usize::from(wire.is_some()), 1, "{day}");
            chosen.extend(others.iter().map(|suite| suite.name).chain(wire.map(|wire| wire.name)));
        }
        chosen.sort_unstable();
        chosen.dedup();
        assert_eq!(chosen.len(), SUITES.len() - ALWAYS.len() + 1, "{chosen:?}");
    }

    #[test]
    fn over_the_years_every_test_that_weir_passes_is_run() {
        for suite in others() {
            let list = List::read(suite.name).unwrap_or_else(|why| panic!("{why}"));
            let tests: Vec<String> = list.weir_passed.iter().cloned().collect();
            let prepared = Prepared { version: String::new(), tests: tests.clone() };
            let mut seen: Vec<String> = Vec::new();
            for year in 1970..2370 {
                let day = Day::parse(&format!("{year}-07-01")).unwrap();
                seen.extend(choose(suite, &list, &prepared, day));
            }
            seen.sort();
            seen.dedup();
            assert_eq!(seen, tests, "{}", suite.name);
        }
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
        list.kafka_passed.values_mut().for_each(|seconds| *seconds = 1000.0);
        let day = Day::parse("2026-11-30").unwrap();
        assert_eq!(choose(suite, &list, &prepared, day).len(), 1, "one at least");
        list.kafka_passed.values_mut().for_each(|seconds| *seconds = 0.1);
        assert_eq!(choose(suite, &list, &prepared, day), tests);
    }
}
