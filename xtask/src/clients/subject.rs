//! What the clients connect to: `weir dev`, Apache Kafka, or a cluster that runs already.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::shell::{self, Failure};

/// What to start.
#[derive(Clone, Copy, Default)]
pub(super) enum Against {
    #[default]
    Weir,
    Kafka,
}

/// A cluster; one that we started is stopped when this is dropped.
pub(super) struct Subject {
    bootstrap: String,
    process: Option<Child>,
    data: Option<PathBuf>,
}

impl Subject {
    /// Uses `bootstrap` if given, else starts a cluster on a free port and waits until it says that it is ready.
    pub(super) fn start(against: Against, bootstrap: Option<String>) -> Result<Subject, Failure> {
        if let Some(bootstrap) = bootstrap {
            return Ok(Subject { bootstrap, process: None, data: None });
        }
        let port = free_port()?;
        let mut subject = Subject { bootstrap: format!("127.0.0.1:{port}"), process: None, data: None };
        let mut command = match against {
            Against::Weir => {
                let data = super::installed().join(format!("data-{}", std::process::id()));
                subject.data = Some(data.clone());
                let mut command = weir()?;
                command.arg("dev").arg("--data").arg(data);
                command.args(["--kafka-port", &port.to_string(), "--http-port", "0"]);
                command
            }
            Against::Kafka => {
                let mut command = shell::cargo();
                command.args(["run", "--quiet", "--package", "cluster-tests", "--bin", "kafka-oracle", "--"]);
                command.args(["broker", "--port", &port.to_string()]);
                command
            }
        };
        let log = super::create(&super::logs().join("cluster.log"))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let child = command
            .spawn()
            .map_err(|error| Failure(format!("cannot start {}: {error}", shell::line(&command))))?;
        wait_ready(subject.process.insert(child), port)?;
        println!("ready: {} (process {})", subject.bootstrap, subject.process.as_ref().map_or(0, Child::id));
        Ok(subject)
    }

    pub(super) fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Stops what was started, cleanly; a cluster that ended badly, or before, is a failure.
    pub(super) fn stop(mut self) -> Result<(), Failure> {
        let Some(mut child) = self.process.take() else { return Ok(()) };
        let mut kill = shell::program("kill");
        kill.args(["-TERM", &child.id().to_string()]);
        shell::run(kill)?;
        let status = child.wait().map_err(|error| Failure(format!("wait for the cluster: {error}")))?;
        if status.success() {
            Ok(())
        } else {
            Err(Failure(format!("the cluster ended with {status}; see {}", super::logs().display())))
        }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        if let Some(child) = &mut self.process {
            // Of a failed run: nothing more can be done about an error here.
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(data) = &self.data {
            let _ = fs::remove_dir_all(data);
        }
    }
}

/// `weir` from `WEIR_BIN_DIR`, else built now.
fn weir() -> Result<Command, Failure> {
    let dir = match std::env::var_os("WEIR_BIN_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => {
            let mut build = shell::cargo();
            build.args(["build", "--package", "admin-cli", "--bin", "weir"]);
            shell::run(build)?;
            shell::target_dir().join("debug")
        }
    };
    Ok(shell::program(&dir.join("weir").to_string_lossy()))
}

/// Reads the output up to the line that names the port; the rest is dropped.
fn wait_ready(child: &mut Child, port: u16) -> Result<(), Failure> {
    let stdout = child.stdout.take().expect("the output was asked to be a pipe");
    let mut lines = BufReader::new(stdout).lines();
    let address = format!("127.0.0.1:{port}");
    for line in &mut lines {
        let line = line.map_err(|error| Failure(format!("read the output of the cluster: {error}")))?;
        if line.contains(&address) {
            thread::spawn(move || lines.for_each(drop));
            return Ok(());
        }
    }
    Err(Failure(format!("the cluster did not start; see {}", super::logs().display())))
}

fn free_port() -> Result<u16, Failure> {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| Failure(format!("find a free port: {error}")))
}
