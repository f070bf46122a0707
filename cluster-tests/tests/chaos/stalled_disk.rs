//! T-119: a disk on which nothing is written or synced any more. Its node's process lives, and its heartbeats go on; but for clients
//! it is dead, so it must not go on leading.

use std::time::Duration;

use cluster_tests::chaos::{Plan, Storm, TOPIC, run_with};
use cluster_tests::clock::wait_until;
use cluster_tests::netns::NetworkError;
use cluster_tests::run_dir::RunDir;

use crate::stands_still::leader_seen_by;
use crate::{alone, assert_clean};

/// `limits.disk_stall_ms_max` (10 s), a session (3 s) and elections, on a busy machine.
const GIVE_UP_LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_node_whose_disk_stands_still_leads_nothing() {
    let _alone = alone();
    let dir = RunDir::new("chaos-stalled-disk");
    let plan = Plan { partitions: 3, ..Plan::new(119, Duration::ZERO) };
    assert_clean(run_with(dir.path(), &plan, stall));
}

fn stall(storm: &mut Storm<'_>) -> Result<(), NetworkError> {
    if storm.cluster.disks().is_none() {
        storm.diary.note("NO DISK CAN STAND STILL ON THIS MACHINE");
        return Ok(());
    }
    let leader = leader_seen_by(storm, 1).ok_or_else(|| NetworkError("nobody leads".to_owned()))?;
    storm.stall_disk(leader)?;
    let other = 1 + leader % 3;
    let mut seen = None;
    let given_up = wait_until(GIVE_UP_LIMIT, || {
        seen = storm.cluster.partitions(other, TOPIC);
        let all = seen.as_ref()?.iter().all(|partition| {
            let led = partition.leader.is_some_and(|now| now != leader);
            led && !partition.isr.contains(&leader)
        });
        all.then_some(())
    });
    match given_up {
        Some(()) => storm.diary.note("  it leads nothing and is in sync with nobody"),
        None => storm.diary.complain(format!("after {GIVE_UP_LIMIT:?} storage-node-{other} says {seen:?}")),
    }
    // While its disk still stands still, and its process lives.
    storm.wait_for_progress();
    if let Some(ended) = storm.cluster.node(leader).ended() {
        storm.diary.complain(ended);
    }
    storm.heal()?;
    storm.wait_for_progress();
    storm.wait_for_sync();
    Ok(())
}
