//! `cargo xtask test`: the one command that runs every test, real daemons and real clients included.
//!
//! It brings what can be brought (Kafka's jars, the table of departures), says which package has a program that is missing,
//! builds all programs first (cargo gives a test the programs of its own package only) and passes their folder on. Cargo's
//! closing lines are added up, so that the last line of the output is the result of the whole run.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::clock::Stopwatch;
use crate::rotation::{self, Day};
use crate::shell::{self, Failure, cargo, is_installed};
use crate::{clients, conformance, flights, kafka};

/// Programs that tests start: name, an argument that makes it end at once, Debian package.
const PROGRAMS: &[(&str, &str, &str)] = &[
    ("java", "-version", "openjdk-17-jdk-headless"),
    ("jar", "--version", "openjdk-17-jdk-headless"),
    ("mvn", "--version", "maven"),
    ("kcat", "-V", "kcat"),
    ("ip", "-V", "iproute2"),
    ("iptables", "--version", "iptables"),
    ("nsenter", "--version", "util-linux"),
    ("mkfs.ext4", "-V", "e2fsprogs"),
    ("faketime", "--version", "faketime"),
    ("python3", "--version", "python3"),
];

pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let (totals, took) = all(args)?;
    println!("{}", totals.line(took));
    Ok(())
}

/// Kills daemons under load, `--times N` times each (50 if not given).
pub(crate) fn chaos_kill(args: &[String]) -> Result<(), Failure> {
    chaos("chaos-kill", "kill9::", 50, args)
}

/// Kills and stops coordinators under a busy group, in `--times N` rounds (20 if not given).
pub(crate) fn chaos_groups(args: &[String]) -> Result<(), Failure> {
    chaos("chaos-groups", "group_members::", 20, args)
}

/// Faults of every kind on three replicated nodes under stock clients; the program that it runs knows the arguments.
pub(crate) fn chaos_replication(args: &[String]) -> Result<(), Failure> {
    prepare(Day::chosen(None)?)?;
    let mut command = cargo();
    command.args(["run", "--quiet", "--package", "cluster-tests", "--bin", "chaos-replication", "--"]);
    command.args(args).env("WEIR_BIN_DIR", shell::target_dir().join("debug"));
    shell::run(command)
}

/// Runs the tests of processes whose name contains `filter`, `--times N` times as they understand it.
fn chaos(command: &str, filter: &str, times: u32, args: &[String]) -> Result<(), Failure> {
    let usage = || Failure(format!("usage: cargo xtask {command} [--times N]"));
    let times = match args {
        [] => times,
        [flag, times] if flag == "--times" => times.parse().map_err(|_| usage())?,
        _ => return Err(usage()),
    };
    prepare(Day::chosen(None)?)?;
    let mut command = test_command();
    command.args(["--package", "cluster-tests", "--test", "processes", filter]);
    command.args(["--", "--nocapture", "--test-threads=1"]);
    command.env("WEIR_KILL_TIMES", times.to_string());
    shell::run(command)
}

/// Prepares, builds and tests; gives the sums of cargo's closing lines.
pub(crate) fn all(args: &[String]) -> Result<(Totals, Duration), Failure> {
    // One day for all, also when midnight is between: what was installed is what is run.
    let day = Day::chosen(None)?;
    prepare(day)?;
    let watch = Stopwatch::start();
    let mut command = test_command();
    command.env(rotation::VARIABLE, day.to_string());
    let picks_packages =
        args.iter().any(|arg| arg == "-p" || arg.starts_with("--package") || arg == "--workspace");
    if !picks_packages {
        command.arg("--workspace");
    }
    // A run takes long: it shall say everything that is wrong, not the first thing.
    if !args.iter().any(|arg| arg == "--no-fail-fast") {
        command.arg("--no-fail-fast");
    }
    command.args(args);
    let totals = run_and_add_up(command)?;
    Ok((totals, watch.elapsed()))
}

/// Brings what the tests need from outside: Kafka's jars, the table of departures, and the clients and suites whose turn it is.
pub(crate) fn setup(_args: &[String]) -> Result<(), Failure> {
    bring(Day::chosen(None)?)
}

fn bring(day: Day) -> Result<(), Failure> {
    require_programs()?;
    kafka::fetch_jars()?;
    flights::make()?;
    clients::install_rotating(day)?;
    conformance::install_rotating(day)
}

fn prepare(day: Day) -> Result<(), Failure> {
    bring(day)?;
    let mut build = cargo();
    build.args(["build", "--workspace", "--bins", "--examples"]);
    shell::run(build)
}

fn require_programs() -> Result<(), Failure> {
    let missing: Vec<String> = PROGRAMS
        .iter()
        .filter(|(name, harmless, _)| !is_installed(name, harmless))
        .map(|(name, _, package)| format!("`{name}` is not installed: apt-get install {package}"))
        .collect();
    if missing.is_empty() { Ok(()) } else { Err(Failure(missing.join("\n"))) }
}

fn test_command() -> Command {
    let mut command = cargo();
    command.arg("test").env("WEIR_BIN_DIR", shell::target_dir().join("debug"));
    command
}

/// Runs cargo test, passes its output on line by line, and adds up the `test result:` lines.
fn run_and_add_up(mut command: Command) -> Result<Totals, Failure> {
    command.stdout(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| Failure(format!("cannot start {}: {error}", shell::line(&command))))?;
    let stdout = child.stdout.take().expect("the output was asked to be a pipe");
    let mut totals = Totals::default();
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line.map_err(|error| Failure(format!("read the output of cargo test: {error}")))?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        totals.add(&line);
    }
    let status = child.wait().map_err(|error| Failure(format!("wait for cargo test: {error}")))?;
    shell::check(status, &command)?;
    if totals.passed == 0 {
        return Err(Failure("no test was run".to_owned()));
    }
    Ok(totals)
}

/// Sums over all test executables.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    passed: u64,
    failed: u64,
    ignored: u64,
    measured: u64,
    filtered: u64,
}

impl Totals {
    /// Adds a line like `test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; …`; others add nothing.
    fn add(&mut self, line: &str) {
        let Some((_, counts)) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for part in counts.split("; ") {
            let Some((number, what)) = part.split_once(' ') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                "measured" => self.measured += number,
                "filtered out" => self.filtered += number,
                _ => {}
            }
        }
    }

    /// The sums in cargo's own form.
    pub(crate) fn line(&self, took: Duration) -> String {
        format!(
            "test result: ok. {} passed; {} failed; {} ignored; {} measured; {} filtered out; finished in {:.2}s",
            self.passed,
            self.failed,
            self.ignored,
            self.measured,
            self.filtered,
            took.as_secs_f64()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_added_up() {
        let mut totals = Totals::default();
        totals.add(
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s",
        );
        totals.add("test result: FAILED. 4 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 9.31s");
        totals.add("test some::test ... ok");
        assert_eq!(totals, Totals { passed: 7, failed: 1, ignored: 1, measured: 0, filtered: 2 });
        let line = totals.line(Duration::from_millis(1500));
        assert_eq!(
            line,
            "test result: ok. 7 passed; 1 failed; 1 ignored; 0 measured; 2 filtered out; finished in 1.50s"
        );
    }
}
