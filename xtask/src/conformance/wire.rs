//! The rows that no suite of others makes: raw requests ([`PROBE`]) and what clients and the cluster say to each other
//! ([`WITNESS`]). Programs of cluster-tests do the work, start the cluster themselves, and end with a row.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use super::report::Row;
use crate::clients;
use crate::shell::{self, Failure};
use crate::subject::{self, Against};

/// A program that ends with a row.
pub(super) struct Wire {
    /// The row of the table.
    pub(super) name: &'static str,
    program: &'static str,
    /// The clients of the table that it starts.
    clients: &'static [&'static str],
    /// Fetches what is missing (offline: fails if something is).
    pub(super) prepare: fn(offline: bool) -> Result<(), Failure>,
}

/// Either takes about a minute on a machine with nothing else to do.
const LIMIT: Duration = Duration::from_secs(600);

const PROBE: Wire = Wire { name: "probe", program: "wire-probe", clients: &[], prepare: |_offline| Ok(()) };

/// Also a part of the share of every change, when it is its turn.
pub(super) const WITNESS: Wire = Wire {
    name: "witness",
    program: "wire-witness",
    clients: WITNESSES,
    prepare: |offline| {
        for name in ["dumpcap", "tshark"] {
            if !shell::is_installed(name, "--version") {
                return Err(Failure(format!("`{name}` is not installed: apt-get install tshark")));
            }
        }
        clients::install_named(WITNESSES, offline)
    },
};

/// Clients that have nothing in common: C, JavaScript, Go.
const WITNESSES: &[&str] = &["kcat", "kafkajs", "kafka-go"];

/// In the order of the table, after the suites.
pub(super) const WIRES: &[Wire] = &[PROBE, WITNESS];

/// Runs the program. One that cannot do its work is a complaint: it must not keep the table from being printed.
pub(super) fn run(wire: &Wire, against: Against, dir: &Path) -> Result<Row, Failure> {
    println!("\n== {}", wire.name);
    let log = dir.join("output.log");
    let mut command = subject::program(wire.program)?;
    command.args(["--against", against.name()]).args(wire.clients).stdin(Stdio::null());
    command.stdout(shell::create(&log)?).stderr(Stdio::inherit());
    if let Some(dir) = Path::new(command.get_program()).parent().map(ToOwned::to_owned) {
        command.env("WEIR_BIN_DIR", dir);
    }
    // A group of its own, so that the programs that it starts end with it.
    command.process_group(0);
    let mut child = command
        .spawn()
        .map_err(|error| Failure(format!("cannot start {}: {error}", shell::line(&command))))?;
    let status = shell::wait_at_most(&mut child, LIMIT)?;
    let bytes = fs::read(&log).map_err(|error| Failure(format!("read {}: {error}", log.display())))?;
    let text = String::from_utf8_lossy(&bytes);
    print!("{text}");
    let mut row = Row::empty(wire.name);
    let counted = text.lines().rev().find_map(counts);
    if let Some([passed, expected, failed, named]) = counted {
        row = Row { passed, expected, failed, named, ..row };
    }
    match status {
        Some(status) if status.success() && counted.is_some() => {}
        Some(status) => {
            row.complaints.push(format!("{}: what it found is above its end ({status})", wire.name));
        }
        None => row.complaints.push(format!("{}: it did not end within {} s", wire.name, LIMIT.as_secs())),
    }
    Ok(row)
}

/// `row: 5 passed, 5 expected, 0 failed, 0 named`.
fn counts(line: &str) -> Option<[usize; 4]> {
    let mut parts = line.strip_prefix("row: ")?.split(", ");
    let mut count = |what: &str| parts.next()?.strip_suffix(what)?.trim().parse().ok();
    Some([count("passed")?, count("expected")?, count("failed")?, count("named")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read() {
        assert_eq!(counts("row: 90 passed, 93 expected, 10 failed, 7 named"), Some([90, 93, 10, 7]));
        assert_eq!(counts("90 answers, 93 differences"), None);
        assert_eq!(counts("row: many passed"), None);
    }
}
