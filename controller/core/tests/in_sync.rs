//! Leaders propose in-sync sets: who may be in them, and what becomes of requests and answers that are late, lost or doubled.

mod cluster;

use cluster::{Cluster, assigned, ids, on_topic, op, refused, registration};
use controller_core::{ClusterState, plan};
use proto_types::controller_api::*;
use proto_types::error::Reason;
use proto_types::feature::LevelRange;
use proto_types::ids::*;
use proto_types::metadata::ConfigResource;

/// Nodes 1 to 3, topic `t` on all of them, led by 1.
fn three() -> Cluster {
    let mut cluster = Cluster::with_nodes(3);
    cluster.create(assigned("t", &[&[1, 2, 3]])).expect("created");
    cluster
}

#[test]
fn a_set_shrinks_and_grows_as_its_leader_proposes() {
    let mut cluster = three();
    let state = cluster.propose("t", 0, &[1, 3]).expect("in force");
    assert_eq!((state.isr.clone(), state.partition_epoch), (ids(&[1, 3]), PartitionEpoch(1)));
    assert!(state.elr.is_empty(), "two of min.insync.replicas 2 commit without node 2");
    let state = cluster.propose("t", 0, &[1]).expect("in force");
    assert_eq!(state.elr, ids(&[3]), "nothing is committed without node 3 any more");
    let state = cluster.propose("t", 0, &[3, 2, 1]).expect("in force");
    assert_eq!((state.isr, state.elr), (ids(&[1, 2, 3]), ids(&[])));
    assert_eq!((state.leader, state.leader_epoch), (Some(NodeId(1)), LeaderEpoch(0)));
}

/// T-19: lost answers, doubled and reordered requests, requests of a leader that is none any more.
#[test]
fn t19_late_lost_and_doubled_requests_do_no_harm() {
    let mut cluster = three();
    let shrink = cluster.proposal("t", 0, &[1, 2]);
    let state = cluster.send(&shrink).expect("in force");
    let length = cluster.log.len();
    assert_eq!(cluster.send(&shrink), Ok(state), "asked again after a lost answer");
    assert!(cluster.log[length].1.is_empty(), "and nothing has changed by it");

    let grow = cluster.proposal("t", 0, &[1, 2, 3]);
    let grown = cluster.propose("t", 0, &[1, 2, 3]).expect("in force");
    assert_eq!(
        refused(cluster.send(&shrink)).0,
        Reason::StalePartitionEpoch,
        "the old one comes a third time"
    );
    assert_eq!(cluster.send(&grow), Ok(grown));

    let late = cluster.proposal("t", 0, &[1]);
    cluster.fence(1);
    assert_eq!(refused(cluster.send(&late)).0, Reason::FencedLeaderEpoch, "node 2 leads now");
    cluster.join(1, 2);
    assert_eq!(refused(cluster.send(&late)).0, Reason::StaleBrokerEpoch, "and node 1 is another incarnation");
    assert_eq!(cluster.partition("t", 0).isr, ids(&[2, 3]), "never emptied, never widened by accident");
}

#[test]
fn refused_proposals() {
    let mut cluster = three();
    cluster.join(4, 1);
    let right = cluster.proposal("t", 0, &[1, 2]);
    let unknown = cluster.at("t", 9);
    let case = |change: &dyn Fn(&mut AlterPartition)| {
        let mut request = right.clone();
        change(&mut request);
        request
    };
    let stranger = (NodeId(4), cluster.epoch(4));
    let own = right.partitions[0].isr[0];
    let cases = [
        (case(&|r| r.partitions[0].partition.topic = TopicId(uuid::Uuid::nil())), Reason::UnknownTopicId),
        (case(&|r| r.partitions[0].partition = unknown), Reason::UnknownPartition),
        (case(&|r| (r.node, r.broker_epoch) = stranger), Reason::NotLeader),
        (case(&|r| r.partitions[0].leader_epoch.0 += 1), Reason::NotLeader),
        (case(&|r| r.partitions[0].leader_epoch.0 -= 1), Reason::FencedLeaderEpoch),
        (case(&|r| r.partitions[0].partition_epoch.0 += 1), Reason::StalePartitionEpoch),
        (case(&|r| r.partitions[0].isr.push(own)), Reason::InvalidRequest),
        (case(&|r| r.partitions[0].isr.push(stranger)), Reason::InvalidRequest),
        (case(&|r| r.partitions[0].isr.truncate(0)), Reason::EligibleLeadersNotAvailable),
    ];
    for (request, reason) in cases {
        assert_eq!(refused(cluster.send(&request)).0, reason, "{request:?}");
    }
    let stale = case(&|r| r.broker_epoch.0 -= 1);
    assert_eq!(
        refused(plan::alter_partition(&cluster.state, &stale, &cluster.inputs)).0,
        Reason::StaleBrokerEpoch
    );
    let twice = case(&|r| r.partitions.push(r.partitions[0].clone()));
    let decision = plan::alter_partition(&cluster.state, &twice, &cluster.inputs).expect("within bounds");
    assert!(decision.reply[0].is_ok(), "each partition has a result of its own");
    assert_eq!(refused(decision.reply[1].clone()).0, Reason::InvalidRequest);
    cluster.inputs.limits.partitions_per_request_max = 1;
    let many = plan::alter_partition(&cluster.state, &twice, &cluster.inputs);
    assert_eq!(refused(many).0, Reason::PolicyViolation);
}

/// A leader whose log has failed leaves the partition to the others, and is not counted on any more.
#[test]
fn a_leader_resigns() {
    let mut cluster = three();
    cluster.write("t", 0);
    let state = cluster.propose("t", 0, &[2, 3]).expect("in force");
    assert_eq!(
        (state.leader, state.isr, state.leader_epoch),
        (Some(NodeId(2)), ids(&[2, 3]), LeaderEpoch(1))
    );
    assert_eq!(refused(cluster.propose("t", 0, &[1])).0, Reason::InvalidRequest, "node 1 is not in sync");
    let state = cluster.propose("t", 0, &[2]).expect("in force");
    assert_eq!((state.isr, state.elr), (ids(&[2]), ids(&[3])));
    cluster.write("t", 0);
    let state = cluster.resign("t", 0).expect("in force");
    assert_eq!(
        (state.leader, state.isr, state.elr),
        (Some(NodeId(3)), ids(&[3]), ids(&[])),
        "not even eligible"
    );
    assert_eq!(refused(cluster.resign("t", 0)).0, Reason::EligibleLeadersNotAvailable, "nobody else is left");
}

/// A follower whose log has failed leaves by itself, so that nobody waits for it; it can do nothing else.
#[test]
fn a_follower_leaves() {
    let mut cluster = three();
    cluster.write("t", 0);
    let leave = |cluster: &mut Cluster, node: i32, isr: &[i32]| {
        let mut proposal = cluster.proposal("t", 0, isr);
        (proposal.node, proposal.broker_epoch) = (NodeId(node), cluster.epoch(node));
        for (_, heard_from) in &mut proposal.partitions[0].isr {
            *heard_from = ProposedIsr::NOT_HEARD_FROM;
        }
        cluster.send(&proposal)
    };
    for others in [&[1][..], &[1, 3], &[1, 2, 3], &[2], &[]] {
        assert_eq!(refused(leave(&mut cluster, 3, others)).0, Reason::NotLeader, "{others:?}");
    }
    let late = cluster.proposal("t", 0, &[1, 2, 3]);
    let state = leave(&mut cluster, 3, &[1, 2]).expect("in force");
    assert_eq!((state.leader, state.isr, state.elr), (Some(NodeId(1)), ids(&[1, 2]), ids(&[])));
    assert_eq!(state.leader_epoch, LeaderEpoch(0), "the leader goes on");
    assert_eq!(refused(leave(&mut cluster, 3, &[1, 2])).0, Reason::NotLeader, "it has left");
    assert_eq!(refused(cluster.send(&late)).0, Reason::StalePartitionEpoch);
    let state = leave(&mut cluster, 2, &[1]).expect("in force");
    assert_eq!((state.isr, state.elr), (ids(&[1]), ids(&[2])), "what it has acknowledged is on its disk");
    cluster.write("t", 0);
    let state = cluster.propose("t", 0, &[1, 2, 3]).expect("in force");
    assert_eq!(state.isr, ids(&[1, 2, 3]), "they come back like others");
}

/// T-21: a fenced or stopping node fetches as well as before; it must neither stay nor come back into the ISR.
#[test]
fn t21_a_fenced_node_is_not_admitted() {
    let mut cluster = three();
    let before = cluster.proposal("t", 0, &[1, 2, 3]);
    cluster.fence(2);
    assert_eq!(cluster.partition("t", 0).isr, ids(&[1, 3]));
    assert_eq!(refused(cluster.send(&before)).0, Reason::StalePartitionEpoch);
    let (reason, message) = refused(cluster.propose("t", 0, &[1, 2, 3]));
    assert_eq!(reason, Reason::IneligibleReplica);
    assert!(message.contains("Node 2") && message.contains("fenced"), "{message}");
    cluster.fence(1);
    cluster.fence(3);
    assert_eq!(cluster.partition("t", 0).leader, None, "and it is not elected");
    cluster.unfence(1);
    cluster.unfence(2);
    assert_eq!(cluster.partition("t", 0).leader, Some(NodeId(1)), "in the ELR since node 3 was alone");
    cluster.propose("t", 0, &[1, 2]).expect("once it is back it may join");
}

/// T-22: a proposal was held up; the follower that it admits has restarted since, perhaps without its tail.
#[test]
fn t22_a_late_proposal_admits_no_restarted_replica() {
    let mut cluster = three();
    cluster.propose("t", 0, &[1, 3]).expect("in force");
    cluster.ghost.catch_up(cluster.at("t", 0), NodeId(2));
    let held_up = cluster.proposal("t", 0, &[1, 2, 3]);
    cluster.join(2, 2);
    let partition = cluster.partition("t", 0);
    assert_eq!(
        partition.partition_epoch, held_up.partitions[0].partition_epoch,
        "nothing else gives it away"
    );
    let (reason, message) = refused(cluster.send(&held_up));
    assert_eq!(reason, Reason::IneligibleReplica);
    assert!(message.contains("has registered as"), "{message}");
    cluster.propose("t", 0, &[1, 2, 3]).expect("heard from anew");
}

/// T-23.
#[test]
fn t23_one_incarnation_has_one_broker_epoch() {
    let mut cluster = three();
    let epoch = cluster.epoch(2);
    let partition = cluster.partition("t", 0);
    for _ in 0..100 {
        assert_eq!(cluster.register(2, 1), Ok(epoch));
    }
    assert_eq!(cluster.partition("t", 0), partition);
    let mut last = epoch;
    for incarnation in 2..20 {
        let next = cluster.register(2, incarnation).expect("registered");
        assert!(next > last);
        last = next;
    }
}

/// T-55: two of five nodes expire in the same tick, in every order, planned one on the other as one batch is.
#[test]
fn t55_nodes_that_expire_together() {
    for first in 1..=5 {
        for second in (1..=5).filter(|second| *second != first) {
            let mut cluster = Cluster::with_nodes(5);
            cluster
                .create(assigned("t", &[&[1, 2, 3], &[2, 3, 4], &[3, 4, 5], &[4, 5, 1], &[5, 1, 2]]))
                .expect("ok");
            for index in 0..5 {
                cluster.write("t", index);
            }
            let mut scratch = cluster.state.clone();
            let mut together = Vec::new();
            for node in [first, second] {
                let planned = plan::fence_node(&scratch, NodeId(node), cluster.epoch(node)).expect("current");
                for change in &planned.changes {
                    scratch.apply(scratch.applied(), change);
                }
                together.extend(planned.changes);
            }
            cluster.commit(plan::Decision { changes: together, reply: () });
            for index in 0..5 {
                let partition = cluster.partition("t", index);
                let left = [first, second].map(NodeId);
                assert!(!partition.isr.iter().any(|node| left.contains(node)), "{partition:?}");
                assert!(partition.leader.is_some(), "one of three is left");
            }
        }
    }
}

/// With `weir.flush=os` a machine that restarts uncleanly may lack what was acknowledged (KIP-966's unclean shutdown).
/// T-24: the last one standing leads again though it may have lost its tail only if nobody else is known to have more.
#[test]
fn who_may_have_lost_its_unflushed_tail_is_not_eligible() {
    for flush in ["ack", "os"] {
        let mut cluster = three();
        cluster.alter(on_topic("t"), false, vec![op(ConfigOpKind::Set, "weir.flush", flush)]).expect("set");
        let reboot = |cluster: &mut Cluster, id: i32, incarnation: u128| {
            let mut request = registration(id, incarnation);
            request.may_lack = MayLack::Unflushed;
            let decision =
                plan::register_node(&cluster.state, &request, LevelRange::IMPLIED, &cluster.inputs)
                    .expect("registered");
            cluster.commit(decision);
        };
        cluster.fence(3);
        cluster.fence(2);
        let state = cluster.partition("t", 0);
        assert_eq!((state.isr, state.elr), (ids(&[1]), ids(&[2])));
        reboot(&mut cluster, 2, 2);
        let state = cluster.partition("t", 0);
        let elr: &[i32] = if flush == "os" { &[] } else { &[2] };
        assert_eq!((state.isr, state.elr), (ids(&[1]), ids(elr)));

        // The last one stays: nobody is known to have more. It leads again when it is back.
        cluster.fence(1);
        reboot(&mut cluster, 1, 2);
        let state = cluster.partition("t", 0);
        assert_eq!((state.leader, state.isr), (None, ids(&[1])));
        cluster.unfence(1);
        assert_eq!(cluster.partition("t", 0).leader, Some(NodeId(1)));
    }
}

/// A node that does not know any more how far its logs were flushed counts for none of them, whatever they promise.
#[test]
fn who_has_lost_the_ends_of_its_logs_is_not_eligible() {
    let mut cluster = three();
    let register = |cluster: &mut Cluster, id: i32, incarnation: u128| {
        let mut request = registration(id, incarnation);
        request.may_lack = MayLack::Anything;
        let decision = plan::register_node(&cluster.state, &request, LevelRange::IMPLIED, &cluster.inputs)
            .expect("registered");
        cluster.commit(decision);
    };
    cluster.fence(3);
    cluster.fence(2);
    let state = cluster.partition("t", 0);
    assert_eq!((state.isr, state.elr), (ids(&[1]), ids(&[2])));
    register(&mut cluster, 2, 2);
    let state = cluster.partition("t", 0);
    assert_eq!((state.isr, state.elr), (ids(&[1]), ids(&[])));
    // Nobody is known to have more than the last one.
    register(&mut cluster, 1, 2);
    let state = cluster.partition("t", 0);
    assert_eq!((state.leader, state.isr), (None, ids(&[1])));
    cluster.unfence(1);
    assert_eq!(cluster.partition("t", 0).leader, Some(NodeId(1)));

    // A member that leads, with others in sync.
    let mut cluster = three();
    let before = cluster.partition("t", 0);
    let leader = before.leader.expect("all are alive");
    register(&mut cluster, leader.0, 2);
    let state = cluster.partition("t", 0);
    assert!(!state.isr.contains(&leader) && !state.elr.contains(&leader), "{state:?}");
    assert!(state.leader.is_some_and(|other| other != leader), "{state:?}");
}

/// What was committed while a topic had `weir.flush=os` does not reach the disks because the config says `ack` now: nodes hear of it
/// one by one, and later.
#[test]
fn a_topic_that_once_was_unflushed_counts_as_such_for_good() {
    let of_all = || ResourceRef::Resource(ConfigResource::NodeDefault);
    let set = |resource: ResourceRef, value: &'static str| (resource, ConfigOpKind::Set, value);
    let delete = |resource: ResourceRef| (resource, ConfigOpKind::Delete, "");
    let (ack, os) = ("ack", "os");
    for (steps, eligible) in [
        (vec![set(on_topic("t"), ack)], true),
        (vec![set(of_all(), os), set(on_topic("t"), os)], false),
        (vec![set(on_topic("t"), os), set(on_topic("t"), ack)], false),
        (vec![set(on_topic("t"), os), delete(on_topic("t"))], false),
        (vec![set(of_all(), os), delete(of_all())], false),
        (vec![set(of_all(), os), set(on_topic("t"), ack)], false),
        (vec![set(on_topic("t"), ack), set(of_all(), os), delete(of_all())], true),
        (vec![set(on_topic("t"), ack), set(of_all(), os)], true),
    ] {
        let mut cluster = three();
        for (resource, kind, value) in &steps {
            cluster.alter(resource.clone(), false, vec![op(*kind, "weir.flush", value)]).expect("altered");
        }
        let state = &cluster.state;
        let again = ClusterState::from_changes(state.applied(), &state.to_changes());
        assert_eq!(&again, state, "a snapshot remembers it: {steps:?}");
        cluster.fence(3);
        cluster.fence(2);
        let mut request = registration(2, 2);
        request.may_lack = MayLack::Unflushed;
        let decision = plan::register_node(&cluster.state, &request, LevelRange::IMPLIED, &cluster.inputs)
            .expect("registered");
        cluster.commit(decision);
        let elr: &[i32] = if eligible { &[2] } else { &[] };
        assert_eq!(cluster.partition("t", 0).elr, ids(elr), "{steps:?}");
    }
}

/// Of those that are eligible beside the machine that restarted, one leads.
#[test]
fn an_eligible_one_stands_in_for_a_last_member_that_may_have_lost_its_tail() {
    let mut cluster = three();
    cluster.alter(on_topic("t"), false, vec![op(ConfigOpKind::Set, "weir.flush", "os")]).expect("set");
    cluster.fence(2);
    cluster.fence(3);
    cluster.fence(1);
    let before = cluster.partition("t", 0);
    assert_eq!((before.leader, before.isr, before.elr), (None, ids(&[1]), ids(&[3])));
    let mut request = registration(1, 2);
    request.may_lack = MayLack::Unflushed;
    let decision = plan::register_node(&cluster.state, &request, LevelRange::IMPLIED, &cluster.inputs)
        .expect("registered");
    cluster.commit(decision);
    cluster.unfence(1);
    let state = cluster.partition("t", 0);
    assert_eq!((state.leader, state.isr, state.elr), (None, ids(&[3]), ids(&[])));
    assert!(state.partition_epoch > before.partition_epoch);
    cluster.join(3, 2);
    assert_eq!(cluster.partition("t", 0).leader, Some(NodeId(3)));
}

#[test]
fn another_minimum_ends_all_eligibility() {
    let mut cluster = three();
    cluster.create(assigned("u", &[&[1, 2, 3]])).expect("created");
    for topic in ["t", "u"] {
        cluster.propose(topic, 0, &[1]).expect("in force");
        assert_eq!(cluster.partition(topic, 0).elr, ids(&[2, 3]));
    }
    let lower = vec![op(ConfigOpKind::Set, "min.insync.replicas", "1")];
    cluster.alter(on_topic("t"), false, lower.clone()).expect("altered");
    let partition = cluster.partition("t", 0);
    assert_eq!((partition.elr, partition.leader_epoch), (ids(&[]), LeaderEpoch(0)));
    assert_eq!(partition.partition_epoch, PartitionEpoch(2));
    assert_eq!(cluster.partition("u", 0).elr, ids(&[2, 3]), "the other topic is not concerned");
    cluster.write("t", 0);

    // The default of all nodes concerns the topics without a value of their own.
    cluster.alter(ResourceRef::Resource(ConfigResource::NodeDefault), false, lower).expect("altered");
    assert_eq!(cluster.partition("u", 0).elr, ids(&[2, 3]));
    cluster
        .alter(on_topic("u"), false, vec![op(ConfigOpKind::Delete, "min.insync.replicas", "")])
        .expect("altered");
    assert_eq!(cluster.partition("u", 0).elr, ids(&[]));
    let one = vec![op(ConfigOpKind::Set, "min.insync.replicas", "3")];
    let node = ResourceRef::Resource(ConfigResource::Node(NodeId(1)));
    assert_eq!(refused(cluster.alter(node, false, one)).0, Reason::InvalidRequest, "one value for all nodes");
}

#[test]
fn a_node_that_holds_something_or_lives_is_not_forgotten() {
    let mut cluster = three();
    cluster.join(4, 1);
    let (reason, message) = refused(cluster.unregister(4));
    assert_eq!(reason, Reason::NodeInUse);
    assert!(message.contains("alive"), "{message}");
    cluster.fence(4);
    cluster.unregister(4).expect("it holds nothing");
    assert_eq!(refused(cluster.unregister(4)).0, Reason::UnknownNode);
    cluster.fence(3);
    let (reason, message) = refused(cluster.unregister(3));
    assert_eq!(reason, Reason::NodeInUse);
    assert!(message.contains("t-0") && message.contains("Reassign"), "{message}");
    let first = cluster.epoch(3);
    cluster.join(4, 2);
    assert!(cluster.epoch(4) > first, "a node that comes back is a new registration");
}

#[test]
fn a_copy_that_was_lost_counts_for_nothing() {
    let mut cluster = three();
    let old = cluster.proposal("t", 0, &[1, 2, 3]);
    let state = cluster.lose(2, "t", 0).expect("node 1 leads");
    assert_eq!((state.isr.clone(), state.elr.clone()), (ids(&[1, 3]), ids(&[])));
    assert_eq!(
        (state.leader, state.leader_epoch, state.partition_epoch),
        (Some(NodeId(1)), LeaderEpoch(1), PartitionEpoch(1))
    );
    assert_eq!(
        refused(cluster.send(&old)).0,
        Reason::FencedLeaderEpoch,
        "what it acknowledged before is void"
    );
    assert_eq!(cluster.propose("t", 0, &[1, 2, 3]).expect("it has caught up").isr, ids(&[1, 2, 3]));

    // It was only eligible.
    cluster.propose("t", 0, &[1]).expect("in force");
    cluster.propose("t", 0, &[1, 3]).expect("in force");
    let elr = cluster.propose("t", 0, &[1]).expect("in force").elr;
    assert_eq!(elr, ids(&[3]));
    let state = cluster.lose(3, "t", 0).expect("node 1 leads");
    assert_eq!((state.isr, state.elr), (ids(&[1]), ids(&[])));
    let state = cluster.lose(3, "t", 0).expect("asked again after a lost answer");
    assert_eq!((state.isr, state.leader_epoch), (ids(&[1]), LeaderEpoch(3)));
}

#[test]
fn a_copy_is_not_given_up_where_nobody_else_leads() {
    let mut cluster = three();
    assert_eq!(refused(cluster.lose(1, "t", 0)).0, Reason::EligibleLeadersNotAvailable, "it leads");
    cluster.propose("t", 0, &[1, 2]).expect("in force");
    cluster.fence(1);
    assert_eq!(cluster.partition("t", 0).leader, Some(NodeId(2)));
    assert_eq!(refused(cluster.lose(2, "t", 0)).0, Reason::EligibleLeadersNotAvailable, "now it leads");
    cluster.fence(2);
    let leader = cluster.partition("t", 0).leader;
    assert_eq!(leader, None, "node 3 has not everything");
    assert_eq!(refused(cluster.lose(3, "t", 0)).0, Reason::EligibleLeadersNotAvailable, "nobody leads");
}
