//! What was found at a server: kept in a file of the repository for Apache Kafka, compared for any other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Announced, Lines};
use crate::tally::Tally;
use crate::workspace;

/// Everything that a server did. Cases are named `Api/what was asked`; scripts have version 0 only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// Version of the server, if it is the reference.
    pub kafka_version: String,
    /// CRC-32C of the valid requests, with ids replaced: whether two findings are about the same bytes.
    pub request_crc: u32,
    /// The APIs that the server announces.
    pub announced: Vec<Announced>,
    /// By case, runs of versions that were answered alike.
    cases: BTreeMap<String, Vec<Answered>>,
}

/// Versions in a row with the same lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Answered {
    versions: (i16, i16),
    lines: Lines,
}

impl Findings {
    /// Adds what `version` of `case` led to. Versions of a case come in ascending order.
    pub fn note(&mut self, case: &str, version: i16, lines: Lines) {
        let runs = self.cases.entry(case.to_owned()).or_default();
        match runs.last_mut() {
            Some(run) if run.versions.1 + 1 == version && run.lines == lines => run.versions.1 = version,
            Some(_) | None => runs.push(Answered { versions: (version, version), lines }),
        }
    }

    /// The lines of `version` of `case`.
    pub fn lines(&self, case: &str, version: i16) -> Option<&Lines> {
        let runs = self.cases.get(case)?;
        let run = runs.iter().find(|run| (run.versions.0..=run.versions.1).contains(&version))?;
        Some(&run.lines)
    }

    /// How many requests and scripts are in it.
    pub fn len(&self) -> usize {
        let runs = self.cases.values().flatten();
        runs.map(|run| usize::try_from(run.versions.1 - run.versions.0 + 1).unwrap_or(0)).sum()
    }

    /// Whether nothing was asked.
    pub fn is_empty(&self) -> bool {
        self.cases.is_empty()
    }

    fn versions(&self, case: &str) -> BTreeSet<i16> {
        let runs = self.cases.get(case).into_iter().flatten();
        runs.flat_map(|run| run.versions.0..=run.versions.1).collect()
    }

    /// Reads the record of Apache Kafka.
    pub fn load(path: &Path) -> Result<Findings, String> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Writes the record of Apache Kafka: JSON with one line for each run of versions, so that changes can be read.
    pub fn save(&self, path: &Path) -> Result<(), String> {
        let text = self.to_text().map_err(|error| error.to_string())?;
        fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn to_text(&self) -> Result<String, serde_json::Error> {
        let mut cases = Vec::new();
        for (case, runs) in &self.cases {
            let runs: Result<Vec<String>, _> = runs.iter().map(serde_json::to_string).collect();
            cases.push(format!("{}: [\n{}]", serde_json::to_string(case)?, runs?.join(",\n")));
        }
        Ok(format!(
            "{{\"kafka_version\": {},\n\"request_crc\": {},\n\"announced\": {},\n\"cases\": {{\n{}}}}}\n",
            serde_json::to_string(&self.kafka_version)?,
            self.request_crc,
            serde_json::to_string(&self.announced)?,
            cases.join(",\n")
        ))
    }
}

/// Where the record of Apache Kafka is.
pub fn record_file() -> PathBuf {
    workspace::root().join("cluster-tests/probe/kafka.json")
}

/// A field that two servers answer differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Case and path, positions in lists left out: `Fetch/above the end: responses[].partitions[].high_watermark`.
    pub name: String,
    /// The versions, as `4-12`.
    pub versions: String,
    /// What Apache Kafka says.
    pub kafka: String,
    /// What the other says.
    pub other: String,
}

/// What `other` does differently from `kafka`.
pub fn differences(kafka: &Findings, other: &Findings) -> Vec<Difference> {
    let mut found: BTreeMap<(String, String, String), BTreeSet<i16>> = BTreeMap::new();
    for (case, version) in asked(kafka, other) {
        for (name, kafkas, others) in differing_in(case, version, kafka, other) {
            found.entry((name, kafkas, others)).or_default().insert(version);
        }
    }
    found
        .into_iter()
        .map(|((name, kafka, other), versions)| Difference {
            name,
            versions: ranges(&versions),
            kafka,
            other,
        })
        .collect()
}

/// How many answers are alike, and how many of the others differ only in what has a verdict.
pub fn tally(kafka: &Findings, other: &Findings, has_verdict: &dyn Fn(&str) -> bool) -> Tally {
    let mut tally = Tally::default();
    for (case, version) in asked(kafka, other) {
        let differing = differing_in(case, version, kafka, other);
        if differing.is_empty() {
            tally.passed += 1;
        } else {
            tally.failed += 1;
            tally.named += usize::from(differing.iter().all(|(name, ..)| has_verdict(name)));
        }
    }
    tally
}

/// Every case in every version that one of the two was asked.
fn asked<'a>(kafka: &'a Findings, other: &'a Findings) -> Vec<(&'a str, i16)> {
    let cases: BTreeSet<&String> = kafka.cases.keys().chain(other.cases.keys()).collect();
    let versions = |case: &str| -> BTreeSet<i16> {
        kafka.versions(case).union(&other.versions(case)).copied().collect()
    };
    cases
        .into_iter()
        .flat_map(|case| versions(case).into_iter().map(|version| (case.as_str(), version)))
        .collect()
}

/// Names of the fields that are answered differently, with both values.
fn differing_in(
    case: &str,
    version: i16,
    kafka: &Findings,
    other: &Findings,
) -> Vec<(String, String, String)> {
    let fields = differing(kafka.lines(case, version), other.lines(case, version));
    let named = fields.into_iter();
    named
        .map(|(path, kafka, other)| (format!("{case}: {}", without_positions(&path)), kafka, other))
        .collect()
}

/// Paths with both values. If the outcomes differ, that is all that is said; of a list that is longer only its length is.
fn differing(kafka: Option<&Lines>, other: Option<&Lines>) -> Vec<(String, String, String)> {
    let value = |lines: Option<&Lines>, path: &str| match lines {
        Some(lines) => lines.get(path).cloned().unwrap_or_else(|| "absent".to_owned()),
        None => "not asked".to_owned(),
    };
    let outcome = "outcome".to_owned();
    let paths: BTreeSet<&String> = [kafka, other].into_iter().flatten().flat_map(Lines::keys).collect();
    let beyond = elements_of_one(&paths, kafka, other);
    let differing: Vec<(String, String, String)> = paths
        .into_iter()
        .filter(|path| !beyond.iter().any(|element| path.starts_with(element)))
        .map(|path| (path.clone(), value(kafka, path), value(other, path)))
        .filter(|(_, kafka, other)| kafka != other)
        .collect();
    match differing.iter().find(|(path, ..)| *path == outcome) {
        Some(outcome) => vec![outcome.clone()],
        None => differing,
    }
}

/// Paths of the elements that only the longer one of two lists has.
fn elements_of_one(paths: &BTreeSet<&String>, kafka: Option<&Lines>, other: Option<&Lines>) -> Vec<String> {
    let length = |lines: Option<&Lines>, path: &str| lines?.get(path)?.parse::<usize>().ok();
    let lists = paths.iter().filter_map(|path| {
        let lengths = (length(kafka, path)?, length(other, path)?);
        Some((path.strip_suffix(".len")?, lengths))
    });
    let beyond = |(list, (a, b)): (&str, (usize, usize))| {
        (a.min(b)..a.max(b)).map(|index| format!("{list}[{index}]")).collect::<Vec<String>>()
    };
    lists.flat_map(beyond).collect()
}

/// `a[0].b[name].c` → `a[].b[name].c`.
fn without_positions(path: &str) -> String {
    let mut parts = path.split('[');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (inside, rest) = part.split_once(']').unwrap_or((part, ""));
        let is_position = inside.len() < 3 && inside.bytes().all(|byte| byte.is_ascii_digit());
        // Keys of APIs are names, not positions.
        let kept = if is_position && !text.ends_with("api_keys") { "" } else { inside };
        text.push_str(&format!("[{kept}]{rest}"));
    }
    text
}

/// `1-3,7`.
pub(super) fn ranges(numbers: &BTreeSet<i16>) -> String {
    let mut runs: Vec<(i16, i16)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            Some(_) | None => runs.push((*number, *number)),
        }
    }
    let text = |(first, last): &(i16, i16)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    runs.iter().map(text).collect::<Vec<String>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pairs: &[(&str, &str)]) -> Lines {
        pairs.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn versions_that_answer_alike_are_one_run() {
        let mut findings = Findings::default();
        for version in 3..=6 {
            findings.note(
                "A/x",
                version,
                lines(&[("outcome", if version < 6 { "closed" } else { "silence" })]),
            );
        }
        assert_eq!(findings.cases["A/x"].len(), 2);
        assert_eq!(findings.len(), 4);
        assert_eq!(findings.lines("A/x", 5), Some(&lines(&[("outcome", "closed")])));
        assert_eq!(findings.lines("A/x", 7), None);
    }

    #[test]
    fn differences_name_the_field_and_the_versions() {
        let (mut kafka, mut weir) = (Findings::default(), Findings::default());
        for version in [1, 2, 4] {
            let answer = |code| lines(&[("outcome", "answered"), ("topics[0].code", code), ("same", "1")]);
            kafka.note("A/x", version, answer("None"));
            weir.note("A/x", version, answer("Unknown"));
        }
        kafka.note("A/y", 0, lines(&[("outcome", "answered"), ("code", "1")]));
        weir.note("A/y", 0, lines(&[("outcome", "closed")]));
        kafka.note("A/z", 0, lines(&[("outcome", "closed")]));
        let found: Vec<String> = differences(&kafka, &weir)
            .into_iter()
            .map(|d| format!("{} {} {} {}", d.name, d.versions, d.kafka, d.other))
            .collect();
        let expected = [
            "A/x: topics[].code 1-2,4 None Unknown",
            "A/y: outcome 0 answered closed",
            "A/z: outcome 0 closed not asked",
        ];
        assert_eq!(found, expected);
        let tally = |verdict: &str| tally(&kafka, &weir, &|name| name.starts_with(verdict));
        assert_eq!(tally("A/x"), Tally { passed: 0, failed: 5, named: 3 });
        assert_eq!(tally("A/y: outcome").named, 1);
    }

    #[test]
    fn an_answer_is_named_when_all_of_its_differences_are() {
        let (mut kafka, mut weir) = (Findings::default(), Findings::default());
        kafka.note("A/x", 0, lines(&[("a", "1"), ("b", "1")]));
        weir.note("A/x", 0, lines(&[("a", "2"), ("b", "2")]));
        kafka.note("A/y", 0, lines(&[("a", "1")]));
        weir.note("A/y", 0, lines(&[("a", "1")]));
        let tally = |verdict: &str| tally(&kafka, &weir, &|name| name.starts_with(verdict));
        assert_eq!(tally("A/x: a"), Tally { passed: 1, failed: 1, named: 0 });
        assert_eq!(tally("A/x"), Tally { passed: 1, failed: 1, named: 1 });
    }

    #[test]
    fn a_longer_list_is_told_by_its_length() {
        let (mut kafka, mut weir) = (Findings::default(), Findings::default());
        kafka.note("A/x", 0, lines(&[("a.len", "1"), ("a[0].b", "1")]));
        weir.note("A/x", 0, lines(&[("a.len", "3"), ("a[0].b", "2"), ("a[1].b", "1"), ("a[2].b", "1")]));
        let found: Vec<String> = differences(&kafka, &weir).into_iter().map(|d| d.name).collect();
        assert_eq!(found, ["A/x: a.len", "A/x: a[].b"]);
    }

    #[test]
    fn a_record_reads_back() {
        let mut findings =
            Findings { kafka_version: "4".to_owned(), announced: vec![(0, 1, 2)], ..Default::default() };
        findings.note("A/\"x\"", 1, lines(&[("outcome", "closed\n")]));
        findings.note("A/\"x\"", 3, lines(&[]));
        let text = findings.to_text().unwrap();
        assert_eq!(serde_json::from_str::<Findings>(&text).unwrap(), findings);
    }

    #[test]
    fn positions_are_left_out_and_names_stay() {
        assert_eq!(without_positions("a[0].b[retention.ms].c"), "a[].b[retention.ms].c");
        assert_eq!(without_positions("api_keys[22].max_version"), "api_keys[22].max_version");
        assert_eq!(without_positions("plain"), "plain");
    }
}
