//! The tests of franz-go's client `kgo`: chained groups and transactions that copy topics, with every key seen exactly once.

use super::go::{self, Module};
use super::suite::{LIMIT, Prepared, Suite};
use crate::subject::Shape;

const MODULE: Module = Module {
    name: "franz-go",
    path: "github.com/twmb/franz-go",
    package: "pkg/kgo",
    build_args: &[],
    addresses: &[],
};

/// Records that the copying tests send; upstream has half a million.
const RECORDS: &str = "20000";

/// What a test that uses a broker calls; the others test the client with itself.
const WITH_A_BROKER: &[&str] =
    &["getSeedBrokers", "tmpTopic", "newTestClient", "SeedBrokers(", "testChainETL"];

pub(super) const SUITE: Suite = Suite {
    name: "franz-go",
    shape: Shape { nodes: 1, port: None, configs: &[], of_kafka: &[] },
    at_once: 2,
    limit: LIMIT,
    prepare: |offline| {
        let version = MODULE.prepare(offline)?;
        Ok(Prepared { version, tests: MODULE.tests(WITH_A_BROKER)? })
    },
    command: |test, bootstrap| {
        let mut command = MODULE.command(test);
        command.env("KGO_SEEDS", bootstrap).env("KGO_TEST_RF", "1").env("KGO_TEST_RECORDS", RECORDS);
        Ok(command)
    },
    judge: go::judge,
};
