//! A few faults in each run of the tests, other ones at each commit; and every time the power of the whole site.

use std::process::Command;
use std::time::Duration;

use cluster_tests::chaos::faults::Fault;
use cluster_tests::chaos::{Plan, run, run_with};
use cluster_tests::run_dir::RunDir;
use cluster_tests::workspace;

use crate::{alone, assert_clean};

const DURATION: Duration = Duration::from_secs(25);
const KINDS: usize = 4;

/// A number from the commit that is checked out; 0 outside a repository.
fn number_of_commit() -> u64 {
    let head = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(workspace::root()).output();
    let text = head.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.get(..12).and_then(|text| u64::from_str_radix(text, 16).ok()).unwrap_or_default()
}

/// The seed of the run: `WEIR_SEED`, or the commit's number.
pub(crate) fn seed() -> u64 {
    match std::env::var("WEIR_SEED") {
        Ok(seed) if seed != "all" => seed.parse().expect("WEIR_SEED is a number"),
        _ => number_of_commit(),
    }
}

#[test]
fn a_choice_of_faults_loses_nothing() {
    let _alone = alone();
    let dir = RunDir::new("chaos-choice");
    let seed = seed();
    eprintln!(
        "seed {seed}: WEIR_SEED={seed} cargo xtask test -p cluster-tests --test chaos a_choice_of_faults"
    );
    let first = usize::try_from(seed % Fault::ALL.len() as u64).expect("few faults");
    let faults = Fault::ALL.iter().cycle().skip(first).step_by(4).take(KINDS).copied().collect();
    assert_clean(run(dir.path(), &Plan { faults, ..Plan::new(seed, DURATION) }));
}

/// T-121: everything stops in the same instant, and comes back in whatever order.
#[test]
fn a_power_cut_of_the_whole_site_loses_nothing() {
    let _alone = alone();
    let dir = RunDir::new("chaos-site-power");
    let plan = Plan::new(121, Duration::ZERO);
    assert_clean(run_with(dir.path(), &plan, |storm| {
        if !Fault::PowerCutAll.is_possible(storm.cluster) {
            storm.diary.note("NO POWER CUTS ON THIS MACHINE");
            return Ok(());
        }
        let daemons = storm.cluster.daemons().len();
        for first in [0, 4] {
            storm.begin(Fault::PowerCutAll)?;
            storm.cluster.restore_power()?;
            for at in 0..daemons {
                storm.cluster.daemons_mut()[(first + at) % daemons].start();
            }
            storm.heal()?;
            storm.wait_for_progress();
            storm.wait_for_sync();
        }
        Ok(())
    }));
}
