//! Kafka's own classes read and write the same bytes: every message, every version, and the tables of APIs and errors.
//!
//! Needs a JVM and the `kafka-clients` jar: of `WEIR_KAFKA_CLIENTS_JAR`, or those that `cargo xtask kafka-jars` fetched.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod seed;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bytes::Bytes;
use kafka_wire_core::messages::{Visitor, visit};
use kafka_wire_core::sample::{Sample, Sampler};
use kafka_wire_core::{ApiKey, ErrorCode, Message, Request, Writer};

const SAMPLES: usize = 40;

/// The class path of Kafka's classes.
fn class_path() -> String {
    if let Ok(jar) = std::env::var("WEIR_KAFKA_CLIENTS_JAR") {
        return jar;
    }
    let jars = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/kafka/libs");
    let found = std::fs::read_dir(&jars).is_ok_and(|entries| {
        entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("kafka-clients-"))
    });
    assert!(found, "no kafka-clients jar in {}: run `cargo xtask kafka-jars` first", jars.display());
    format!("{}/*", jars.display())
}

/// Lets Kafka's classes answer `lines`.
fn ask_kafka(lines: String) -> Vec<String> {
    let source: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/java/ReEncode.java");
    let mut java = Command::new("java")
        .args([
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
            "-cp",
        ])
        .arg(class_path())
        .arg(source)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("`java` starts: a JDK 17 or newer must be installed");
    let mut input = java.stdin.take().unwrap();
    // Written beside the reading, else both ends wait for each other once the pipe is full.
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = java.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    writer.join().unwrap().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Bytes {
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// What is wrong with Kafka's answer, if anything.
type Judge = Box<dyn Fn(&str) -> Result<(), String>>;

/// One question: our bytes, and how to judge what Kafka makes of them.
struct Question {
    name: String,
    line: String,
    judge: Judge,
}

struct Questions {
    sampler: Sampler,
    all: Vec<Question>,
    pairs: BTreeSet<(ApiKey, bool, i16)>,
}

impl Questions {
    fn message<M: Message + Sample>(&mut self, key: ApiKey, is_request: bool) {
        for version in M::VERSIONS {
            self.pairs.insert((key, is_request, version));
            for _ in 0..SAMPLES {
                let message: M = self.sampler.message(version).unwrap();
                let mut writer = Writer::new();
                message.encode(&mut writer, version).unwrap();
                let bytes = hex(&writer.finish().into_bytes().unwrap());
                let kind = if is_request { "req" } else { "resp" };
                let line = format!("{} {version} {kind} {bytes}\n", key.code());
                let judge = move |answer: &str| {
                    if answer != bytes {
                        return Err(format!("Kafka answers {answer} to {bytes}"));
                    }
                    match M::decode_exact(unhex(answer), version) {
                        Ok(decoded) if decoded == message => Ok(()),
                        other => Err(format!("we read {other:?} out of {answer}")),
                    }
                };
                let name = format!("{} v{version}", M::NAME);
                self.all.push(Question { name, line, judge: Box::new(judge) });
            }
        }
    }
}

impl Visitor for Questions {
    fn api<R>(&mut self)
    where
        R: Request + Sample,
        R::Response: Sample,
    {
        if R::KEY.is_own() {
            return;
        }
        self.message::<R>(R::KEY, true);
        self.message::<R::Response>(R::KEY, false);
    }
}

#[test]
fn kafka_reads_and_writes_the_same() {
    let sampler = seed::sampler("kafka_clients", "kafka_reads_and_writes_the_same");
    let mut questions = Questions { sampler, all: Vec::new(), pairs: BTreeSet::new() };
    visit(&mut questions);
    let answers = ask_kafka(questions.all.iter().map(|question| question.line.as_str()).collect());
    assert_eq!(answers.len(), questions.all.len());
    for (question, answer) in questions.all.iter().zip(&answers) {
        (question.judge)(answer).unwrap_or_else(|e| panic!("{}: {e}", question.name));
    }
    println!("{} messages in {} versions", answers.len(), questions.pairs.len());
}

#[test]
fn kafka_has_the_same_apis() {
    let ours = ApiKey::ALL.iter().filter(|key| !key.is_own()).map(|key| {
        let versions = key.versions();
        format!("{} {} {} {}", key.code(), key.name(), versions.start(), versions.end())
    });
    let answers = ask_kafka("apis\n".to_owned());
    let (end, lines) = answers.split_last().unwrap();
    assert_eq!(end, ".");
    let theirs = lines.iter().map(|line| line.rsplit_once(' ').unwrap().0);
    assert_eq!(ours.collect::<Vec<_>>(), theirs.collect::<Vec<_>>());
    for (key, line) in ApiKey::ALL.iter().zip(lines) {
        let headers = line.rsplit_once(' ').unwrap().1.split(',');
        for (version, theirs) in (*key.versions().start()..).zip(headers) {
            let flexible = key.is_flexible(version);
            let response = flexible && *key != ApiKey::ApiVersions;
            let ours = format!("{}/{}", if flexible { 2 } else { 1 }, i32::from(response));
            assert_eq!(ours, theirs, "{key} v{version}");
        }
    }
}

#[test]
fn kafka_has_the_same_errors() {
    let ours = ErrorCode::ALL
        .iter()
        .map(|error| format!("{} {} {}", error.code(), error.name(), error.is_retriable()));
    let answers = ask_kafka("errors\n".to_owned());
    let (end, theirs) = answers.split_last().unwrap();
    assert_eq!(end, ".");
    assert_eq!(ours.collect::<Vec<_>>(), theirs);
}
