//! Consumers with `isolation.level=read_committed`, over a real data directory. Transactions are written as a producer and
//! its transaction coordinator would have them written.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::fetch;
use log_engine_core::{MarkerEpochRule, TransactionOutcome};
use proto_types::ids::Millis;
use records::{BatchBuilder, BatchHeader, EndMarker};
use storage_node_core::{Acks, ProduceError};

use super::data_handlers_tests::{TOPIC, World, batch, bytes_of, fetch_request};
use super::error_code::KafkaError;
use super::find_partition::{self, TopicKey};
use crate::disk::event::MarkerToWrite;
use crate::partition::PartitionHandle;
use crate::partition::handle::ValidBatch;

const READ_COMMITTED: i8 = 1;

impl World {
    fn handle(&self) -> PartitionHandle {
        let image = self.test.node.image();
        let topic = find_partition::topic(&image, &TopicKey::name(TOPIC.into())).unwrap();
        find_partition::partition(self.test.node.partitions(), topic, 0).unwrap()
    }

    fn deadline(&self) -> Millis {
        Millis(self.test.node.clock().monotonic().0 + 30_000)
    }

    /// A batch of producer `id` that was validated already. Its offset.
    async fn produce_as(&self, id: i64, sequence: i32, transactional: bool) -> Result<i64, ProduceError> {
        let builder = BatchBuilder::new().producer(id, 0, sequence);
        let mut builder = if transactional { builder.transactional() } else { builder };
        builder.push(1_000, None, Some(format!("{id}:{sequence}").as_bytes()), &[]).unwrap();
        let bytes = builder.build();
        let header = BatchHeader::parse(&bytes).unwrap();
        let batch = ValidBatch { bytes: bytes.into(), header };
        let pending = self.handle().produce(batch, Acks::All, self.deadline()).await?;
        pending.outcome().await.map(|outcome| outcome.base_offset.0)
    }

    async fn in_transaction(&self, id: i64, sequence: i32) -> i64 {
        self.produce_as(id, sequence, true).await.unwrap()
    }

    async fn mark(&self, marker: MarkerToWrite) -> Result<i64, ProduceError> {
        let written = self.handle().write_marker(marker, self.deadline()).await;
        written.map(|outcome| outcome.base_offset.0)
    }

    async fn end(&self, id: i64, outcome: TransactionOutcome) -> i64 {
        self.mark(marker(id, 0, 0, outcome)).await.unwrap()
    }

    async fn read_committed(&self, offset: i64, max_wait_ms: i32) -> fetch::PartitionData {
        let request = fetch::FetchRequest {
            isolation_level: READ_COMMITTED,
            ..fetch_request(max_wait_ms, &[(0, offset)])
        };
        let mut response = self.fetch(12, request).await;
        response.responses.remove(0).partitions.remove(0)
    }
}

fn marker(id: i64, epoch: i16, coordinator_epoch: i32, outcome: TransactionOutcome) -> MarkerToWrite {
    MarkerToWrite {
        producer_id: id,
        producer_epoch: epoch,
        coordinator_epoch,
        outcome,
        epoch_rule: MarkerEpochRule::NotOlder,
    }
}

fn aborted(data: &fetch::PartitionData) -> Vec<(i64, i64)> {
    let aborted = data.aborted_transactions.as_ref().expect("a read-committed consumer gets a list");
    aborted.iter().map(|a| (a.producer_id, a.first_offset)).collect()
}

/// Offsets of the records that a client shows of an answer.
fn shown(data: &fetch::PartitionData) -> Vec<i64> {
    let mut aborted = aborted(data);
    aborted.reverse();
    let (mut aborting, mut shown) = (BTreeSet::new(), Vec::new());
    for batch in records::batches(&bytes_of(&data.records)) {
        let batch = batch.unwrap();
        let header = batch.header();
        assert!(
            header.last_offset() < data.last_stable_offset,
            "nothing is sent above the last stable offset"
        );
        while let Some((id, _)) = aborted.pop_if(|(_, first)| *first <= header.last_offset()) {
            aborting.insert(id);
        }
        match EndMarker::decode(&batch) {
            Some(marker) if !marker.is_commit => _ = aborting.remove(&header.producer_id),
            Some(_) => {}
            None if header.is_transactional() && aborting.contains(&header.producer_id) => {}
            None => shown.extend(header.base_offset..=header.last_offset()),
        }
    }
    shown
}

#[tokio::test]
async fn only_what_is_decided_is_read_and_aborted_transactions_are_named() {
    let world = World::new(&[]).await;
    world.append(0, batch(&["plain"])).await;
    assert_eq!((world.in_transaction(1, 0).await, world.in_transaction(2, 0).await), (1, 2));
    world.append(0, batch(&["beside"])).await;
    let data = world.read_committed(0, 0).await;
    assert_eq!((data.high_watermark, data.last_stable_offset), (4, 1));
    assert_eq!((shown(&data), aborted(&data)), (vec![0], vec![]));

    assert_eq!(world.end(2, TransactionOutcome::Abort).await, 4);
    let data = world.read_committed(0, 0).await;
    assert_eq!(data.last_stable_offset, 1, "the older transaction is open");
    assert_eq!(world.list_offset_at(0, -1, READ_COMMITTED).await, 1);
    assert_eq!(world.list_offset_at(0, -1, 0).await, 5);

    assert_eq!(world.end(1, TransactionOutcome::Commit).await, 5);
    let data = world.read_committed(0, 0).await;
    assert_eq!((data.last_stable_offset, aborted(&data)), (6, vec![(2, 2)]));
    assert_eq!(shown(&data), [0, 1, 3]);
    // From behind its record, but before its marker, the transaction is named still; behind the marker no more.
    assert_eq!(aborted(&world.read_committed(3, 0).await), [(2, 2)]);
    assert_eq!(aborted(&world.read_committed(5, 0).await), []);
    // Who reads everything gets no list.
    let all = world.read(0, 0).await;
    assert_eq!((all.last_stable_offset, all.aborted_transactions), (6, None));

    // An open transaction holds the last stable offset after a restart, and its marker ends it.
    assert_eq!(world.in_transaction(1, 1).await, 6);
    let world = world.restart(9).await;
    let data = world.read_committed(0, 0).await;
    assert_eq!((data.high_watermark, data.last_stable_offset, aborted(&data)), (7, 6, vec![(2, 2)]));
    world.end(1, TransactionOutcome::Abort).await;
    let data = world.read_committed(0, 0).await;
    assert_eq!((data.last_stable_offset, aborted(&data)), (8, vec![(2, 2), (1, 6)]));
    assert_eq!(shown(&data), [0, 1, 3]);
}

#[tokio::test]
async fn a_long_poll_waits_for_the_marker_and_gets_the_list() {
    let world = World::new(&[]).await;
    world.in_transaction(1, 0).await;
    let waits = world.read_committed(0, 60_000);
    let (data, ()) = tokio::join!(waits, async {
        tokio::task::yield_now().await;
        // Not readable yet, so nothing to wake for.
        world.append(0, batch(&["behind"])).await;
        world.end(1, TransactionOutcome::Abort).await;
    });
    assert_eq!((aborted(&data), shown(&data), data.last_stable_offset), (vec![(1, 0)], vec![1], 3));
}

#[tokio::test]
async fn zombies_are_refused_with_kafkas_codes() {
    let world = World::new(&[]).await;
    let code = |error: ProduceError| KafkaError::from(error).code;
    world.in_transaction(1, 0).await;
    // Not transactional, though a transaction is open.
    let refused = world.produce_as(1, 1, false).await.unwrap_err();
    assert_eq!(code(refused), ErrorCode::InvalidTxnState);
    world.mark(marker(1, 1, 5, TransactionOutcome::Abort)).await.unwrap();
    let refused = world.produce_as(1, 1, true).await.unwrap_err();
    assert_eq!(code(refused), ErrorCode::InvalidProducerEpoch);
    let older = marker(1, 0, 5, TransactionOutcome::Commit);
    assert_eq!(code(world.mark(older).await.unwrap_err()), ErrorCode::InvalidProducerEpoch);
    let fenced = marker(1, 1, 4, TransactionOutcome::Commit);
    assert_eq!(code(world.mark(fenced).await.unwrap_err()), ErrorCode::TransactionCoordinatorFenced);
    // A marker that comes again, its answer lost, is answered and not written twice.
    let again =
        MarkerToWrite { epoch_rule: MarkerEpochRule::Newer, ..marker(1, 1, 5, TransactionOutcome::Abort) };
    let end = world.handle().view().end;
    assert!(world.mark(again).await.is_ok());
    assert_eq!(world.handle().view().end, end);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn while_transactions_end_no_answer_goes_above_its_last_stable_offset() {
    const TRANSACTIONS: i32 = 400;
    let world = Arc::new(World::new(&[]).await);
    let writer = |id: i64| {
        let world = Arc::clone(&world);
        tokio::spawn(async move {
            for n in 0..TRANSACTIONS / 2 {
                world.in_transaction(id, n).await;
                let commits = (i64::from(n) + id) % 2 == 0;
                let outcome = if commits { TransactionOutcome::Commit } else { TransactionOutcome::Abort };
                world.end(id, outcome).await;
            }
        })
    };
    let reader = || {
        let world = Arc::clone(&world);
        tokio::spawn(async move {
            let (mut at, mut seen) = (0, Vec::new());
            while at < i64::from(TRANSACTIONS) * 2 {
                let data = world.read_committed(at, 0).await;
                assert!(data.last_stable_offset <= data.high_watermark);
                seen.extend(shown(&data));
                let bytes = bytes_of(&data.records);
                at = records::batches(&bytes).last().map_or(at, |b| b.unwrap().header().last_offset() + 1);
                tokio::task::yield_now().await;
            }
            seen
        })
    };
    let all = async { tokio::join!(writer(1), writer(2), reader(), reader()) };
    let (one, two, first, second) = tokio::time::timeout(Duration::from_secs(300), all).await.unwrap();
    one.unwrap();
    two.unwrap();
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.len(), TRANSACTIONS as usize / 2, "every second transaction was committed");
    assert_eq!(first, second);
    assert_eq!(shown(&world.read_committed(0, 0).await), first);
}
