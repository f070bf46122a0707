//! The table of a run, and what in it is not as the lists say.

use std::fmt::Write as _;

use super::list::List;
use super::runner::TestResult;
use super::suite::Outcome;
use crate::subject::Against;

/// A suite's row.
pub(super) struct Row {
    pub(super) suite: &'static str,
    pub(super) passed: usize,
    /// Of those that were run, what the subject must pass by the list.
    pub(super) expected: usize,
    pub(super) skipped: usize,
    pub(super) failed: usize,
    /// Of the failed, those that the list names with a reason.
    pub(super) named: usize,
    /// What fails the command.
    pub(super) complaints: Vec<String>,
}

impl Row {
    /// The row of what has not been run.
    pub(super) fn empty(suite: &'static str) -> Row {
        Row { suite, passed: 0, expected: 0, skipped: 0, failed: 0, named: 0, complaints: Vec::new() }
    }

    pub(super) fn new(suite: &'static str, against: Against, list: &List, results: &[TestResult]) -> Row {
        let count = |wanted: &dyn Fn(&TestResult) -> bool| results.iter().filter(|r| wanted(r)).count();
        let is_expected = |result: &TestResult| list.expects(against, &result.test);
        let is_named = |result: &TestResult| list.names(against, &result.test);
        let has_failed = |result: &TestResult| matches!(result.outcome, Outcome::Failed(_));
        let mut complaints = Vec::new();
        for result in results {
            let test = &result.test;
            match &result.outcome {
                Outcome::Failed(why) if is_expected(result) => {
                    complaints.push(format!("{suite}: {test} passed before and failed twice: {why}"));
                }
                Outcome::Skipped(why) if is_expected(result) => {
                    complaints.push(format!("{suite}: {test} passed before and is skipped now: {why}"));
                }
                Outcome::Failed(why) if !is_named(result) => {
                    complaints.push(format!("{suite}: {test} failed twice and no list names it: {why}"));
                }
                Outcome::Failed(_) | Outcome::Passed | Outcome::Skipped(_) => {}
            }
        }
        Row {
            suite,
            passed: count(&|result| result.outcome == Outcome::Passed),
            expected: count(&|result| is_expected(result)),
            skipped: count(&|result| matches!(result.outcome, Outcome::Skipped(_))),
            failed: count(&has_failed),
            named: count(&|result| has_failed(result) && is_named(result)),
            complaints,
        }
    }
}

/// The table in Markdown.
pub(super) fn table(rows: &[Row]) -> String {
    let mut text = String::from("| suite | passed | expected | skipped | failed | of these named |\n");
    text.push_str("|---|---|---|---|---|---|\n");
    for row in rows {
        let Row { suite, passed, expected, skipped, failed, named, .. } = row;
        let _ = writeln!(text, "| {suite} | {passed} | {expected} | {skipped} | {failed} | {named} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_pass_and_an_unnamed_failure_are_complaints_and_a_named_one_is_not() {
        let mut list = List::default();
        for test in ["kept", "lost", "skips", "named", "new"] {
            list.kafka_passed.insert(test.to_owned(), 1.0);
        }
        list.weir_passed = ["kept", "lost", "skips"].map(str::to_owned).into();
        list.not_yet.insert("named".to_owned(), "transactions".to_owned());
        let failed = || Outcome::Failed("no".to_owned());
        let results = [
            ("kept", Outcome::Passed),
            ("lost", failed()),
            ("skips", Outcome::Skipped("not here".to_owned())),
            ("named", failed()),
            ("new", failed()),
        ];
        let results =
            results.map(|(test, outcome)| TestResult { test: test.to_owned(), outcome, seconds: 1.0 });
        let row = Row::new("s", Against::Weir, &list, &results);
        assert_eq!((row.passed, row.expected, row.skipped, row.failed, row.named), (1, 3, 1, 3, 1));
        let about: Vec<bool> =
            ["lost", "skips", "new"].iter().zip(&row.complaints).map(|(t, c)| c.contains(t)).collect();
        assert_eq!(about, [true; 3], "{:?}", row.complaints);
        assert!(table(&[row]).contains("| s | 1 | 3 | 1 | 3 | 1 |"));
    }
}
