//! Side-by-side measurements: Weir, Apache Kafka and the machine's floor in one run, in turns, reported as medians and
//! ratios. Nothing here gates a test; `cargo run --release -p bench -- --help` lists the measurements.

mod clock;
mod cpu;
mod floor;
mod kafka_client;
mod one_node;
mod report;
mod startup;
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
    /// The floor's broker, started by the other measurements.
    #[command(hide = true)]
    FloorBroker {
        /// Where it keeps its log file.
        directory: std::path::PathBuf,
    },
}

fn main() -> ExitCode {
    let result = match Args::parse().measurement {
        Measurement::OneNode(args) => one_node::run(&args),
        Measurement::Startup(args) => startup::run(&args),
        Measurement::FloorBroker { directory } => floor::serve(&directory),
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
