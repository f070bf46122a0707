//! The shard of a coordinator in a world that fails: thousands of seeded runs of the real [`coordinator_core::ShardOwner`]
//! over a model log, with coordinators that are paused, killed and replaced, answers that are late or lost, and model
//! consumers that crash, pause and come back. The rules are in `invariants`.
//!
//! `WEIR_SEEDS=N` sets the number of runs, `WEIR_SEED=S` repeats one.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and shows what it found"
)]

mod client;
mod controller;
mod ghost;
mod invariants;
mod log;
mod world;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use world::World;

/// Runs of a normal test.
const SEEDS: u64 = 2_000;

/// What must have happened in some run: else the faults do not reach what they are for.
const MARKS: &[&str] = &[
    "take-over",
    "dropped and loaded again",
    "resigned",
    "append found to be there",
    "append of an old epoch refused",
    "append at the wrong end refused",
    "lease kept a reply back",
    "door kept an old epoch's reply back",
    "paused after deciding",
    "coordinator paused",
    "coordinator crashed",
    "shard moved",
    "log cut above the high watermark",
    "log compacted",
    "loaded in pieces",
    "states compared",
    "states compared at the end",
    "request timed out",
    "client crashed",
    "client paused",
    "client left",
    "leader skips assignment",
    "NONE",
    "MEMBER_ID_REQUIRED",
    "UNKNOWN_MEMBER_ID",
    "ILLEGAL_GENERATION",
    "REBALANCE_IN_PROGRESS",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
];

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Runs a seed; returns its marks and the hash of its trace, or says what was broken.
fn run(seed: u64, traced: bool, talk: bool) -> Result<(BTreeMap<&'static str, u64>, u64), String> {
    let mut world = World::new(seed, traced);
    match std::panic::catch_unwind(AssertUnwindSafe(|| world.run())) {
        Ok(()) => Ok((world.ghost.marks.clone(), world.ghost.trace_hash())),
        Err(panic) => {
            if talk {
                println!("{}", world.describe());
                world.recent().for_each(|fact| println!("{fact}"));
            }
            let text = panic.downcast_ref::<String>().cloned();
            Err(text
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                .unwrap_or_default())
        }
    }
}

#[test]
fn groups_keep_their_rules_in_a_failing_world() {
    if let Some(seed) = number("WEIR_SEED") {
        run(seed, true, true).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        return;
    }
    let seeds = number("WEIR_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(0);
    let marks: Mutex<BTreeMap<&'static str, u64>> = Mutex::default();
    let failed: Mutex<Option<(u64, String)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds || failed.lock().unwrap().is_some() {
                        return;
                    }
                    match run(seed, false, false) {
                        Ok((reached, _)) => {
                            let mut marks = marks.lock().unwrap();
                            for (mark, count) in reached {
                                *marks.entry(mark).or_default() += count;
                            }
                        }
                        Err(broken) => drop(failed.lock().unwrap().get_or_insert((seed, broken))),
                    }
                }
            });
        }
    });
    if let Some((seed, broken)) = failed.into_inner().unwrap() {
        panic!(
            "seed {seed}: {broken}\nrepeat with: WEIR_SEED={seed} cargo test -p coordinator-core --test sim \
             groups_keep_their_rules -- --nocapture"
        );
    }
    let marks = marks.into_inner().unwrap();
    println!("{seeds} seeds: {marks:?}");
    if seeds >= SEEDS {
        let missing: Vec<_> = MARKS.iter().filter(|mark| !marks.contains_key(*mark)).collect();
        assert!(missing.is_empty(), "never reached in {seeds} seeds: {missing:?}");
    }
}

#[test]
fn a_seed_is_the_same_run_every_time() {
    for seed in (0..400).step_by(20) {
        let hash = |_| run(seed, true, false).unwrap_or_else(|broken| panic!("seed {seed}: {broken}")).1;
        let hashes = [0, 1].map(hash);
        assert_eq!(hashes[0], hashes[1], "seed {seed} ran in two ways");
    }
}
