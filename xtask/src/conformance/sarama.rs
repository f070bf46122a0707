//! The functional tests of sarama: five brokers, each behind a proxy that breaks connections when a test says so, and a client
//! that is told to be of every version of Kafka, one after the other.
//!
//! Upstream has the brokers announce the addresses of their proxies. Here the client finds the proxy itself (its dialer is
//! `through_proxies_test.go`), so that any cluster will do. Tests that stop a broker, run Kafka's tools or read a log do so by
//! the program `docker`, and find ours (`docker.rs`).

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::go::{self, Module};
use super::suite::{LIMIT, Prepared, Suite};
use super::{docker, installed, link};
use crate::kafka;
use crate::shell::{self, Failure, program};
use crate::subject::Shape;

/// The tests have the addresses of their brokers in the text, so that these must be theirs.
const PORT: u16 = 19_394;
/// A proxy's port is so much above its broker's.
const DISTANCE: u16 = 100;
/// Where toxiproxy is told what to do.
const TOXIPROXY: &str = "http://127.0.0.1:19489";

const MODULE: Module = Module {
    name: "sarama",
    path: "github.com/IBM/sarama",
    package: ".",
    build_args: &["-tags", "functional"],
    changes: &[
        // The first broker is number 1.
        ("29090+i", "19393+i"),
        (
            "config.ApiVersionsRequest = true\n\n\treturn config",
            "config.ApiVersionsRequest = true\n\tconfig.Net.Proxy.Enable = true\n\t\
             config.Net.Proxy.Dialer = throughProxies{}\n\n\treturn config",
        ),
        // There is a docker, though the cluster is not of its making.
        (
            "if FunctionalTestEnv.UsingExisting {",
            "if _, err := exec.LookPath(\"docker\"); FunctionalTestEnv.UsingExisting && err != nil {",
        ),
        // The log of Weir has the code's name.
        (
            "require.NotContains(t, logs, \"OutOfOrderSequenceException\",",
            "require.NotRegexp(t, \"OutOfOrderSequence(Exception|Number)\", logs,",
        ),
    ],
    added,
    files: "functional",
};

pub(super) const SUITE: Suite = Suite {
    name: "sarama",
    shape: Shape {
        nodes: 5,
        port: Some(PORT),
        racks: &["1", "2", "3", "4", "5"],
        configs: &[
            ("auto.create.topics.enable", "false"),
            ("default.replication.factor", "2"),
            ("replica.selector.class", "org.apache.kafka.common.replica.RackAwareReplicaSelector"),
        ],
        of_kafka: &[
            ("offsets.topic.replication.factor", "2"),
            ("transaction.state.log.replication.factor", "2"),
        ],
    },
    // They make the same topics anew.
    at_once: 1,
    limit: LIMIT,
    prepare: |offline| {
        if !offline {
            kafka::fetch_jars()?;
        }
        let version = MODULE.prepare(offline)?;
        Ok(Prepared { version, tests: MODULE.tests(&[])? })
    },
    command: |test, _bootstrap| {
        let tests = MODULE.command(test);
        let mut command = program(&own("run.sh").to_string_lossy());
        command.arg(tests.get_program()).args(tests.get_args());
        command.current_dir(tests.get_current_dir().unwrap_or(&shell::root()));
        command.env("TOXIPROXY", toxiproxy()).env("TOXIPROXY_ADDR", TOXIPROXY);
        command.env("FIRST_PORT", PORT.to_string()).env("WEIR_PROXY_DISTANCE", DISTANCE.to_string());
        command.env("KAFKA_VERSION", "4.1.0").env("NO_PROXY", "127.0.0.1");
        command.env("PATH", path_with_docker()?);
        Ok(command)
    },
    judge: go::judge,
};

/// `PATH`, with a folder before it in which this program is called `docker`.
fn path_with_docker() -> Result<OsString, Failure> {
    let dir = installed().join("sarama/bin");
    let put = || -> std::io::Result<OsString> {
        fs::create_dir_all(&dir)?;
        link(&this_program()?, &dir.join(docker::NAME))?;
        let before = env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(dir.clone()).chain(env::split_paths(&before));
        env::join_paths(folders).map_err(std::io::Error::other)
    };
    put().map_err(|error| Failure(format!("put a program `docker` into {}: {error}", dir.display())))
}

/// The path of this program. A build may have put a newer one there since, and then the system adds a word.
fn this_program() -> std::io::Result<PathBuf> {
    let path = env::current_exe()?;
    let replaced = path.to_str().and_then(|path| path.strip_suffix(" (deleted)"));
    Ok(replaced.map_or_else(|| path.clone(), PathBuf::from))
}

/// Our own part of the suite.
fn own(name: &str) -> PathBuf {
    shell::root().join("cluster-tests/conformance/sarama").join(name)
}

fn toxiproxy() -> PathBuf {
    installed().join("sarama/toxiproxy")
}

/// Adds the dialer to the tests, and builds the proxy.
fn added(source: &std::path::Path) -> Result<(), Failure> {
    let dialer = "through_proxies_test.go";
    fs::copy(own(dialer), source.join(dialer))
        .map_err(|error| Failure(format!("copy {dialer} into {}: {error}", source.display())))?;
    let mut build: Command = program("go");
    build.args(["build", "-o"]).arg(toxiproxy()).arg("github.com/Shopify/toxiproxy/v2/cmd/server");
    build.current_dir(own(""));
    shell::run(build)
}
