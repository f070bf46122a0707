//! `cargo xtask ci`: every check in order, the tests last, and how many minutes each took. Only `fix` writes.

use std::process::Command;
use std::time::Duration;

use crate::clock::Stopwatch;
use crate::shell::{self, Failure, cargo, is_installed};
use crate::{test, tidy};

type Stage = (&'static str, fn() -> Result<(), Failure>);

const STAGES: &[Stage] = &[
    ("format", format_check),
    ("tidy", || tidy::run(&[])),
    ("clippy", clippy),
    ("deny", || deny(&[])),
    ("docs", docs),
];

pub(crate) fn run(_args: &[String]) -> Result<(), Failure> {
    let mut minutes = Vec::new();
    for (name, stage) in STAGES {
        println!("== {name}");
        let watch = Stopwatch::start();
        stage()?;
        minutes.push((*name, watch.elapsed()));
    }
    println!("== test");
    let watch = Stopwatch::start();
    let (totals, took) = test::all(&[])?;
    minutes.push(("test", watch.elapsed()));
    print_minutes(&minutes);
    println!("{}", totals.line(took));
    Ok(())
}

fn print_minutes(minutes: &[(&str, Duration)]) {
    let all: Duration = minutes.iter().map(|(_, took)| *took).sum();
    println!("\n| stage | minutes |\n|---|---|");
    for (name, took) in minutes.iter().chain([&("all", all)]) {
        println!("| {name} | {:.1} |", took.as_secs_f64() / 60.0);
    }
    println!();
}

/// Formats, applies what clippy can fix, lowers the ratchets of `tidy`.
pub(crate) fn fix(_args: &[String]) -> Result<(), Failure> {
    let mut clippy = cargo();
    clippy.args(["clippy", "--workspace", "--all-targets", "--fix", "--allow-dirty", "--allow-staged"]);
    shell::run(clippy)?;
    let mut format = cargo();
    format.args(["fmt", "--all"]);
    shell::run(format)?;
    tidy::lower_ratchets()
}

/// Bans, licenses and sources. Advisories are read by hand: their database may be out of reach.
pub(crate) fn deny(_args: &[String]) -> Result<(), Failure> {
    if !is_installed("cargo-deny", "--version") {
        return Err(Failure("cargo-deny is not installed: cargo install --locked cargo-deny".to_owned()));
    }
    let mut command = cargo();
    command.args(["deny", "--log-level", "error", "check", "bans", "licenses", "sources"]);
    shell::run(command)
}

fn format_check() -> Result<(), Failure> {
    let mut command = cargo();
    command.args(["fmt", "--all", "--check"]);
    shell::run(command)
}

fn clippy() -> Result<(), Failure> {
    let mut command = cargo();
    command.args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    shell::run(command)
}

fn docs() -> Result<(), Failure> {
    let mut command: Command = cargo();
    command
        .args(["doc", "--workspace", "--no-deps", "--quiet"])
        .env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private-intra-doc-links");
    shell::run(command)
}
