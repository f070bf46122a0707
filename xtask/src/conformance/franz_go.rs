//! The tests of franz-go's client `kgo`: chained groups and transactions that copy topics, with every key seen exactly once.

use std::process::Command;
use std::time::Duration;

use super::go::{self, Module};
use super::suite::{LIMIT, Prepared, Suite};
use crate::subject::Shape;

const MODULE: Module = Module {
    name: "franz-go",
    path: "github.com/twmb/franz-go",
    package: "pkg/kgo",
    build_args: &[],
    changes: &[],
    added: |_| Ok(()),
    files: "",
};

/// Records that the copying tests send; upstream has half a million.
const RECORDS: &str = "20000";

/// What a test that uses a broker calls; the others test the client with itself.
const WITH_A_BROKER: &[&str] =
    &["getSeedBrokers", "tmpTopic", "newTestClient", "SeedBrokers(", "testChainETL"];

pub(super) const SUITE: Suite = Suite {
    name: "franz-go",
    shape: Shape { nodes: 1, port: None, racks: &[], configs: &[], of_kafka: &[] },
    at_once: 2,
    limit: LIMIT,
    prepare: |offline| {
        let version = MODULE.prepare(offline)?;
        Ok(Prepared { version, tests: MODULE.tests(WITH_A_BROKER)? })
    },
    command: |test, bootstrap| Ok(command(test, bootstrap)),
    judge: go::judge,
};

/// The tests whose clients lose every connection after about a second.
const CHAOS_TESTS: &[&str] = &["TestGroupETL", "TestShareGroupETL"];

/// The same copying, with connections that break all the time.
pub(super) const CHAOS: Suite = Suite {
    name: "franz-go-chaos",
    at_once: 1,
    limit: LIMIT.saturating_add(Duration::from_secs(600)),
    prepare: |offline| {
        let mut prepared = (SUITE.prepare)(offline)?;
        prepared.tests.retain(|test| CHAOS_TESTS.contains(&test.as_str()));
        Ok(prepared)
    },
    command: |test, bootstrap| {
        let mut command = command(test, bootstrap);
        command.env("KGO_TEST_CHAOS", "1");
        Ok(command)
    },
    ..SUITE
};

fn command(test: &str, bootstrap: &str) -> Command {
    let mut command = MODULE.command(test);
    command.env("KGO_SEEDS", bootstrap).env("KGO_TEST_RF", "1").env("KGO_TEST_RECORDS", RECORDS);
    command
}
