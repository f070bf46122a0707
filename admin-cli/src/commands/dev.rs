//! `weir dev`: a whole cluster in this process: one controller, one storage node and one coordinator on an embedded data
//! directory; with `--nodes` several of each as processes, see `dev/processes.rs`.
//!
//! The daemons are the same libraries that run as processes elsewhere; they talk QUIC with certificates of an authority
//! that lives in the data directory. The controller has a runtime of its own, so that elections and heartbeats do not
//! queue behind bulk work. Everything listens on loopback only.

mod daemons;
mod data_directory;
mod ports;
mod processes;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::clock::monotonic_now;
use crate::failure::Failure;
use crate::output::{Format, Output};
use daemons::{Addresses, Daemons};
use data_directory::DataDirectory;

/// Kafka's usual port.
const KAFKA_PORT: u16 = 9092;

/// Arguments of `dev`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DevArgs {
    /// Run so many storage nodes and coordinators, and one or three controllers, as processes, instead of one of each in
    /// this process
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=9))]
    nodes: Option<u8>,
    /// Where topics and their records are kept, over restarts [default: weir-data, or weir-cluster with --nodes]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Delete what the data directory holds, and begin anew
    #[arg(long)]
    reset: bool,
    /// Port for Kafka clients on 127.0.0.1 and [::1], further nodes take the next; 0 takes free ones [default: 9092]
    #[arg(long, value_name = "PORT")]
    kafka_port: Option<u16>,
    /// Port of the storage node's /metrics, /healthz and /readyz; controller and coordinator have the next two, with --nodes
    /// all daemons one after the other; 0 takes free ones
    /// [default: 9292, or free ones if that is taken]
    #[arg(long, value_name = "PORT")]
    http_port: Option<u16>,
    /// A config of the node by Kafka's name, may be repeated
    #[arg(long = "config", short, value_name = "NAME=VALUE", value_parser = crate::cli::config_pair)]
    configs: Vec<(String, String)>,
    /// The rack of each storage node, in their order; with `-c replica.selector.class=…RackAwareReplicaSelector` consumers
    /// read from their own
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', requires = "nodes")]
    racks: Vec<String>,
    /// Do not create topics when a client first asks for them
    #[arg(long)]
    no_auto_create: bool,
    /// What to log to standard error: a level, or levels by module
    #[arg(long, env = "WEIR_LOG", default_value = "warn,openraft=error", value_name = "FILTER")]
    log: String,
}

/// Signals that end the command.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::failed(format!("cannot listen for signals: {error}")))
        };
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

pub(crate) async fn run(args: DevArgs, output: &mut Output<'_>) -> Result<(), Failure> {
    match args.nodes {
        Some(nodes) => processes::run(args, nodes, output).await,
        None => run_here(args, output).await,
    }
}

async fn run_here(args: DevArgs, output: &mut Output<'_>) -> Result<(), Failure> {
    let begin = monotonic_now();
    // Before anything else, so that an early signal is not lost.
    let mut signals = Signals::listen()?;
    let filter = telemetry::LogConfig { format: telemetry::LogFormat::Text, filter: args.log.clone() };
    telemetry::init_logging(&filter).map_err(|error| Failure::usage(format!("--log: {error}")))?;
    telemetry::raise_descriptor_limit();
    let directory = args.data.clone().unwrap_or_else(|| PathBuf::from("weir-data"));
    let (path, reset) = (directory.clone(), args.reset);
    let opened = tokio::task::spawn_blocking(move || DataDirectory::open(&path, reset)).await;
    let data = opened.map_err(|error| Failure::failed(error.to_string()))??;
    let daemons = tokio::select! {
        started = Daemons::start(&data, &args) => started?,
        () = signals.next() => return Ok(()),
    };
    let elapsed = monotonic_now().saturating_duration_since(begin);
    show_ready(&directory, &daemons.addresses, elapsed, output)?;
    let outcome = tokio::select! {
        () = signals.next() => Ok(()),
        failure = daemons.failed() => Err(failure),
    };
    if output.format == Format::Table {
        output.note("stopping")?;
    }
    let stopped = tokio::select! {
        () = daemons.shutdown() => Ok(()),
        () = signals.next() => Err(Failure::failed("stopped at once by a second signal; the next start recovers")),
    };
    outcome.and(stopped)
}

fn show_ready(
    directory: &Path,
    addresses: &Addresses,
    elapsed: Duration,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let bootstrap = bootstrap(addresses);
    let kafka: Vec<String> = addresses.kafka.iter().map(SocketAddr::to_string).collect();
    let http: Vec<String> =
        addresses.http.iter().map(|address| format!("http://{address}/metrics")).collect();
    if output.format == Format::Json {
        output.json(&json!({
            "ready": true,
            "bootstrap": bootstrap.to_string(),
            "kafka": kafka,
            "metrics": http,
            "data": directory,
            "seconds": elapsed.as_secs_f64(),
        }))?;
        return output.flush();
    }
    let standard = SocketAddr::from((Ipv4Addr::LOCALHOST, KAFKA_PORT));
    let flag = if bootstrap == standard { String::new() } else { format!(" -b {bootstrap}") };
    output.line(&format!("Weir is ready at {} ({:.2} s)", kafka.join(" and "), elapsed.as_secs_f64()))?;
    output.line(&format!("  data     {} (kept; --reset begins anew)", directory.display()))?;
    output.line(&format!("  metrics  {}", http.join(" ")))?;
    output.line("\nIn another terminal:")?;
    for line in [
        "topic create ad-events --partitions 3",
        "produce ad-events --key-separator :        # lines like  user-1:click",
        "consume ad-events --from-beginning --print key,partition,offset",
        "cluster status",
    ] {
        output.line(&format!("  weir{flag} {line}"))?;
    }
    output.line(&format!("Any Kafka client works with {bootstrap}. Ctrl-C stops."))?;
    output.flush()
}

/// The address to tell: IPv4 is understood everywhere.
fn bootstrap(addresses: &Addresses) -> SocketAddr {
    let v4 = addresses.kafka.iter().find(|address| address.is_ipv4());
    v4.or_else(|| addresses.kafka.first())
        .copied()
        .unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
}
