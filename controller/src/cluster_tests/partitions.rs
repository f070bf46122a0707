//! Three storage nodes that beat by themselves: in-sync sets, elections, reassignments, removal, and what the leader of the
//! quorum does for partitions by itself.

use super::*;
use proto_types::metadata::{InternalTopic, PartitionState};
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Pause between the heartbeats of a node.
const BEAT: Duration = Duration::from_millis(50);

/// A storage node that registers, and beats until it is dropped.
struct Node {
    id: i32,
    client: Arc<dyn Transport>,
    epoch: BrokerEpoch,
    stopping: Arc<AtomicBool>,
    may_stop: Arc<AtomicBool>,
    _beats: DropGuard,
}

async fn ask(
    client: &Arc<dyn Transport>,
    request: &ControllerRequest,
) -> Result<ControllerReply, ControllerError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "the controller does not answer");
        let answer = client.peer(target(1)).ask(MessageKind::Controller, request, PATIENCE).await;
        match answer.expect("the call itself works") {
            Err(ControllerError::NotLeader { .. } | ControllerError::Busy(_)) => {
                tokio::time::sleep(BEAT).await
            }
            answer => return answer,
        }
    }
}

impl Node {
    async fn join(quorum: &Quorum, id: i32) -> Self {
        let number = u64::try_from(id).expect("positive");
        let client =
            if id == 1 { Arc::clone(&quorum.client) } else { super::client(&quorum.network, number) };
        let request = ControllerRequest::RegisterNode(RegisterNode {
            cluster_id: CLUSTER.into(),
            node: NodeId(id),
            incarnation: Incarnation(Uuid::from_u128(u128::from(number))),
            directories: vec![DirectoryId(Uuid::from_u128(u128::from(number)))],
            listeners: vec![],
            control_address: "h:1".into(),
            data_address: "h:2".into(),
            rack: None,
            may_lack: MayLack::Nothing,
        });
        let epoch = match ask(&client, &request).await.expect("registered") {
            ControllerReply::Registered { broker_epoch, .. } => broker_epoch,
            other => panic!("{other:?}"),
        };
        let (stopping, may_stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let stop = CancellationToken::new();
        let beats = Self::beat(id, Arc::clone(&client), epoch, Arc::clone(&stopping), Arc::clone(&may_stop));
        tokio::spawn(stop.clone().run_until_cancelled_owned(beats));
        let node = Self { id, client, epoch, stopping, may_stop, _beats: stop.drop_guard() };
        let state = || quorum.all().next().expect("runs").state();
        eventually("the node is live", || state().nodes().is_active(NodeId(id)).then_some(())).await;
        node
    }

    async fn beat(
        id: i32,
        client: Arc<dyn Transport>,
        broker_epoch: BrokerEpoch,
        stopping: Arc<AtomicBool>,
        may_stop: Arc<AtomicBool>,
    ) {
        loop {
            let heartbeat = Heartbeat {
                node: NodeId(id),
                broker_epoch,
                applied: MetadataIndex(u64::MAX),
                stopping: stopping.load(Ordering::Relaxed),
                healthy: true,
            };
            if let Ok(ControllerReply::Heartbeat(reply)) =
                ask(&client, &ControllerRequest::Heartbeat(heartbeat)).await
            {
                may_stop.store(reply.may_stop, Ordering::Relaxed);
            }
            tokio::time::sleep(BEAT).await;
        }
    }

    async fn propose(
        &self,
        nodes: &[&Node],
        at: TopicPartition,
        now: &PartitionState,
    ) -> Result<PartitionState, Reason> {
        let proposed = ProposedIsr {
            partition: at,
            leader_epoch: now.leader_epoch,
            partition_epoch: now.partition_epoch,
            isr: nodes.iter().map(|node| (NodeId(node.id), node.epoch)).collect(),
        };
        let (node, broker_epoch) = (NodeId(self.id), self.epoch);
        let request = AlterPartition { node, broker_epoch, partitions: vec![proposed] };
        match ask(&self.client, &ControllerRequest::AlterPartition(request)).await.expect("answered") {
            ControllerReply::IsrAltered(mut results) => {
                results.remove(0).map_err(|rejection| rejection.reason)
            }
            other => panic!("{other:?}"),
        }
    }
}

async fn create_assigned(node: &Node, name: &str, replicas: &[i32]) -> TopicId {
    let topic = NewTopic {
        name: name.into(),
        partitions: None,
        replication_factor: None,
        assignments: vec![(PartitionIndex(0), replicas.iter().copied().map(NodeId).collect())],
        configs: vec![],
    };
    let request = CreateTopics { topics: vec![topic], validate_only: false, timeout_ms: 0 };
    created(ask(&node.client, &ControllerRequest::CreateTopics(request)).await)
}

fn partition(quorum: &Quorum, at: TopicPartition) -> PartitionState {
    quorum.all().next().expect("runs").state().partitions().get(at).expect("exists").clone()
}

fn numbers(nodes: &[NodeId]) -> Vec<i32> {
    nodes.iter().map(|node| node.0).collect()
}

#[tokio::test]
async fn in_sync_sets_elections_and_reassignments() {
    let quorum = Quorum::start(1, plain).await;
    let one = Node::join(&quorum, 1).await;
    let two = Node::join(&quorum, 2).await;
    let three = Node::join(&quorum, 3).await;
    let at = topic_partition(create_assigned(&one, "t", &[1, 2]).await, 0);

    let state = one.propose(&[&one], at, &partition(&quorum, at)).await.expect("in force");
    assert_eq!(numbers(&state.isr), [1]);
    assert_eq!(two.propose(&[&one, &two], at, &state).await, Err(Reason::NotLeader));
    let in_anothers_name = AlterPartition { node: NodeId(1), broker_epoch: one.epoch, partitions: vec![] };
    let refused = ask(&two.client, &ControllerRequest::AlterPartition(in_anothers_name)).await;
    assert!(matches!(refused, Err(ControllerError::Rejected(_))), "{refused:?}");
    let state = one.propose(&[&one, &two], at, &state).await.expect("in force");
    assert_eq!(numbers(&state.isr), [1, 2]);

    let wanted = Reassignment {
        topic: "t".into(),
        partition: PartitionIndex(0),
        replicas: Some(vec![NodeId(2), NodeId(3)]),
    };
    let request = AlterReassignments { partitions: vec![wanted], allow_factor_change: false, timeout_ms: 0 };
    let answer = ask(&two.client, &ControllerRequest::AlterReassignments(request)).await;
    assert_eq!(answer, Ok(ControllerReply::ReassignmentsAltered(vec![Ok(())])));
    let state = partition(&quorum, at);
    assert_eq!((numbers(&state.adding), numbers(&state.removing)), (vec![3], vec![1]));
    let done = one.propose(&[&one, &two, &three], at, &state).await.expect("in force");
    assert_eq!((numbers(&done.replicas), done.leader), (vec![2, 3], Some(NodeId(2))));

    let elect = ElectLeaders { kind: ElectionKind::Preferred, partitions: None, timeout_ms: 0 };
    let answer = ask(&one.client, &ControllerRequest::ElectLeaders(elect)).await;
    assert_eq!(answer, Ok(ControllerReply::LeadersElected(vec![])), "nothing is out of order");
    let answer = ask(&one.client, &ControllerRequest::UnregisterNode { node: NodeId(3) }).await;
    assert!(
        matches!(&answer, Err(ControllerError::Rejected(refusal)) if refusal.reason == Reason::NodeInUse),
        "{answer:?}"
    );

    // A stopping node hands over, and may go when the others know; then it can be forgotten.
    one.stopping.store(true, Ordering::Relaxed);
    eventually("it may stop", || one.may_stop.load(Ordering::Relaxed).then_some(())).await;
    drop(one);
    let answer = ask(&two.client, &ControllerRequest::UnregisterNode { node: NodeId(1) }).await;
    assert_eq!(answer, Ok(ControllerReply::NodeUnregistered));
}

#[tokio::test]
async fn preferred_leaders_get_their_partitions_back_by_themselves() {
    let quorum = Quorum::start(1, |config| {
        plain(config);
        config.leaders.imbalance_check_seconds = 1;
    })
    .await;
    let one = Node::join(&quorum, 1).await;
    let two = Node::join(&quorum, 2).await;
    let at = topic_partition(create_assigned(&one, "t", &[1, 2]).await, 0);
    one.stopping.store(true, Ordering::Relaxed);
    eventually("node 2 leads", || (partition(&quorum, at).leader == Some(NodeId(2))).then_some(())).await;
    one.stopping.store(false, Ordering::Relaxed);
    let state = || quorum.all().next().expect("runs").state();
    eventually("node 1 is back", || state().nodes().is_active(NodeId(1)).then_some(())).await;
    two.propose(&[&two, &one], at, &partition(&quorum, at)).await.expect("in force");
    eventually("node 1 leads", || (partition(&quorum, at).leader == Some(NodeId(1))).then_some(())).await;
}

#[tokio::test]
async fn internal_topics_get_replicas_as_nodes_join() {
    let quorum = Quorum::start(1, |config| {
        plain(config);
        config.limits.internal_topic_partitions = 1;
    })
    .await;
    let one = Node::join(&quorum, 1).await;
    let request = CreateInternalTopic { topic: InternalTopic::ConsumerOffsets, timeout_ms: 0 };
    let topic = match ask(&one.client, &ControllerRequest::CreateInternalTopic(request)).await {
        Ok(ControllerReply::InternalTopicCreated { topic }) => topic,
        other => panic!("{other:?}"),
    };
    let at = topic_partition(topic, 0);
    assert_eq!(numbers(&partition(&quorum, at).replicas), [1]);
    let two = Node::join(&quorum, 2).await;
    eventually("node 2 is added", || (numbers(&partition(&quorum, at).adding) == [2]).then_some(())).await;
    one.propose(&[&one, &two], at, &partition(&quorum, at)).await.expect("in force");
    let three = Node::join(&quorum, 3).await;
    eventually("node 3 is added", || (numbers(&partition(&quorum, at).adding) == [3]).then_some(())).await;
    one.propose(&[&one, &two, &three], at, &partition(&quorum, at)).await.expect("in force");
    let minimum = || {
        let state = quorum.all().next().expect("runs").state();
        state.configs().topic_value(topic, "min.insync.replicas").map(str::to_owned)
    };
    eventually("two must be in sync", || (minimum().as_deref() == Some("2")).then_some(())).await;
}

/// T-56: the metadata never stands still, and a node that joins is let in all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_unfenced_while_the_metadata_is_busy() {
    const PER_REQUEST: i32 = 200;
    let quorum = Quorum::start(1, |config| {
        plain(config);
        config.sessions.session_ms = 10_000;
    })
    .await;
    let one = Node::join(&quorum, 1).await;
    // As fast as it goes, and well over a thousand records a second.
    let client = Arc::clone(&one.client);
    let begun = Instant::now();
    let load = tokio::spawn(async move {
        for n in 0.. {
            let topic = NewTopic {
                name: format!("t{n}"),
                partitions: Some(PER_REQUEST),
                replication_factor: Some(1),
                assignments: vec![],
                configs: vec![],
            };
            let request = CreateTopics { topics: vec![topic], validate_only: false, timeout_ms: 0 };
            created(ask(&client, &ControllerRequest::CreateTopics(request)).await);
        }
    });
    let state = || quorum.all().next().expect("runs").state();
    eventually("there is load", || (state().topics().len() > 5).then_some(())).await;
    let two = super::client(&quorum.network, 2);
    let ControllerRequest::RegisterNode(mut registration) = registration(2) else { panic!("it registers") };
    registration.node = NodeId(2);
    registration.directories = vec![DirectoryId(Uuid::from_u128(2))];
    let broker_epoch = match ask(&two, &ControllerRequest::RegisterNode(registration)).await {
        Ok(ControllerReply::Registered { broker_epoch, .. }) => broker_epoch,
        other => panic!("{other:?}"),
    };
    let before = state().partitions().len();
    let mut follower = Follower::open(&quorum, 1, None).await;
    loop {
        assert!(begun.elapsed() < PATIENCE, "it is never let in");
        // The load goes on: something always comes.
        follower.next().await;
        // It says truly what it has applied, which is never the newest.
        let applied = follower.index.unwrap_or(MetadataIndex(0));
        let heartbeat = Heartbeat { node: NodeId(2), broker_epoch, applied, stopping: false, healthy: true };
        match ask(&two, &ControllerRequest::Heartbeat(heartbeat)).await {
            Ok(ControllerReply::Heartbeat(reply)) if !reply.fenced => break,
            Ok(ControllerReply::Heartbeat(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    eventually("the load has not stopped", || (state().partitions().len() > before + 400).then_some(()))
        .await;
    assert!(!load.is_finished());
    load.abort();
    let rate = state().partitions().len() as f64 / begun.elapsed().as_secs_f64();
    println!("{rate:.0} partitions a second were made meanwhile");
}
