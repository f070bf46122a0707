//! `weir dev` as a child process on a free port.

use crate::{Failure, clock};
use cluster_tests::http;
use cluster_tests::oracle::broker::answers_api_versions;
use cluster_tests::ports::free_port;
use cluster_tests::process::Process;
use cluster_tests::workspace;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const READY_LIMIT: Duration = Duration::from_secs(20);
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// How long a node with many partitions may take to open them.
const OPEN_LIMIT: Duration = Duration::from_secs(300);

/// The running process.
pub(crate) struct Weir {
    process: Process,
    port: u16,
}

impl Weir {
    /// Starts it with its data in `home`.
    pub(crate) fn start(home: &Path) -> Result<Self, Failure> {
        std::fs::create_dir_all(home)?;
        let port = free_port();
        let mut command = Command::new(workspace::program("weir"));
        command.arg("dev").arg("--data").arg(home.join("data")).arg("--kafka-port").arg(port.to_string());
        Ok(Weir { process: Process::start("weir dev", command, &home.join("log"))?, port })
    }

    /// Polls until a client gets an answer.
    pub(crate) fn wait_ready(&mut self) -> Result<(), Failure> {
        let start = clock::now();
        while !answers_api_versions(self.port) {
            if self.process.ended()?.is_some() || start.elapsed() > READY_LIMIT {
                return Err(format!("weir dev does not answer:\n{}", self.process.output()).into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Polls until so many partition copies are open and clients see them.
    pub(crate) fn wait_open(&mut self, copies: usize) -> Result<(), Failure> {
        let start = clock::now();
        loop {
            if let Some(http) = self.http()
                && http::metric(http, "weir_storage_node_open_partitions")
                    .is_some_and(|open| open >= copies as f64)
                && http::get(http, "/readyz").is_some_and(|(status, _)| status == 200)
            {
                return Ok(());
            }
            if self.process.ended()?.is_some() || start.elapsed() > OPEN_LIMIT {
                return Err(format!("{copies} copies do not open:\n{}", self.process.output()).into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Where the storage node serves its metrics, once it has said so. Earlier runs have said it in the same file.
    fn http(&self) -> Option<SocketAddr> {
        let output = self.process.output();
        let line = output.lines().rev().find_map(|line| line.strip_prefix("  metrics  http://"))?;
        line.split_once('/')?.0.parse().ok()
    }

    /// Process id.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// `host:port` for clients.
    pub(crate) fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) -> Result<(), Failure> {
        Ok(self.process.kill()?)
    }

    /// Ends it softly.
    pub(crate) fn stop(mut self) -> Result<(), Failure> {
        let status = self.process.terminate(STOP_LIMIT)?;
        if status.success() { Ok(()) } else { Err(format!("weir dev ended with {status}").into()) }
    }
}
