//! Leader epochs, which rise when the leader was away: old ones, the current one, and those that nobody has had yet.

use std::time::Duration;

use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::fetch::FetchRequest;
use kafka_wire_core::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use kafka_wire_core::messages::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponsePartition};
use kafka_wire_core::messages::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};

use super::requests::fetch_request;
use super::scripts::Script;
use super::wire::Wire;
use super::world::{MANY, World, batch, produce_request};
use crate::clock::wait_until;

/// How long a node may take to lead again, and a leader to serve.
const BACK_LIMIT: Duration = Duration::from_secs(60);
/// The partition of [`MANY`] that is asked about: one record from before the restart, one from after it.
const PARTITION: i32 = 2;

fn partition(world: &World) -> MetadataResponsePartition {
    let topic = MetadataRequestTopic { name: Some(MANY.into()), ..MetadataRequestTopic::default() };
    let request = MetadataRequest {
        topics: Some(vec![topic]),
        allow_auto_topic_creation: false,
        ..MetadataRequest::default()
    };
    let led = wait_until(BACK_LIMIT, || {
        let mut topic = world.call(&request, 12).topics.remove(0);
        topic.partitions.retain(|partition| {
            partition.partition_index == PARTITION && partition.error_code == ErrorCode::None
        });
        topic.partitions.pop()
    });
    led.expect("the partition gets a leader")
}

/// Waits until the leader takes a record, which is the first one of its epoch.
fn append(world: &World) {
    let request = produce_request(MANY, world.topic_id(MANY), PARTITION, -1, batch(1).build());
    let taken = wait_until(BACK_LIMIT, || {
        let response = world.call(&request, 9);
        (response.responses[0].partition_responses[0].error_code == ErrorCode::None).then_some(())
    });
    taken.expect("the leader takes a record");
}

/// The node restarts, its partitions get a new epoch: who says the old one is fenced, who says the next is told to wait.
pub(super) fn after_a_restart(script: &mut Script<'_>, restart: impl FnOnce()) {
    let before = partition(script.world).leader_epoch;
    restart();
    let now = partition(script.world).leader_epoch;
    script.note("1 the epoch rises", (now > before).to_string());
    append(script.world);
    let mut wire = script.world.open();
    for (what, epoch) in [("2 old epoch", before), ("3 current epoch", now), ("4 next epoch", now + 1)] {
        claim(script, &mut wire, what, epoch);
    }
    // Where an epoch ended that began before the restart, the one that goes on, and one between the two if there was one.
    for (what, epoch) in [("5 end of the old epoch", before), ("6 end of the current epoch", now)] {
        script.ask(&mut wire, what, 4, &end_of(-1, epoch));
    }
    // KIP-595: a reader that says which epoch it read last is told where it left the leader's log.
    for (what, epoch, offset) in
        [("7 read on in the old epoch", before, 1), ("8 read too far in the old epoch", before, 2)]
    {
        for version in [12, 18] {
            let mut request = fetch_request(script.world, MANY, &[(PARTITION, offset)], 20);
            request.topics[0].partitions[0].last_fetched_epoch = epoch;
            script.ask(&mut wire, &format!("{what}, Fetch {version}"), version, &request);
        }
    }
}

/// Asks everything that takes the epoch that the client believes in.
fn claim(script: &mut Script<'_>, wire: &mut Wire, what: &str, epoch: i32) {
    for version in [9, 12, 18] {
        let mut request = fetch_request(script.world, MANY, &[(PARTITION, 0)], 20);
        request.topics[0].partitions[0].current_leader_epoch = epoch;
        script.ask::<FetchRequest>(wire, &format!("{what}, Fetch {version}"), version, &request);
    }
    for version in [4, 7, 11] {
        let partition =
            ListOffsetsPartition { partition_index: PARTITION, current_leader_epoch: epoch, timestamp: -1 };
        let request = ListOffsetsRequest {
            topics: vec![ListOffsetsTopic { name: MANY.into(), partitions: vec![partition] }],
            timeout_ms: 1000,
            ..ListOffsetsRequest::default()
        };
        script.ask(wire, &format!("{what}, ListOffsets {version}"), version, &request);
    }
    for version in [2, 4] {
        let request = end_of(epoch, 0);
        script.ask(wire, &format!("{what}, OffsetForLeaderEpoch {version}"), version, &request);
    }
}

fn end_of(current_leader_epoch: i32, leader_epoch: i32) -> OffsetForLeaderEpochRequest {
    let partition = OffsetForLeaderPartition { partition: PARTITION, current_leader_epoch, leader_epoch };
    OffsetForLeaderEpochRequest {
        replica_id: -1,
        topics: vec![OffsetForLeaderTopic { topic: MANY.into(), partitions: vec![partition] }],
    }
}
