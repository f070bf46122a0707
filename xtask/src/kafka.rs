//! Apache Kafka beside us: hands the work to the program `kafka-oracle` of the package cluster-tests, which the tests share.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::shell::{self, Failure};

pub(crate) fn jars(args: &[String]) -> Result<(), Failure> {
    become_oracle("jars", args)
}

pub(crate) fn tool(args: &[String]) -> Result<(), Failure> {
    become_oracle("tool", args)
}

pub(crate) fn schemas(args: &[String]) -> Result<(), Failure> {
    become_oracle("schemas", args)
}

pub(crate) fn broker(args: &[String]) -> Result<(), Failure> {
    become_oracle("broker", args)
}

/// Compares Weir, byte by byte, with the record of Apache Kafka, or makes the record.
pub(crate) fn probe(args: &[String]) -> Result<(), Failure> {
    run_beside_weir("wire-probe", args)
}

/// Has what stock clients and Weir say to each other read by Kafka's codec and by Wireshark.
pub(crate) fn witness(args: &[String]) -> Result<(), Failure> {
    run_beside_weir("wire-witness", args)
}

/// Builds `weir` and a program of cluster-tests that starts it, and runs the program.
fn run_beside_weir(name: &str, args: &[String]) -> Result<(), Failure> {
    let mut build = shell::cargo();
    build.args(["build", "--package", "admin-cli", "--package", "cluster-tests", "--bins"]);
    shell::run(build)?;
    let dir = shell::target_dir().join("debug");
    let mut command = Command::new(dir.join(name));
    command.args(args).env("WEIR_BIN_DIR", &dir);
    shell::run(command)
}

/// Fetches the jars and comes back.
pub(crate) fn fetch_jars() -> Result<(), Failure> {
    shell::run(oracle("jars"))
}

fn oracle(subcommand: &str) -> Command {
    let mut cargo = shell::cargo_here();
    cargo.args(["run", "--quiet", "--manifest-path"]).arg(shell::root().join("Cargo.toml"));
    cargo.args(["--package", "cluster-tests", "--bin", "kafka-oracle", "--", subcommand]);
    cargo
}

/// Becomes the program, so that input, exit code and Ctrl-C are its own.
fn become_oracle(subcommand: &str, args: &[String]) -> Result<(), Failure> {
    let mut command = oracle(subcommand);
    command.args(args);
    let error = command.exec();
    Err(Failure(format!("cannot start cargo: {error}")))
}
