//! The integration tests of two Rust clients, from their crates: rust-rdkafka, and rskafka, which speaks the protocol itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::installed;
use super::suite::{LIMIT, Outcome, Prepared, Suite};
use crate::shell::{self, Failure, program};
use crate::subject::Shape;

/// What stands in the tests of their cluster, and what stands there instead: the address of the broker, a usual one, which may be
/// taken, and its id, which is 0 only where a cluster was made by hand.
const CHANGES: &[(&str, &str)] = &[
    ("\"localhost\"", "\"127.0.0.1:19393\""),
    ("port(), 9092", "port(), 19393"),
    ("Broker(0)", "Broker(1)"),
    ("&[0]", "&[1]"),
    ("orig_broker_id != 0", "orig_broker_id != 1"),
    ("broker_metadata[0].id(), 0", "broker_metadata[0].id(), 1"),
    (".leader(), 0", ".leader(), 1"),
];

/// On librdkafka, through its safe layer.
pub(super) const RDKAFKA: Suite = Suite {
    name: "rust-rdkafka",
    shape: Shape {
        nodes: 1,
        port: Some(19_393),
        racks: &[],
        configs: &[("num.partitions", "3")],
        of_kafka: &[],
    },
    at_once: 2,
    limit: LIMIT,
    prepare: |offline| prepare("rdkafka", &shell::root().join("Cargo.toml"), CHANGES, offline),
    command: |test, bootstrap| {
        let mut command = command("rdkafka", test)?;
        command.env("KAFKA_HOST", bootstrap).env("KAFKA_VERSION", "4.0");
        Ok(command)
    },
    judge,
};

/// A protocol implementation of its own, which asks for old versions.
pub(super) const RSKAFKA: Suite = Suite {
    name: "rskafka",
    shape: Shape {
        nodes: 1,
        port: None,
        racks: &[],
        configs: &[("auto.create.topics.enable", "false")],
        of_kafka: &[],
    },
    at_once: 2,
    limit: LIMIT,
    prepare: |offline| {
        prepare("rskafka", &shell::root().join("cluster-tests/clients/rust/Cargo.toml"), &[], offline)
    },
    command: |test, bootstrap| {
        let mut command = command("rskafka", test)?;
        command.env("TEST_INTEGRATION", "1").env("TEST_BROKER_IMPL", "kafka");
        command.env("KAFKA_CONNECT", bootstrap);
        Ok(command)
    },
    judge,
};

fn source(name: &str) -> PathBuf {
    installed().join(name).join("source")
}

/// Copies the crate, at the version that the manifest's lock names, and builds its tests.
fn prepare(
    name: &'static str,
    manifest: &Path,
    changes: &[(&str, &str)],
    offline: bool,
) -> Result<Prepared, Failure> {
    let (cached, version) = shell::dependency(name, manifest)?;
    let how = "run `cargo xtask conformance --install-only` with its name";
    let what = format!("the tests of {name}");
    let wanted = super::stamp(&format!("{version}, without debug information"), changes);
    shell::once(&what, &wanted, &installed().join(name), offline.then_some(how), || {
        let mut copy = program("cp");
        copy.args(["-r", "--no-preserve=mode"]).arg(cached.parent().unwrap_or(&cached)).arg(source(name));
        shell::run(copy)?;
        // The crate's lock and its pinned toolchain are of the day when it was published.
        for pinned in ["Cargo.lock", "rust-toolchain.toml"] {
            let path = source(name).join(pinned);
            if path.exists() {
                fs::remove_file(&path)
                    .map_err(|error| Failure(format!("remove {}: {error}", path.display())))?;
            }
        }
        // A package inside our tree, and none of our workspace.
        let own = source(name).join("Cargo.toml");
        fs::read_to_string(&own)
            .and_then(|text| fs::write(&own, format!("{text}\n[workspace]\n")))
            .map_err(|error| Failure(format!("change {}: {error}", own.display())))?;
        super::replace(&source(name).join("tests"), "rs", changes)?;
        let text: String = build(name)?.iter().map(|(target, path)| format!("{target} {path}\n")).collect();
        let path = installed().join(name).join("programs");
        fs::write(&path, text).map_err(|error| Failure(format!("write {}: {error}", path.display())))
    })?;
    let mut tests = Vec::new();
    for (target, path) in programs(name)? {
        let mut list = program(&path);
        list.args(["--list", "--format", "terse"]);
        let listed = shell::output(list)?;
        let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
        tests.extend(names.map(|test| format!("{target}::{test}")));
    }
    Ok(Prepared { version, tests })
}

/// Names of the test programs of `tests/`, and their paths below the folder where all suites are.
fn build(name: &str) -> Result<Vec<(String, String)>, Failure> {
    let mut cargo = shell::cargo();
    // Nobody looks into them with a debugger; without what that needs they take a quarter of the space.
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "false").env("CARGO_PROFILE_TEST_DEBUG", "false");
    cargo.args(["test", "--quiet", "--no-run", "--tests", "--message-format", "json", "--manifest-path"]);
    cargo.arg(source(name).join("Cargo.toml"));
    cargo.arg("--target-dir").arg(installed().join(name).join("target"));
    let printed = shell::output(cargo)?;
    let artifacts = printed.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let tests = artifacts.filter(|artifact| artifact["target"]["kind"][0] == "test");
    let all = installed();
    let program = |test: serde_json::Value| {
        let path = Path::new(test["executable"].as_str()?).strip_prefix(&all).ok()?.to_str()?.to_owned();
        Some((test["target"]["name"].as_str()?.to_owned(), path))
    };
    Ok(tests.filter_map(program).collect())
}

fn programs(name: &str) -> Result<Vec<(String, String)>, Failure> {
    let path = installed().join(name).join("programs");
    let text =
        fs::read_to_string(&path).map_err(|error| Failure(format!("read {}: {error}", path.display())))?;
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let whole = |path: &str| installed().join(path).to_string_lossy().into_owned();
    Ok(lines.map(|(target, path)| (target.to_owned(), whole(path))).collect())
}

fn command(name: &str, test: &str) -> Result<Command, Failure> {
    let unknown = || Failure(format!("{name} has no test {test}"));
    let (target, test) = test.split_once("::").ok_or_else(unknown)?;
    let (_, path) = programs(name)?.into_iter().find(|(found, _)| found == target).ok_or_else(unknown)?;
    let mut command = program(&path);
    command.current_dir(source(name)).args(["--exact", test, "--nocapture", "--test-threads=1"]);
    Ok(command)
}

fn judge(test: &str, success: bool, output: &str) -> Outcome {
    // Of rskafka: they return at once without the variable, and with it fetch a Java client themselves.
    if success && test.contains("_java_") {
        return Outcome::Skipped("does nothing where TEST_JAVA_INTEROPT is not set".to_owned());
    }
    if success && !output.contains("test result: ok. 1 passed") {
        return Outcome::Skipped("marked as ignored".to_owned());
    }
    if success && output.contains("Skipping ") {
        return Outcome::skipped(output, "Skipping ", " ... ");
    }
    Outcome::by_exit(success, output, &["assertion", "called `", "panicked", "Error"])
}
