//! `cargo xtask sim NAME`: the simulators, with more seeds than a normal test run or with one seed again.

use crate::shell::{self, Failure, cargo};

/// Name, package, test executable, test.
const SIMULATORS: &[(&str, &str, &str, &str)] = &[
    ("replica", "cluster-sim", "replica", "nothing_acknowledged_is_lost_in_a_failing_world"),
    ("groups", "coordinator-core", "sim", "groups_keep_their_rules_in_a_failing_world"),
];

pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let (simulator, variable) = parse(args).ok_or_else(|| {
        let names: Vec<&str> = SIMULATORS.iter().map(|(name, ..)| *name).collect();
        Failure(format!("usage: cargo xtask sim {} [--seeds N | --seed S]", names.join("|")))
    })?;
    let (_, package, executable, test) = simulator;
    let mut command = cargo();
    command.args(["test", "--package", package, "--test", executable, test, "--", "--exact", "--nocapture"]);
    if let Some((name, value)) = variable {
        command.env(name, value.to_string());
    }
    shell::run(command)
}

type Simulator = &'static (&'static str, &'static str, &'static str, &'static str);

fn parse(args: &[String]) -> Option<(Simulator, Option<(&'static str, u64)>)> {
    let (name, rest) = args.split_first()?;
    let simulator = SIMULATORS.iter().find(|(known, ..)| known == name)?;
    let variable = match rest {
        [] => None,
        [flag, value] if flag == "--seeds" => Some(("WEIR_SEEDS", value.parse().ok()?)),
        [flag, value] if flag == "--seed" => Some(("WEIR_SEED", value.parse().ok()?)),
        _ => return None,
    };
    Some((simulator, variable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_become_a_variable() {
        let parsed = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
            parse(&args).map(|(simulator, variable)| (simulator.0, variable))
        };
        assert_eq!(parsed(&["replica"]), Some(("replica", None)));
        assert_eq!(parsed(&["groups", "--seeds", "9"]), Some(("groups", Some(("WEIR_SEEDS", 9)))));
        assert_eq!(parsed(&["replica", "--seed", "7"]), Some(("replica", Some(("WEIR_SEED", 7)))));
        assert_eq!(parsed(&["replica", "--seed"]), None);
        assert_eq!(parsed(&["nobody"]), None);
        assert_eq!(parsed(&[]), None);
    }
}
