//! Elections, reassignments, the quorum and what is not in sync, as Kafka's own tools and `weir` show and change them.
//!
//! The tools run the same commands against three nodes of Weir and against three of Apache Kafka, and must say the same: what
//! differs from run to run (ids, paths, positions) is blotted out first.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cluster_tests::clients::{all_output, kafka_tool, kafka_tool_output, kcat, weir, weir_output};
use cluster_tests::clock::wait_until;
use cluster_tests::http;
use cluster_tests::oracle::broker::{BrokerOptions, KafkaCluster};
use cluster_tests::ports::free_port;
use cluster_tests::process::Process;
use cluster_tests::replicated_cluster::{ReplicatedCluster, Role, Shape};
use cluster_tests::run_dir::RunDir;
use cluster_tests::workspace;
use kafka_wire::{Client, ClientConfig, HostPort};
use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::alter_partition_reassignments::{
    AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic,
};
use serde_json::Value;

/// How long a change may take to be seen on a busy machine.
const SEEN_LIMIT: Duration = Duration::from_secs(90);

fn start(run_dir: &RunDir) -> ReplicatedCluster {
    ReplicatedCluster::start(run_dir.path(), &Shape::default()).expect("loopback needs no permission")
}

/// What a tool said, with everything blotted out that differs from run to run.
fn normal(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.split("\tConfigs:").next().unwrap_or(line);
        let line = blot(line, "TopicId: ", |c| c == '\t');
        let line = blot_all(&line, "\"log_dirs\":[", ']');
        sorted_list(&line, "Isr: ")
    });
    // What the client's log says is its own.
    let kept = lines.filter(|line| !line.contains("org.apache.kafka.clients.") && !line.starts_with("\tat "));
    kept.map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Replaces what stands between `name` and `end` by a star.
fn blot(line: &str, name: &str, end: impl Fn(char) -> bool) -> String {
    let Some((before, after)) = line.split_once(name) else { return line.to_owned() };
    let rest = after.find(end).map_or("", |at| &after[at..]);
    format!("{before}{name}*{rest}")
}

fn blot_all(line: &str, name: &str, end: char) -> String {
    let mut parts = line.split(name);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.find(end).map_or("", |at| &part[at..]);
        let _ = write!(text, "{name}*{rest}");
    }
    text
}

/// Puts the ids of a list in order: it is a set.
fn sorted_list(line: &str, name: &str) -> String {
    let Some((before, after)) = line.split_once(name) else { return line.to_owned() };
    let (list, rest) = after.split_once('\t').map_or((after, ""), |(list, rest)| (list, rest));
    let mut ids: Vec<&str> = list.split(',').collect();
    ids.sort_unstable();
    let tab = if rest.is_empty() { "" } else { "\t" };
    format!("{before}{name}{}{tab}{rest}", ids.join(","))
}

/// Every digit run as one `N`.
fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c.is_ascii_digit() {
            true if out.ends_with('N') => {}
            true => out.push('N'),
            false => out.push(c),
        }
    }
    out
}

/// The commands that were run and what was said, in order.
struct Transcript<'a> {
    bootstrap: &'a str,
    dir: &'a Path,
    text: String,
}

impl Transcript<'_> {
    fn note(&mut self, args: &[&str], status: bool, said: &str) {
        let shown: Vec<_> = args.iter().filter(|arg| !arg.contains('/')).collect();
        let _ = writeln!(self.text, "$ {shown:?} -> {status}\n{said}");
    }

    /// Runs a tool and notes what it said, whether it ends well or not.
    fn run(&mut self, tool: &str, args: &[&str]) {
        let output = kafka_tool_output(tool, self.bootstrap, args, b"");
        self.note(args, output.status.success(), &normal(&all_output(&output)));
    }

    /// Runs a tool again and again until it says what is waited for, which is noted.
    fn run_until(&mut self, tool: &str, args: &[&str], until: impl Fn(&str) -> bool) {
        let mut last = String::new();
        let seen = wait_until(SEEN_LIMIT, || {
            last = normal(&all_output(&kafka_tool_output(tool, self.bootstrap, args, b"")));
            until(&last).then_some(())
        });
        assert!(seen.is_some(), "{tool} {args:?} at {} last said:\n{last}", self.bootstrap);
        self.note(args, true, &last);
    }

    fn reassign(&mut self, partitions: &str, action: &str) {
        let file = self.file("reassign.json", partitions);
        self.run("kafka-reassign-partitions", &[action, "--reassignment-json-file", &file]);
    }

    fn file(&self, name: &str, partitions: &str) -> String {
        let path = self.dir.join(name);
        fs::write(&path, format!("{{\"version\":1,\"partitions\":[{partitions}]}}"))
            .expect("it can be written");
        path.display().to_string()
    }
}

fn moved(partition: i32, replicas: &str) -> String {
    format!("{{\"topic\":\"moved\",\"partition\":{partition},\"replicas\":[{replicas}]}}")
}

fn describe(transcript: &mut Transcript<'_>, topic: &str) {
    transcript.run("kafka-topics", &["--describe", "--topic", topic]);
}

/// Moves and elections while all nodes are up.
fn moves_and_elections(transcript: &mut Transcript<'_>) {
    let create = |topic, assignment, more: &[&str]| {
        let args = [&["--create", "--topic", topic, "--replica-assignment", assignment], more].concat();
        kafka_tool("kafka-topics", transcript.bootstrap, &args, b"");
    };
    create("moved", "1:2,2:3,3:1", &[]);
    create("kept", "3:1,2:3", &["--config", "min.insync.replicas=2"]);
    let lines: String = (0..2_000).map(|n| format!("record {n}\n")).collect();
    kcat(transcript.bootstrap, &["-P", "-t", "moved", "-X", "acks=all"], lines.as_bytes());
    describe(transcript, "moved");

    let target = [moved(0, "2,3"), moved(1, "2,1")].join(",");
    transcript.reassign(&target, "--execute");
    transcript.run_until("kafka-reassign-partitions", &["--list"], |said| said.contains("No partition"));
    transcript.reassign(&target, "--verify");
    transcript.reassign(&target, "--cancel");
    describe(transcript, "moved");
    // The same replicas in another order: another preferred leader, who does not lead yet.
    transcript.reassign(&moved(0, "3,2"), "--execute");
    transcript.run_until("kafka-reassign-partitions", &["--list"], |said| said.contains("No partition"));
    describe(transcript, "moved");
    for wrong in [moved(0, "2,9"), moved(0, "2,2"), moved(7, "1,2"), moved(0, "2,3").replace("moved", "no")] {
        transcript.reassign(&wrong, "--execute");
    }

    let preferred = ["--election-type", "preferred"];
    let elect = |more: &[&'static str]| [&preferred[..], more].concat();
    let election = "kafka-leader-election";
    transcript.run(election, &elect(&["--topic", "moved", "--partition", "0"]));
    transcript.run(election, &elect(&["--topic", "moved", "--partition", "0"]));
    transcript.run(election, &elect(&["--all-topic-partitions"]));
    transcript.run(election, &["--election-type", "unclean", "--topic", "moved", "--partition", "1"]);
    describe(transcript, "moved");
}

/// What is told of the quorum, by its shape: the positions and the leader are other ones in every run. Without observers, who are
/// storage nodes: Kafka's nodes vote here.
fn quorum(transcript: &mut Transcript<'_>) {
    for view in ["--status", "--replication"] {
        let args = ["describe", view];
        let said = kafka_tool("kafka-metadata-quorum", transcript.bootstrap, &args, b"");
        let mut lines: Vec<String> = said
            .lines()
            .filter(|line| !line.trim_end().ends_with("Observer") && !line.starts_with("CurrentObservers:"))
            .map(|line| {
                let line = blot(line, "ClusterId:", |_| false);
                // Ids of directories are 22 letters long; Kafka's voters here are named by its configs, and have none.
                let words = line.split_whitespace().filter(|word| word.trim_matches(['"', ',']).len() != 22);
                let words: Vec<&str> = words.filter(|word| *word != "\"directoryId\":").collect();
                without_numbers(&words.join(" "))
            })
            .collect();
        // The leader comes first, then whoever.
        lines[1..].sort_unstable();
        transcript.note(&args, true, &lines.join("\n"));
    }
}

/// What is not in sync when node 3 has died.
fn after_a_death(transcript: &mut Transcript<'_>) {
    let of = |filter: &'static str| ["--describe", filter];
    // Leader and ISR of all that was on node 3 have changed once all four partitions are listed.
    transcript.run_until("kafka-topics", &of("--under-replicated-partitions"), |said| {
        said.lines().filter(|line| line.contains("Partition: ")).count() == 4
    });
    for filter in ["--under-min-isr-partitions", "--at-min-isr-partitions", "--unavailable-partitions"] {
        transcript.run("kafka-topics", &of(filter));
    }
    for topic in ["moved", "kept"] {
        describe(transcript, topic);
    }
}

fn transcript(bootstrap: &str, dir: &Path, kill_node_3: impl FnOnce()) -> String {
    let mut transcript = Transcript { bootstrap, dir, text: String::new() };
    moves_and_elections(&mut transcript);
    quorum(&mut transcript);
    kill_node_3();
    after_a_death(&mut transcript);
    transcript.text
}

fn differences(ours: &str, theirs: &str) -> String {
    let mut text = String::new();
    for (ours, theirs) in ours.split("$ ").zip(theirs.split("$ ")) {
        if ours != theirs {
            let _ = write!(text, "--- Weir\n{ours}--- Kafka\n{theirs}");
        }
    }
    text
}

#[test]
fn kafkas_tools_say_of_weir_what_they_say_of_kafka() {
    let run_dir = RunDir::new("replication_tools");
    let (of_weir, of_kafka) = (run_dir.join("weir"), run_dir.join("kafka"));
    for dir in [&of_weir, &of_kafka] {
        fs::create_dir(dir).expect("the run folder can be written");
    }
    let kafka = std::thread::spawn(move || {
        let options = BrokerOptions { nodes: 3, ..BrokerOptions::default() };
        let mut kafka = KafkaCluster::start(&options).unwrap_or_else(|error| panic!("{error}"));
        transcript(&kafka.bootstrap(), &of_kafka, || kafka.kill_node(3))
    });
    let mut cluster = ReplicatedCluster::start(&of_weir, &Shape::default()).expect("it is loopback");
    let ours = transcript(&cluster.bootstrap(), &of_weir, || cluster.node(3).kill());
    let theirs = kafka.join().expect("Kafka was asked without a panic");
    for (name, text) in [("weir", &ours), ("kafka", &theirs)] {
        fs::write(run_dir.join(&format!("{name}.txt")), text).expect("the run folder can be written");
    }
    // What must be in it, lest both say nothing.
    for said in [
        "Successfully started partition reassignments for moved-0,moved-1",
        "Reassignment of partition moved-1 is completed.",
        "Successfully completed leader election (PREFERRED) for partitions moved-0",
        "Valid replica already elected for partitions moved-0",
        "CurrentVoters: [{",
        "Leader: 1\tReplicas: 3,1\tIsr: 1\tElr: 3",
    ] {
        assert!(ours.contains(said), "{said} is not in {ours}");
    }
    let differences = differences(&ours, &theirs);
    assert!(differences.is_empty() && ours == theirs, "{differences}");

    // The failover was measured where it was decided.
    let mut told = |name| -> Option<f64> {
        (1..=3).map(|id| http::metric(cluster.daemon(Role::Controller, id).http(), name)).sum()
    };
    let measured = wait_until(SEEN_LIMIT, || {
        let count = told("weir_controller_failover_seconds_count").filter(|count| *count >= 1.0)?;
        Some((count, told("weir_controller_failover_seconds_sum")?))
    });
    let (count, seconds) = measured.expect("it is told");
    assert!(seconds > 0.1 && seconds < 60.0, "{count} failovers took {seconds} s");

    // And back: nothing is missing any more.
    cluster.node(3).start();
    let missing = || {
        kafka_tool(
            "kafka-topics",
            &cluster.bootstrap(),
            &["--describe", "--under-replicated-partitions"],
            b"",
        )
    };
    let healed = wait_until(SEEN_LIMIT, || missing().trim().is_empty().then_some(()));
    assert!(healed.is_some(), "{}", missing());
}

/// Runs `weir --output json` and reads its lines.
fn weir_json(bootstrap: &str, args: &[&str]) -> Vec<Value> {
    let said = weir(bootstrap, &[args, &["--output", "json"]].concat(), b"");
    said.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
}

/// A partition as `weir topic describe` tells it.
fn partition(bootstrap: &str, topic: &str, index: usize) -> Value {
    weir_json(bootstrap, &["topic", "describe", topic])[0]["partitions"][index].clone()
}

fn refusal(bootstrap: &str, args: &[&str]) -> (Option<i32>, String) {
    let output = weir_output(bootstrap, args, b"");
    (output.status.code(), all_output(&output))
}

#[test]
fn weir_moves_elects_drains_and_removes() {
    let run_dir = RunDir::new("weir_moves");
    let shape = Shape { nodes: 4, ..Shape::default() };
    let mut cluster = ReplicatedCluster::start(run_dir.path(), &shape).expect("it is loopback");
    let all = cluster.bootstrap();
    let at = cluster.node(1).kafka();
    let assignment = ["--create", "--topic", "t", "--replica-assignment", "4:1:2,1:2:3,2:3:4"];
    kafka_tool("kafka-topics", &at, &assignment, b"");
    let lines: String = (0..5_000).map(|n| format!("record {n}\n")).collect();
    kcat(&all, &["-P", "-t", "t", "-X", "acks=all"], lines.as_bytes());

    // A plan changes nothing.
    let plan = weir_json(&at, &["partition", "move", "t:0", "--replicas", "3,2,1", "--plan"]);
    assert_eq!(
        (&plan[0]["planned"], plan[0]["moves"][0]["bytes"].as_u64() > Some(0)),
        (&Value::Bool(true), true)
    );
    assert_eq!(partition(&at, "t", 0)["replicas"], serde_json::json!([4, 1, 2]));
    let done = weir_json(
        &at,
        &["partition", "move", "t:0", "--replicas", "3,2,1", "--wait", "--throttle", "100MiB"],
    );
    assert_eq!(done[0]["finished"], true);
    let moved = partition(&at, "t", 0);
    assert_eq!(moved["replicas"], serde_json::json!([3, 2, 1]));
    assert_eq!(moved["isr"].as_array().map(Vec::len), Some(3));
    // The throttle is gone with the move.
    let configs = weir_json(&at, &["config", "describe", "topic:t"]);
    assert!(!configs[0].to_string().contains("throttled"), "{configs:?}");

    let plan = weir(&at, &["partition", "elect", "t", "--plan"], b"");
    assert!(plan.contains("would stay as it is"), "{plan}");
    let elected = weir_json(&at, &["partition", "elect", "t:0"]);
    assert_eq!((&elected[0]["to"], partition(&at, "t", 0)["leader"].as_i64()), (&3.into(), Some(3)));
    assert!(weir(&at, &["partition", "moves"], b"").contains("nothing is on the move"));

    // Node 4 goes: first what it holds, then itself.
    let (code, said) = refusal(&at, &["node", "remove", "4"]);
    assert!(code == Some(1) && said.contains("weir node drain 4"), "{said}");
    let drained = weir_json(&at, &["node", "drain", "4", "--wait"]);
    assert_eq!(drained[0]["moves"].as_array().map(Vec::len), Some(1), "{drained:?}");
    let (code, said) = refusal(&at, &["node", "remove", "4"]);
    assert!(code == Some(1) && said.contains("stop its daemon first"), "{said}");
    cluster.node(4).stop();
    let gone = wait_until(SEEN_LIMIT, || {
        weir_output(&at, &["node", "remove", "4"], b"").status.success().then_some(())
    });
    assert!(gone.is_some(), "{:?}", refusal(&at, &["node", "remove", "4"]));
    let status = &weir_json(&at, &["cluster", "status"])[0];
    assert_eq!(status["nodes"].as_array().map(Vec::len), Some(3), "{status}");
    assert_eq!(status["quorum"]["controllers"].as_array().map(Vec::len), Some(3), "{status}");

    let features = &weir_json(&at, &["feature", "describe"])[0];
    let only = &features["features"][0];
    assert_eq!((&only["feature"], &only["level"]), (&"weir.version".into(), &1.into()), "{features}");
    let raised = weir_json(&at, &["feature", "upgrade", "weir.version=1"]);
    assert_eq!(raised[0]["from"], 1, "as it is already: {raised:?}");

    // What cannot be is refused with what to do.
    for (args, code, said) in [
        (&["node", "drain", "3", "--plan"][..], 1, "start another node"),
        (&["partition", "move", "t:0", "--replicas", "1,2,4"], 4, "there is no node 4"),
        (&["partition", "move", "t:9", "--replicas", "1"], 4, "has no partition 9"),
        (&["partition", "elect", "no-such:0"], 4, "weir topic list"),
        (&["controller", "remove", "7"], 4, "weir controller list"),
        (&["controller", "add", "1", "127.0.0.1:1"], 1, "has a vote already"),
        (&["feature", "upgrade", "weir.version=2", "--plan"], 1, "supports level 1 only"),
        (&["feature", "upgrade", "metadata.version=7"], 1, "has weir.version only"),
    ] {
        let (found, text) = refusal(&at, args);
        assert!(found == Some(code) && text.contains(said), "{args:?}: {found:?} {text}");
    }
}

/// T-122: a node is lost with its disk. Another one takes its copies over, then the lost one is forgotten, and nothing is missing;
/// by two commands, of which the second names the first.
#[test]
fn a_node_that_is_lost_for_good_is_replaced() {
    let run_dir = RunDir::new("replaced");
    let shape = Shape { nodes: 4, ..Shape::default() };
    let mut cluster = ReplicatedCluster::start(run_dir.path(), &shape).expect("it is loopback");
    let at = cluster.node(1).kafka();
    let create = ["--create", "--topic", "t", "--replica-assignment", "1:2:3,2:3:1,3:1:2"];
    kafka_tool("kafka-topics", &at, &[&create[..], &["--config", "min.insync.replicas=2"]].concat(), b"");
    let lines: String = (0..3_000).map(|n| format!("record {n}\n")).collect();
    kcat(&at, &["-P", "-t", "t", "-X", "acks=all"], lines.as_bytes());
    // The group makes the internal topic, which has copies on that node as well.
    let consume =
        |group: &str| weir(&at, &["consume", "t", "--group", group, "--from-beginning", "--until-end"], b"");
    assert_eq!(consume("before").lines().count(), 3_000);

    cluster.node(3).kill();
    fs::remove_dir_all(&cluster.node(3).data).expect("it can be removed");
    let (code, said) = refusal(&at, &["node", "remove", "3"]);
    assert!(code == Some(1) && said.contains("`weir node drain 3 --wait`"), "{said}");
    let drained = wait_until(SEEN_LIMIT, || {
        weir_output(&at, &["node", "drain", "3", "--wait"], b"").status.success().then_some(())
    });
    assert!(drained.is_some(), "{:?}", refusal(&at, &["node", "drain", "3", "--plan"]));
    let removed = wait_until(SEEN_LIMIT, || {
        weir_output(&at, &["node", "remove", "3"], b"").status.success().then_some(())
    });
    assert!(removed.is_some(), "{:?}", refusal(&at, &["node", "remove", "3"]));

    let missing = || {
        let filter = ["--describe", "--under-replicated-partitions"];
        kafka_tool("kafka-topics", &at, &filter, b"")
    };
    let whole = wait_until(SEEN_LIMIT, || missing().trim().is_empty().then_some(()));
    assert!(whole.is_some(), "{}", missing());
    let nodes = &weir_json(&at, &["cluster", "status"])[0]["nodes"];
    let ids: Vec<_> =
        nodes.as_array().into_iter().flatten().filter_map(|node| node["node"].as_i64()).collect();
    assert_eq!(ids, [1, 2, 4], "{nodes}");
    for index in 0..3 {
        let replicas = partition(&at, "t", index)["replicas"].clone();
        let mut ids: Vec<_> = replicas.as_array().into_iter().flatten().filter_map(Value::as_i64).collect();
        ids.sort_unstable();
        assert_eq!(ids, [1, 2, 4]);
    }
    // What was committed for groups is there as well, and everything works on.
    kcat(&at, &["-P", "-t", "t", "-X", "acks=all"], b"one more\n");
    assert_eq!(consume("before"), "one more\n", "it goes on where it was");
    assert_eq!(consume("after").lines().count(), 3_001);
}

/// A controller more: it gets a vote, another loses its own, and its id never votes again.
#[test]
fn voters_come_and_go() {
    let run_dir = RunDir::new("voters");
    let mut cluster = start(&run_dir);
    let at = cluster.node(1).kafka();
    let host = format!("127.0.0.1:{}", free_port());
    let folder = run_dir.join("cluster").display().to_string();
    let made = &weir_json(&at, &["cluster", "extend", &folder, "--controllers", &host])[0]["daemons"][0];
    let words: Vec<&str> =
        made["command"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let [program, args @ ..] = &words[..] else { panic!("{made}") };
    let mut command = Command::new(workspace::program(program));
    command.args(args).args(["--http", &format!("127.0.0.1:{}", free_port())]);
    let log = run_dir.join("controller-4.log");
    let mut newcomer = Process::start("controller-4", command, &log).expect("it is built");
    let voters_of = |list: &Value| -> Vec<i64> {
        let members = list["controllers"].as_array().into_iter().flatten();
        let voters = members.filter(|member| member["role"] != "learner");
        voters.filter_map(|member| member["controller"].as_i64()).collect()
    };
    let voters = |at: &str| voters_of(&weir_json(at, &["controller", "list"])[0]);
    assert_eq!(voters(&at), [1, 2, 3]);
    let plan = weir(&at, &["controller", "add", "4", &host, "--plan"], b"");
    assert!(plan.contains("would add controller 4"), "{plan}");
    assert_eq!(voters(&at), [1, 2, 3]);
    // It may take a moment until it listens.
    let added = wait_until(SEEN_LIMIT, || {
        weir_output(&at, &["controller", "add", "4", &host], b"").status.success().then_some(())
    });
    assert!(added.is_some(), "{:?}\n{}", refusal(&at, &["controller", "add", "4", &host]), newcomer.output());
    assert_eq!(voters(&at), [1, 2, 3, 4]);

    let leader =
        weir_json(&at, &["controller", "list"])[0]["leader"].as_i64().expect("one leads").to_string();
    weir(&at, &["controller", "remove", &leader], b"");
    let left: Vec<i64> = (1..=4).filter(|id| id.to_string() != leader).collect();
    let gone = wait_until(SEEN_LIMIT, || {
        // The next leader has to be found first.
        let output = weir_output(&at, &["controller", "list", "--output", "json"], b"");
        let list = serde_json::from_slice(&output.stdout).ok()?;
        (output.status.success() && voters_of(&list) == left).then_some(())
    });
    assert!(gone.is_some(), "{left:?}: {}", weir(&at, &["controller", "list"], b""));
    kafka_tool("kafka-topics", &at, &["--create", "--topic", "t", "--partitions", "3"], b"");
    let (code, said) = refusal(&at, &["controller", "add", &leader, "127.0.0.1:1"]);
    assert_eq!(code, Some(1), "an id that was removed never votes again: {said}");
    newcomer.terminate(SEEN_LIMIT).expect("it ends");
}

/// Asks for other replicas of partition 0, as a client would that checks nothing first.
fn reassign(at: &str, topic: &str, replicas: &[i32]) -> (ErrorCode, String) {
    let partition = ReassignablePartition { partition_index: 0, replicas: Some(replicas.to_vec()) };
    let topics = vec![ReassignableTopic { name: topic.into(), partitions: vec![partition] }];
    let request = AlterPartitionReassignmentsRequest { timeout_ms: 30_000, topics, ..Default::default() };
    let address: HostPort = at.parse().expect("it is host and port");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("it can be made");
    let answer = runtime.block_on(async {
        let client = Client::connect(ClientConfig::new(vec![address])).await?;
        client.call(&request).await
    });
    let answer = answer.unwrap_or_else(|error| panic!("{error}"));
    let partition = &answer.responses[0].partitions[0];
    (partition.error_code, partition.error_message.as_deref().unwrap_or_default().to_owned())
}

/// Requests and nodes that cannot be taken: each is refused, and told what to do.
#[test]
fn what_cannot_be_is_refused_with_what_to_do() {
    let run_dir = RunDir::new("refused");
    let mut cluster = start(&run_dir);
    let at = cluster.node(1).kafka();
    let create = ["--create", "--topic", "t", "--replication-factor", "4", "--partitions", "1"];
    let said = all_output(&kafka_tool_output("kafka-topics", &at, &create, b""));
    assert!(said.contains("InvalidReplicationFactorException") && said.contains("Start 1 more"), "{said}");
    kafka_tool("kafka-topics", &at, &["--create", "--topic", "t", "--replica-assignment", "1:2"], b"");

    // Another directory under a used id is another node, whatever it calls itself.
    cluster.node(3).stop();
    let data = cluster.node(3).data.clone();
    let aside = run_dir.join("set-aside");
    fs::rename(&data, &aside).expect("same disk");
    cluster.node(3).start();
    let ended = wait_until(SEEN_LIMIT, || cluster.node(3).ended());
    assert!(ended.is_some(), "a node with a foreign directory must not run");
    let log = fs::read_to_string(cluster.node(3).log()).expect("it wrote a log");
    assert!(
        log.contains("is registered with data directories")
            && log.contains("replaces-lost-disk")
            && log.contains("unused node id"),
        "{log}"
    );

    // A node that is away, or unknown, takes over nothing. Kafka's tool does not even ask.
    for (target, said) in
        [([1, 3], "is fenced"), ([1, 9], "Choose among those that weir cluster status lists")]
    {
        let (code, text) = reassign(&at, "t", &target);
        assert_eq!(code, ErrorCode::InvalidReplicaAssignment, "{text}");
        assert!(text.contains(said), "{target:?}: {text}");
    }
    let (code, said) = refusal(&at, &["partition", "move", "t:0", "--replicas", "1,3"]);
    assert!(code == Some(1) && said.contains("node 3 is not alive"), "{said}");

    // With its own directory it is itself again.
    fs::remove_dir_all(&data).expect("it can be removed");
    fs::rename(&aside, &data).expect("same disk");
    cluster.node(3).kill();
    cluster.node(3).start();
    cluster.wait_ready();
    weir(&at, &["partition", "move", "t:0", "--replicas", "1,3", "--wait"], b"");
}

/// Leaves only a node that was not in sync: nobody leads until somebody allows that records are lost.
#[test]
fn an_unclean_election_needs_permission() {
    let run_dir = RunDir::new("unclean");
    let mut cluster = start(&run_dir);
    let at = cluster.node(3).kafka();
    kafka_tool("kafka-topics", &at, &["--create", "--topic", "t", "--replica-assignment", "1:2"], b"");
    let isr = |expected: &[i64]| {
        let seen = wait_until(SEEN_LIMIT, || {
            let found = partition(&at, "t", 0);
            (found["isr"] == serde_json::json!(expected)).then_some(())
        });
        assert!(seen.is_some(), "{expected:?}: {}", partition(&at, "t", 0));
    };
    cluster.node(2).kill();
    isr(&[1]);
    kcat(&at, &["-P", "-t", "t", "-X", "acks=1"], b"only node 1 has this\n");
    cluster.node(1).kill();
    cluster.node(2).start();
    let leaderless = wait_until(SEEN_LIMIT, || {
        let status = &weir_json(&at, &["cluster", "status"])[0];
        let up = status["nodes"].as_array().is_some_and(|nodes| nodes[1]["fenced"] == false);
        (up && status["leaderless"] == serde_json::json!(["t-0"])).then_some(())
    });
    assert!(leaderless.is_some(), "{}", weir(&at, &["cluster", "status"], b""));
    let unavailable = kafka_tool("kafka-topics", &at, &["--describe", "--unavailable-partitions"], b"");
    assert!(unavailable.contains("Partition: 0") && unavailable.contains("Leader: none"), "{unavailable}");
    let (code, said) = refusal(&at, &["partition", "elect", "t:0"]);
    assert!(code == Some(1) && said.contains("PREFERRED_LEADER_NOT_AVAILABLE"), "{said}");
    assert!(said.contains("start one of brokers 1.") && said.contains("--unclean"), "{said}");
    let args = ["--election-type", "unclean", "--topic", "t", "--partition", "0"];
    let elected = kafka_tool("kafka-leader-election", &at, &args, b"");
    assert!(elected.contains("Successfully completed leader election (UNCLEAN)"), "{elected}");
    let now = partition(&at, "t", 0);
    assert_eq!((now["leader"].as_i64(), &now["isr"]), (Some(2), &serde_json::json!([2])));
}

/// Consumers that name their rack read there (KIP-392), and elsewhere when the replica there can serve them no more (T-35).
#[test]
fn a_consumer_reads_in_its_rack_while_it_can() {
    let run_dir = RunDir::new("racks");
    let selector = "kafka.replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector";
    let shape = Shape { node_settings: vec![selector.to_owned()], ..Shape::default() };
    let mut cluster = ReplicatedCluster::prepare(run_dir.path(), &shape).expect("it is loopback");
    for id in 1..=3 {
        let file = run_dir.join(&format!("cluster/storage-node-{id}/storage-node.toml"));
        let text = fs::read_to_string(&file).expect("it was made");
        fs::write(&file, format!("rack = \"rack-{id}\"\n{text}")).expect("it can be written");
    }
    cluster.daemons_mut().iter_mut().for_each(cluster_tests::replicated_cluster::Daemon::start);
    cluster.wait_ready();
    let at = cluster.bootstrap();
    kafka_tool("kafka-topics", &at, &["--create", "--topic", "t", "--replica-assignment", "1:2:3"], b"");
    let value = "v".repeat(1_000);
    let lines: String = (0..1_000).map(|n| format!("{n} {value}\n")).collect();
    kcat(&at, &["-P", "-t", "t", "-X", "acks=all"], lines.as_bytes());

    let fetched = |cluster: &ReplicatedCluster, asked: &[usize]| -> BTreeMap<usize, f64> {
        let nodes = cluster.daemons().iter().filter(|daemon| daemon.role == Role::StorageNode);
        let nodes = nodes.filter(|daemon| asked.contains(&daemon.id));
        let bytes = |daemon: &cluster_tests::replicated_cluster::Daemon| {
            http::metric(daemon.http(), "weir_storage_node_fetched_bytes_total")
        };
        let soon = |daemon| wait_until(SEEN_LIMIT, || bytes(daemon)).expect("it tells");
        nodes.map(|daemon| (daemon.id, soon(daemon))).collect()
    };
    // Bytes that the nodes which are asked have sent meanwhile.
    let read = |cluster: &ReplicatedCluster, count: usize, asked: &[usize]| {
        let before = fetched(cluster, asked);
        let args = [
            "-C",
            "-t",
            "t",
            "-o",
            "beginning",
            "-c",
            &count.to_string(),
            "-X",
            "client.rack=rack-3",
            "-f",
            "%s\n",
        ];
        let text = kcat(&at, &args, b"");
        assert_eq!(text.lines().count(), count);
        let after = fetched(cluster, asked).into_iter();
        after.map(|(id, bytes)| (id, bytes - before[&id])).collect::<BTreeMap<_, _>>()
    };
    let by_node = read(&cluster, 1_000, &[1, 3]);
    assert!(by_node[&3] >= 1_000_000.0 && by_node[&1] < 100_000.0, "{by_node:?}");

    // The replica in its rack stands still: it leaves the ISR, and the consumer reads on at the leader.
    cluster.node(3).pause();
    let out = wait_until(SEEN_LIMIT, || {
        let isr = partition(&cluster.node(1).kafka(), "t", 0)["isr"].clone();
        (isr.as_array().map(Vec::len) == Some(2)).then_some(())
    });
    assert!(out.is_some(), "node 3 should leave the ISR");
    kcat(&cluster.node(1).kafka(), &["-P", "-t", "t", "-X", "acks=all"], lines.as_bytes());
    let by_node = read(&cluster, 2_000, &[1]);
    assert!(by_node[&1] >= 2_000_000.0, "{by_node:?}");
    cluster.node(3).resume();
}
