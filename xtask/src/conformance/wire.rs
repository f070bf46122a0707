//! The rows that no suite of others makes: raw requests ([`PROBE`]) and what clients and the cluster say to each other
//! ([`WITNESS`]). Programs of cluster-tests do the work, start the cluster themselves, and end with a row.

use std::process::Stdio;

use super::report::Row;
use crate::shell::{self, Failure};
use crate::subject::{self, Against};

/// A program that ends with a row.
pub(super) struct Wire {
    /// The row of the table.
    pub(super) name: &'static str,
    program: &'static str,
}

const PROBE: Wire = Wire { name: "probe", program: "wire-probe" };
const WITNESS: Wire = Wire { name: "witness", program: "wire-witness" };

/// In the order of the table, after the suites.
pub(super) const WIRES: &[Wire] = &[PROBE, WITNESS];

/// Runs the program. One that cannot do its work is a complaint: it must not keep the table from being printed.
pub(super) fn run(wire: &Wire, against: Against) -> Result<Row, Failure> {
    println!("\n== {}", wire.name);
    let mut command = subject::program(wire.program)?;
    command.args(["--against", against.name()]).stdin(Stdio::null()).stderr(Stdio::inherit());
    if let Some(dir) = std::path::Path::new(command.get_program()).parent().map(ToOwned::to_owned) {
        command.env("WEIR_BIN_DIR", dir);
    }
    let output = command
        .output()
        .map_err(|error| Failure(format!("cannot start {}: {error}", shell::line(&command))))?;
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    let mut row = Row::empty(wire.name);
    let counted = text.lines().rev().find_map(counts);
    if let Some([passed, expected, failed, named]) = counted {
        row = Row { passed, expected, failed, named, ..row };
    }
    if !output.status.success() || counted.is_none() {
        row.complaints.push(format!("{}: what it found is above its end ({})", wire.name, output.status));
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
