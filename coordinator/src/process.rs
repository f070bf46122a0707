//! The process around a coordinator: flags, log, metrics over HTTP, signals.

use crate::config::{Config, LogFormat};
use crate::node::start;
use clap::Parser;
use quic_transport::pki::{CredentialFiles, Credentials};
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use telemetry::{HttpConfig, HttpServer, LogConfig, ProcessCollector, Registry, init_logging};
use tokio::signal::unix::{SignalKind, signal};

/// Requests of probes in progress at a stop.
const HTTP_GRACE: Duration = Duration::from_millis(200);

/// One coordinator of Weir: consumer groups and their offsets.
#[derive(Debug, Parser)]
#[command(
    name = "weir-coordinator",
    version,
    after_help = "Exit codes: 0 stopped by a signal, 1 failed, 2 wrong usage or config.\nEvery setting can also be \
                  given as WEIR_COORDINATOR_<NAME>, sections separated by two underscores."
)]
struct Args {
    /// Settings (TOML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the settings and end.
    #[arg(long)]
    check_config: bool,
    /// Print the settings in force, defaults included, and end.
    #[arg(long)]
    print_config: bool,
    /// Address of the endpoint, over the settings.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Address of metrics and health, over the settings.
    #[arg(long, value_name = "ADDRESS")]
    http: Option<SocketAddr>,
}

/// Runs until a signal; the exit code.
pub fn run() -> ExitCode {
    let args = Args::parse();
    let config = match settings(&args) {
        Ok(config) => config,
        Err(message) => return complain(&message, 2),
    };
    if args.print_config {
        return say(&config.to_toml());
    }
    if args.check_config {
        return say("The config is usable.\n");
    }
    let log = LogConfig {
        format: match config.log.format {
            LogFormat::Text => telemetry::LogFormat::Text,
            LogFormat::Json => telemetry::LogFormat::Json,
        },
        filter: config.log.filter.clone(),
    };
    if let Err(error) = init_logging(&log) {
        return complain(&error.to_string(), 2);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(serve(config)),
        Err(error) => Err(format!("the runtime cannot be started: {error}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => complain(&message, 1),
    }
}

fn settings(args: &Args) -> Result<Config, String> {
    let mut config = Config::load(args.config.as_deref()).map_err(|error| error.to_string())?;
    config.listen = args.listen.unwrap_or(config.listen);
    config.http.address = args.http.unwrap_or(config.http.address);
    // Printing must work on a config that is not finished yet.
    if !args.print_config {
        config
            .validate()
            .map_err(|faults| format!("the config is not usable:\n  {}", faults.join("\n  ")))?;
    }
    Ok(config)
}

async fn serve(config: Config) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    // Before anything else, so that an early signal is not lost.
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| failed(&error))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| failed(&error))?;
    let files = CredentialFiles::from(&config.certificates);
    let credentials = Credentials::load(&files).map_err(|error| failed(&error))?;
    let http_config = HttpConfig::at(config.http.address);
    let mut registry = Registry::default();
    ProcessCollector::register(&mut registry);
    let coordinator = start(config, credentials, &mut registry).map_err(|error| failed(&error))?;
    let http = match HttpServer::bind(http_config, registry, coordinator.readiness()).await {
        Ok(http) => http,
        Err(error) => {
            coordinator.shutdown().await;
            return Err(failed(&error));
        }
    };
    tracing::info!(http = %http.local_addr(), "metrics and health are served");
    let outcome = tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        failure = coordinator.failed() => Err(failure.to_string()),
    };
    tracing::info!("stopping");
    coordinator.shutdown().await;
    http.shutdown(HTTP_GRACE).await;
    outcome
}

fn say(text: &str) -> ExitCode {
    // Nothing can be told if standard output is closed.
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_closed) => ExitCode::FAILURE,
    }
}

fn complain(message: &str, code: u8) -> ExitCode {
    // Nothing can be told if standard error is closed; the code says it too.
    let _closed = writeln!(std::io::stderr(), "weir-coordinator: {message}");
    ExitCode::from(code)
}
