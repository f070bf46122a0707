//! librdkafka's own tests, from the sources that the crate `rdkafka-sys` carries.
//!
//! Tests are chosen by their four digits; those with one number run together, and count as one. Tests that need no broker
//! (of its parts, or with its mock cluster) are left out.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::suite::{Outcome, Prepared, Suite};
use super::{installed, kafka_version};
use crate::kafka;
use crate::shell::{self, Failure, program};
use crate::subject::Shape;

/// Some tests set access rights.
const ACLS: &[(&str, &str)] = &[
    ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    ("allow.everyone.if.no.acl.found", "true"),
    ("super.users", "User:ANONYMOUS"),
];

/// With the settings that the suite expects of its cluster.
pub(super) const CLASSIC: Suite = Suite {
    name: "librdkafka",
    shape: Shape {
        nodes: 1,
        port: None,
        racks: &[],
        configs: &[("num.partitions", "4"), WAIT_FOR_MEMBERS],
        of_kafka: ACLS,
    },
    at_once: 4,
    // A part of the cooperative rebalances takes 340 s.
    limit: Duration::from_secs(600),
    prepare: |offline| prepare(offline, DEFAULT),
    command: |test, bootstrap| command(CLASSIC.name, test, bootstrap, "classic", &[]),
    judge,
};

/// Every producer idempotent.
pub(super) const IDEMPOTENT: Suite = Suite {
    name: "librdkafka-idempotent",
    command: |test, bootstrap| command(IDEMPOTENT.name, test, bootstrap, "classic", &["-P"]),
    ..CLASSIC
};

/// The size it was designed for.
pub(super) const THREE_NODES: Suite = Suite {
    name: "librdkafka-three-nodes",
    shape: Shape {
        nodes: 3,
        // As a test of reading from followers names them, by the nodes' ids.
        racks: &["RACK1", "RACK2", "RACK3"],
        configs: &[
            ("num.partitions", "4"),
            ("default.replication.factor", "3"),
            ("replica.selector.class", "org.apache.kafka.common.replica.RackAwareReplicaSelector"),
            WAIT_FOR_MEMBERS,
        ],
        ..CLASSIC.shape
    },
    command: |test, bootstrap| command(THREE_NODES.name, test, bootstrap, "classic", &[]),
    ..CLASSIC
};

/// Those that want topics to be made by nobody but themselves.
pub(super) const NO_AUTO_CREATE: Suite = Suite {
    name: "librdkafka-noautocreate",
    shape: Shape {
        nodes: 3,
        configs: &[
            ("num.partitions", "4"),
            ("default.replication.factor", "3"),
            ("auto.create.topics.enable", "false"),
        ],
        ..CLASSIC.shape
    },
    prepare: |offline| prepare(offline, "noautocreate"),
    command: |test, bootstrap| {
        command(NO_AUTO_CREATE.name, test, bootstrap, "classic", &["-s", "noautocreate"])
    },
    ..CLASSIC
};

/// Consumers of the newer protocol of groups (KIP-848).
pub(super) const CONSUMER: Suite = Suite {
    name: "librdkafka-consumer",
    // The longest takes 284 s with Kafka. Until there is that protocol, many wait until they give up.
    limit: Duration::from_secs(400),
    command: |test, bootstrap| command(CONSUMER.name, test, bootstrap, "consumer", &[]),
    ..CLASSIC
};

/// Kafka's default. Some tests count rebalances, and want all members in the first, whenever these find their topics.
const WAIT_FOR_MEMBERS: (&str, &str) = ("group.initial.rebalance.delay.ms", "3000");

/// The one that tests belong to which say nothing.
const DEFAULT: &str = "default";

fn source() -> PathBuf {
    installed().join("librdkafka/source")
}

fn prepare(offline: bool, scenario: &str) -> Result<Prepared, Failure> {
    let (carried, version) = carried_source()?;
    let how = "run `cargo xtask conformance librdkafka --install-only`";
    let dir = installed().join("librdkafka");
    let wanted = format!("{version} with RapidJSON and Java");
    shell::once("librdkafka's tests", wanted.as_bytes(), &dir, offline.then_some(how), || build(&carried))?;
    let mut tests = with_a_broker(&read("test.c")?, scenario);
    for (test, file, parts) in IN_PARTS {
        if let Some(index) = tests.iter().position(|listed| listed == test) {
            let parts = parts(&read(file)?);
            tests.splice(index..=index, parts.into_iter().map(|part| format!("{test}/{part}")));
        }
    }
    // Here, since tests that run side by side would make it at the same time.
    super::kafka_scripts()?;
    Ok(Prepared { version, tests })
}

/// Finds the parts of a test in its source.
type Parts = fn(text: &str) -> Vec<String>;

/// Tests of many parts, each of which has its own line: all of administration, and the cooperative rebalances. By name, with the file and what finds the parts in it.
const IN_PARTS: &[(&str, &str, Parts)] = &[
    ("0081_admin", "0081-admin.c", parts_by_name),
    ("0113_cooperative_rebalance", "0113-cooperative_rebalance.cpp", |text| {
        parts_that_run(text, "main_0113_cooperative_rebalance")
    }),
];

/// One of the suite's sources.
fn read(file: &str) -> Result<String, Failure> {
    let path = source().join("tests").join(file);
    fs::read_to_string(&path).map_err(|error| Failure(format!("read {}: {error}", path.display())))
}

/// The sources in cargo's cache, and librdkafka's version.
fn carried_source() -> Result<(PathBuf, String), Failure> {
    let (manifest, version) = shell::dependency("rdkafka-sys", &shell::root().join("Cargo.toml"))?;
    // 4.10.0+2.12.1
    let version =
        version.split_once('+').map_or_else(|| version.clone(), |(_, librdkafka)| librdkafka.to_owned());
    Ok((manifest.with_file_name("librdkafka"), version))
}

/// Tests of statistics are built to skip themselves where it is missing.
fn require_rapidjson() -> Result<(), Failure> {
    let mut compiler = program("c++");
    compiler.args(["-fsyntax-only", "-x", "c++", "-include", "rapidjson/schema.h", "/dev/null"]);
    compiler.stdout(Stdio::null()).stderr(Stdio::null());
    shell::run(compiler).map_err(|Failure(why)| {
        Failure(format!("RapidJSON's headers are not installed ({why}): apt-get install rapidjson-dev"))
    })
}

fn build(carried: &Path) -> Result<(), Failure> {
    require_rapidjson()?;
    // Some tests have programs in Java beside them.
    kafka::fetch_jars()?;
    let kafka_path = format!("KAFKA_PATH={}", super::kafka_scripts()?.display());
    let mut copy = program("cp");
    copy.arg("-r").arg(carried).arg(source());
    shell::run(copy)?;
    let steps: [&[&str]; 4] = [
        &["./configure", "--disable-gssapi", "--disable-curl"],
        &["make", "--silent", "-j2", "libs"],
        &["make", "--silent", "-C", "tests", "-j2", "build"],
        &["make", "--silent", "-C", "tests", "java", &kafka_path],
    ];
    for step in steps {
        let log = installed().join("librdkafka/build.log");
        let mut command = program(step[0]);
        command.args(&step[1..]).current_dir(source()).env_remove("MAKEFLAGS");
        command.stdout(shell::create(&log)?);
        command.stderr(Stdio::null());
        shell::run(command).map_err(|Failure(why)| Failure(format!("{why}; see {}", log.display())))?;
    }
    Ok(())
}

/// The numbers of the registered tests of a scenario that talk to a broker, each with its first name.
fn with_a_broker(text: &str, scenario: &str) -> Vec<String> {
    let registered = text.split_once("struct test tests[] = {").map_or("", |(_, rest)| rest);
    let registered = registered.split_once("{NULL}").map_or("", |(list, _)| list);
    let mut tests: Vec<String> = Vec::new();
    for entry in registered.split("_TEST(").skip(1) {
        let mut words = entry.split([',', ')']).map(str::trim);
        let (Some(name), Some(flags)) = (words.next(), words.next()) else { continue };
        let elsewhere =
            name.ends_with("_mock") || ["LOCAL", "MANUAL"].iter().any(|flag| flags.contains(flag));
        let scenarios = entry.split_once(".scenario").and_then(|(_, rest)| rest.split('"').nth(1));
        let other_scenario = !scenarios.unwrap_or(DEFAULT).contains(scenario);
        let known = tests.iter().any(|test| test.get(..4) == name.get(..4));
        if !elsewhere && !other_scenario && !known {
            tests.push(name.to_owned());
        }
    }
    tests
}

/// The functions of a source whose names say that they are parts of its test.
fn parts_by_name(text: &str) -> Vec<String> {
    distinct(functions(text).filter(|name| name.starts_with("do_test_")))
}

/// The functions of a source that its `main` calls.
fn parts_that_run(text: &str, main: &str) -> Vec<String> {
    let body = text.split_once(&format!("int {main}(")).map_or("", |(_, rest)| rest);
    let body = body.split_once("\n}").map_or("", |(body, _)| body);
    let calls = |name: &&str| {
        body.lines()
            .any(|line| line.trim_start().strip_prefix(*name).is_some_and(|rest| rest.starts_with('(')))
    };
    distinct(functions(text).filter(calls))
}

/// The names in the lines that begin a function without a result, or go on with its name.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(|line| line.strip_prefix("static void ").unwrap_or(line));
    lines.filter_map(|line| line.split_once('(')).map(|(name, _)| name)
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::new();
    for name in names {
        if !distinct.iter().any(|known| known == name) {
            distinct.push(name.to_owned());
        }
    }
    distinct
}

/// A test of a suite with consumers of a protocol.
fn command(
    suite: &str,
    test: &str,
    bootstrap: &str,
    protocol: &str,
    flags: &[&str],
) -> Result<Command, Failure> {
    let dir = source().join("tests");
    // One for each test: they run side by side.
    let conf = installed().join("librdkafka/conf").join(suite);
    let conf = conf.join(format!("{}.conf", test.replace('/', "_")));
    let text =
        format!("bootstrap.servers={bootstrap}\nbroker.address.family=v4\ntest.timeout.multiplier=3\n");
    shell::create(&conf)?;
    fs::write(&conf, &text).map_err(|error| Failure(format!("write {}: {error}", conf.display())))?;
    let mut command = program("./test-runner");
    command.current_dir(&dir).args(["-p1", "-L"]).args(flags);
    command.env("LD_LIBRARY_PATH", "../src:../src-cpp").env("RDKAFKA_TEST_CONF", conf);
    command.env("TEST_KAFKA_VERSION", kafka_version()?).env("TESTS", test.get(..4).unwrap_or(test));
    if let Some((_, part)) = test.split_once('/') {
        // As it begins in "function:line".
        command.env("SUBTESTS", format!("{part}:"));
    }
    command.env("BROKERS", bootstrap).env("KAFKA_PATH", super::kafka_scripts()?);
    command.env("TEST_CONSUMER_GROUP_PROTOCOL", protocol).env_remove("CI");
    Ok(command)
}

/// Reads the summary: a row `| NAME | STATE | SECONDS |` for each test that ran. A failed one aborts before, with the reason
/// in the line after `### Test … failed at …`.
fn judge(test: &str, success: bool, output: &str) -> Outcome {
    let number = test.get(..4).unwrap_or(test);
    if test.contains('/') && success && !output.contains(": PASS (") {
        let why = output.lines().find_map(|line| line.split_once(": SKIP: "));
        let why = why.map_or("no part of it is called so", |(_, why)| why.trim_end_matches([' ', ']']));
        return Outcome::Skipped(plain(why));
    }
    let mut after_failure = output.lines().skip_while(|line| !line.contains("### Test \"")).skip(1);
    if let Some(why) = after_failure.next() {
        return Outcome::Failed(plain(why));
    }
    let mut outcome = Outcome::Failed("it ended without a summary".to_owned());
    for line in output.lines().filter(|line| line.starts_with('|') && line.contains(number)) {
        let states = ["PASSED", "SKIPPED", "FAILED", "RUNNING"];
        match states.iter().find(|state| line.contains(&format!("| {state:>10} |"))) {
            Some(&"PASSED") => outcome = Outcome::Passed,
            Some(&"SKIPPED") if outcome != Outcome::Passed => {
                outcome = Outcome::Skipped(plain(line.rsplit('|').next().unwrap_or_default()));
            }
            Some(&"SKIPPED") | None => {}
            Some(_) => {
                return Outcome::Failed(plain(line.rsplit('|').next().unwrap_or_default()));
            }
        }
    }
    outcome
}

/// Without colours, and not too long.
fn plain(line: &str) -> String {
    let mut text = String::new();
    for (index, part) in line.split('\u{1b}').enumerate() {
        text.push_str(if index == 0 { part } else { part.split_once('m').map_or("", |(_, rest)| rest) });
    }
    text.trim().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registered_tests_are_found_and_those_without_a_broker_are_not() {
        let text = "struct test tests[] = {
            {.name = \"<MAIN>\", .flags = TEST_F_LOCAL},
            _TEST(0004_conf, TEST_F_LOCAL),
            _TEST(0045_subscribe_update, 0, TEST_BRKVER(0, 9, 0, 0)),
            _TEST(0045_subscribe_update_topic_remove, 0, .scenario = \"noautocreate\"),
            _TEST(0103_transactions, 0, .scenario = \"default,ak23\"),
            _TEST(0107_topic_recreate,
                  0, .scenario = \"noautocreate\"),
            _TEST(0139_offset_validation_mock, 0),
            _TEST(8000_idle, TEST_F_MANUAL),
            {NULL}};
            _TEST(9999_after, 0)";
        assert_eq!(with_a_broker(text, DEFAULT), ["0045_subscribe_update", "0103_transactions"]);
        let others = ["0045_subscribe_update_topic_remove", "0107_topic_recreate"];
        assert_eq!(with_a_broker(text, "noautocreate"), others);
    }

    #[test]
    fn the_parts_of_a_test_are_found() {
        let text = "static void do_test_acls_count(void) {
static void
do_test_CreateAcls(rd_kafka_t *rk, rd_kafka_queue_t *useq, int version) {
static void do_test_CreateAcls(
static void b_test(bool close) {
  a_test();
}
static void a_test() {
static void of_the_mock() {
int main_0001_x_local(int argc, char **argv) {
  of_the_mock();
}
int main_0001_x(int argc, char **argv) {
  a_test();
  b_test(true);
  for (i = 1; i <= 6; i++)
    b_test(false);
  return 0;
}";
        assert_eq!(parts_that_run(text, "main_0001_x"), ["b_test", "a_test"]);
        assert_eq!(parts_by_name(text), ["do_test_acls_count", "do_test_CreateAcls"]);
    }

    #[test]
    fn the_summary_is_read() {
        let row = |state: &str, why: &str| {
            format!(
                "|\u{1b}[32m 0012_produce_consume                     | {state:>10} |   2.100s \u{1b}[0m|{why}\n"
            )
        };
        let of = |text: &str| judge("0012_produce_consume", true, text);
        assert_eq!(of(&row("PASSED", "")), Outcome::Passed);
        assert_eq!(of(&row("SKIPPED", "\u{1b}[36m no\u{1b}[0m")), Outcome::Skipped("no".to_owned()));
        assert_eq!(of(&(row("PASSED", "") + &row("SKIPPED", ""))), Outcome::Passed);
        assert!(
            matches!(of(&(row("PASSED", "") + &row("FAILED", " why"))), Outcome::Failed(why) if why == "why")
        );
        assert!(matches!(of("aborted"), Outcome::Failed(_)));
        let failed = "\u{1b}[31m### Test \"0012_produce_consume\" failed at test.c:5: ###\n\u{1b}[0mno \u{1b}[1mhope\n";
        assert_eq!(of(failed), Outcome::Failed("no hope".to_owned()));
    }
}
