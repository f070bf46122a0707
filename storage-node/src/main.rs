//! `weir-storage-node`: one storage node as a process.

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use storage_node::config::LogFormat;
use storage_node::{Config, start};
use telemetry::LogConfig;
use tokio::signal::unix::{SignalKind, signal};

/// Exit code when the configuration cannot be used.
const BAD_CONFIG: u8 = 2;

/// A storage node of a Weir cluster: holds partitions and serves Kafka clients.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Configuration file (TOML). Environment variables WEIR_STORAGE_NODE_* win over it.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One setting that wins over file and environment, for example node_id=2 or kafka.num.partitions=3. Repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Only check the configuration.
    #[arg(long)]
    check_config: bool,
    /// Only print the configuration in force, without secrets.
    #[arg(long)]
    print_config: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let config = match Config::load(arguments.config.as_deref(), &arguments.set) {
        Ok(config) => config,
        Err(error) => return fail(BAD_CONFIG, &error),
    };
    if arguments.print_config {
        return match config.print_redacted() {
            Ok(text) => write_out(&text),
            Err(error) => fail(1, &error),
        };
    }
    if arguments.check_config {
        return write_out("the configuration is usable\n");
    }
    let format = match config.log.format {
        LogFormat::Text => telemetry::LogFormat::Text,
        LogFormat::Json => telemetry::LogFormat::Json,
    };
    if let Err(error) = telemetry::init_logging(&LogConfig { format, filter: config.log.filter.clone() }) {
        return fail(BAD_CONFIG, &error);
    }
    telemetry::raise_descriptor_limit();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(1, &error),
    };
    runtime.block_on(run(config))
}

async fn run(config: Config) -> ExitCode {
    let (mut interrupt, mut terminate) =
        match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
            (Ok(interrupt), Ok(terminate)) => (interrupt, terminate),
            (Err(error), _) | (_, Err(error)) => return fail(1, &error),
        };
    let node = match start(config).await {
        Ok(node) => node,
        Err(error) => return fail(1, &error),
    };
    let failure = tokio::select! {
        failure = node.failed() => Some(failure),
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
    };
    node.shutdown().await;
    match failure {
        None => ExitCode::SUCCESS,
        Some(failure) => fail(1, &failure),
    }
}

fn fail(code: u8, error: &dyn std::fmt::Display) -> ExitCode {
    use std::io::Write;
    // Standard error may be closed; there is nobody else to tell.
    let _ = writeln!(std::io::stderr(), "weir-storage-node: {error}");
    ExitCode::from(code)
}

fn write_out(text: &str) -> ExitCode {
    use std::io::Write;
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
