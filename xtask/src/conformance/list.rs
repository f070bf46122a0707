//! The list of a suite: what Apache Kafka does with each test, and what of it Weir does too.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use super::runner::TestResult;
use super::suite::{Outcome, Prepared};
use crate::shell::{self, Failure};
use crate::subject::Against;

/// What stands in `cluster-tests/conformance/<suite>.toml`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct List {
    /// Version of the suite that was run.
    pub(super) suite_version: String,
    /// Version of the Kafka that it was run against.
    pub(super) kafka_version: String,
    /// What Kafka passes, with the seconds it took.
    pub(super) kafka_passed: BTreeMap<String, f64>,
    /// What skips itself against Kafka, with the reason.
    pub(super) kafka_skipped: BTreeMap<String, String>,
    /// What Kafka fails; with the reason where it is known.
    pub(super) kafka_failed: BTreeMap<String, String>,
    /// What Weir passes. A name is never taken away.
    pub(super) weir_passed: BTreeSet<String>,
    /// What Weir does not pass yet, with the reason.
    pub(super) not_yet: BTreeMap<String, String>,
}

/// The reason of what nobody has looked at.
pub(super) const UNKNOWN: &str = "not looked into";

impl List {
    /// The list of a suite; empty if there is none.
    pub(super) fn read(suite: &str) -> Result<List, Failure> {
        let path = path(suite);
        if !path.exists() {
            return Ok(List::default());
        }
        let text = fs::read_to_string(&path)
            .map_err(|error| Failure(format!("read {}: {error}", path.display())))?;
        List::parse(&text).map_err(|error| Failure(format!("{}: {error}", path.display())))
    }

    pub(super) fn write(&self, suite: &str) -> Result<(), Failure> {
        let path = path(suite);
        shell::create(&path)?;
        fs::write(&path, self.text()).map_err(|error| Failure(format!("write {}: {error}", path.display())))
    }

    fn parse(text: &str) -> Result<List, String> {
        let table: toml::Table = text.parse().map_err(|error| format!("{error}"))?;
        let at = |section: &str, key: &str| table.get(section).and_then(|section| section.get(key));
        let version = |key: &str| {
            let version = table.get(key).and_then(toml::Value::as_str).map(str::to_owned);
            version.ok_or_else(|| format!("`{key}` is missing"))
        };
        let names = |section: &str, key: &str| {
            let list = at(section, key).and_then(toml::Value::as_array).map_or(&[][..], Vec::as_slice);
            list.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect::<BTreeSet<_>>()
        };
        let reasons = |section: &str, key: &str| {
            let table = at(section, key).and_then(toml::Value::as_table);
            let entries = table.into_iter().flatten();
            entries
                .map(|(name, why)| (name.clone(), why.as_str().unwrap_or_default().to_owned()))
                .collect::<BTreeMap<_, _>>()
        };
        let seconds = at("kafka", "passed").and_then(toml::Value::as_table).into_iter().flatten();
        let seconds = seconds.map(|(name, seconds)| {
            let seconds = seconds.as_float().ok_or_else(|| format!("{name} has no seconds"))?;
            Ok((name.clone(), seconds))
        });
        Ok(List {
            suite_version: version("suite_version")?,
            kafka_version: version("kafka_version")?,
            kafka_passed: seconds.collect::<Result<_, String>>()?,
            kafka_skipped: reasons("kafka", "skipped"),
            kafka_failed: reasons("kafka", "failed"),
            weir_passed: names("weir", "passed"),
            not_yet: reasons("weir", "not_yet"),
        })
    }

    fn text(&self) -> String {
        let mut text = format!(
            "suite_version = \"{}\"\nkafka_version = \"{}\"\n",
            self.suite_version, self.kafka_version
        );
        let list = |text: &mut String, key: &str, names: &BTreeSet<String>| {
            let _ = writeln!(text, "{key} = [");
            names.iter().for_each(|name| {
                let _ = writeln!(text, "    {},", quoted(name));
            });
            text.push_str("]\n");
        };
        let table = |text: &mut String, header: &str, entries: &BTreeMap<String, String>| {
            if !entries.is_empty() {
                let _ = writeln!(text, "\n[{header}]");
            }
            entries.iter().for_each(|(name, why)| {
                let _ = writeln!(text, "{} = {}", quoted(name), quoted(why));
            });
        };
        text.push_str("\n# seconds\n[kafka.passed]\n");
        for (name, seconds) in &self.kafka_passed {
            let _ = writeln!(text, "{} = {seconds:.1}", quoted(name));
        }
        table(&mut text, "kafka.skipped", &self.kafka_skipped);
        table(&mut text, "kafka.failed", &self.kafka_failed);
        text.push_str("\n[weir]\n# A name is never taken away.\n");
        list(&mut text, "passed", &self.weir_passed);
        table(&mut text, "weir.not_yet", &self.not_yet);
        text
    }

    /// Whether the subject must pass the test.
    pub(super) fn expects(&self, against: Against, test: &str) -> bool {
        match against {
            Against::Kafka => self.kafka_passed.contains_key(test),
            Against::Weir => self.weir_passed.contains(test),
        }
    }

    /// Whether it is known that the subject fails the test.
    pub(super) fn names(&self, against: Against, test: &str) -> bool {
        let by_kafka = self.kafka_failed.contains_key(test);
        match against {
            Against::Kafka => by_kafka,
            Against::Weir => by_kafka || self.not_yet.contains_key(test),
        }
    }

    /// All its names.
    fn all(&self) -> BTreeSet<&String> {
        let of_kafka =
            self.kafka_passed.keys().chain(self.kafka_skipped.keys()).chain(self.kafka_failed.keys());
        of_kafka.chain(&self.weir_passed).chain(self.not_yet.keys()).collect()
    }

    /// Where the list is not of this suite and this Kafka: a test that went away would else be missed by nobody, and one that
    /// came would be expected by nobody.
    pub(super) fn complaints(&self, suite: &str, prepared: &Prepared, kafka_version: &str) -> Vec<String> {
        let mut complaints = Vec::new();
        let versions = [
            ("of the suite", &self.suite_version, prepared.version.as_str()),
            ("of Apache Kafka", &self.kafka_version, kafka_version),
        ];
        for (what, listed, found) in versions {
            if listed != found {
                complaints.push(format!(
                    "{suite}: its list is of the version {listed} {what}, and this is {found}: record it anew with \
                     `--against kafka --update`"
                ));
            }
        }
        let (listed, tests) = (self.all(), prepared.tests.iter().collect::<BTreeSet<_>>());
        for gone in listed.difference(&tests) {
            complaints.push(format!("{suite}: {gone} is in its list, and the suite has no such test"));
        }
        for new in tests.difference(&listed) {
            complaints
                .push(format!("{suite}: {new} is in no list: record it with `--against kafka --update`"));
        }
        complaints
    }

    /// Replaces what is known of Kafka about the tests that were run.
    pub(super) fn take_kafka(&mut self, suite_version: &str, kafka_version: &str, results: &[TestResult]) {
        suite_version.clone_into(&mut self.suite_version);
        kafka_version.clone_into(&mut self.kafka_version);
        for result in results {
            let test = &result.test;
            self.kafka_passed.remove(test);
            let known_skip = self.kafka_skipped.remove(test);
            let known = self.kafka_failed.remove(test);
            match &result.outcome {
                Outcome::Passed => drop(self.kafka_passed.insert(test.clone(), result.seconds)),
                Outcome::Skipped(why) => drop(
                    self.kafka_skipped.insert(test.clone(), known_skip.unwrap_or_else(|| without_paths(why))),
                ),
                Outcome::Failed(why) => {
                    drop(self.kafka_failed.insert(test.clone(), known.unwrap_or_else(|| without_paths(why))))
                }
            }
        }
    }

    /// Adds what Weir passes, and names what it does not pass though Kafka does.
    pub(super) fn take_weir(&mut self, results: &[TestResult]) {
        for result in results.iter().filter(|result| self.kafka_passed.contains_key(&result.test)) {
            if result.outcome == Outcome::Passed {
                self.not_yet.remove(&result.test);
                self.weir_passed.insert(result.test.clone());
            } else if !self.weir_passed.contains(&result.test) {
                self.not_yet.entry(result.test.clone()).or_insert_with(|| UNKNOWN.to_owned());
            }
        }
    }
}

fn path(suite: &str) -> PathBuf {
    shell::root().join("cluster-tests/conformance").join(format!("{suite}.toml"))
}

/// How many tests of each suite Weir passed at least, from `xtask/ratchet.toml`.
pub(super) fn floors() -> Result<BTreeMap<String, usize>, Failure> {
    let path = ratchet();
    let text =
        fs::read_to_string(&path).map_err(|error| Failure(format!("read {}: {error}", path.display())))?;
    let table: toml::Table = text.parse().map_err(|error| Failure(format!("{}: {error}", path.display())))?;
    let section = table.get(FLOORS).and_then(toml::Value::as_table).into_iter().flatten();
    let floor = |(suite, floor): (&String, &toml::Value)| {
        let number = floor.as_integer().and_then(|number| usize::try_from(number).ok());
        let number = number.ok_or_else(|| Failure(format!("{}: {suite} has no number", path.display())))?;
        Ok((suite.clone(), number))
    };
    section.map(floor).collect()
}

/// Raises the floors to what the lists have.
pub(super) fn raise_floors(suites: &[&str]) -> Result<(), Failure> {
    let mut floors = floors()?;
    for suite in suites {
        let floor = floors.entry((*suite).to_owned()).or_default();
        *floor = List::read(suite)?.weir_passed.len().max(*floor);
    }
    let path = ratchet();
    let text =
        fs::read_to_string(&path).map_err(|error| Failure(format!("read {}: {error}", path.display())))?;
    let header = format!("[{FLOORS}]\n");
    let (before, _) = text.split_once(&header).unwrap_or((&text, ""));
    let lines: String =
        floors.iter().map(|(suite, floor)| format!("{} = {floor}\n", quoted(suite))).collect();
    fs::write(&path, format!("{before}{header}{lines}"))
        .map_err(|error| Failure(format!("write {}: {error}", path.display())))
}

/// The last section of the ratchet.
const FLOORS: &str = "conformance";

fn ratchet() -> PathBuf {
    shell::root().join("xtask/ratchet.toml")
}

/// Without the place of this tree: lists are for every machine.
fn without_paths(text: &str) -> String {
    text.replace(&shell::root().display().to_string(), "")
}

fn quoted(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("\"{}\"", plain.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::super::suite::SUITES;
    use super::super::wire::WIRES;
    use super::*;

    fn result(test: &str, outcome: Outcome) -> TestResult {
        TestResult { test: test.to_owned(), outcome, seconds: 1.5 }
    }

    fn failed() -> Outcome {
        Outcome::Failed("it said \"no\"".to_owned())
    }

    fn skipped() -> Outcome {
        Outcome::Skipped("of an \"old\" version".to_owned())
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let mut list = List::default();
        let of_kafka = [result("a", Outcome::Passed), result("b", skipped()), result("c", failed())];
        list.take_kafka("1.2", "4.4.0", &of_kafka);
        list.take_weir(&[result("a", failed())]);
        assert_eq!(List::parse(&list.text()), Ok(list));
    }

    #[test]
    fn what_weir_passed_once_stays_expected() {
        let mut list = List::default();
        list.take_kafka("1", "4", &[result("a", Outcome::Passed), result("b", Outcome::Passed)]);
        list.take_weir(&[result("a", Outcome::Passed), result("b", failed())]);
        list.take_weir(&[result("a", failed()), result("b", Outcome::Passed), result("c", Outcome::Passed)]);
        assert_eq!(list.weir_passed, ["a", "b"].map(str::to_owned).into());
        assert_eq!(list.not_yet, BTreeMap::new());
    }

    #[test]
    fn what_a_suite_has_not_any_more_or_only_now_and_other_versions_are_complaints() {
        let mut list = List::default();
        list.take_kafka(
            "1",
            "4",
            &[result("a", Outcome::Passed), result("b", skipped()), result("c", failed())],
        );
        list.take_weir(&[result("a", Outcome::Passed)]);
        let prepared = |version: &str, tests: &[&str]| Prepared {
            version: version.to_owned(),
            tests: tests.iter().map(|test| (*test).to_owned()).collect(),
        };
        let about = |prepared: &Prepared, kafka: &str| list.complaints("s", prepared, kafka).join("\n");
        assert_eq!(about(&prepared("1", &["a", "b", "c"]), "4"), "");
        assert!(about(&prepared("1", &["b", "c"]), "4").starts_with("s: a is in its list"));
        assert!(about(&prepared("1", &["a", "b", "c", "d"]), "4").starts_with("s: d is in no list"));
        assert!(about(&prepared("2", &["a", "b", "c"]), "4").contains("1 of the suite, and this is 2"));
        assert!(about(&prepared("1", &["a", "b", "c"]), "5").contains("4 of Apache Kafka, and this is 5"));
    }

    #[test]
    fn no_list_has_less_that_weir_passes_than_it_had() {
        let floors = floors().unwrap_or_else(|why| panic!("{why}"));
        let suites: BTreeSet<String> = SUITES.iter().map(|suite| suite.name.to_owned()).collect();
        assert_eq!(
            floors.keys().cloned().collect::<BTreeSet<_>>(),
            suites,
            "each suite has its floor, no other"
        );
        for (suite, floor) in floors {
            let list = List::read(&suite).unwrap_or_else(|why| panic!("{why}"));
            let passed = list.weir_passed.len();
            assert!(passed >= floor, "{suite}: Weir passed {floor} tests, and now its list has {passed}");
        }
    }

    #[test]
    fn every_suite_has_a_list_and_every_test_that_kafka_passes_a_verdict() {
        for suite in SUITES {
            let list = List::read(suite.name).unwrap_or_else(|Failure(why)| panic!("{why}"));
            assert!(!list.kafka_passed.is_empty(), "{}: what does Apache Kafka pass?", suite.name);
            for test in list.kafka_passed.keys() {
                let (passed, named) = (list.weir_passed.contains(test), list.not_yet.get(test));
                assert!(passed != named.is_some(), "{}: {test} is passed or named, not both", suite.name);
                assert!(named.is_none_or(|why| why != UNKNOWN), "{}: why does {test} fail?", suite.name);
            }
            let without = list.kafka_skipped.iter().chain(&list.kafka_failed).find(|(_, why)| why.is_empty());
            assert_eq!(without, None, "{}: why does Apache Kafka not pass this?", suite.name);
        }
    }

    #[test]
    fn the_table_of_the_readme_is_what_the_lists_say() {
        let readme = fs::read_to_string(shell::root().join("README.md")).unwrap();
        let (_, table) = readme.split_once("| suite | Apache Kafka passes | Weir passes |").unwrap();
        let rows: Vec<&str> = table.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
        assert_eq!(rows.len(), SUITES.len() + WIRES.len());
        for (suite, row) in SUITES.iter().zip(rows) {
            let list = List::read(suite.name).unwrap_or_else(|Failure(why)| panic!("{why}"));
            let numbers = format!("| {} | {} |", list.kafka_passed.len(), list.weir_passed.len());
            assert!(row.contains(&numbers), "{}: the README says {row}, the list {numbers}", suite.name);
            let (skipped, failed) = (list.kafka_skipped.len(), list.kafka_failed.len());
            let itself = [("skips", skipped), ("fails", failed)].into_iter().filter(|(_, count)| *count > 0);
            let itself: Vec<String> = itself.map(|(what, count)| format!("{what} {count}")).collect();
            let column = row.trim_end_matches('|').rsplit('|').next().unwrap_or_default().trim();
            assert_eq!(column, itself.join(", "), "{}: what Apache Kafka itself does not pass", suite.name);
            let version = format!(" {}", list.suite_version);
            assert!(row.contains("the same") || row.contains(&version), "{}: {row}, {version}", suite.name);
        }
    }
}
