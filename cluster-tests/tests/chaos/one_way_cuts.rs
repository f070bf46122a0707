//! T-34: packets get through in one direction only. In each of the directions between leader, followers and controllers the cluster
//! must lose nothing, and work again when the cut is over. Each run takes three of the six directions, other ones at each commit;
//! `WEIR_SEED=all` takes all.

use std::time::Duration;

use cluster_tests::chaos::{Plan, Storm, TOPIC, run_with};
use cluster_tests::clock::wait_until;
use cluster_tests::netns::{Host, NetworkError};
use cluster_tests::replicated_cluster::Role;
use cluster_tests::run_dir::RunDir;

use crate::choice::seed;
use crate::{alone, assert_clean};

/// Longer than a session (3 s), so that a node that is not heard is given up.
const HOLD: Duration = Duration::from_secs(5);

/// Who does not hear whom.
#[derive(Clone, Copy, Debug)]
enum Direction {
    LeaderToFollowers,
    FollowersToLeader,
    LeaderToControllers,
    ControllersToLeader,
    ActiveControllerToOthers,
    OthersToActiveController,
}

use Direction::*;

const DIRECTIONS: [Direction; 6] = [
    LeaderToFollowers,
    FollowersToLeader,
    LeaderToControllers,
    ControllersToLeader,
    ActiveControllerToOthers,
    OthersToActiveController,
];

/// When a healed cluster has leaders again.
const HEALED_LIMIT: Duration = Duration::from_secs(60);

#[test]
fn one_way_cuts_lose_nothing_and_heal() {
    let _alone = alone();
    let dir = RunDir::new("chaos-one-way");
    let plan = Plan::new(34, Duration::ZERO);
    let verdict = assert_clean(run_with(dir.path(), &plan, |storm| {
        if !storm.cluster.network().can_cut() {
            storm.diary.note("NO CUTS ON THIS MACHINE");
            return Ok(());
        }
        directions().try_for_each(|direction| cut(storm, direction))
    }));
    assert!(verdict.history.counts.acknowledged > 0);
}

fn directions() -> impl Iterator<Item = Direction> {
    let all = std::env::var("WEIR_SEED").is_ok_and(|seed| seed == "all");
    let odd = if all { 0 } else { usize::from(seed() % 2 == 1) };
    DIRECTIONS.into_iter().skip(odd).step_by(if all { 1 } else { 2 })
}

fn cut(storm: &mut Storm<'_>, direction: Direction) -> Result<(), NetworkError> {
    let leaders = wait_until(HEALED_LIMIT, || {
        Some((storm.cluster.partitions(1, TOPIC)?.first()?.leader?, storm.cluster.active_controller()?))
    });
    let Some((leader, active)) = leaders else {
        return Err(NetworkError("a healed cluster has leaders".to_owned()));
    };
    let hosts = |role: Role, wanted: &dyn Fn(usize) -> bool| -> Vec<Host> {
        let daemons = storm.cluster.daemons().iter();
        daemons.filter(|d| d.role == role && wanted(d.id)).map(|d| d.host.clone()).collect()
    };
    let leader_host = hosts(Role::StorageNode, &|id| id == leader);
    let followers = hosts(Role::StorageNode, &|id| id != leader);
    let controllers = hosts(Role::Controller, &|_| true);
    let active_host = hosts(Role::Controller, &|id| id == active);
    let others = hosts(Role::Controller, &|id| id != active);
    let (from, to) = match direction {
        LeaderToFollowers => (leader_host, followers),
        FollowersToLeader => (followers, leader_host),
        LeaderToControllers => (leader_host, controllers),
        ControllersToLeader => (controllers, leader_host),
        ActiveControllerToOthers => (active_host, others),
        OthersToActiveController => (others, active_host),
    };
    for from in &from {
        for to in &to {
            storm.cluster.network().cut(from, to)?;
        }
    }
    storm.diary.fault(&format!("{direction:?}: storage-node-{leader} leads, controller-{active} is active"));
    std::thread::sleep(HOLD);
    storm.heal()?;
    storm.wait_for_progress();
    storm.wait_for_sync();
    Ok(())
}
