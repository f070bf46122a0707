//! Failures of replication that other systems had, told step by step against leaders and followers, and a seeded run of
//! elections that generalises them.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failed unwrap is a failed test; the seed is printed"
)]

mod world;

use proto_types::ids::Offset;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use storage_node_core::{Acks, DeleteRecordsError, Input, ReplicaConfig, Standing};
use world::{CONFIG, DELETE_MS, World};

fn led_by_one(count: i32) -> World {
    let isr: Vec<i32> = (1..=count).collect();
    let mut world = World::new(count, CONFIG);
    world.elect(1, &isr);
    world.settle();
    world
}

#[test]
fn followers_follow_and_what_is_acknowledged_is_everywhere() {
    let mut world = led_by_one(3);
    let records: Vec<u64> = (0..10).map(|_| world.produce(1, Acks::All)).collect();
    assert!(world.acknowledged.is_empty(), "nobody has it yet");
    world.settle();
    assert!(records.iter().all(|record| world.acknowledged[record]));
    world.check_healed();
    assert_eq!(world.records(3), records);
}

/// Replica 2 has a record that the leader knows to be committed, but 2 does not; it restarts and then leads.
#[test]
#[cfg(not(weir_planted_bug = "B1"))]
fn t1_a_restarted_follower_keeps_what_it_does_not_know_to_be_committed() {
    let mut world = led_by_one(2);
    let first = world.produce(1, Acks::All);
    world.settle();
    let second = world.produce(1, Acks::All);
    while !world.acknowledged.contains_key(&second) {
        assert!(world.pump_one() || world.flush_one() || world.deliver_one());
    }
    assert_eq!((world.nodes[&1].high_watermark(), world.nodes[&2].high_watermark()), (2, 1));
    world.crash(2);
    world.start(2);
    world.tell(2);
    assert_eq!(world.records(2), [first, second]);
    world.crash(1);
    world.elect(2, &[2]);
    world.settle();
    assert_eq!((world.records(2), world.nodes[&2].high_watermark()), (vec![first, second], 2));
}

/// Both lose what they had not flushed, and come back in the other order.
#[test]
fn t2_two_that_lost_their_tails_agree_again() {
    let mut world = led_by_one(2);
    let kept = world.produce(1, Acks::All);
    world.settle();
    world.disks_flush = false;
    let lost: Vec<u64> = (0..2).map(|_| world.produce(1, Acks::All)).collect();
    world.settle();
    assert_eq!(world.records(2).len(), 3);
    world.crash(1);
    world.crash(2);
    world.disks_flush = true;
    world.start(2);
    world.elect(2, &[1, 2]);
    let after = world.produce(2, Acks::Leader);
    world.start(1);
    world.tell(1);
    world.settle();
    world.check_healed();
    assert_eq!(world.records(1), [kept, after]);
    assert!(lost.iter().all(|record| world.acknowledged.get(record) != Some(&true)));
}

/// Three unclean elections, of leaders that do not know of each other's epochs (KIP-279).
#[test]
fn t3_logs_do_not_diverge_after_fast_unclean_elections() {
    let mut world = led_by_one(2);
    let shared = world.produce(1, Acks::All);
    world.settle();
    world.cut.insert((1, 2));
    world.decide(1, &[1]);
    world.tell(1);
    world.produce(1, Acks::Leader);
    world.produce(1, Acks::Leader);
    world.decide(2, &[2]);
    world.tell(2);
    world.produce(2, Acks::Leader);
    world.decide(1, &[1]);
    world.tell(1);
    let last = world.produce(1, Acks::Leader);
    world.flush_one();
    world.decide(2, &[2]);
    world.tell_all();
    world.cut.clear();
    world.settle();
    world.check_healed();
    let records = world.records(1);
    assert_eq!((records[0], records.len()), (shared, 2));
    assert!(!records.contains(&last));
}

/// Leaders to which nobody writes leave epochs without records; a follower has records of an epoch that its leader never had.
#[test]
fn t4_t5_elections_without_a_record_between_them() {
    let mut world = led_by_one(3);
    let shared = world.produce(1, Acks::All);
    world.settle();
    for pair in [(1, 2), (1, 3), (2, 3)] {
        world.cut.insert(pair);
    }
    world.produce(1, Acks::Leader);
    for leader in [2, 3, 2, 3, 2] {
        world.decide(leader, &[leader]);
        world.tell(leader);
    }
    let after = world.produce(2, Acks::Leader);
    world.cut.clear();
    world.decide(3, &[3]);
    world.tell_all();
    world.settle();
    world.check_healed();
    assert_eq!(world.records(1), [shared]);
    assert_ne!(world.records(3).last(), Some(&after));
}

/// A leader without records of its own finds an epoch going on in a later leader's log that it thought was over.
#[test]
fn an_epoch_that_goes_on_below_an_empty_one_is_found_again() {
    let mut world = led_by_one(3);
    let shared = world.produce(1, Acks::All);
    world.settle();
    for pair in [(1, 2), (1, 3), (2, 3)] {
        world.cut.insert(pair);
    }
    let tail = world.produce(1, Acks::Leader);
    world.flush_one();
    world.decide(2, &[2]);
    world.tell(2);
    world.cut.clear();
    world.elect(1, &[1]);
    world.settle();
    world.check_healed();
    assert_eq!(world.records(2), [shared, tail]);
    // 2 leads now, and tells 3, which has its own idea of the first epoch's tail, where that ends.
    world.elect(2, &[2]);
    world.settle();
    world.check_healed();
}

#[test]
fn t7_a_follower_that_missed_an_epoch_of_the_same_leader_is_compared_again() {
    let mut world = led_by_one(2);
    world.produce(1, Acks::All);
    world.settle();
    world.cut.insert((1, 2));
    // 2 leads for a moment, which 1 does not learn of, and then 1 again, in an epoch after that.
    world.decide(2, &[2]);
    world.tell(2);
    let only_here = world.produce(2, Acks::Leader);
    world.decide(1, &[1]);
    world.tell(1);
    let other = world.produce(1, Acks::Leader);
    world.tell(2);
    world.cut.clear();
    world.settle();
    world.check_healed();
    assert_eq!((world.records(2).contains(&only_here), world.records(2).contains(&other)), (false, true));
}

/// Leader and follower learn of the new epoch at different times: nobody cuts by the word of another epoch's leader.
#[test]
#[cfg(not(weir_planted_bug = "B2"))]
fn t8_logs_are_compared_within_one_epoch_only() {
    for follower_first in [true, false] {
        let mut world = led_by_one(3);
        world.produce(1, Acks::All);
        world.settle();
        world.cut.insert((1, 2));
        world.cut.insert((2, 3));
        let uncommitted = world.produce(1, Acks::Leader);
        world.settle();
        assert_eq!(world.records(3).last(), Some(&uncommitted));
        world.decide(2, &[2, 3]);
        world.cut.remove(&(2, 3));
        let (first, second) = if follower_first { (3, 2) } else { (2, 3) };
        world.tell(first);
        world.settle();
        assert_eq!(
            world.records(3).last(),
            Some(&uncommitted),
            "nothing is cut before both are in the epoch"
        );
        world.tell(second);
        world.settle();
        assert_ne!(world.records(3).last(), Some(&uncommitted));
        world.cut.clear();
        world.tell(1);
        world.settle();
        world.check_healed();
    }
}

/// The old leader has records that nobody else has, and becomes a follower: nobody may read them as committed.
#[test]
#[cfg(not(weir_planted_bug = "B10"))]
fn t10_an_old_leaders_tail_is_never_shown_as_committed() {
    let mut world = led_by_one(3);
    world.produce(1, Acks::All);
    world.settle();
    world.cut.extend([(1, 2), (1, 3)]);
    let tail: Vec<u64> = (0..3).map(|_| world.produce(1, Acks::Leader)).collect();
    world.elect(2, &[2, 3]);
    for _ in 0..5 {
        world.produce(2, Acks::All);
    }
    world.settle();
    world.cut.clear();
    world.tell(1);
    loop {
        let committed = world.nodes[&1].high_watermark() as usize;
        let shown = world.records(1)[..committed].to_vec();
        assert!(tail.iter().all(|record| !shown.contains(record)), "{shown:?}");
        if !(world.deliver_one() || world.flush_one() || world.pump_one()) {
            break;
        }
    }
    world.settle();
    world.check_healed();
}

/// Records are deleted past what a follower has; it begins anew and leads at once.
#[test]
fn t12_a_follower_behind_the_start_begins_anew_and_can_lead() {
    let mut world = led_by_one(2);
    world.produce(1, Acks::All);
    world.settle();
    world.cut.insert((1, 2));
    world.break_lane(1, 2);
    world.decide(1, &[1]);
    world.tell(1);
    for _ in 0..5 {
        world.produce(1, Acks::All);
    }
    world.settle();
    let deletion = world.delete(1, 6);
    assert_eq!(world.deleted[&deletion], Ok(Offset(6)), "the other is not in sync");
    world.cut.clear();
    world.tell(2);
    world.settle();
    assert_eq!((world.nodes[&2].start, world.nodes[&2].high_watermark()), (6, 6));
    assert_eq!(world.nodes[&2].lost_committed, 0, "this is no loss");
    world.elect(2, &[1, 2]);
    let record = world.produce(2, Acks::All);
    world.settle();
    assert!(world.acknowledged[&record]);
    world.check_healed();
}

/// L2: who is told that records are deleted never finds them again, whoever leads next. On an idle partition too.
#[test]
fn records_are_deleted_when_no_replica_in_sync_has_them_any_more() {
    let mut world = led_by_one(3);
    for _ in 0..5 {
        world.produce(1, Acks::All);
    }
    world.settle();
    world.cut.insert((1, 3));
    let deletion = world.delete(1, 4);
    world.settle();
    assert_eq!(world.nodes.values().map(|node| node.start).collect::<Vec<_>>(), [4, 4, 0]);
    assert_eq!(world.deleted.get(&deletion), None, "the third has not heard of it");
    world.cut.clear();
    world.settle();
    assert_eq!(world.deleted[&deletion], Ok(Offset(4)));
    for leader in [2, 3] {
        world.elect(leader, &[2, 3]);
        assert_eq!(world.nodes[&leader].replica.view().start, Offset(4));
    }
}

/// T-113, L2: retention is shorter than a follower stands still. What is not committed stays, and the follower loses nothing
/// that it does not have yet.
#[test]
fn t113_retention_waits_for_a_follower_that_stands_still() {
    let mut world = led_by_one(3);
    for _ in 0..5 {
        world.produce(1, Acks::All);
    }
    world.settle();
    world.cut.insert((1, 3));
    let late: Vec<u64> = (0..3).map(|_| world.produce(1, Acks::All)).collect();
    world.settle();
    assert_eq!((world.nodes[&1].end(), world.nodes[&1].high_watermark()), (8, 5));
    let expire = |world: &mut World, node| {
        world.step(node, Input::Expire { start: Offset(8) });
        world.settle();
        world.nodes.values().map(|node| node.start).collect::<Vec<_>>()
    };
    assert_eq!(expire(&mut world, 2), [0, 0, 0], "the leader decides what goes");
    assert_eq!(expire(&mut world, 1), [5, 5, 0], "never past the high watermark");
    assert!(late.iter().all(|record| !world.acknowledged.contains_key(record)));
    world.cut.clear();
    world.settle();
    assert!(late.iter().all(|record| world.acknowledged[record]));
    assert_eq!([1, 2, 3].map(|node| world.records(node)), [late.clone(), late.clone(), late]);
    assert_eq!(expire(&mut world, 1), [8, 8, 8]);
    assert_eq!(expire(&mut world, 1), [8, 8, 8], "again is no harm");
    world.elect(3, &[1, 2, 3]);
    let next = world.produce(3, Acks::All);
    world.settle();
    assert!(world.acknowledged[&next]);
    world.check_healed();
    assert!(world.nodes.values().all(|node| node.lost_committed == 0), "this is no loss");
}

/// With too few in sync somebody else may be eligible, who still has the records.
#[test]
fn too_few_in_sync_cannot_tell_that_records_are_deleted() {
    let mut world = World::new(3, ReplicaConfig { min_insync: 2, ..CONFIG });
    world.elect(1, &[1, 2, 3]);
    world.produce(1, Acks::All);
    world.settle();
    world.cut.extend([(1, 2), (1, 3)]);
    world.decide(1, &[1]);
    world.tell(1);
    let deletion = world.delete(1, 1);
    assert_eq!((world.nodes[&1].start, world.deleted.get(&deletion)), (1, None));
    world.now += DELETE_MS;
    world.step(1, Input::Tick);
    assert_eq!(world.deleted[&deletion], Err(DeleteRecordsError::TimedOut));
    let again = world.delete(1, 1);
    world.decide(2, &[2]);
    world.tell(1);
    assert_eq!(world.deleted[&again], Err(DeleteRecordsError::NotLeader));
}

/// Compaction drops a tombstone while a follower is away (T-98): it starts over, and whoever copied from there on knows of it
/// when it leads, so that it sends the next one to start over as well.
#[test]
fn t98_whoever_was_away_while_a_tombstone_went_starts_over() {
    let mut world = led_by_one(3);
    world.produce(1, Acks::All);
    world.settle();
    for away in [2, 3] {
        world.crash(away);
    }
    world.decide(1, &[1]);
    world.tell(1);
    for _ in 0..5 {
        world.produce(1, Acks::All);
    }
    world.settle();
    // What is in the log the model does not look at: the follower has 1 record, and the tombstone was the fourth.
    world.node(1).dropped_to = 3;
    world.step(1, Input::Tick);
    world.start(2);
    world.tell(2);
    world.settle();
    let (over, lost) = (world.nodes[&2].started_over, world.nodes[&2].lost_committed);
    assert_eq!((over, lost, world.nodes[&2].dropped_to), (1, 0, 3));
    world.crash(1);
    world.elect(2, &[2]);
    world.start(3);
    world.tell(3);
    world.settle();
    assert_eq!((world.nodes[&3].started_over, world.nodes[&3].lost_committed), (1, 0));
    // Who has copied beyond it is left alone, also when more of that is dropped.
    world.node(2).dropped_to = 5;
    world.step(2, Input::Tick);
    world.settle();
    assert_eq!(world.nodes[&3].started_over, 1);
    world.start(1);
    world.tell(1);
    world.settle();
    world.check_healed();
    assert_eq!(world.nodes[&1].started_over, 0, "it had everything");
}

/// A new leader shows no more than it knows, and knows all once its followers have come.
#[test]
fn t13_a_new_leader_catches_up_with_what_its_predecessor_had_committed() {
    let mut world = led_by_one(3);
    let record = world.produce(1, Acks::All);
    while !world.acknowledged.contains_key(&record) {
        assert!(world.pump_one() || world.flush_one() || world.deliver_one());
    }
    assert_eq!(world.nodes[&2].high_watermark(), 0);
    world.crash(1);
    world.elect(2, &[2, 3]);
    let view = world.nodes[&2].replica.view();
    assert_eq!((view.high_watermark.0, view.end.0, view.committed_to_epoch_start), (0, 1, false));
    world.settle();
    let view = world.nodes[&2].replica.view();
    assert_eq!((view.high_watermark.0, view.committed_to_epoch_start), (1, true));
}

/// A leader whose flushed records nobody took, cut off, acknowledges nothing (T-33, T-34).
#[test]
fn t34_a_leader_that_is_cut_off_acknowledges_nothing() {
    let mut world = World::new(3, ReplicaConfig { min_insync: 2, ..CONFIG });
    world.elect(1, &[1, 2, 3]);
    world.settle();
    world.cut.extend([(1, 2), (1, 3)]);
    world.controller_accepts = false;
    let record = world.produce(1, Acks::All);
    world.settle();
    world.now += 100_000;
    world.step(1, Input::Tick);
    world.settle();
    assert_eq!(world.acknowledged.get(&record), None);
    world.controller_accepts = true;
    world.decide(2, &[2, 3]);
    world.tell(2);
    world.tell(3);
    let other = world.produce(2, Acks::All);
    world.settle();
    assert!(world.acknowledged[&other]);
    world.tell(1);
    assert_eq!(world.acknowledged.get(&record), Some(&false));
    world.cut.clear();
    world.settle();
    world.check_healed();
    assert!(!world.records(1).contains(&record));
}

/// Elections of anybody, clean or not, with records, cuts and crashes between them; then one leader for all.
fn elections(seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let count = rng.random_range(2..=3);
    let mut world = led_by_one(count);
    for _ in 0..rng.random_range(1..=10) {
        for _ in 0..rng.random_range(0..4) {
            let leader = world.ids().into_iter().find(|id| {
                world.nodes[id].replica.view().standing == Standing::Leader && rng.random_bool(0.7)
            });
            if let Some(leader) = leader {
                let acks = if rng.random_bool(0.5) { Acks::All } else { Acks::Leader };
                world.produce(leader, acks);
            }
            for _ in 0..rng.random_range(0..8) {
                match rng.random_range(0..3) {
                    0 => world.deliver_one(),
                    1 => world.flush_one(),
                    _ => world.pump_one(),
                };
            }
        }
        let (a, b) = (rng.random_range(1..=count), rng.random_range(1..=count));
        match rng.random_range(0..6) {
            0 if a != b => drop(world.cut.insert((a.min(b), a.max(b)))),
            1 => world.cut.clear(),
            2 if a != b => world.break_lane(a, b),
            3 => {
                world.crash(a);
                world.start(a);
            }
            _ => {}
        }
        let leader = rng.random_range(1..=count);
        world.decide(leader, &[leader]);
        for id in world.ids() {
            if rng.random_bool(0.7) {
                world.tell(id);
            }
        }
    }
    world.cut.clear();
    for (a, b) in [(1, 2), (1, 3), (2, 3)].into_iter().filter(|&(_, b)| b <= count) {
        world.break_lane(a, b);
    }
    let leader = rng.random_range(1..=count);
    world.elect(leader, &[leader]);
    world.settle();
    world.produce(leader, Acks::All);
    world.settle();
    world.check_healed();
    assert_eq!(world.state.isr.len(), count as usize, "everybody is in sync again");
}

#[test]
#[cfg(not(any(weir_planted_bug = "B2", weir_planted_bug = "B9")))]
fn logs_agree_after_any_elections() {
    if let Some(seed) = std::env::var("WEIR_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return elections(seed);
    }
    for seed in 0..2_000 {
        std::panic::catch_unwind(|| elections(seed)).unwrap_or_else(|panic| {
            println!(
                "repeat with: WEIR_SEED={seed} cargo test -p storage-node-core --test replicas logs_agree"
            );
            std::panic::resume_unwind(panic)
        });
    }
}
