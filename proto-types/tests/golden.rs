//! The bytes of every message variant, frozen. A failure here means that daemons of two versions would misunderstand
//! each other: do not change the expected bytes, add a variant at the end of its enum instead.

use proto_types::controller_api::*;
use proto_types::coordinator_api::*;
use proto_types::error::{ControllerError, Reason, Rejection};
use proto_types::feature::{FeatureLevel, LevelRange};
use proto_types::ids::*;
use proto_types::message_kind::MessageKind;
use proto_types::metadata::*;
use proto_types::replication_api::*;
use proto_types::{decode, encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use uuid::Uuid;

fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T, expected: &str) {
    let bytes = encode(&value);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, expected, "{value:?}");
    assert_eq!(decode::<T>(&bytes).expect("own bytes decode"), value);
}

fn uuid(low: u128) -> Uuid {
    Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f00 | low)
}

fn topic() -> TopicId {
    TopicId(uuid(1))
}

fn shard() -> Shard {
    topic_partition(topic(), 7)
}

fn registration() -> NodeRegistered {
    NodeRegistered {
        node: NodeId(1),
        broker_epoch: BrokerEpoch(9),
        incarnation: Incarnation(uuid(2)),
        directories: vec![DirectoryId(uuid(3))],
        listeners: vec![Listener { name: "L".into(), host: "h".into(), port: 9092 }],
        control_address: "c:1".into(),
        data_address: "d:2".into(),
        rack: Some("r".into()),
    }
}

fn state() -> PartitionState {
    PartitionState {
        replicas: vec![NodeId(1), NodeId(2)],
        adding: vec![NodeId(3)],
        removing: vec![NodeId(4)],
        isr: vec![NodeId(1)],
        elr: vec![NodeId(2)],
        leader: Some(NodeId(1)),
        leader_epoch: LeaderEpoch(5),
        partition_epoch: PartitionEpoch(6),
    }
}

#[test]
fn metadata_changes() {
    use MetadataChange::*;
    check(
        NodeRegistered(registration()),
        "000212100102030405060708090a0b0c0d0e0f0201100102030405060708090a0b0c0d0e0f0301014c0168844703633a3103643a32010172",
    );
    check(NodeFenced { node: NodeId(1), broker_epoch: BrokerEpoch(9), fenced: true }, "01021201");
    check(NodeRemoved { node: NodeId(1) }, "0202");
    check(TopicCreated { topic: topic(), name: "t".into() }, "03100102030405060708090a0b0c0d0e0f010174");
    check(TopicDeleted { topic: topic() }, "04100102030405060708090a0b0c0d0e0f01");
    check(
        PartitionSet { partition: topic_partition(topic(), 7), state: state() },
        "05100102030405060708090a0b0c0d0e0f010e020204010601080102010401020a0c",
    );
    check(
        ConfigSet { resource: ConfigResource::Topic(topic()), name: "n".into(), value: Some("v".into()) },
        "0600100102030405060708090a0b0c0d0e0f01016e010176",
    );
    check(
        ConfigSet { resource: ConfigResource::Node(NodeId(1)), name: "n".into(), value: None },
        "060102016e00",
    );
    check(ConfigSet { resource: ConfigResource::NodeDefault, name: "n".into(), value: None }, "0602016e00");
    check(ProducerIdsAllocated { next: ProducerId(1000) }, "07d00f");
    let registration = proto_types::metadata::CoordinatorRegistered {
        coordinator: CoordinatorId(1),
        epoch: RegistrationEpoch(9),
        incarnation: Incarnation(uuid(2)),
        control_address: "c:1".into(),
    };
    check(CoordinatorRegistered(registration), "080212100102030405060708090a0b0c0d0e0f0203633a31");
    let (coordinator, epoch) = (CoordinatorId(1), RegistrationEpoch(9));
    check(CoordinatorFenced { coordinator, epoch, fenced: true }, "09021201");
    let (owner, epoch) = (Some(coordinator), CoordinatorEpoch(5));
    check(ShardAssigned { shard: shard(), owner, epoch }, "0a100102030405060708090a0b0c0d0e0f010e01020a");
    let voter = |directory| ControllerAddress { id: ControllerId(300), address: "c:1".into(), directory };
    let voters = vec![voter(None), voter(Some(DirectoryId(uuid(2))))];
    check(
        ControllersSet { voters, removed: vec![ControllerId(2)] },
        "0b02ac0203633a3100ac0203633a3101100102030405060708090a0b0c0d0e0f020102",
    );
    check(vec![InternalTopic::ConsumerOffsets, InternalTopic::TransactionState], "020001");
    check(FeatureLevelSet { level: FeatureLevel(2), epoch: FeatureEpoch(300) }, "0c04d804");
    check(NodeLevels { node: NodeId(1), levels: levels() }, "0d020206");
    check(CoordinatorLevels { coordinator: CoordinatorId(1), levels: levels() }, "0e020206");
}

fn levels() -> LevelRange {
    LevelRange { min: FeatureLevel(1), max: FeatureLevel(3) }
}

#[test]
fn controller_requests() {
    use ControllerRequest as Q;
    check(
        Q::RegisterNode(RegisterNode {
            cluster_id: "c".into(),
            node: NodeId(1),
            incarnation: Incarnation(uuid(2)),
            directories: vec![DirectoryId(uuid(3))],
            listeners: vec![Listener { name: "L".into(), host: "h".into(), port: 9092 }],
            control_address: "c:1".into(),
            data_address: "d:2".into(),
            rack: None,
            may_lack: MayLack::Nothing,
        }),
        "00016302100102030405060708090a0b0c0d0e0f0201100102030405060708090a0b0c0d0e0f0301014c0168844703633a3103643a320000",
    );
    check(vec![MayLack::Nothing, MayLack::Unflushed, MayLack::Anything], "03000102");
    check(
        Q::Heartbeat(Heartbeat {
            node: NodeId(1),
            broker_epoch: BrokerEpoch(9),
            applied: MetadataIndex(300),
            stopping: false,
            healthy: true,
        }),
        "010212ac020001",
    );
    let new_topic = NewTopic {
        name: "t".into(),
        partitions: Some(3),
        replication_factor: None,
        assignments: vec![(PartitionIndex(0), vec![NodeId(1)])],
        configs: vec![("n".into(), Some("v".into())), ("m".into(), None)],
    };
    check(
        Q::CreateTopics(CreateTopics { topics: vec![new_topic], validate_only: true, timeout_ms: 300 }),
        "020101740106000100010202016e010176016d0001ac02",
    );
    let topics = vec![TopicRef::Name("t".into()), TopicRef::Id(topic())];
    check(
        Q::DeleteTopics(DeleteTopics { topics, timeout_ms: 1 }),
        "030200017401100102030405060708090a0b0c0d0e0f0101",
    );
    let more = MorePartitions { name: "t".into(), count: 4, assignments: vec![vec![NodeId(1)]] };
    check(
        Q::CreatePartitions(CreatePartitions { topics: vec![more], validate_only: false, timeout_ms: 1 }),
        "04010174080101020001",
    );
    let op = |kind, value: Option<&str>| ConfigOp { name: "n".into(), kind, value: value.map(Into::into) };
    let resource = AlterResource {
        resource: ResourceRef::Topic("t".into()),
        replace_all: false,
        ops: vec![
            op(ConfigOpKind::Set, Some("v")),
            op(ConfigOpKind::Delete, None),
            op(ConfigOpKind::Append, Some("v")),
            op(ConfigOpKind::Subtract, Some("v")),
        ],
    };
    let all = AlterResource {
        resource: ResourceRef::Resource(ConfigResource::NodeDefault),
        replace_all: true,
        ops: vec![],
    };
    let resources = vec![resource, all];
    check(
        Q::AlterConfigs(AlterConfigs { resources, validate_only: false, timeout_ms: 1 }),
        "05020001740004016e00010176016e0100016e02010176016e03010176010201000001",
    );
    check(
        Q::AllocateProducerIds(AllocateProducerIds { node: NodeId(1), broker_epoch: BrokerEpoch(9) }),
        "060212",
    );
    check(
        Q::RegisterCoordinator(RegisterCoordinator {
            cluster_id: "c".into(),
            coordinator: CoordinatorId(1),
            incarnation: Incarnation(uuid(2)),
            control_address: "c:1".into(),
        }),
        "07016302100102030405060708090a0b0c0d0e0f0203633a31",
    );
    let (coordinator, epoch) = (CoordinatorId(1), RegistrationEpoch(9));
    let applied = MetadataIndex(300);
    let heartbeat = CoordinatorHeartbeat { coordinator, epoch, applied, stopping: true };
    check(Q::CoordinatorHeartbeat(heartbeat), "080212ac0201");
    let topic = InternalTopic::TransactionState;
    check(Q::CreateInternalTopic(CreateInternalTopic { topic, timeout_ms: 300 }), "0901ac02");
}

#[test]
fn controller_requests_about_replicas_and_the_quorum() {
    use ControllerRequest as Q;
    let proposed = ProposedIsr {
        partition: shard(),
        leader_epoch: LeaderEpoch(5),
        partition_epoch: PartitionEpoch(6),
        isr: vec![(NodeId(2), BrokerEpoch(9)), (NodeId(1), ProposedIsr::NOT_HEARD_FROM)],
    };
    check(
        Q::AlterPartition(AlterPartition {
            node: NodeId(1),
            broker_epoch: BrokerEpoch(9),
            partitions: vec![proposed],
        }),
        "0a021201100102030405060708090a0b0c0d0e0f010e0a0c0204120201",
    );
    let partitions = Some(vec![("t".to_owned(), PartitionIndex(7))]);
    check(
        Q::ElectLeaders(ElectLeaders { kind: ElectionKind::Preferred, partitions, timeout_ms: 300 }),
        "0b00010101740eac02",
    );
    let kind = ElectionKind::Unclean;
    check(Q::ElectLeaders(ElectLeaders { kind, partitions: None, timeout_ms: 1 }), "0b010001");
    let reassignment = |replicas| Reassignment { topic: "t".into(), partition: PartitionIndex(7), replicas };
    check(
        Q::AlterReassignments(AlterReassignments {
            partitions: vec![reassignment(Some(vec![NodeId(1), NodeId(2)])), reassignment(None)],
            allow_factor_change: true,
            timeout_ms: 300,
        }),
        "0c0201740e0102020401740e0001ac02",
    );
    check(Q::UnregisterNode { node: NodeId(1) }, "0d02");
    check(Q::DescribeQuorum, "0e");
    check(Q::AlterVoters(AlterVoters::Add { id: ControllerId(2), address: "c:1".into() }), "0f000203633a31");
    check(Q::AlterVoters(AlterVoters::Remove { id: ControllerId(2) }), "0f0102");
    check(
        Q::LoseCopies(LoseCopies {
            node: NodeId(1),
            broker_epoch: BrokerEpoch(2),
            partitions: vec![shard()],
        }),
        "10020401100102030405060708090a0b0c0d0e0f010e",
    );
    check(Q::DescribeMetadataFollowers, "11");
}

#[test]
fn controller_requests_about_features() {
    use ControllerRequest as Q;
    let registration = RegisterNode {
        cluster_id: "c".into(),
        node: NodeId(1),
        incarnation: Incarnation(uuid(2)),
        directories: vec![DirectoryId(uuid(3))],
        listeners: vec![],
        control_address: "c:1".into(),
        data_address: "d:2".into(),
        rack: None,
        may_lack: MayLack::Nothing,
    };
    let plain = Q::register_node(registration.clone(), LevelRange::IMPLIED);
    assert_eq!(plain, Q::RegisterNode(registration.clone()), "what is implied is not said");
    check(
        Q::register_node(registration, levels()),
        "12016302100102030405060708090a0b0c0d0e0f0201100102030405060708090a0b0c0d0e0f030003633a3103643a3200000206",
    );
    let registration = RegisterCoordinator {
        cluster_id: "c".into(),
        coordinator: CoordinatorId(1),
        incarnation: Incarnation(uuid(2)),
        control_address: "c:1".into(),
    };
    let plain = Q::register_coordinator(registration.clone(), LevelRange::IMPLIED);
    assert_eq!(plain, Q::RegisterCoordinator(registration.clone()));
    check(
        Q::register_coordinator(registration, levels()),
        "13016302100102030405060708090a0b0c0d0e0f0203633a310206",
    );
    let update = |direction| FeatureUpdate { feature: "f".into(), level: FeatureLevel(2), direction };
    let all = [UpgradeType::Upgrade, UpgradeType::SafeDowngrade, UpgradeType::UnsafeDowngrade];
    let request = UpdateFeatures { updates: all.map(update).to_vec(), validate_only: true, timeout_ms: 300 };
    check(Q::UpdateFeatures(request), "140301660400016604010166040201ac02");
    check(ControllerReply::FeaturesUpdated, "12");
}

#[test]
fn controller_replies_about_replicas_and_the_quorum() {
    use ControllerReply as R;
    let no = || Rejection { reason: Reason::TopicExists, message: "m".into() };
    check(R::IsrAltered(vec![Ok(state()), Err(no())]), "0a0200020204010601080102010401020a0c0100016d");
    let elected = |result| ElectedLeader { topic: "t".into(), partition: PartitionIndex(7), result };
    check(R::LeadersElected(vec![elected(Ok(())), elected(Err(no()))]), "0b0201740e0001740e0100016d");
    check(R::ReassignmentsAltered(vec![Ok(()), Err(no())]), "0c02000100016d");
    check(R::NodeUnregistered, "0d");
    let progress = |id, known: Option<i64>| VoterProgress {
        id: ControllerId(id),
        address: "c:1".into(),
        matched: known.map(|_| MetadataIndex(300)),
        last_contact_ms: known,
        caught_up_ms: known,
    };
    check(
        R::Quorum(QuorumDescription {
            leader: ControllerId(1),
            epoch: 3,
            committed: MetadataIndex(300),
            voters: vec![progress(1, Some(1000))],
            learners: vec![progress(2, None)],
        }),
        "0e0103ac02010103633a3101ac0201d00f01d00f010203633a31000000",
    );
    check(R::VotersAltered, "0f");
    let follower = |node, caught_up_ms| MetadataFollower {
        node: NodeId(node),
        applied: MetadataIndex(300),
        last_contact_ms: 1000,
        caught_up_ms,
    };
    check(
        R::MetadataFollowers(vec![follower(1, Some(999)), follower(2, None)]),
        "110202ac02d00f01ce0f04ac02d00f00",
    );
    check(R::CopiesLost(vec![Ok(state()), Err(no())]), "100200020204010601080102010401020a0c0100016d");
}

#[test]
fn replication() {
    check(LaneHello { cluster_id: "c".into(), broker_epoch: BrokerEpoch(9) }, "016312");
    let session = SessionId(300);
    let open = OpenSession {
        session,
        partition: shard(),
        leader_epoch: LeaderEpoch(5),
        log_start: Offset(1),
        log_end: Offset(300),
        last_epoch: LeaderEpoch(-1),
        credit_bytes: 1000,
    };
    let ack = SessionAck { session, appended: Offset(300), flushed: Offset(1), credit_bytes: 1000 };
    check(FollowerFrame::Open(open), "00ac02100102030405060708090a0b0c0d0e0f010e0a02d80401e807");
    check(FollowerFrame::Ack(ack), "01ac02d80402e807");
    check(FollowerFrame::Close { session }, "02ac02");
    check(FollowerFrame::LogStart { session, log_start: Offset(300) }, "03ac02d804");
    let marks = Marks { log_start: Offset(1), high_watermark: Offset(300) };
    let answers = [
        SessionAnswer::Begins { marks },
        SessionAnswer::Diverged { epoch: LeaderEpoch(4), end: Offset(300) },
        SessionAnswer::StartsLater { start: Offset(300) },
        SessionAnswer::WrongEpoch { current: LeaderEpoch(6) },
        SessionAnswer::NotServed,
        SessionAnswer::BeginsCompacted { marks, dropped_to: Offset(300) },
    ];
    check(
        answers.map(|answer| LeaderFrame::Answer { session, answer }).to_vec(),
        "0600ac020002d80400ac020108d80400ac0202d80400ac02030c00ac020400ac020502d804d804",
    );
    check(LeaderFrame::Batches(Batches { session, from: Offset(300), marks }), "01ac02d80402d804");
    check(LeaderFrame::Marks { session, marks }, "02ac0202d804");
    check(LeaderFrame::Closed { session }, "03ac02");
}

#[test]
fn controller_replies() {
    use ControllerReply as R;
    let no = || Rejection { reason: Reason::TopicExists, message: "m".into() };
    check(
        R::Registered { broker_epoch: BrokerEpoch(9), session_ms: 3000, heartbeat_ms: 300 },
        "0012b817ac02",
    );
    check(
        R::Heartbeat(HeartbeatReply { committed: MetadataIndex(300), fenced: true, may_stop: false }),
        "01ac020100",
    );
    let created = CreatedTopic {
        topic: topic(),
        partitions: 3,
        replication_factor: 1,
        configs: vec![("n".into(), "v".into())],
    };
    check(
        R::TopicsCreated(vec![Ok(created), Err(no())]),
        "020200100102030405060708090a0b0c0d0e0f01060201016e01760100016d",
    );
    check(
        R::TopicsDeleted(vec![Ok(DeletedTopic { topic: topic(), name: "t".into() }), Err(no())]),
        "030200100102030405060708090a0b0c0d0e0f0101740100016d",
    );
    check(R::PartitionsCreated(vec![Ok(()), Err(no())]), "0402000100016d");
    check(R::ConfigsAltered(vec![Ok(()), Err(no())]), "0502000100016d");
    check(R::ProducerIds { first: ProducerId(1000), count: 1000 }, "06d00fd00f");
    let epoch = RegistrationEpoch(9);
    check(R::CoordinatorRegistered { epoch, session_ms: 3000, heartbeat_ms: 300 }, "0712b817ac02");
    let reply = CoordinatorHeartbeatReply { committed: MetadataIndex(300), fenced: true, may_stop: false };
    check(R::CoordinatorHeartbeat(reply), "08ac020100");
    check(R::InternalTopicCreated { topic: topic() }, "09100102030405060708090a0b0c0d0e0f01");
}

#[test]
fn controller_errors() {
    use ControllerError as E;
    check(E::NotLeader { leader: Some(ControllerId(2)) }, "000102");
    check(E::Busy("m".into()), "01016d");
    check(E::Shutdown, "02");
    check(E::TimedOut, "03");
    check(E::Rejected(Rejection { reason: Reason::UnknownResource, message: "m".into() }), "040f016d");
    let reasons = [
        Reason::TopicExists,
        Reason::UnknownTopic,
        Reason::UnknownTopicId,
        Reason::InvalidTopicName,
        Reason::InvalidPartitions,
        Reason::InvalidReplicationFactor,
        Reason::InvalidReplicaAssignment,
        Reason::InvalidConfig,
        Reason::InvalidRequest,
        Reason::PolicyViolation,
        Reason::ClosedTopic,
        Reason::StaleBrokerEpoch,
        Reason::DuplicateNodeId,
        Reason::UnknownNode,
        Reason::InconsistentClusterId,
        Reason::UnknownResource,
        Reason::FencedLeaderEpoch,
        Reason::StalePartitionEpoch,
        Reason::IneligibleReplica,
        Reason::NotLeader,
        Reason::UnknownPartition,
        Reason::ElectionNotNeeded,
        Reason::PreferredLeaderNotAvailable,
        Reason::EligibleLeadersNotAvailable,
        Reason::NoReassignmentInProgress,
        Reason::NodeInUse,
        Reason::DuplicateVoter,
        Reason::VoterNotFound,
        Reason::ChangeInProgress,
        Reason::InvalidFeatureLevel,
        Reason::UnsupportedLevel,
    ];
    check(reasons.to_vec(), "1f000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e");
}

#[test]
fn feed() {
    check(FeedRequest { cluster_id: "c".into(), after: Some(MetadataIndex(300)) }, "016301ac02");
    let changes = || vec![MetadataChange::TopicDeleted { topic: topic() }];
    check(
        FeedFrame::Snapshot { index: MetadataIndex(300), first: true, last: false, changes: changes() },
        "00ac0201000104100102030405060708090a0b0c0d0e0f01",
    );
    check(
        FeedFrame::Delta { index: MetadataIndex(300), changes: changes() },
        "01ac020104100102030405060708090a0b0c0d0e0f01",
    );
}

#[test]
fn forwarding() {
    let request = ForwardedRequest {
        id: 300,
        shard: shard(),
        api_key: 11,
        api_version: 9,
        client_id: Some("c".into()),
        client_host: "h".into(),
        listener: "L".into(),
        principal: "p".into(),
        body: vec![1, 2, 3],
    };
    check(
        ForwardFrame::Request(request),
        "00ac02100102030405060708090a0b0c0d0e0f010e16120101630168014c017003010203",
    );
    check(ForwardFrame::Abandon { id: 300 }, "01ac02");
    check(
        AnswerFrame::Answer { id: 300, epoch: CoordinatorEpoch(5), body: vec![1, 2, 3] },
        "00ac020a03010203",
    );
    let reasons = [
        ForwardRefusal::NotOwner,
        ForwardRefusal::Loading,
        ForwardRefusal::Busy,
        ForwardRefusal::Malformed,
        ForwardRefusal::Unsupported,
        ForwardRefusal::LogUnavailable,
    ];
    check(
        reasons.map(|reason| AnswerFrame::Refused { id: 1, reason }).to_vec(),
        "06010100010101010102010103010104010105",
    );
}

#[test]
fn logs_of_shards() {
    let append = |expected_end, content| AppendShard {
        shard: shard(),
        epoch: CoordinatorEpoch(5),
        expected_end,
        content,
    };
    check(append(None, ShardContent::Claim), "100102030405060708090a0b0c0d0e0f010e0a0000");
    check(
        append(Some(Offset(300)), ShardContent::Batches(vec![1, 2])),
        "100102030405060708090a0b0c0d0e0f010e0a01d80401020102",
    );
    check(ShardAppended { base_offset: Offset(300), end: Offset(302) }, "d804dc04");
    let errors = vec![
        ShardLogError::NotLeader,
        ShardLogError::Fenced { current: CoordinatorEpoch(6) },
        ShardLogError::UnexpectedEnd { end: Offset(300) },
        ShardLogError::Unavailable("m".into()),
        ShardLogError::Unknown("m".into()),
        ShardLogError::Invalid("m".into()),
    ];
    check(errors, "0600010c02d80403016d04016d05016d");
    let read = ReadShard { shard: shard(), epoch: CoordinatorEpoch(5), from: Offset(0), to: Offset(300) };
    check(read, "100102030405060708090a0b0c0d0e0f010e0a00d804");
    let frames =
        vec![ShardFrame::Batches(vec![1, 2]), ShardFrame::End, ShardFrame::Failed(ShardLogError::NotLeader)];
    check(frames, "0300020102010200");
}

#[test]
fn kinds_keep_their_numbers() {
    let numbers: Vec<u16> = MessageKind::ALL.iter().map(|kind| kind.number()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 16, 17, 18, 19, 20, 21]);
    for kind in MessageKind::ALL {
        assert_eq!(MessageKind::from_number(kind.number()), Some(kind));
    }
    assert_eq!(MessageKind::from_number(0), None);
}
