//! Stock clients as programs: kcat (librdkafka), our small Java programs on Kafka's own client library, and `weir`.
//!
//! Each call runs to the end and panics with all that the program wrote if it fails: the callers are tests.

use std::process::{Command, Output};

use crate::oracle::tools::{self, SHORT_LIVED_JVM};
use crate::workspace;

/// A record as a client read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRecord {
    /// Partition index.
    pub partition: i32,
    /// Offset in the partition.
    pub offset: i64,
    /// Key; `None` for a null key.
    pub key: Option<String>,
    /// Value.
    pub value: String,
}

/// Runs kcat against `bootstrap` and returns what it printed.
pub fn kcat(bootstrap: &str, args: &[&str], input: &[u8]) -> String {
    let mut command = Command::new("kcat");
    command.args(["-b", bootstrap, "-q"]).args(args);
    succeed("kcat", tools::run_with_input(command, input).expect("kcat is installed"))
}

/// Runs kcat, which may fail.
pub fn kcat_output(bootstrap: &str, args: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new("kcat");
    command.args(["-b", bootstrap]).args(args);
    tools::run_with_input(command, input).expect("kcat is installed")
}

/// Reads a whole topic with kcat.
pub fn kcat_read(bootstrap: &str, topic: &str) -> Vec<ReadRecord> {
    let format = "%p\t%o\t%K\t%k\t%s\n";
    parse_records(&kcat(bootstrap, &["-C", "-t", topic, "-o", "beginning", "-e", "-f", format], b""))
}

/// A command that runs `cluster-tests/java/<name>.java`, compiled on the spot.
pub fn java_command(name: &str, args: &[&str]) -> Command {
    let mut command = tools::java(SHORT_LIVED_JVM).expect("the jars of Kafka are there");
    command.arg(workspace::root().join(format!("cluster-tests/java/{name}.java"))).args(args);
    command
}

/// Runs one of our Java programs.
pub fn java(name: &str, args: &[&str], input: &[u8]) -> String {
    succeed(name, tools::run_with_input(java_command(name, args), input).expect("java is installed"))
}

/// Reads a whole topic with Kafka's Java consumer.
pub fn java_read(bootstrap: &str, topic: &str) -> Vec<ReadRecord> {
    parse_records(&java("ConsumeAll", &[bootstrap, topic], b""))
}

/// Runs a stock Kafka tool against `bootstrap`.
pub fn kafka_tool(name: &str, bootstrap: &str, args: &[&str], input: &[u8]) -> String {
    succeed(name, kafka_tool_output(name, bootstrap, args, input))
}

/// Runs a stock Kafka tool that may fail.
pub fn kafka_tool_output(name: &str, bootstrap: &str, args: &[&str], input: &[u8]) -> Output {
    let all = [&["--bootstrap-server", bootstrap], args].concat();
    tools::run(name, &all, input).expect("the jars of Kafka are there")
}

/// Runs `weir` against `bootstrap`.
pub fn weir(bootstrap: &str, args: &[&str], input: &[u8]) -> String {
    succeed("weir", weir_output(bootstrap, args, input))
}

/// Runs `weir` when it may fail.
pub fn weir_output(bootstrap: &str, args: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(workspace::program("weir"));
    command.env("WEIR_BOOTSTRAP", bootstrap).args(args);
    tools::run_with_input(command, input).expect("weir is built")
}

/// Reads the first `count` records of a topic with `weir`.
pub fn weir_read(bootstrap: &str, topic: &str, count: usize) -> Vec<ReadRecord> {
    let count = count.to_string();
    let args = ["consume", topic, "--from-beginning", "--count", &count, "--output", "json"];
    let print = ["--print", "key,partition,offset"];
    let text = weir(bootstrap, &[&args[..], &print[..]].concat(), b"");
    text.lines().map(|line| parse_json(line).unwrap_or_else(|| panic!("not a record: {line}"))).collect()
}

fn parse_json(line: &str) -> Option<ReadRecord> {
    let json: serde_json::Value = serde_json::from_str(line).ok()?;
    Some(ReadRecord {
        partition: json["partition"].as_i64()?.try_into().ok()?,
        offset: json["offset"].as_i64()?,
        key: json["key"].as_str().map(str::to_owned),
        value: json["value"].as_str()?.to_owned(),
    })
}

/// All that a program wrote.
pub fn all_output(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text
}

fn succeed(what: &str, output: Output) -> String {
    assert!(output.status.success(), "{what} failed ({}):\n{}", output.status, all_output(&output));
    String::from_utf8(output.stdout).expect("clients print UTF-8 here")
}

/// Lines of partition, offset, key length, key, value.
fn parse_records(text: &str) -> Vec<ReadRecord> {
    text.lines().map(|line| parse_record(line).unwrap_or_else(|| panic!("not a record: {line}"))).collect()
}

fn parse_record(line: &str) -> Option<ReadRecord> {
    let mut fields = line.splitn(5, '\t');
    let partition = fields.next()?.parse().ok()?;
    let offset = fields.next()?.parse().ok()?;
    let key_length: i64 = fields.next()?.parse().ok()?;
    let key = fields.next()?.to_owned();
    let value = fields.next()?.to_owned();
    Some(ReadRecord { partition, offset, key: (key_length >= 0).then_some(key), value })
}
