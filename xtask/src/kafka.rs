//! Apache Kafka beside us: hands the work to the program `kafka-oracle` of the package cluster-tests, which the tests share.

use std::os::unix::process::CommandExt;

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

/// Fetches the jars and comes back.
pub(crate) fn fetch_jars() -> Result<(), Failure> {
    shell::run(oracle("jars"))
}

fn oracle(subcommand: &str) -> std::process::Command {
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
