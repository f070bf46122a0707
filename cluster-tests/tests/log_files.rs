//! Files of logs across the border: `weir log` and Apache Kafka's dump tool say the same of the same files, whoever wrote
//! them, and what Kafka wrote is served.

use std::fs;
use std::path::{Path, PathBuf};

use cluster_tests::clients::{kafka_tool, kcat, weir_output, weir_read};
use cluster_tests::dump::partition_dirs;
use cluster_tests::local_cluster::WeirDev;
use cluster_tests::oracle::broker::{BrokerOptions, KafkaCluster};
use cluster_tests::oracle::tools;
use serde_json::Value;

const RECORDS: usize = 12_000;
/// What entries begin with; everything else is about the file as a whole.
const ENTRIES: &[&str] =
    &["baseOffset: ", "| offset: ", "offset: ", "timestamp: ", "producerId: ", "version: "];

/// Records of an idempotent producer, a part by each codec.
fn fill(at: &str) -> Vec<String> {
    kafka_tool(
        "kafka-topics",
        at,
        &["--create", "--topic", "t", "--partitions", "1", "--config", "segment.bytes=1048576"],
        b"",
    );
    let lines: Vec<String> = (0..RECORDS).map(|n| format!("record {n} {}", "payload ".repeat(130))).collect();
    for (codec, part) in ["none", "gzip", "snappy", "lz4", "zstd"].iter().zip(lines.chunks(RECORDS / 5)) {
        let options =
            ["-P", "-t", "t", "-z", codec, "-X", "enable.idempotence=true", "-X", "batch.size=16000"];
        kcat(at, &options, part.join("\n").as_bytes());
    }
    lines
}

fn entries(text: &str) -> Vec<String> {
    let entry = |line: &&str| ENTRIES.iter().any(|begin| line.starts_with(begin));
    // Behind the newest batch of a producer, Kafka's tool knows of none.
    text.lines().filter(entry).map(|l| l.split(" batches: ").next().unwrap_or(l).to_owned()).collect()
}

fn weir_log(args: &[&str]) -> (bool, String) {
    let output = weir_output("127.0.0.1:1", &[&["log"], args].concat(), b"");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).expect("text"))
}

/// Both tools on every file of a partition that both know.
fn compare_dumps(dir: &Path) -> usize {
    let mut compared = 0;
    for entry in fs::read_dir(dir).expect("it is there").flatten() {
        let path = entry.path();
        let kind = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if !["log", "index", "timeindex", "txnindex", "snapshot"].contains(&kind) {
            continue;
        }
        let name = path.display().to_string();
        let args = ["--print-data-log", "--deep-iteration", "--files", &name];
        let theirs = tools::run("kafka-dump-log", &args, b"").expect("the jars of Kafka are there");
        let theirs = tools::checked("kafka-dump-log", theirs).unwrap_or_else(|error| panic!("{error}"));
        let (sound, ours) = weir_log(&["dump", "--records", &name]);
        assert!(sound, "{name}: {ours}");
        let (theirs, ours) = (entries(&theirs), entries(&ours));
        for (nth, (theirs, ours)) in theirs.iter().zip(&ours).enumerate() {
            assert_eq!(ours, theirs, "{name}, entry {nth}");
        }
        assert_eq!(ours.len(), theirs.len(), "{name}");
        compared += ours.len();
    }
    compared
}

fn verify(dir: &Path) -> Value {
    let (sound, text) = weir_log(&["verify", "--output", "json", &dir.display().to_string()]);
    let document = text.lines().next().and_then(|line| serde_json::from_str(line).ok());
    let document: Value = document.unwrap_or_else(|| panic!("no JSON: {text}"));
    assert_eq!(
        sound,
        document
            .as_array()
            .is_some_and(|logs| logs.iter().all(|l| l["state"] == "sound" || l["state"] == "note")),
        "{text}"
    );
    document
}

#[test]
fn both_tools_say_the_same_of_our_files_and_damage_has_an_exit_code() {
    let mut dev = WeirDev::start("log_files_ours");
    fill(&dev.bootstrap());
    assert!(dev.stop().success());
    let dirs = partition_dirs(dev.data());
    assert_eq!(dirs.len(), 1, "{dirs:?}");
    assert!(compare_dumps(&dirs[0]) > RECORDS);

    let above = dirs[0].parent().expect("a data directory");
    let document = verify(above);
    assert_eq!(
        (&document[0]["state"], &document[0]["end"]),
        (&Value::from("sound"), &Value::from(RECORDS)),
        "{document}"
    );
    assert!(document[0]["sealed"].as_u64() >= Some(1), "{document}");
    let seal = files(&dirs[0], "seal").remove(0);
    let (sound, text) = weir_log(&["dump", &seal.display().to_string()]);
    assert!(sound && text.contains("nextBaseOffset: "), "{text}");

    let segment = files(&dirs[0], "log").remove(0);
    let mut bytes = fs::read(&segment).expect("it is there");
    bytes[700] ^= 4;
    fs::write(&segment, bytes).expect("writable");
    let document = verify(above);
    assert_eq!(document[0]["state"], "damage", "{document}");
    assert!(!weir_log(&["dump", &segment.display().to_string()]).0, "a dump of damage fails too");
}

fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(dir)
        .expect("it is there")
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    files
}

#[test]
fn what_kafka_wrote_is_dumped_verified_and_served() {
    let mut kafka = KafkaCluster::start(&BrokerOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let lines = fill(&kafka.bootstrap());
    kafka.kill_node(1);
    let theirs = kafka.dir().join("node-1/data/t-0");
    assert!(files(&theirs, "log").len() >= 3);
    assert!(compare_dumps(&theirs) > RECORDS);
    let document = verify(&theirs);
    assert_eq!(document[0]["end"], RECORDS, "{document}");

    // In place of the empty log of a topic of ours.
    let mut dev = WeirDev::start("log_files_kafka");
    kafka_tool("kafka-topics", &dev.bootstrap(), &["--create", "--topic", "t", "--partitions", "1"], b"");
    kcat(&dev.bootstrap(), &["-P", "-t", "t"], b"to find the directory by");
    assert!(dev.stop().success());
    let ours = partition_dirs(dev.data()).remove(0);
    for file in fs::read_dir(&ours).expect("it is there").flatten() {
        fs::remove_file(file.path()).expect("removable");
    }
    for extension in ["log", "index", "timeindex", "snapshot"] {
        for file in files(&theirs, extension) {
            fs::copy(&file, ours.join(file.file_name().expect("a name"))).expect("copied");
        }
    }
    dev.start_again();
    let read = weir_read(&dev.bootstrap(), "t", RECORDS);
    assert!(read.iter().zip(0..).all(|(record, offset)| record.offset == offset));
    let values: Vec<String> = read.into_iter().map(|record| record.value).collect();
    assert!(values == lines, "every record, as it was sent");
}
