//! The command `cargo xtask chaos-replication`.

#![expect(clippy::print_stdout, reason = "a program for people prints")]

use std::process::ExitCode;
use std::time::Duration;

use cluster_tests::chaos::faults::Fault;
use cluster_tests::chaos::{Plan, run};
use cluster_tests::clock::unchosen_number;
use cluster_tests::workspace;

fn main() -> ExitCode {
    let Some(plan) = plan(std::env::args().skip(1)) else {
        let faults: Vec<&str> = Fault::ALL.into_iter().map(Fault::name).collect();
        eprintln!(
            "usage: chaos-replication [--minutes N] [--seed N] [--faults NAME,NAME...] [--copies N]\nfaults: {}",
            faults.join(", ")
        );
        return ExitCode::from(2);
    };
    let dir = workspace::logs_dir().join(format!("chaos-replication-{}", plan.seed));
    match execute(&dir, &plan) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("chaos-replication: {error}");
            ExitCode::from(2)
        }
    }
}

fn plan(mut args: impl Iterator<Item = String>) -> Option<Plan> {
    let mut plan = Plan::new(unchosen_number() % 1_000_000, Duration::from_secs(20 * 60));
    while let Some(arg) = args.next() {
        let value = args.next()?;
        match arg.as_str() {
            "--minutes" => {
                plan.duration = Duration::try_from_secs_f64(value.parse::<f64>().ok()? * 60.0).ok()?
            }
            "--seed" => plan.seed = value.parse().ok()?,
            "--faults" => plan.faults = value.split(',').map(Fault::from_name).collect::<Option<_>>()?,
            "--copies" => plan.replication_factor = value.parse().ok()?,
            _ => return None,
        }
    }
    Some(plan)
}

fn execute(dir: &std::path::Path, plan: &Plan) -> Result<bool, Box<dyn std::error::Error>> {
    if dir.exists() {
        std::fs::remove_dir_all(dir)?;
    }
    std::fs::create_dir_all(dir)?;
    let verdict = run(dir, plan)?;
    println!("{verdict}");
    if verdict.is_clean() {
        std::fs::remove_dir_all(dir)?;
    } else {
        println!("data, logs and histories are in {}", dir.display());
        println!("the same plan again: cargo xtask chaos-replication --seed {}", plan.seed);
    }
    Ok(verdict.is_clean())
}
