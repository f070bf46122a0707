//! Transaction markers: the control records that end a transaction (KIP-98).
//!
//! A marker is the one record of a control batch that carries the producer's id and epoch. Its key names the outcome, its
//! value the epoch of the coordinator that wrote it. Control records of other types are no markers and are passed over.

use crate::{BatchBuilder, BatchView, BuildError, NO_SEQUENCE};

/// Version of key and value that is written; later ones may only add fields behind those that are read.
const VERSION: i16 = 0;
const ABORT: i16 = 0;
const COMMIT: i16 = 1;
/// Bytes that the records of a control batch may unpack to.
const CONTROL_BYTES_MAX: usize = 4096;

/// What a transaction marker says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndMarker {
    /// Commit, else abort.
    pub is_commit: bool,
    /// Epoch of the transaction coordinator.
    pub coordinator_epoch: i32,
}

impl EndMarker {
    /// The batch of a marker for a producer's transaction; offset and leader epoch are the leader's to set. `now_ms` is
    /// broker time.
    pub fn encode(&self, producer_id: i64, producer_epoch: i16, now_ms: i64) -> Result<Vec<u8>, BuildError> {
        let kind = if self.is_commit { COMMIT } else { ABORT };
        let key = [VERSION.to_be_bytes(), kind.to_be_bytes()].concat();
        let value = [&VERSION.to_be_bytes()[..], &self.coordinator_epoch.to_be_bytes()[..]].concat();
        let builder = BatchBuilder::new().producer(producer_id, producer_epoch, NO_SEQUENCE);
        let mut builder = builder.transactional().control();
        builder.push(now_ms, Some(&key), Some(&value), &[])?;
        Ok(builder.build())
    }

    /// Reads the marker of a batch; `None` if it is not one, or compaction has emptied it.
    pub fn decode(batch: &BatchView<'_>) -> Option<EndMarker> {
        let header = batch.header();
        if !header.is_control() || !header.has_producer_id() {
            return None;
        }
        let records = batch.records(CONTROL_BYTES_MAX).ok()?;
        let record = records.iter().next()?.ok()?;
        let (key, value) = (record.key?, record.value?);
        let is_commit = match i16::from_be_bytes(key.get(2..4)?.try_into().ok()?) {
            ABORT => false,
            COMMIT => true,
            _ => return None,
        };
        let coordinator_epoch = i32::from_be_bytes(value.get(2..6)?.try_into().ok()?);
        Some(EndMarker { is_commit, coordinator_epoch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_kafkas_bytes_and_reads_back() {
        let marker = EndMarker { is_commit: true, coordinator_epoch: 0x0102_0304 };
        let bytes = marker.encode(9, 3, 1_000).unwrap();
        let batch = BatchView::parse(&bytes).unwrap();
        let header = batch.header();
        assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence), (9, 3, -1));
        assert!(header.is_control() && header.is_transactional() && batch.check_crc().is_ok());
        assert_eq!(EndMarker::decode(&batch), Some(marker));
        // Length, attributes, deltas; key of version 0 and type 1; value of version 0 and the epoch; no headers.
        let record = [32, 0, 0, 0, 8, 0, 0, 0, 1, 12, 0, 0, 1, 2, 3, 4, 0];
        assert_eq!(batch.body(), record);
        let aborted = EndMarker { is_commit: false, ..marker }.encode(9, 3, 1_000).unwrap();
        let aborted = EndMarker::decode(&BatchView::parse(&aborted).unwrap());
        assert_eq!(aborted, Some(EndMarker { is_commit: false, ..marker }));
    }

    #[test]
    fn other_batches_are_no_markers() {
        let decode = |bytes: &[u8]| EndMarker::decode(&BatchView::parse(bytes).unwrap());
        let with = |builder: BatchBuilder, key: &[u8], value: &[u8]| {
            let mut builder = builder;
            builder.push(0, Some(key), Some(value), &[]).unwrap();
            decode(&builder.build())
        };
        let control = || BatchBuilder::new().producer(1, 0, -1).transactional().control();
        let (key, value) = ([0, 0, 0, 1], [0, 0, 0, 0, 0, 7]);
        assert!(with(control(), &key, &value).is_some());
        assert_eq!(with(BatchBuilder::new().producer(1, 0, 0).transactional(), &key, &value), None);
        assert_eq!(with(BatchBuilder::new().control(), &key, &value), None, "no producer");
        assert_eq!(with(control(), &[0, 0, 0, 2], &value), None, "another type");
        assert_eq!(with(control(), &key[..3], &value), None);
        assert_eq!(with(control(), &key, &value[..5]), None);
        assert_eq!(decode(&control().build()), None, "emptied");
    }
}
