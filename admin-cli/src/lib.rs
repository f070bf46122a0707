//! `weir`, the command line of a Weir cluster; its general verbs work against Apache Kafka too.
//!
//! [`cli`](self) holds the tree of arguments, `commands/` one file per noun or verb. A command writes to an [`Output`] it is
//! handed and returns a [`Failure`] that says what was wrong, where, and what to do; this file turns that into the exit
//! code. Administration goes through the small client of `kafka-wire`, records through librdkafka.

mod certificates;
mod cli;
mod clock;
mod cluster_view;
mod commands;
mod failure;
mod groups;
mod input_record;
mod offsets;
mod output;
mod partition_selection;
mod quorum_view;
mod reassign;
mod record_text;
mod replica_plan;
mod time_text;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::failure::Failure;
use crate::output::{Format, Output};

/// Parses the arguments of the process, runs the command, reports, and gives the exit code.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version end well, everything else is a usage error. A closed terminal cannot be told.
            drop(error.print());
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let format = cli.global.output;
    let stdout = io::stdout();
    let mut output = Output::new(format, stdout.lock(), io::stderr(), io::stderr().is_terminal());
    let result = run(cli, &mut output).and_then(|()| output.flush());
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if failure.is_closed_output() => ExitCode::SUCCESS,
        Err(failure) => {
            // Standard output may be what is broken; the report goes to standard error.
            drop(output.flush());
            drop(report(&failure, format, io::stderr()));
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(cli: Cli, output: &mut Output<'_>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("cannot start threads: {error}")))?;
    let global = cli.global;
    let result = runtime.block_on(async {
        match cli.command {
            Command::Dev(arguments) => Box::pin(commands::dev::run(arguments, output)).await,
            Command::Topic(command) => commands::topic::run(&global, command, output).await,
            Command::Config(command) => commands::config::run(&global, command, output).await,
            Command::Cluster(command) => commands::cluster::run(&global, command, output).await,
            Command::Group(command) => commands::group::run(&global, command, output).await,
            Command::Partition(command) => commands::partition::run(&global, command, output).await,
            Command::Node(command) => commands::node::run(&global, command, output).await,
            Command::Controller(command) => commands::controller::run(&global, command, output).await,
            Command::Feature(command) => commands::feature::run(&global, command, output).await,
            Command::Log(command) => commands::log::run(command, output),
            Command::Produce(arguments) => commands::produce::run(&global, arguments, output).await,
            Command::Consume(arguments) => commands::consume::run(&global, arguments, output).await,
        }
    });
    // A thread may still wait for a line of standard input.
    runtime.shutdown_background();
    result
}

fn report(failure: &Failure, format: Format, mut to: impl Write) -> io::Result<()> {
    match format {
        Format::Json => writeln!(to, "{}", failure.to_json()),
        Format::Table => write!(to, "{failure}"),
    }
}
