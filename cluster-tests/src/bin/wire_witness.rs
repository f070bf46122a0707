//! The command `cargo xtask witness`: captures what stock clients and `weir dev`, or Apache Kafka, say to each other and has
//! it read by Kafka's codec and by Wireshark.

#![expect(clippy::print_stdout, reason = "a program for people prints")]

use std::process::{Command, ExitCode};

use cluster_tests::local_cluster::{Against, Subject};
use cluster_tests::run_dir::RunDir;
use cluster_tests::tally::Tally;
use cluster_tests::witness::{self, Testimony, complaints};
use cluster_tests::workspace;
use kafka_wire_core::ApiKey;

/// Clients that have nothing in common: C, JavaScript, Go.
const CLIENTS: &[&str] = &["kcat", "kafkajs", "kafka-go"];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let Some((against, clients)) = Against::from_args(&args) else {
        eprintln!("usage: wire-witness [--against weir|kafka] [CLIENT...]");
        return ExitCode::from(2);
    };
    match run(against, if clients.is_empty() { CLIENTS } else { clients }) {
        Ok(testimony) => {
            print(&testimony);
            judge(&testimony)
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(against: Against, clients: &[&str]) -> Result<Testimony, String> {
    let subject = Subject::start_this(against, "wire_witness");
    let run_dir = RunDir::new("wire_witness_capture");
    let file = run_dir.join("capture.pcapng");
    let capture = witness::capture(subject.port(), &file).map_err(|error| error.to_string())?;
    let mut table = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    table.current_dir(workspace::root()).args(["xtask", "clients", "--bootstrap", &subject.bootstrap()]);
    let status = table.args(clients).status().map_err(|error| format!("cannot start cargo: {error}"))?;
    let file = capture.stop().map_err(|error| error.to_string())?;
    if !status.success() {
        return Err("the clients failed, so there is nothing to testify".to_owned());
    }
    witness::examine(&file, subject.port()).map_err(|error| error.to_string())
}

/// Fails on what Kafka's codec does not read, and on a kind of complaint that nobody has looked into.
fn judge(testimony: &Testimony) -> ExitCode {
    let verdicts = match complaints::verdicts() {
        Ok(verdicts) => verdicts,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let open: Vec<&String> = testimony.complaints.keys().filter(|kind| !verdicts.covers(kind)).collect();
    for kind in &open {
        println!("Wireshark's complaint has no verdict in cluster-tests/probe/README.md: {kind}");
    }
    if testimony.faults.is_empty() && open.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print(testimony: &Testimony) {
    println!("\n{:32} {:>7} {:>9} {:>9}", "API", "version", "requests", "responses");
    for ((key, version), seen) in &testimony.seen {
        let name = ApiKey::try_from(*key).map_or("?", ApiKey::name);
        println!("{name:32} {version:>7} {:>9} {:>9}", seen.requests, seen.responses);
    }
    println!(
        "\nWireshark complains, about what Kafka's codec reads and writes unchanged unless it is named below:"
    );
    for (complaint, times) in &testimony.complaints {
        println!("  {times:>5} {complaint}");
    }
    println!("\n{} bodies that Kafka's codec does not read, or writes otherwise", testimony.faults.len());
    for fault in &testimony.faults {
        println!("  {fault}");
    }
    let bodies: usize = testimony.seen.values().map(|seen| seen.requests + seen.responses).sum();
    let failed = testimony.faults.len();
    println!("{}", Tally { passed: bodies - failed, failed, named: 0 });
}
