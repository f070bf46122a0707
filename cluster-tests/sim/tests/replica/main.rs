//! The copies of partitions in a world that fails: thousands of seeded runs of the real [`storage_node_core::Replica`]s,
//! leaders and followers, under the real controller state and plans, over model logs and a model network. Nodes crash and
//! lose what was not synced, pause, stop, are cut off; metadata is late or skipped; in-sync proposals are lost, repeated
//! and late; replicas are moved; leaders are elected, also uncleanly. The rules R1 to R11 and L2 hold all the time (`ghost`,
//! `rules`), and after the faults everything must heal (`heal`).
//!
//! `WEIR_SEEDS=N` sets the number of runs, `WEIR_SEED=S` repeats one. Seeds that once found something are in `seeds.txt`
//! and run every time.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and shows what it found"
)]

mod clients;
mod controller;
mod faults;
mod ghost;
mod heal;
mod log;
mod mishaps;
mod network;
mod node;
mod rules;
mod sessions;
mod shell;
mod world;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use world::World;

/// Runs of a normal test.
const SEEDS: u64 = 5_000;

/// Seeds that found something once, one a line; what follows the number is a remark.
const REGRESSIONS: &str = include_str!("seeds.txt");

/// What must have happened in some run: else the faults do not reach what they are for.
const MARKS: &[&str] = &[
    "acknowledged",
    "append of a follower refused",
    "append refused",
    "appended",
    "clean stop",
    "config changed",
    "controller moved",
    "cut",
    "deletion refused: full disk",
    "deletion refused: log failed",
    "deletion refused: not leader",
    "deletion refused: out of range",
    "deletion refused: timed out",
    "election by request",
    "expired",
    "expired above the high watermark",
    "fenced though alive",
    "credit came during a read",
    "frame of a session that is over",
    "healed",
    "in-sync set accepted",
    "in-sync set grew",
    "in-sync set refused",
    "in-sync set shrank",
    "lane broke",
    "last eligible replica without its tail",
    "leader begins after an unclean election",
    "leader elected from the eligible replicas",
    "leader elected from the in-sync set",
    "leader of an old epoch began",
    "leader starts later",
    "leader that was replaced before it began",
    "log cut",
    "log cut below the high watermark",
    "log dropped and begun anew",
    "log failed",
    "logs diverged",
    "metadata skipped",
    "move of the start refused",
    "no leader",
    "outcome of a proposal unknown",
    "paused",
    "power lost",
    "power lost everywhere",
    "process killed",
    "producer found a gap",
    "pump ended a session",
    "read from a follower",
    "read from a leader",
    "reassignment begun or cancelled",
    "reassignment over",
    "records deleted",
    "refused: busy",
    "refused: full disk",
    "refused: log failed",
    "refused: not enough replicas",
    "refused: not enough replicas after append",
    "refused: not leader",
    "refused: out of order",
    "refused: timed out",
    "repetition recognised",
    "replica dropped",
    "replica without its tail is not eligible",
    "session began",
    "session not served",
    "session of a wrong epoch",
    "session ran out",
    "somebody eligible outside the in-sync set",
    "start moved",
    "unclean election",
    "unsynced records lost",
];

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

fn regressions() -> Vec<u64> {
    let lines = REGRESSIONS.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines.map(|line| line.split_whitespace().next().unwrap().parse().expect("a seed is a number")).collect()
}

/// Runs a seed; returns its marks and the hash of its trace, or says what was broken.
fn run(seed: u64, traced: bool, talk: bool) -> Result<(BTreeMap<&'static str, u64>, u64), String> {
    let mut world = World::new(seed, traced);
    match std::panic::catch_unwind(AssertUnwindSafe(|| world.run())) {
        Ok(()) => Ok((world.ghost.marks.clone(), world.ghost.trace_hash())),
        Err(panic) => {
            if talk {
                world.recent().for_each(|fact| println!("{fact}"));
                println!("{}", world.describe());
            }
            let text = panic.downcast_ref::<String>().cloned();
            Err(text
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                .unwrap_or_default())
        }
    }
}

/// T-20, T-24 and more: every fault at once, in a model of time.
#[test]
fn nothing_acknowledged_is_lost_in_a_failing_world() {
    if let Some(seed) = number("WEIR_SEED") {
        run(seed, true, true).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        return;
    }
    let seeds = number("WEIR_SEEDS").unwrap_or(SEEDS);
    let regressions = regressions();
    let next = AtomicU64::new(0);
    let marks: Mutex<BTreeMap<&'static str, u64>> = Mutex::default();
    let failed: Mutex<Option<(u64, String)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let known = regressions.len() as u64;
                    let seed = regressions.get(number as usize).copied().unwrap_or_else(|| number - known);
                    if number >= seeds + known || failed.lock().unwrap().is_some() {
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
        panic!("seed {seed}: {broken}\nrepeat with: cargo xtask sim replica --seed {seed}");
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
    for seed in (0..1_000).step_by(20) {
        let hash = |_| run(seed, true, false).unwrap_or_else(|broken| panic!("seed {seed}: {broken}")).1;
        let hashes = [0, 1].map(hash);
        assert_eq!(hashes[0], hashes[1], "seed {seed} ran in two ways");
    }
}
