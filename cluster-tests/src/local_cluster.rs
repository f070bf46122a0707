//! Our daemons as processes on free ports: the whole of `weir dev`.
//!
//! With `WEIR_SUBJECT=kafka` a test gets Apache Kafka instead: a test that fails there says something about itself, not about
//! us.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use crate::clock::wait_until;
use crate::oracle::broker::{BrokerOptions, KafkaCluster, answers_api_versions};
use crate::ports::free_port;
use crate::process::Process;
use crate::run_dir::RunDir;
use crate::workspace;

/// How long a daemon may take to answer on a busy machine. (What it should take is measured in `bench`.)
pub const READY_LIMIT: Duration = Duration::from_secs(90);
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// What a client test runs against.
#[derive(Debug)]
pub enum Subject {
    /// `weir dev`.
    Weir(WeirDev),
    /// Apache Kafka.
    Kafka(KafkaCluster),
}

/// The kinds of [`Subject`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// `weir dev`.
    Weir,
    /// Apache Kafka.
    Kafka,
}

impl Against {
    /// Takes `--against weir|kafka` from the front of the arguments of a program, Weir if it is not there. `None` if it is
    /// there and says neither.
    pub fn from_args<'a>(args: &'a [&'a str]) -> Option<(Against, &'a [&'a str])> {
        match args {
            ["--against", "weir", rest @ ..] => Some((Against::Weir, rest)),
            ["--against", "kafka", rest @ ..] => Some((Against::Kafka, rest)),
            ["--against", ..] => None,
            _ => Some((Against::Weir, args)),
        }
    }
}

impl Subject {
    /// Starts `weir dev`, or what `WEIR_SUBJECT` says.
    pub fn start(test: &str) -> Subject {
        let is_kafka = std::env::var("WEIR_SUBJECT").is_ok_and(|subject| subject == "kafka");
        Subject::start_this(if is_kafka { Against::Kafka } else { Against::Weir }, test)
    }

    /// Starts one of the two.
    pub fn start_this(against: Against, test: &str) -> Subject {
        match against {
            Against::Weir => Subject::Weir(WeirDev::start(test)),
            Against::Kafka => {
                let cluster = KafkaCluster::start(&BrokerOptions::default());
                Subject::Kafka(cluster.unwrap_or_else(|error| panic!("{error}")))
            }
        }
    }

    /// The port of its only node.
    pub fn port(&self) -> u16 {
        match self {
            Subject::Weir(dev) => dev.port(),
            Subject::Kafka(cluster) => cluster.port(),
        }
    }

    /// Where clients connect.
    pub fn bootstrap(&self) -> String {
        match self {
            Subject::Weir(dev) => dev.bootstrap(),
            Subject::Kafka(cluster) => cluster.bootstrap(),
        }
    }
}

/// A `weir dev` process that can be killed and started again on the same data and port.
#[derive(Debug)]
pub struct WeirDev {
    process: Process,
    port: u16,
    data: PathBuf,
    // Dropped last: the process writes into it.
    run_dir: RunDir,
}

impl WeirDev {
    /// Starts on an empty directory and waits until it answers.
    pub fn start(test: &str) -> WeirDev {
        let run_dir = RunDir::new(test);
        let data = run_dir.join("data");
        let port = free_port();
        let process = spawn_dev(&data, port, &run_dir.join("weir.log")).expect("weir can be started");
        let mut dev = WeirDev { process, port, data, run_dir };
        dev.wait_ready();
        dev
    }

    /// Where clients connect.
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The client port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The data directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// The folder of this run, for other files of the test.
    pub fn run_dir(&self) -> &RunDir {
        &self.run_dir
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill().expect("the process can be killed");
    }

    /// SIGTERM, and waits for the end.
    pub fn stop(&mut self) -> ExitStatus {
        self.process
            .terminate(STOP_LIMIT)
            .unwrap_or_else(|error| panic!("{error}\n{}", self.process.output()))
    }

    /// Starts it again after [`WeirDev::kill`] or [`WeirDev::stop`].
    pub fn start_again(&mut self) {
        self.process =
            spawn_dev(&self.data, self.port, &self.run_dir.join("weir.log")).expect("weir can be started");
        self.wait_ready();
    }

    /// Stops it, and starts it again where it was.
    pub fn restart(&mut self) {
        self.stop();
        self.start_again();
    }

    fn wait_ready(&mut self) {
        wait_for_answer(&mut self.process, self.port);
    }
}

/// Waits until a Kafka client gets an answer on `port`; panics with the log if the process ends or the time is over.
pub fn wait_for_answer(process: &mut Process, port: u16) {
    let answered = wait_until(READY_LIMIT, || {
        if answers_api_versions(port) {
            return Some(true);
        }
        matches!(process.ended(), Ok(Some(_))).then_some(false)
    });
    assert_eq!(
        answered,
        Some(true),
        "{} does not answer on port {port}:\n{}",
        process.name(),
        process.output()
    );
}

/// Starts `weir dev` without waiting.
pub fn spawn_dev(data: &Path, port: u16, log: &Path) -> io::Result<Process> {
    let mut command = Command::new(workspace::program("weir"));
    command
        .arg("dev")
        .arg("--data")
        .arg(data)
        .arg("--kafka-port")
        .arg(port.to_string())
        .args(["--http-port", "0"]);
    Process::start("weir dev", command, log)
}
