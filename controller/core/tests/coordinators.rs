//! Coordinators: registration, sessions, and who owns which shard.

mod cluster;

use cluster::{Cluster, refused};
use controller_core::coordinator_sessions::CoordinatorVerdict;
use controller_core::plan::assign_shards::{Assigned, orphans};
use controller_core::{Chance, CoordinatorSessions, plan};
use proto_types::controller_api::{CoordinatorHeartbeat, RegisterCoordinator};
use proto_types::error::{Reason, Rejection};
use proto_types::feature::LevelRange;
use proto_types::ids::*;
use proto_types::metadata::{ConfigResource, InternalTopic};
use std::collections::BTreeMap;
use uuid::Uuid;

fn request(id: i32, incarnation: u128) -> RegisterCoordinator {
    RegisterCoordinator {
        cluster_id: "c".into(),
        coordinator: CoordinatorId(id),
        incarnation: Incarnation(Uuid::from_u128(incarnation)),
        control_address: "h:1".into(),
    }
}

fn register(cluster: &mut Cluster, id: i32, incarnation: u128) -> Result<RegistrationEpoch, Rejection> {
    let decision = plan::register_coordinator(
        &cluster.state,
        &request(id, incarnation),
        LevelRange::IMPLIED,
        &cluster.inputs,
    )?;
    Ok(cluster.commit(decision))
}

fn epoch(cluster: &Cluster, id: i32) -> RegistrationEpoch {
    cluster.state.coordinators().get(CoordinatorId(id)).expect("registered").registration.epoch
}

fn fence(cluster: &mut Cluster, id: i32) {
    let epoch = epoch(cluster, id);
    let decision = plan::fence_coordinator(&cluster.state, CoordinatorId(id), epoch).expect("current");
    cluster.commit(decision);
}

fn unfence(cluster: &mut Cluster, id: i32) {
    let epoch = epoch(cluster, id);
    let decision = plan::unfence_coordinator(&cluster.state, CoordinatorId(id), epoch).expect("current");
    cluster.commit(decision);
}

fn assign(cluster: &mut Cluster) -> Assigned {
    let decision = plan::assign_shards(&cluster.state, &orphans(&cluster.state)).expect("planned");
    cluster.commit(decision)
}

fn create(cluster: &mut Cluster) -> TopicId {
    let topic = InternalTopic::ConsumerOffsets;
    let decision =
        plan::create_internal_topic(&cluster.state, topic, &mut cluster.inputs).expect("there is a node");
    cluster.commit(decision)
}

/// How many shards each coordinator owns; `-1` stands for nobody.
fn loads(cluster: &Cluster) -> BTreeMap<i32, usize> {
    let mut loads = BTreeMap::new();
    for (_, ownership) in cluster.state.shards().iter() {
        *loads.entry(ownership.owner.map_or(-1, |owner| owner.0)).or_default() += 1;
    }
    loads
}

/// A cluster with a node, coordinators `1..=count` and the offsets topic.
fn with_coordinators(count: i32) -> Cluster {
    let mut cluster = Cluster::with_nodes(1);
    for id in 1..=count {
        register(&mut cluster, id, 1).expect("right");
    }
    create(&mut cluster);
    cluster
}

#[test]
fn the_offsets_topic_is_created_once_with_owners() {
    let mut cluster = with_coordinators(3);
    assert_eq!(loads(&cluster), BTreeMap::from([(1, 17), (2, 17), (3, 16)]));
    let id = cluster.state.topics().id("__consumer_offsets").expect("created");
    assert_eq!(create(&mut cluster), id, "it is there already");
    let policy = cluster.state.configs().get(&ConfigResource::Topic(id), "cleanup.policy");
    assert_eq!(policy, Some("compact"));
    assert_eq!(cluster.state.partitions().count_of(id), 50);
}

#[test]
fn a_new_incarnation_keeps_its_shards_under_new_epochs() {
    let mut cluster = with_coordinators(1);
    let before = cluster.state.clone();
    let first = epoch(&cluster, 1);
    assert_eq!(register(&mut cluster, 1, 1), Ok(first), "the same run asks again");
    assert_eq!(cluster.state.shards(), before.shards());
    let second = register(&mut cluster, 1, 2).expect("right");
    assert!(second > first);
    for (shard, ownership) in cluster.state.shards().iter() {
        let before = before.shards().get(shard).expect("known");
        assert_eq!((ownership.owner, ownership.epoch.0), (before.owner, before.epoch.0 + 1));
    }
    let stale = plan::fence_coordinator(&cluster.state, CoordinatorId(1), first);
    assert_eq!(refused(stale).0, Reason::StaleBrokerEpoch);
}

#[test]
fn the_shards_of_a_lost_coordinator_go_to_the_others_at_once() {
    let mut cluster = with_coordinators(3);
    let before = cluster.state.clone();
    fence(&mut cluster, 1);
    assert_eq!(loads(&cluster), BTreeMap::from([(2, 25), (3, 25)]));
    for (shard, ownership) in cluster.state.shards().iter() {
        let before = before.shards().get(shard).expect("known");
        let moved = before.owner == Some(CoordinatorId(1));
        assert_eq!(moved, ownership != before, "only what must move moves");
    }
    fence(&mut cluster, 2);
    fence(&mut cluster, 3);
    assert_eq!(loads(&cluster), BTreeMap::from([(-1, 50)]));
    unfence(&mut cluster, 2);
    assert_eq!(assign(&mut cluster), Assigned::Owners(50));
    assert_eq!(loads(&cluster), BTreeMap::from([(2, 50)]));
}

#[test]
fn a_new_coordinator_gets_its_part_in_two_steps() {
    let mut cluster = with_coordinators(2);
    register(&mut cluster, 3, 1).expect("right");
    assert!(plan::shards_are_uneven(&cluster.state));
    assert_eq!(assign(&mut cluster), Assigned::Released(16));
    assert_eq!(loads(&cluster), BTreeMap::from([(-1, 16), (1, 17), (2, 17)]));
    let unknown = plan::assign_shards(&cluster.state, &[]).expect("planned");
    assert_eq!(unknown.reply, Assigned::Nothing, "nobody has said that it knows of the release");
    assert_eq!(assign(&mut cluster), Assigned::Owners(16));
    assert_eq!(loads(&cluster), BTreeMap::from([(1, 17), (2, 17), (3, 16)]));
    assert!(!plan::shards_are_uneven(&cluster.state));
    assert_eq!(assign(&mut cluster), Assigned::Nothing);
}

#[test]
fn bad_registrations_are_refused() {
    let mut cluster = Cluster::with_nodes(1);
    let inputs = cluster.inputs.clone();
    let plan = |request| plan::register_coordinator(&cluster.state, &request, LevelRange::IMPLIED, &inputs);
    let foreign = RegisterCoordinator { cluster_id: "d".into(), ..request(1, 1) };
    assert_eq!(refused(plan(foreign)).0, Reason::InconsistentClusterId);
    assert_eq!(refused(plan(request(-1, 1))).0, Reason::InvalidRequest);
    let long = RegisterCoordinator { control_address: "x".repeat(2000), ..request(1, 1) };
    assert_eq!(refused(plan(long)).0, Reason::InvalidRequest);
    cluster.inputs.limits.nodes_max = 1;
    register(&mut cluster, 1, 1).expect("the first");
    assert_eq!(refused(register(&mut cluster, 2, 1)).0, Reason::PolicyViolation);
}

fn heartbeat(cluster: &Cluster, id: i32, applied: u64, stopping: bool) -> CoordinatorHeartbeat {
    let applied = MetadataIndex(applied);
    CoordinatorHeartbeat { coordinator: CoordinatorId(id), epoch: epoch(cluster, id), applied, stopping }
}

#[test]
fn silence_fences_a_stop_fences_and_a_heartbeat_brings_back() {
    let mut cluster = with_coordinators(1);
    let mut sessions = CoordinatorSessions::new(3000);
    sessions.begin_leadership(Millis(0), &cluster.state);
    let beat = sessions.beat(Millis(1000), &heartbeat(&cluster, 1, 0, false), &cluster.state).expect("known");
    assert_eq!((beat.fenced, beat.verdict), (false, None));
    let verdicts: Vec<(i64, CoordinatorVerdict)> = (0..6000)
        .step_by(100)
        .flat_map(|now| sessions.expired(Millis(now), &cluster.state).into_iter().map(move |v| (now, v)))
        .collect();
    assert_eq!(verdicts.len(), 1, "{verdicts:?}");
    assert!((4001..=4100).contains(&verdicts[0].0), "3 s after the last heartbeat");
    fence(&mut cluster, 1);
    sessions.decided(verdicts[0].1);
    let beat = sessions.beat(Millis(7000), &heartbeat(&cluster, 1, 0, false), &cluster.state).expect("known");
    let verdict = beat.verdict.expect("it is back");
    assert!(beat.fenced && !verdict.fence && !beat.may_stop);
    unfence(&mut cluster, 1);
    sessions.decided(verdict);
    let beat = sessions.beat(Millis(7100), &heartbeat(&cluster, 1, 0, true), &cluster.state).expect("known");
    assert!(beat.verdict.expect("it is stopping").fence && !beat.may_stop);
    fence(&mut cluster, 1);
    let beat = sessions.beat(Millis(7200), &heartbeat(&cluster, 1, 0, true), &cluster.state).expect("known");
    assert!(beat.may_stop);
}

#[test]
fn released_means_that_all_active_coordinators_know() {
    let cluster = with_coordinators(2);
    let mut sessions = CoordinatorSessions::new(3000);
    sessions.begin_leadership(Millis(0), &cluster.state);
    let applied = cluster.state.applied().0;
    assert!(!sessions.all_released(&cluster.state), "an earlier leader may have released");
    let mut beat = |id, applied| {
        sessions.beat(Millis(1), &heartbeat(&cluster, id, applied, false), &cluster.state).expect("known");
        sessions.all_released(&cluster.state)
    };
    assert!(!beat(1, applied));
    assert!(beat(2, applied));
    sessions.released(MetadataIndex(applied + 1));
    assert!(!sessions.all_released(&cluster.state));
}

/// Random lives of coordinators. A shard never has a new owner under an old epoch, never passes between two living
/// coordinators without a moment without owner, and ends up evenly spread.
#[test]
fn fuzz_ownership() {
    for seed in seeds() {
        let mut chance = Chance::new(seed);
        let mut cluster = with_coordinators(1);
        let mut incarnation = 1;
        for _ in 0..60 {
            let before = cluster.state.clone();
            let id = 1 + chance.below(4) as i32;
            let known = before.coordinators().get(CoordinatorId(id)).is_some();
            let superseded = match chance.below(5) {
                0 => {
                    incarnation += 1;
                    register(&mut cluster, id, incarnation).expect("right");
                    Some(id)
                }
                1 if known => {
                    fence(&mut cluster, id);
                    Some(id)
                }
                2 if known => {
                    unfence(&mut cluster, id);
                    None
                }
                _ => {
                    assign(&mut cluster);
                    None
                }
            };
            for (shard, now) in cluster.state.shards().iter() {
                let then = before.shards().get(shard).expect("shards stay");
                assert!(then == now || then.epoch < now.epoch, "seed {seed}: {then:?} then {now:?}");
                if let (Some(from), Some(to)) = (then.owner, now.owner)
                    && from != to
                {
                    assert_eq!(Some(from.0), superseded, "seed {seed}: taken from a living coordinator");
                }
            }
        }
        while assign(&mut cluster) != Assigned::Nothing {}
        let active = cluster.state.coordinators().active().count();
        let loads = loads(&cluster);
        let spread = loads.values().max().expect("shards") - loads.values().min().expect("shards");
        assert!(active == 0 || (spread <= 1 && !loads.contains_key(&-1)), "seed {seed}: {loads:?}");
        assert!(active == 0 || loads.len() == active, "seed {seed}: {loads:?}");
    }
}

/// `WEIR_SEED=123 cargo test -p controller-core --test coordinators fuzz` repeats one.
fn seeds() -> Vec<u128> {
    match std::env::var("WEIR_SEED") {
        Ok(seed) => vec![seed.parse().expect("WEIR_SEED is a number")],
        Err(_) => (0..200).collect(),
    }
}
