//! Side-by-side measurements: Weir, Apache Kafka and the machine's floor in one run, in turns, reported as medians and
//! ratios. Nothing here gates a test; `cargo run --release -p bench -- --help` lists the measurements.

mod catch_up;
mod clock;
mod cluster;
mod compaction;
mod controller_failover;
mod cpu;
mod failover;
mod floor;
mod floor_of_copies;
mod idle;
mod kafka_client;
mod lanes;
mod loopback;
mod one_node;
mod produce_legs;
mod replicated;
mod report;
mod restart;
mod startup;
mod steady_producer;
mod weir;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "bench", about = "Measure Weir beside Apache Kafka and beside the floor of this machine")]
struct Args {
    #[command(subcommand)]
    measurement: Measurement,
}

#[derive(Subcommand)]
enum Measurement {
    /// One producer and one consumer (librdkafka, 1 KiB records) against one node: MB/s and broker CPU seconds per GB.
    OneNode(one_node::Args),
    /// Time from start to the first answer, and resident memory when idle, of `weir dev` on an empty directory.
    Startup(startup::Args),
    /// Time from start to serving clients with many partitions, after a clean stop and after SIGKILL, and what is read for it.
    Restart(restart::Args),
    /// What partitions cost that nobody uses: resident memory, descriptors and CPU, at several numbers of them; and how long it
    /// takes to create them.
    Idle(idle::Args),
    /// Writes while the leader of three copies is killed (or stopped) again and again: how long they stand still.
    Failover(failover::Args),
    /// The leader of three controllers is killed (or stopped) again and again: how long metadata stands still.
    ControllerFailover(controller_failover::Args),
    /// acks=all with three copies on three nodes, beside Apache Kafka: MB/s, CPU of all nodes, latency.
    Replicated(replicated::Args),
    /// A node that missed a gigabyte: how long until it is in sync again.
    CatchUp(catch_up::Args),
    /// One thread compacts one log: MB/s of input, uncompressed and lz4.
    Compaction(compaction::Args),
    /// Sessions of many partitions between two nodes: on a few lanes, or on one stream for each.
    Lanes(lanes::Args),
    /// The floor's broker, started by the other measurements.
    #[command(hide = true)]
    FloorBroker {
        /// Where it keeps its log file.
        directory: std::path::PathBuf,
    },
    /// The floor of three copies, started by the other measurements.
    #[command(hide = true)]
    FloorOfCopies {
        /// Where it keeps its three files.
        directory: std::path::PathBuf,
    },
}

fn main() -> ExitCode {
    let result = match Args::parse().measurement {
        Measurement::OneNode(args) => one_node::run(&args),
        Measurement::Startup(args) => startup::run(&args),
        Measurement::Restart(args) => restart::run(&args),
        Measurement::Idle(args) => idle::run(&args),
        Measurement::Failover(args) => failover::run(&args),
        Measurement::ControllerFailover(args) => controller_failover::run(&args),
        Measurement::Replicated(args) => replicated::run(&args),
        Measurement::CatchUp(args) => catch_up::run(&args),
        Measurement::Compaction(args) => compaction::run(&args),
        Measurement::Lanes(args) => lanes::run(&args),
        Measurement::FloorBroker { directory } => floor::serve(&directory),
        Measurement::FloorOfCopies { directory } => floor_of_copies::serve(&directory),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What can go wrong in a measurement, as a sentence.
pub(crate) type Failure = Box<dyn std::error::Error>;
