//! `cargo xtask clients`: the table of what stock clients can do with Weir, client by capability.
//!
//! Each client has a small program under `cluster-tests/clients/` that prints a line per capability; see the README there.
//! This command installs what is missing (into `target/clients`), starts `weir dev` or Apache Kafka, runs the programs one
//! after the other, and prints the matrix. A cell that fails, or that a program did not print, fails the command.

mod install;
mod matrix;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::clock::Stopwatch;
use crate::rotation::Day;
use crate::shell::{self, Failure, create};
use crate::subject::{Against, Shape, Subject};

/// Limit of one program; each step inside has a limit of its own.
const LIMIT: Duration = Duration::from_secs(240);
/// The capabilities in the order of the columns.
const CAPABILITIES: [&str; 11] =
    ["create", "none", "gzip", "snappy", "lz4", "zstd", "group", "lag", "resume", "replay", "reset"];

const USAGE: &str = "\
usage: cargo xtask clients [NAME...] [--against weir|kafka] [--bootstrap HOST:PORT]
                           [--rotating [--day DAY]] [--offline] [--install-only]
  NAME            a client of the table; all if none is named
  --against       start `weir dev` (the default) or Apache Kafka
  --bootstrap     use a cluster that runs already
  --rotating      kcat, java, and one of the others, chosen by the day; --day 2026-11-30, or that in WEIR_ROTATION_DAY,
                  chooses as on that day
  --offline       install nothing: fail if something is missing
  --install-only  install, run nothing";

/// A client: the name of its row, and what its program is made of.
struct Client {
    name: &'static str,
    program: Program,
}

/// How the program of a client is run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Program {
    /// `java/ClientTable.java` on the client library of the broker's version.
    Java,
    /// `java/ClientTable.java` on Kafka 3's client library.
    Java3,
    /// `python/<script>` with the system's Python and no library: it runs other programs.
    Script(&'static str),
    /// `python/<script>` in the virtual environment.
    Python(&'static str),
    /// A package of the Go module `go/`.
    Go(&'static str),
    /// `node/<script>`.
    Node(&'static str),
    /// A program of the Rust package `rust/`.
    Rust(&'static str),
}

const CLIENTS: &[Client] = &[
    Client { name: "kcat", program: Program::Script("kcat.py") },
    Client { name: "java", program: Program::Java },
    Client { name: "java-3", program: Program::Java3 },
    Client { name: "console", program: Program::Script("console.py") },
    Client { name: "confluent-kafka", program: Program::Python("confluent.py") },
    Client { name: "kafka-python", program: Program::Python("kafka_python.py") },
    Client { name: "aiokafka", program: Program::Python("aio_kafka.py") },
    Client { name: "franz-go", program: Program::Go("franz") },
    Client { name: "sarama", program: Program::Go("sarama") },
    Client { name: "kafka-go", program: Program::Go("kafkago") },
    Client { name: "kafkajs", program: Program::Node("kafkajs.mjs") },
    Client { name: "platformatic", program: Program::Node("platformatic.mjs") },
    Client { name: "rdkafka", program: Program::Rust("rdkafka-table") },
    Client { name: "rskafka", program: Program::Rust("rskafka-table") },
];

/// The rotating choice always has these.
const ALWAYS: usize = 2;

pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let options = Options::parse(args)?;
    let clients = options.chosen()?;
    install::require_programs(&clients)?;
    install::install(&clients, options.offline)?;
    if options.install_only {
        return Ok(());
    }
    let subject = match options.bootstrap.clone() {
        Some(bootstrap) => Subject::running(bootstrap),
        None => Subject::start(options.against, Shape::default(), &logs())?,
    };
    let prefix = format!("table-{}", std::process::id());
    make_topics(subject.bootstrap(), &prefix, &clients)?;
    let mut rows = Vec::new();
    for client in clients {
        println!("{} ...", client.name);
        rows.push(run_one(client, subject.bootstrap(), &prefix)?);
    }
    subject.stop()?;
    print!("\n{}", matrix::text(&rows));
    match rows.iter().map(matrix::Row::failures).sum::<usize>() {
        0 => Ok(()),
        failures => {
            Err(Failure(format!("{failures} cells failed; the programs' logs are in {}", logs().display())))
        }
    }
}

/// Installs what the rotating choice needs, so that the test can run it offline.
pub(crate) fn install_rotating(day: Day) -> Result<(), Failure> {
    let clients = rotating(day);
    install::require_programs(&clients)?;
    install::install(&clients, false)
}

/// Installs what these clients of the table need.
pub(crate) fn install_named(names: &[&str], offline: bool) -> Result<(), Failure> {
    let clients: Vec<&Client> = CLIENTS.iter().filter(|client| names.contains(&client.name)).collect();
    install::require_programs(&clients)?;
    install::install(&clients, offline)
}

#[derive(Default)]
struct Options {
    names: Vec<String>,
    against: Against,
    bootstrap: Option<String>,
    rotating: bool,
    day: Option<String>,
    offline: bool,
    install_only: bool,
}

impl Options {
    fn parse(args: &[String]) -> Result<Options, Failure> {
        let usage = || Failure(USAGE.to_owned());
        let mut options = Options::default();
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            match arg.as_str() {
                "--against" => options.against = Against::parse(rest.next()).ok_or_else(usage)?,
                "--bootstrap" => options.bootstrap = Some(rest.next().ok_or_else(usage)?.clone()),
                "--rotating" => options.rotating = true,
                "--day" => options.day = Some(rest.next().ok_or_else(usage)?.clone()),
                "--offline" => options.offline = true,
                "--install-only" => options.install_only = true,
                flag if flag.starts_with('-') => return Err(usage()),
                name => options.names.push(name.to_owned()),
            }
        }
        Ok(options)
    }

    fn chosen(&self) -> Result<Vec<&'static Client>, Failure> {
        if self.rotating {
            return Ok(rotating(Day::chosen(self.day.as_deref())?));
        }
        if self.names.is_empty() {
            return Ok(CLIENTS.iter().collect());
        }
        let find = |name: &String| {
            CLIENTS.iter().find(|client| client.name == name).ok_or_else(|| {
                let known: Vec<&str> = CLIENTS.iter().map(|client| client.name).collect();
                Failure(format!("no client is called {name}; there are {}", known.join(", ")))
            })
        };
        self.names.iter().map(find).collect()
    }
}

/// kcat, java, and one more that the day chooses: over many days each client has its turn.
fn rotating(day: Day) -> Vec<&'static Client> {
    println!("the clients of {day}");
    choose(day)
}

fn choose(day: Day) -> Vec<&'static Client> {
    let (always, others) = CLIENTS.split_at(ALWAYS);
    always.iter().chain(others.get(day.turn(others.len()).0)).collect()
}

/// `cluster-tests/clients`.
fn sources() -> PathBuf {
    shell::root().join("cluster-tests/clients")
}

/// `target/clients`, independent of `CARGO_TARGET_DIR` like the folder of Kafka's jars.
fn installed() -> PathBuf {
    shell::root().join("target/clients")
}

fn logs() -> PathBuf {
    installed().join("logs")
}

/// The jars of the broker's version, with its client library and tools.
fn kafka_class_path() -> String {
    shell::root().join("target/kafka/libs/*").display().to_string()
}

fn java(class_path: &str, source: &str) -> Command {
    let mut command = shell::program("java");
    command.args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]);
    command.args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", class_path]);
    command.arg(sources().join("java").join(source));
    command
}

/// Not every client can create topics: those for records are there before.
fn make_topics(bootstrap: &str, prefix: &str, clients: &[&Client]) -> Result<(), Failure> {
    let mut command = java(&kafka_class_path(), "MakeTopics.java");
    command.arg(bootstrap);
    command.args(clients.iter().map(|client| format!("{prefix}-{}", client.name)));
    shell::run(command)
}

fn command(program: Program) -> Command {
    match program {
        Program::Java => java(&kafka_class_path(), "ClientTable.java"),
        Program::Java3 => java(&installed().join("java-3/libs/*").display().to_string(), "ClientTable.java"),
        Program::Script(script) => {
            let mut command = shell::program("python3");
            command.arg(sources().join("python").join(script));
            if script == "console.py" {
                command.arg("--java-class-path").arg(kafka_class_path());
            }
            command
        }
        Program::Python(script) => {
            let mut command = shell::program(&installed().join("python/bin/python").to_string_lossy());
            command.arg(sources().join("python").join(script));
            command
        }
        Program::Go(package) => shell::program(&installed().join("go").join(package).to_string_lossy()),
        Program::Node(script) => {
            let mut command = shell::program("node");
            command.arg(installed().join("node").join(script));
            command
        }
        Program::Rust(name) => {
            shell::program(&shell::target_dir().join("debug").join(name).to_string_lossy())
        }
    }
}

fn run_one(client: &Client, bootstrap: &str, prefix: &str) -> Result<matrix::Row, Failure> {
    let watch = Stopwatch::start();
    let output = logs().join(format!("{}.out", client.name));
    let mut command = command(client.program);
    command.args(["--bootstrap", bootstrap, "--prefix"]).arg(format!("{prefix}-{}", client.name));
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command.stdin(std::process::Stdio::null());
    command.stdout(create(&output)?).stderr(create(&logs().join(format!("{}.log", client.name)))?);
    // A group of its own, so that the programs that it starts end with it.
    command.process_group(0);
    let mut child = command
        .spawn()
        .map_err(|error| Failure(format!("cannot start {}: {error}", shell::line(&command))))?;
    let status = shell::wait_at_most(&mut child, LIMIT)?;
    let ending = match status {
        Some(status) if status.success() => None,
        Some(status) => Some(format!("the program ended with {status}")),
        None => Some(format!("the program did not end within {} s", LIMIT.as_secs())),
    };
    let text = fs::read_to_string(&output)
        .map_err(|error| Failure(format!("read {}: {error}", output.display())))?;
    Ok(matrix::Row::parse(client.name, &text, ending, watch.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rotating_choice_is_two_fixed_ones_and_one_of_the_others() {
        let mut chosen = std::collections::BTreeSet::new();
        for day in 1..=CLIENTS.len() - ALWAYS {
            let clients = choose(Day::parse(&format!("2026-11-{day:02}")).unwrap());
            let names: Vec<&str> = clients.iter().map(|client| client.name).collect();
            assert_eq!(names[..2], ["kcat", "java"]);
            assert_eq!(names.len(), 3);
            chosen.insert(names[2]);
        }
        assert_eq!(chosen.len(), CLIENTS.len() - ALWAYS, "each has its turn: {chosen:?}");
    }
}
