//! The commands `cargo xtask kafka-jars | kafka-tool | kafka-schemas | kafka-broker`.

#![expect(clippy::print_stdout, reason = "a program for people prints")]

use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use cluster_tests::oracle::broker::{BrokerOptions, KafkaCluster, SHIPPED_JVM};
use cluster_tests::oracle::{OracleError, jars, schemas, tools};
use tokio::signal::unix::{Signal, SignalKind, signal};

const USAGE: &str = "\
usage: kafka-oracle jars
       kafka-oracle tool NAME ARGS...
       kafka-oracle schemas API [--version N]
       kafka-oracle broker [--port P] [--nodes 1|3|5] [--racks NAME,...] [--as-shipped] [--config KEY=VALUE]...";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args.as_slice() {
        ["jars"] => fetch_jars(),
        ["tool", name, rest @ ..] => run_tool(name, rest),
        ["schemas", api] => print_schemas(api, None),
        ["schemas", api, "--version", version] => match version.parse() {
            Ok(version) => print_schemas(api, Some(version)),
            Err(_) => return usage(),
        },
        ["broker", rest @ ..] => match broker_options(rest) {
            Some(options) => run_broker(&options),
            None => return usage(),
        },
        _ => return usage(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

fn fetch_jars() -> Result<(), OracleError> {
    let fetched = jars::fetch()?;
    let verb = if fetched { "fetched into" } else { "already in" };
    println!("Apache Kafka is {verb} {}", jars::libs_dir().display());
    Ok(())
}

fn run_tool(name: &str, args: &[&str]) -> Result<(), OracleError> {
    let mut command = tools::command(name)?;
    // Becomes the tool, so that its input, its exit code and Ctrl-C are its own.
    let error = command.args(args).exec();
    Err(OracleError::ProgramMissing { program: "java", package: "openjdk-17-jdk-headless", error })
}

fn print_schemas(api: &str, version: Option<i16>) -> Result<(), OracleError> {
    print!("{}", schemas::describe(api, version)?);
    Ok(())
}

fn broker_options(args: &[&str]) -> Option<BrokerOptions> {
    let mut options = BrokerOptions::default();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match *arg {
            "--port" => options.port = Some(rest.next()?.parse().ok()?),
            "--nodes" => {
                options.nodes = rest.next()?.parse().ok().filter(|nodes| [1, 3, 5].contains(nodes))?
            }
            "--racks" => options.racks = rest.next()?.split(',').map(str::to_owned).collect(),
            "--as-shipped" => options.jvm = SHIPPED_JVM,
            "--config" => {
                let (key, value) = rest.next()?.split_once('=')?;
                options.properties.push((key.to_owned(), value.to_owned()));
            }
            _ => return None,
        }
    }
    Some(options)
}

fn run_broker(options: &BrokerOptions) -> Result<(), OracleError> {
    let wait = |error| OracleError::Io { what: "wait for Ctrl-C".to_owned(), error };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(wait)?;
    // Listens before the cluster starts, so that Ctrl-C during the start removes the data as well.
    let stop = runtime.block_on(async { StopSignals::listen() }).map_err(wait)?;
    let cluster = KafkaCluster::start(options)?;
    println!("Apache Kafka listens on {}", cluster.bootstrap());
    println!("processes {:?}, data in {}", cluster.process_ids(), cluster.dir().display());
    println!("Ctrl-C stops it and removes its data.");
    runtime.block_on(stop.wait());
    cluster.stop()
}

struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn listen() -> std::io::Result<StopSignals> {
        Ok(StopSignals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn wait(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
