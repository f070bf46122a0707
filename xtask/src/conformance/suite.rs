//! What a suite is, and all of them.

use std::process::Command;
use std::time::Duration;

use super::{franz_go, kafka_go, kafka_python, kafka_tools, kcat, librdkafka, rust, sarama};
use crate::shell::Failure;
use crate::subject::Shape;

/// Tests that others wrote, and how they are run.
pub(super) struct Suite {
    /// The row of the table, and the name of the list.
    pub(super) name: &'static str,
    /// The cluster it is written for.
    pub(super) shape: Shape,
    /// How many of its tests run side by side.
    pub(super) at_once: usize,
    /// Limit of one test.
    pub(super) limit: Duration,
    /// Fetches and builds what is missing (offline: fails if something is), and lists the tests.
    pub(super) prepare: fn(offline: bool) -> Result<Prepared, Failure>,
    /// The process of one test.
    pub(super) command: fn(test: &str, bootstrap: &str) -> Result<Command, Failure>,
    /// What a finished test says, from its exit code and its output.
    pub(super) judge: fn(test: &str, success: bool, output: &str) -> Outcome,
}

/// A suite that can be run.
pub(super) struct Prepared {
    /// The version of the suite.
    pub(super) version: String,
    /// Its tests.
    pub(super) tests: Vec<String>,
}

/// How a test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    /// The test itself says that it does not apply, and why.
    Skipped(String),
    /// With a line that tells why.
    Failed(String),
}

impl Outcome {
    /// Passed or failed by the exit code, with the last line that contains one of `signs` as the reason.
    pub(super) fn by_exit(success: bool, output: &str, signs: &[&str]) -> Outcome {
        if success {
            return Outcome::Passed;
        }
        let says_why = |line: &&str| signs.iter().any(|sign| line.contains(sign));
        let why = output.lines().rev().find(says_why).or_else(|| output.lines().next_back());
        Outcome::Failed(shortened(why.unwrap_or("it said nothing")))
    }

    /// Skipped for the reason that follows the first `before` in the last line with `sign`.
    pub(super) fn skipped(output: &str, sign: &str, before: &str) -> Outcome {
        let line = output.lines().rev().find(|line| line.contains(sign)).unwrap_or_default();
        let why = line.split_once(before).map(|(_, why)| shortened(why)).filter(|why| !why.is_empty());
        Outcome::Skipped(why.unwrap_or_else(|| "it does not say why".to_owned()))
    }
}

/// As much as a list and a table show.
fn shortened(line: &str) -> String {
    line.trim().chars().take(200).collect()
}

/// Room for a slow machine that does other things too.
pub(super) const LIMIT: Duration = Duration::from_secs(300);

/// In the order of the table.
pub(super) const SUITES: &[Suite] = &[
    librdkafka::CLASSIC,
    librdkafka::IDEMPOTENT,
    librdkafka::THREE_NODES,
    librdkafka::NO_AUTO_CREATE,
    librdkafka::CONSUMER,
    franz_go::SUITE,
    franz_go::CHAOS,
    sarama::SUITE,
    kafka_python::SUITE,
    kafka_go::SUITE,
    rust::RDKAFKA,
    rust::RSKAFKA,
    kafka_tools::SUITE,
    kcat::SUITE,
];
