//! The tests of kafka-go: a client that speaks old versions of the protocol without asking which there are.

use super::go::{self, Module};
use super::suite::{LIMIT, Prepared, Suite};
use crate::subject::Shape;

/// The tests have the address of their broker in the text, and a usual one, which may be taken.
const PORT: u16 = 19_392;

const MODULE: Module = Module {
    name: "kafka-go",
    path: "github.com/segmentio/kafka-go",
    package: ".",
    build_args: &[],
    changes: &[("9092", "19392"), ("localhost", "127.0.0.1")],
    added: |_| Ok(()),
    files: "",
};

pub(super) const SUITE: Suite = Suite {
    name: "kafka-go",
    shape: Shape {
        nodes: 1,
        port: Some(PORT),
        racks: &[],
        configs: &[("num.partitions", "1"), ("message.max.bytes", "200000000")],
        of_kafka: &[],
    },
    at_once: 1,
    limit: LIMIT,
    prepare: |offline| {
        let version = MODULE.prepare(offline)?;
        Ok(Prepared { version, tests: MODULE.tests(&[])? })
    },
    command: |test, _bootstrap| {
        let mut command = MODULE.command(test);
        command.env("KAFKA_VERSION", "3.7.0").env("KAFKA_SKIP_NETTEST", "1");
        Ok(command)
    },
    judge: go::judge,
};
