//! Sessions: who is fenced when, and who comes back.

mod cluster;

use cluster::{Cluster, refused};
use controller_core::Sessions;
use controller_core::sessions::{MetadataFollower, ProbeAnswer, ProbeTarget, Verdict};
use proto_types::controller_api::Heartbeat;
use proto_types::error::Reason;
use proto_types::ids::*;
use std::net::SocketAddr;

const SESSION: u64 = 3000;

fn heartbeat(cluster: &Cluster, applied: u64) -> Heartbeat {
    Heartbeat {
        node: NodeId(1),
        broker_epoch: cluster.epoch(1),
        applied: MetadataIndex(applied),
        stopping: false,
        healthy: true,
    }
}

fn leading(cluster: &Cluster) -> Sessions {
    let mut sessions = Sessions::new(SESSION);
    sessions.begin_leadership(Millis(0), &cluster.state);
    sessions
}

/// Looks every 100 ms until `until`; returns the verdicts with their times.
fn watch(sessions: &mut Sessions, cluster: &Cluster, from: i64, until: i64) -> Vec<(i64, Verdict)> {
    (from..=until)
        .step_by(100)
        .flat_map(|now| {
            sessions.expired(Millis(now), &cluster.state).into_iter().map(move |verdict| (now, verdict))
        })
        .collect()
}

#[test]
fn a_silent_node_is_fenced_once() {
    let cluster = Cluster::with_nodes(1);
    let mut sessions = leading(&cluster);
    let beat = sessions.beat(Millis(1000), &heartbeat(&cluster, 0), &cluster.state).expect("known");
    assert_eq!((beat.fenced, beat.may_stop, beat.verdict), (false, false, None));
    let verdicts = watch(&mut sessions, &cluster, 0, 6000);
    assert_eq!(verdicts.len(), 1, "{verdicts:?}");
    let (at, verdict) = verdicts[0];
    assert!((4001..=4100).contains(&at), "3 s after the last heartbeat, not {at}");
    assert!(verdict.fence && verdict.node == NodeId(1));
    assert_eq!(verdict.silent_since, Some(Millis(1000)), "failover is counted from there");
    sessions.decided(verdict, None);
    assert_eq!(
        watch(&mut sessions, &cluster, 6100, 6200).len(),
        1,
        "tried again if it could not be committed"
    );
}

#[test]
fn a_new_leader_grants_fresh_sessions() {
    let cluster = Cluster::with_nodes(1);
    let mut sessions = leading(&cluster);
    assert!(watch(&mut sessions, &cluster, 0, 2900).is_empty());
    sessions.begin_leadership(Millis(2900), &cluster.state);
    assert!(watch(&mut sessions, &cluster, 3000, 5900).is_empty());
    let verdicts = watch(&mut sessions, &cluster, 6000, 6100);
    assert_eq!(verdicts.len(), 1);
    assert_eq!(verdicts[0].1.silent_since, Some(Millis(2900)), "this leader never heard it");
}

#[test]
fn a_node_that_lags_stays_fenced_until_it_has_caught_up() {
    let mut cluster = Cluster::new(1);
    cluster.register(1, 1).expect("registered");
    let index = cluster.state.applied();
    let mut sessions = leading(&cluster);
    sessions.registered(Millis(0), NodeId(1), cluster.epoch(1), index);
    let behind = sessions.beat(Millis(10), &heartbeat(&cluster, index.0 - 1), &cluster.state).expect("known");
    assert_eq!((behind.fenced, behind.verdict), (true, None));
    let mut sick = heartbeat(&cluster, index.0);
    sick.healthy = false;
    assert_eq!(sessions.beat(Millis(20), &sick, &cluster.state).expect("known").verdict, None);
    let there = sessions.beat(Millis(30), &heartbeat(&cluster, index.0), &cluster.state).expect("known");
    let verdict = there.verdict.expect("to be unfenced");
    assert!(!verdict.fence);
    let again = sessions.beat(Millis(40), &heartbeat(&cluster, index.0), &cluster.state).expect("known");
    assert_eq!(again.verdict, None, "one verdict at a time");
}

#[test]
fn stopping_and_sick_nodes_are_fenced_at_once() {
    let mut cluster = Cluster::with_nodes(1);
    let mut sessions = leading(&cluster);
    let mut sick = heartbeat(&cluster, 9);
    sick.healthy = false;
    let verdict = sessions.beat(Millis(10), &sick, &cluster.state).expect("known").verdict.expect("fence");
    assert!(verdict.fence && verdict.why.contains("disks"));
    sessions.decided(verdict, Some(MetadataIndex(50)));
    let mut stopping = heartbeat(&cluster, 9);
    stopping.stopping = true;
    let beat = sessions.beat(Millis(20), &stopping, &cluster.state).expect("known");
    let verdict = beat.verdict.expect("fence");
    assert!(!beat.may_stop && verdict.fence);
    cluster.fence(1);
    let beat = sessions.beat(Millis(30), &stopping, &cluster.state).expect("known");
    assert!(beat.fenced && !beat.may_stop, "it is not known yet at which index it was fenced");
    sessions.decided(verdict, Some(cluster.state.applied()));
    let beat = sessions.beat(Millis(40), &stopping, &cluster.state).expect("known");
    assert!(beat.may_stop && beat.fenced);
}

#[test]
fn a_stopping_node_serves_until_the_others_know_who_leads_instead() {
    let mut cluster = Cluster::with_nodes(2);
    let mut sessions = leading(&cluster);
    let mut stopping = heartbeat(&cluster, 9);
    stopping.stopping = true;
    let beat = sessions.beat(Millis(10), &stopping, &cluster.state).expect("known");
    cluster.fence(1);
    let fenced_at = cluster.state.applied();
    sessions.decided(beat.verdict.expect("fence"), Some(fenced_at));
    let mut other = heartbeat(&cluster, fenced_at.0 - 1);
    (other.node, other.broker_epoch) = (NodeId(2), cluster.epoch(2));
    sessions.beat(Millis(20), &other, &cluster.state).expect("known");
    assert!(!sessions.beat(Millis(30), &stopping, &cluster.state).expect("known").may_stop);
    other.applied = fenced_at;
    sessions.beat(Millis(40), &other, &cluster.state).expect("known");
    assert!(sessions.beat(Millis(50), &stopping, &cluster.state).expect("known").may_stop);
}

#[test]
fn strangers_and_old_incarnations_have_no_session() {
    let mut cluster = Cluster::with_nodes(1);
    let old = heartbeat(&cluster, 1);
    cluster.join(1, 2);
    let mut sessions = leading(&cluster);
    assert_eq!(refused(sessions.beat(Millis(0), &old, &cluster.state)).0, Reason::StaleBrokerEpoch);
    let mut stranger = old;
    stranger.node = NodeId(7);
    assert_eq!(refused(sessions.beat(Millis(0), &stranger, &cluster.state)).0, Reason::UnknownNode);
}

#[test]
fn our_own_pause_is_nobodys_fault() {
    let cluster = Cluster::with_nodes(2);
    let mut sessions = leading(&cluster);
    assert!(watch(&mut sessions, &cluster, 0, 1000).is_empty());
    // The process was stopped for a minute: the heartbeats of that time were never read.
    assert!(watch(&mut sessions, &cluster, 60_000, 62_900).is_empty());
    assert_eq!(watch(&mut sessions, &cluster, 63_000, 63_200).len(), 2, "but real silence counts again");
}

#[test]
fn nodes_that_were_heard_from_are_followers_of_the_metadata() {
    let mut cluster = Cluster::with_nodes(2);
    let mut sessions = leading(&cluster);
    let end = cluster.state.applied().0;
    assert_eq!(sessions.followers(&cluster.state).count(), 0, "a leader that has just begun knows nothing");
    let mut told = |cluster: &Cluster, at: i64, applied: u64| {
        sessions.beat(Millis(at), &heartbeat(cluster, applied), &cluster.state).expect("known");
        sessions.followers(&cluster.state).collect::<Vec<_>>()
    };
    let follower = |applied: u64, heard: i64, caught_up: Option<i64>| MetadataFollower {
        node: NodeId(1),
        applied: MetadataIndex(applied),
        heard: Millis(heard),
        caught_up: caught_up.map(Millis),
    };
    assert_eq!(told(&cluster, 100, end - 1), [follower(end - 1, 100, None)]);
    assert_eq!(told(&cluster, 200, end), [follower(end, 200, Some(200))]);
    cluster.create(cluster::assigned("t", &[&[1, 2]])).expect("created");
    assert_eq!(told(&cluster, 300, end), [follower(end, 300, Some(200))], "it lacks the topic");
    // Another registration was not heard from yet.
    cluster.join(1, 2);
    assert_eq!(sessions.followers(&cluster.state).count(), 0);
}

#[test]
fn lagging_nodes_are_the_active_ones_that_have_not_applied() {
    let mut cluster = Cluster::with_nodes(2);
    cluster.fence(2);
    let mut sessions = leading(&cluster);
    assert_eq!(sessions.lagging(&cluster.state, MetadataIndex(5)), [NodeId(1)]);
    sessions.beat(Millis(0), &heartbeat(&cluster, 5), &cluster.state).expect("known");
    assert!(sessions.lagging(&cluster.state, MetadataIndex(5)).is_empty());
    assert_eq!(sessions.lagging(&cluster.state, MetadataIndex(6)), [NodeId(1)]);
}

/// Sessions that probe, with node 1 heard and tested at 0.
fn probing(cluster: &Cluster) -> Sessions {
    let mut sessions = Sessions::new(SESSION).probing(300);
    sessions.begin_leadership(Millis(0), &cluster.state);
    sessions.beat(Millis(0), &heartbeat(cluster, 0), &cluster.state).expect("known");
    let tests = sessions.to_probe(Millis(0), &cluster.state, 10);
    assert_eq!(tests.len(), 1, "only who was heard is tested");
    assert_eq!(tests[0].target, ProbeTarget::Registered("h:2".to_owned()));
    assert_eq!(sessions.probed(&tests[0], ProbeAnswer::NotRefused(at()), &cluster.state), None);
    sessions
}

fn at() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 9182))
}

#[test]
fn a_node_whose_process_is_gone_is_fenced_long_before_its_session_ends() {
    let cluster = Cluster::with_nodes(2);
    let mut sessions = probing(&cluster);
    assert!(sessions.to_probe(Millis(599), &cluster.state, 10).is_empty());
    assert!(sessions.to_probe(Millis(600), &cluster.state, 0).is_empty(), "no more than allowed");
    let probes = sessions.to_probe(Millis(600), &cluster.state, 10);
    let [probe] = &probes[..] else { panic!("{probes:?}") };
    assert_eq!((probe.node, &probe.target), (NodeId(1), &ProbeTarget::Known(at())));
    let verdict = sessions.probed(probe, ProbeAnswer::Refused, &cluster.state).expect("dead");
    assert!(verdict.fence && verdict.node == NodeId(1) && verdict.broker_epoch == cluster.epoch(1));
    assert!(sessions.to_probe(Millis(2_000), &cluster.state, 10).is_empty(), "its fencing is under way");
    assert!(watch(&mut sessions, &cluster, 600, 2_900).is_empty());
}

#[test]
fn a_heartbeat_or_a_new_incarnation_overtakes_the_proof() {
    let mut cluster = Cluster::with_nodes(1);
    let mut sessions = probing(&cluster);
    let probe = sessions.to_probe(Millis(600), &cluster.state, 10).remove(0);
    sessions.beat(Millis(605), &heartbeat(&cluster, 0), &cluster.state).expect("known");
    assert_eq!(sessions.probed(&probe, ProbeAnswer::Refused, &cluster.state), None);

    let mut sessions = probing(&cluster);
    let probe = sessions.to_probe(Millis(600), &cluster.state, 10).remove(0);
    cluster.join(1, 2);
    sessions.registered(Millis(610), NodeId(1), cluster.epoch(1), cluster.state.applied());
    assert_eq!(sessions.probed(&probe, ProbeAnswer::Refused, &cluster.state), None);
    let tests = sessions.to_probe(Millis(620), &cluster.state, 10);
    assert!(matches!(tests[0].target, ProbeTarget::Registered(_)), "the new one is tested anew");
}

#[test]
fn silence_to_probes_leaves_the_session_as_long_as_it_was() {
    let cluster = Cluster::with_nodes(1);
    let mut sessions = probing(&cluster);
    let mut verdicts = Vec::new();
    for now in (600..=4_000).step_by(100) {
        verdicts.extend(sessions.expired(Millis(now), &cluster.state).into_iter().map(|_| now));
        for probe in sessions.to_probe(Millis(now), &cluster.state, 10) {
            assert_eq!(sessions.probed(&probe, ProbeAnswer::NotRefused(at()), &cluster.state), None);
        }
    }
    assert_eq!(verdicts, [3_100]);
}

#[test]
fn nobody_is_probed_unless_asked_for_nor_while_fenced() {
    let mut cluster = Cluster::with_nodes(1);
    let mut sessions = leading(&cluster);
    sessions.beat(Millis(0), &heartbeat(&cluster, 0), &cluster.state).expect("known");
    assert!(sessions.to_probe(Millis(0), &cluster.state, 10).is_empty());
    assert!(sessions.to_probe(Millis(900), &cluster.state, 10).is_empty());
    let mut sessions = probing(&cluster);
    cluster.fence(1);
    assert!(sessions.to_probe(Millis(900), &cluster.state, 10).is_empty());
}
