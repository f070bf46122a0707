//! What every implementation of [`GroupLog`] must do.

use super::{GroupLog, decode_batches, encode_batch};
use coordinator_core::{LoadedRecord, StoredRecord};
use proto_types::coordinator_api::{Shard, ShardLogError};
use proto_types::ids::{CoordinatorEpoch, Offset, TopicId};
use proto_types::metadata::topic_partition;
use uuid::Uuid;

/// Runs all of it; shards 0 to 3 of topic 1 must be empty.
pub(crate) async fn run(log: &dyn GroupLog) {
    let shard = |index| topic_partition(TopicId(Uuid::from_u128(1)), index);
    what_is_appended_is_read(log, shard(0)).await;
    older_epochs_are_fenced(log, shard(1)).await;
    nothing_is_appended_at_another_end(log, shard(2)).await;
    an_empty_log_reads_as_empty(log, shard(3)).await;
}

fn batch(keys: &[&str]) -> Vec<u8> {
    let records: Vec<StoredRecord> = keys
        .iter()
        .map(|key| StoredRecord {
            group: "g".into(),
            key: key.as_bytes().to_vec().into(),
            value: (*key != "gone").then(|| "v".into()),
            timestamp: 5,
        })
        .collect();
    encode_batch(&records).expect("small")
}

async fn read_all(log: &dyn GroupLog, shard: Shard, epoch: i32, from: i64, to: i64) -> Vec<LoadedRecord> {
    let (mut records, mut at) = (Vec::new(), Offset(from));
    while at < Offset(to) {
        let page = log.read(shard, CoordinatorEpoch(epoch), at, Offset(to)).await.expect("readable");
        assert!(page.next > at, "a page moves on");
        at = page.next;
        for batches in &page.batches {
            records.extend(decode_batches(batches, 1 << 20).expect("whole"));
        }
    }
    records
}

fn keys(records: &[LoadedRecord]) -> Vec<(i64, &[u8])> {
    records.iter().map(|record| (record.offset, record.key.as_deref().expect("keyed"))).collect()
}

async fn what_is_appended_is_read(log: &dyn GroupLog, shard: Shard) {
    let epoch = CoordinatorEpoch(1);
    let claim = log.claim(shard, epoch).await.expect("claimed");
    assert_eq!((claim.base_offset, claim.end), (Offset(0), Offset(1)));
    let first = log.append(shard, epoch, claim.end, batch(&["a", "gone"])).await.expect("appended");
    assert_eq!((first.base_offset, first.end), (Offset(1), Offset(3)));
    log.append(shard, epoch, first.end, batch(&["b"])).await.expect("appended");
    let records = read_all(log, shard, 1, 0, 4).await;
    assert_eq!(keys(&records), [(1, &b"a"[..]), (2, &b"gone"[..]), (3, &b"b"[..])], "without the claim");
    assert_eq!(records[1].value, None, "a tombstone stays one");
    assert_eq!(keys(&read_all(log, shard, 1, 3, 4).await), [(3, &b"b"[..])]);
}

async fn older_epochs_are_fenced(log: &dyn GroupLog, shard: Shard) {
    let (old, new) = (CoordinatorEpoch(3), CoordinatorEpoch(4));
    let end = log.claim(shard, old).await.expect("claimed").end;
    let claim = log.claim(shard, new).await.expect("claimed");
    assert_eq!(claim.base_offset, end);
    let fenced = ShardLogError::Fenced { current: new };
    assert_eq!(log.append(shard, old, claim.end, batch(&["a"])).await, Err(fenced.clone()));
    assert_eq!(log.claim(shard, old).await, Err(fenced.clone()));
    assert_eq!(log.read(shard, old, Offset(0), claim.end).await, Err(fenced));
    assert_eq!(log.claim(shard, new).await.expect("the same epoch may claim again").base_offset, claim.end);
}

async fn nothing_is_appended_at_another_end(log: &dyn GroupLog, shard: Shard) {
    let epoch = CoordinatorEpoch(1);
    let end = log.claim(shard, epoch).await.expect("claimed").end;
    let unexpected = ShardLogError::UnexpectedEnd { end };
    assert_eq!(log.append(shard, epoch, Offset(end.0 + 1), batch(&["a"])).await, Err(unexpected.clone()));
    assert_eq!(log.append(shard, epoch, Offset(0), batch(&["a"])).await, Err(unexpected));
    assert_eq!(keys(&read_all(log, shard, 1, 0, end.0).await), []);
}

async fn an_empty_log_reads_as_empty(log: &dyn GroupLog, shard: Shard) {
    let page = log.read(shard, CoordinatorEpoch(1), Offset(0), Offset(0)).await.expect("readable");
    assert_eq!((page.batches.len(), page.next), (0, Offset(0)));
}
