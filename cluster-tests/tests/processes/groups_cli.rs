//! `weir group`, `weir consume --group` and `weir dev --nodes`, beside the stock tools that do the same.
//!
//! With `WEIR_SUBJECT=kafka` the first two run against Apache Kafka.

use std::process::{Command, Stdio};
use std::time::Duration;

use cluster_tests::clients::{all_output, kafka_tool, kcat, weir, weir_output};
use cluster_tests::clock::{Stopwatch, wait_until};
use cluster_tests::local_cluster::Subject;
use cluster_tests::process::Process;
use cluster_tests::run_dir::RunDir;
use cluster_tests::workspace;
use rustix::process::Signal;
use serde_json::Value;

/// Joining a group, with a rebalance before it, on a busy machine.
const JOIN_LIMIT: Duration = Duration::from_secs(60);
const RECORDS: usize = 30;

/// A topic of three partitions with keyed records.
fn fill(at: &str, topic: &str) {
    kafka_tool("kafka-topics", at, &["--create", "--topic", topic, "--partitions", "3"], b"");
    let records: String = (0..RECORDS).map(|n| format!("key-{n}:value-{n}\n")).collect();
    kcat(at, &["-P", "-t", topic, "-K", ":", "-X", "acks=all"], records.as_bytes());
}

fn consume(at: &str, topic: &str, group: &str, more: &[&str]) -> Vec<String> {
    let args = [&["consume", topic, "--group", group, "--from-beginning"], more].concat();
    let mut lines: Vec<String> = weir(at, &args, b"").lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn describe(at: &str, group: &str) -> Value {
    let text = weir(at, &["group", "describe", group, "--output", "json"], b"");
    serde_json::from_str(&text).expect("it is JSON")
}

fn sum(described: &Value, field: &str) -> i64 {
    let partitions = described["partitions"].as_array().expect("a list");
    partitions.iter().filter_map(|partition| partition[field].as_i64()).sum()
}

/// When the offsets of the group were committed, partition by partition, in milliseconds since 1970.
fn commit_times(described: &Value) -> Vec<i64> {
    let partitions = described["partitions"].as_array().expect("a list").iter();
    let committed = partitions.filter(|partition| partition["committed"].is_i64());
    committed.map(|partition| partition["committed_at_ms"].as_i64().expect("it is told")).collect()
}

/// Ages are told by Weir alone: Kafka's protocol has no place for them.
fn check_commit_ages(subject: &Subject, group: &str, since: &Stopwatch) {
    let at = subject.bootstrap();
    let described = describe(&at, group);
    let table = weir(&at, &["group", "describe", group], b"");
    assert!(table.contains("COMMIT AGE"), "{table}");
    match subject {
        Subject::Weir(_) => {
            let limit = i64::try_from(since.elapsed().as_millis()).expect("no test runs for ages");
            for partition in described["partitions"].as_array().expect("a list") {
                let age = partition["commit_age_ms"].as_i64();
                assert_eq!(age.is_some(), partition["committed"].is_i64(), "{described}");
                assert!(age.unwrap_or(0) <= limit, "older than this test, {limit} ms: {described}");
            }
            assert!(!commit_times(&described).is_empty() && !table.contains("unknown"), "{table}");
        }
        Subject::Kafka(_) => {
            let partitions = described["partitions"].as_array().expect("a list");
            assert!(partitions.iter().all(|partition| partition["commit_age_ms"].is_null()), "{described}");
            assert!(table.contains("unknown"), "{table}");
        }
    }
}

fn values() -> Vec<String> {
    let mut values: Vec<String> = (0..RECORDS).map(|n| format!("value-{n}")).collect();
    values.sort();
    values
}

#[test]
fn a_group_goes_on_where_it_was_another_begins_anew_and_resets_are_planned_first() {
    let subject = Subject::start("groups_cli");
    let watch = Stopwatch::start();
    let at = subject.bootstrap();
    fill(&at, "clicks");
    let mut read = consume(&at, "clicks", "readers", &["--count", "10"]);
    assert_eq!(sum(&describe(&at, "readers"), "committed"), 10);
    check_commit_ages(&subject, "readers", &watch);
    read.extend(consume(&at, "clicks", "readers", &["--until-end"]));
    read.sort();
    assert_eq!(read, values(), "each record once");
    assert_eq!(consume(&at, "clicks", "another", &["--until-end"]), values());

    // The stock tool sees the same.
    let stock = kafka_tool("kafka-consumer-groups", &at, &["--describe", "--group", "readers"], b"");
    assert_eq!(stock.lines().filter(|line| line.contains("clicks")).count(), 3, "{stock}");
    let reset = ["group", "reset", "readers", "--topic", "clicks", "--to-earliest"];
    let plan = weir(&at, &reset, b"");
    assert!(plan.starts_with("would reset"), "{plan}");
    assert_eq!(sum(&describe(&at, "readers"), "lag"), 0, "a plan changes nothing");
    let since_reset = Stopwatch::start();
    weir(&at, &[&reset[..], &["--execute"]].concat(), b"");
    check_commit_ages(&subject, "readers", &since_reset);
    assert_eq!(consume(&at, "clicks", "readers", &["--until-end"]), values());

    // Set back by the stock tool, seen and shifted by ours.
    let stock_reset =
        ["--reset-offsets", "--group", "readers", "--topic", "clicks", "--to-earliest", "--execute"];
    kafka_tool("kafka-consumer-groups", &at, &stock_reset, b"");
    assert_eq!(sum(&describe(&at, "readers"), "committed"), 0);
    weir(&at, &["group", "reset", "readers", "--all-topics", "--shift-by", "2", "--execute"], b"");
    assert_eq!(sum(&describe(&at, "readers"), "committed"), 6);
    weir(&at, &["group", "reset", "readers", "-t", "clicks:0", "--to-offset", "9999", "--execute"], b"");
    let described = describe(&at, "readers");
    assert_eq!(described["partitions"][0]["lag"], 0, "clamped to the end: {described}");

    let listed = weir(&at, &["group", "list"], b"");
    assert!(listed.contains("readers") && listed.contains("another"), "{listed}");
    weir(&at, &["group", "delete", "readers", "--topic", "clicks:0"], b"");
    assert_eq!(describe(&at, "readers")["partitions"].as_array().map(Vec::len), Some(2));
    weir(&at, &["group", "delete", "readers", "another"], b"");
    for verb in ["describe", "delete"] {
        let gone = weir_output(&at, &["group", verb, "readers"], b"");
        assert_eq!(gone.status.code(), Some(4), "{}", all_output(&gone));
    }
}

/// A member that reads until it is stopped.
fn member(at: &str, group: &str, run_dir: &RunDir, name: &str) -> Process {
    let mut command = Command::new(workspace::program("weir"));
    command.env("WEIR_BOOTSTRAP", at).args(["consume", "clicks", "--from-beginning", "--group", group]);
    command.stdin(Stdio::null());
    Process::start(name, command, &run_dir.join(name)).expect("weir can be started")
}

/// Waits until the group has so many members, each with partitions.
fn wait_for_members(at: &str, group: &str, count: usize) -> Value {
    let settled = wait_until(JOIN_LIMIT, || {
        let output = weir_output(at, &["group", "describe", group, "--output", "json"], b"");
        let described: Value = serde_json::from_slice(&output.stdout).ok()?;
        let members = described["members"].as_array()?;
        let busy = members.iter().filter(|m| m["partitions"].as_array().is_some_and(|list| !list.is_empty()));
        (members.len() == count && busy.count() == count).then_some(described)
    });
    settled.unwrap_or_else(|| panic!("never {count} members: {}", describe(at, group)))
}

#[test]
fn members_share_the_partitions_and_are_in_the_way_of_changes_until_they_leave() {
    let subject = Subject::start("groups_cli_members");
    let at = subject.bootstrap();
    let run_dir = RunDir::new("groups_cli_members_output");
    fill(&at, "clicks");
    let mut first = member(&at, "team", &run_dir, "first");
    wait_for_members(&at, "team", 1);
    let read_all = wait_until(JOIN_LIMIT, || (first.output().lines().count() == RECORDS).then_some(()));
    assert!(read_all.is_some(), "{}", first.output());
    let mut second = member(&at, "team", &run_dir, "second");
    let described = wait_for_members(&at, "team", 2);
    assert_eq!(described["protocol_type"], "consumer");
    assert!(
        described["partitions"].as_array().is_some_and(|list| list.iter().all(|p| p["host"].is_string()))
    );

    for args in [
        &["group", "reset", "team", "--all-topics", "--to-earliest", "--execute"][..],
        &["group", "delete", "team"],
    ] {
        let refused = weir_output(&at, args, b"");
        let said = all_output(&refused);
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(said.contains("in use") && said.contains("2 members: weir-"), "{said}");
    }

    // Leaving is told to the group: the rest takes over at once, not when a session ends.
    let left = [(&mut first, Signal::INT), (&mut second, Signal::TERM)];
    for (count, (process, signal)) in [1, 0].into_iter().zip(left) {
        process.signal(signal).expect("it runs");
        let ended = wait_until(JOIN_LIMIT, || process.ended().transpose()).expect("it ends");
        assert!(ended.expect("it can be waited for").success(), "{}", process.output());
        let described = wait_for_members(&at, "team", count);
        assert_eq!(sum(&described, "lag"), 0, "what was written out was committed: {described}");
    }
    assert_eq!(second.output(), "", "each record went to one member");
    weir(&at, &["group", "delete", "team"], b"");
}

#[test]
fn nodes_run_as_processes_that_can_be_killed_and_keep_their_data() {
    let run_dir = RunDir::new("dev_nodes");
    let data = run_dir.join("cluster");
    let start = |log: &str| {
        let mut command = Command::new(workspace::program("weir"));
        command
            .args([
                "dev",
                "--nodes",
                "3",
                "--output",
                "json",
                "--kafka-port",
                "0",
                "--http-port",
                "0",
                "--data",
            ])
            .arg(&data);
        let mut process =
            Process::start("weir dev", command, &run_dir.join(log)).expect("weir can be started");
        let ready = wait_until(JOIN_LIMIT, || {
            let line = process.output().lines().find_map(|line| serde_json::from_str::<Value>(line).ok());
            let ended = matches!(process.ended(), Ok(Some(_)));
            line.or_else(|| ended.then_some(Value::Null))
        });
        let ready = ready.filter(|ready| ready["ready"] == true);
        let ready = ready.unwrap_or_else(|| panic!("not ready:\n{}", process.output()));
        let at = ready["bootstrap"].as_str().expect("a text").to_owned();
        (process, ready, at)
    };
    let (mut dev, ready, at) = start("first.log");
    assert_eq!(ready["kafka"].as_array().map(Vec::len), Some(3));
    assert_eq!(ready["daemons"].as_array().map(Vec::len), Some(9), "{ready}");
    fill(&at, "clicks");
    assert_eq!(consume(&at, "clicks", "readers", &["--until-end"]), values());
    let committed_at = commit_times(&describe(&at, "readers"));
    assert_eq!(committed_at.len(), 3);

    // Whichever coordinator it is: another one answers for its groups.
    let daemons = ready["daemons"].as_array().expect("a list");
    let killed = daemons.iter().find(|daemon| daemon["role"] == "coordinator").expect("there are three");
    let pid = killed["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    let pid = pid.and_then(rustix::process::Pid::from_raw).expect("a process id");
    rustix::process::kill_process(pid, Signal::KILL).expect("it runs");
    let told = wait_until(JOIN_LIMIT, || dev.output().contains("SIGKILL").then_some(()));
    assert!(told.is_some(), "{}", dev.output());
    for n in 0..6 {
        assert_eq!(consume(&at, "clicks", &format!("group-{n}"), &["--until-end"]), values());
    }
    let status = dev.terminate(JOIN_LIMIT).expect("it ends");
    assert!(status.success(), "{status}: {}", dev.output());
    for daemon in daemons {
        let pid = daemon["pid"].as_i64().expect("a number");
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "{daemon} runs on");
    }

    let (mut dev, again, at) = start("second.log");
    assert_eq!(again["kafka"], ready["kafka"], "ports stay");
    let described = describe(&at, "readers");
    assert_eq!(sum(&described, "committed"), 30);
    assert_eq!(commit_times(&described), committed_at, "a take-over is no commit");
    assert!(consume(&at, "clicks", "readers", &["--until-end"]).is_empty(), "it had read all");
    assert!(dev.terminate(JOIN_LIMIT).expect("it ends").success(), "{}", dev.output());
}
