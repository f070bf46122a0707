//! T-33: a leader that stood still for three sessions wakes up and finds requests in its sockets. It must not acknowledge with
//! acks=all what it has not replicated, and what it lets consumers read must not contradict what the new leader has.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use cluster_tests::chaos::{Plan, Storm, TOPIC, run_with};
use cluster_tests::clock::{monotonic_us, unix_ms, wait_until};
use cluster_tests::history::{parse_payload, payload};
use cluster_tests::netns::NetworkError;
use cluster_tests::run_dir::RunDir;
use kafka_wire_core::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use kafka_wire_core::messages::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use kafka_wire_core::{ErrorCode, Message, Reader, Records, Request, ResponseHeader};
use records::{BatchBuilder, batches};

use crate::raw_connection::{RawConnection, frame};
use crate::{alone, assert_clean};

/// Three sessions of three seconds.
const STANDS_STILL: Duration = Duration::from_secs(9);
/// By then another node leads, on a busy machine.
const ELECTION_LIMIT: Duration = Duration::from_secs(30);
/// Versions that name topics.
const PRODUCE: i16 = 9;
const FETCH: i16 = 12;
/// A value that no client of the load uses.
const VALUE: u64 = 1 << 50;

#[test]
fn a_leader_that_stood_still_acknowledges_nothing() {
    let _alone = alone();
    let dir = RunDir::new("chaos-stands-still");
    let plan = Plan { partitions: 2, ..Plan::new(33, Duration::ZERO) };
    assert_clean(run_with(dir.path(), &plan, wake_up_with_requests));
}

fn wake_up_with_requests(storm: &mut Storm<'_>) -> Result<(), NetworkError> {
    let leader = leader_seen_by(storm, 1).ok_or_else(|| NetworkError("nobody leads".to_owned()))?;
    let kafka = storm.cluster.node(leader).kafka();
    let (mut producer, mut consumer) = (RawConnection::open(&kafka), RawConnection::open(&kafka));
    producer.assert_alive();
    consumer.assert_alive();
    storm.cluster.node(leader).pause();
    storm.diary.fault(&format!("storage-node-{leader}, which leads partition 0, stands still"));
    let other = 1 + leader % 3;
    let moved = wait_until(ELECTION_LIMIT, || leader_seen_by(storm, other).filter(|now| *now != leader));
    if moved.is_none() {
        return Err(NetworkError("nobody else leads".to_owned()));
    }
    // They wait in its sockets, for the first moment after it wakes up.
    producer.send(&frame(&produce(), PRODUCE));
    consumer.send(&frame(&fetch(), FETCH));
    std::thread::sleep(STANDS_STILL);
    storm.heal()?;
    let number = storm.diary.faults();
    let produced: ProduceResponse = answer::<ProduceRequest>(&mut producer, PRODUCE)?;
    let error = produced.responses[0].partition_responses[0].error_code;
    let read: FetchResponse = answer::<FetchRequest>(&mut consumer, FETCH)?;
    storm.diary.note(&format!("  it answers the producer {error:?}"));
    if error == ErrorCode::None {
        storm.diary.complain("a leader that was deposed in its sleep acknowledged with acks=all".to_owned());
    }
    let path = storm.load.histories().join(format!("raw-{number}.history"));
    write_history(&path, &read).map_err(|error| NetworkError(error.to_string()))?;
    storm.wait_for_progress();
    storm.wait_for_sync();
    Ok(())
}

pub(crate) fn leader_seen_by(storm: &Storm<'_>, node: usize) -> Option<usize> {
    storm.cluster.partitions(node, TOPIC)?.first()?.leader
}

fn produce() -> ProduceRequest {
    let mut batch = BatchBuilder::new();
    batch.push(unix_ms(), None, Some(payload(VALUE, 0).as_bytes()), &[]).expect("small");
    let records = Some(Records::Bytes(Bytes::from(batch.build())));
    let partition_data = vec![PartitionProduceData { index: 0, records }];
    let topic = TopicProduceData { name: TOPIC.into(), partition_data, ..TopicProduceData::default() };
    ProduceRequest { acks: -1, timeout_ms: 5_000, topic_data: vec![topic], ..ProduceRequest::default() }
}

/// From the beginning of the partition, as much as there is.
fn fetch() -> FetchRequest {
    let partition = FetchPartition {
        partition: 0,
        current_leader_epoch: -1,
        fetch_offset: 0,
        partition_max_bytes: 64 << 20,
        ..FetchPartition::default()
    };
    let topic = FetchTopic { topic: TOPIC.into(), partitions: vec![partition], ..FetchTopic::default() };
    FetchRequest {
        replica_id: -1,
        max_wait_ms: 100,
        min_bytes: 1,
        max_bytes: 64 << 20,
        session_epoch: -1,
        topics: vec![topic],
        ..FetchRequest::default()
    }
}

fn answer<R: Request>(connection: &mut RawConnection, version: i16) -> Result<R::Response, NetworkError> {
    let failed = |what: &dyn std::fmt::Debug| NetworkError(format!("no answer to {:?}: {what:?}", R::KEY));
    let body = connection.receive().ok_or_else(|| failed(&"it hung up"))?;
    let mut reader = Reader::new(body);
    ResponseHeader::decode(&mut reader, R::KEY, version).map_err(|error| failed(&error))?;
    R::Response::decode(&mut reader, version).map_err(|error| failed(&error))
}

/// What the sleeper let us read is judged with everything else. Of the record that it refused nobody knows.
fn write_history(path: &Path, read: &FetchResponse) -> Result<(), Box<dyn std::error::Error>> {
    let mut file = File::create(path)?;
    let now = monotonic_us();
    writeln!(file, "s {now} 0 {VALUE}\nu {now} 0 {VALUE} refused by a leader that stood still\na {now} 0 0")?;
    for partition in read.responses.iter().flat_map(|topic| &topic.partitions) {
        let bytes = match &partition.records {
            Some(Records::Bytes(bytes)) => bytes.clone(),
            _ => Bytes::new(),
        };
        // The last batch may be cut off by the size of the answer.
        for batch in batches(&bytes).map_while(Result::ok) {
            for record in batch.records(64 << 20)?.iter() {
                let record = record?;
                let (value, sum) = record.value.and_then(parse_payload).ok_or("a record of nobody")?;
                writeln!(file, "r {now} 0 {} {value} {sum:016x}", record.offset)?;
            }
        }
    }
    Ok(())
}
