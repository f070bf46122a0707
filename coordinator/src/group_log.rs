//! The log of a shard as its coordinator sees it: claim it, read it, append to it.
//!
//! Two implementations share one suite (`suite`): [`remote`], a partition of an internal topic on the storage node that
//! leads it, and `memory`, for tests. Bytes of the log are batches in Kafka's format; this file turns records into them
//! and back.

pub(crate) mod remote;

#[cfg(test)]
pub(crate) mod memory;
#[cfg(test)]
mod suite;

use bytes::Bytes;
use coordinator_core::{LoadedRecord, StoredRecord};
use proto_types::coordinator_api::{Shard, ShardAppended, ShardLogError};
use proto_types::ids::{CoordinatorEpoch, Offset};
use quic_transport::BoxFuture;
use records::{BatchBuilder, batches};

/// Committed batches of a log, from the asked offset on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    /// Whole batches, in order; the first may begin below the asked offset.
    pub(crate) batches: Vec<Bytes>,
    /// First offset that was not read.
    pub(crate) next: Offset,
}

/// The logs of shards. All answers speak of what the high watermark covers.
pub(crate) trait GroupLog: Send + Sync + 'static {
    /// Appends the claim of `epoch`, after which appends of older epochs are refused.
    fn claim(
        &self,
        shard: Shard,
        epoch: CoordinatorEpoch,
    ) -> BoxFuture<'_, Result<ShardAppended, ShardLogError>>;

    /// Appends whole batches at `expected_end`, or nothing.
    fn append(
        &self,
        shard: Shard,
        epoch: CoordinatorEpoch,
        expected_end: Offset,
        batches: Vec<u8>,
    ) -> BoxFuture<'_, Result<ShardAppended, ShardLogError>>;

    /// Reads from `from` (or the log's start, if that is later) towards `to`, at least one batch if there is one.
    fn read(
        &self,
        shard: Shard,
        epoch: CoordinatorEpoch,
        from: Offset,
        to: Offset,
    ) -> BoxFuture<'_, Result<Page, ShardLogError>>;
}

/// One batch of all records.
pub(crate) fn encode_batch(records: &[StoredRecord]) -> Result<Vec<u8>, String> {
    let mut builder = BatchBuilder::new();
    for record in records {
        builder
            .push(record.timestamp, Some(&record.key), record.value.as_deref(), &[])
            .map_err(|error| error.to_string())?;
    }
    Ok(builder.build())
}

/// The records of batches, without control records. `output_max` bounds what one batch may be decompressed to.
pub(crate) fn decode_batches(bytes: &Bytes, output_max: usize) -> Result<Vec<LoadedRecord>, String> {
    let mut loaded = Vec::new();
    for batch in batches(bytes) {
        let batch = batch.map_err(|error| error.to_string())?;
        batch.check_crc().map_err(|error| error.to_string())?;
        if batch.header().is_control() {
            continue;
        }
        let records = batch.records(output_max).map_err(|error| error.to_string())?;
        for record in records.iter() {
            let record = record.map_err(|error| error.to_string())?;
            loaded.push(LoadedRecord {
                offset: record.offset,
                key: record.key.map(Bytes::copy_from_slice),
                value: record.value.map(Bytes::copy_from_slice),
            });
        }
    }
    Ok(loaded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coordinator_core::{Append, Config, Decision, Epoch, ShardLog};
    use std::sync::Arc;

    /// What a shard counts is what a storage node measures, or more.
    #[test]
    fn the_batch_of_an_append_is_as_small_as_its_limit() {
        let config = Arc::new(Config::default());
        let max = config.append_bytes_max;
        let record = |number: u32, value: Option<usize>| StoredRecord {
            group: "g".into(),
            key: Bytes::from(number.to_be_bytes().repeat(10)),
            value: value.map(|size| Bytes::from(vec![0; size])),
            timestamp: i64::from(number) << 30,
        };
        for value in [None, Some(0), Some(42), Some(300)] {
            let mut log = ShardLog::new(Arc::clone(&config), Epoch(1), 0);
            let records: Vec<_> = (0..21_000).map(|number| record(number, value)).collect();
            let _ = log.push(Decision { records, completions: vec![] });
            let mut appended = 0;
            while let Some(Append { expected_end, records, .. }) = log.next_append(0) {
                let batch = encode_batch(&records).expect("fits");
                assert!(batch.len() <= max, "{} records of {value:?}: {} bytes", records.len(), batch.len());
                appended += records.len();
                let _ = log.appended(0, expected_end, coordinator_core::AppendOutcome::Committed);
            }
            assert_eq!(appended, 21_000);
        }
    }
}
