//! Makes batches: for the command line, for tests, and for the records that Weir itself writes.

use thiserror::Error;

use crate::header::{CONTROL_BIT, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT};
use crate::varint::{put_varint, put_varlong};
use crate::{
    BatchHeader, Compression, MAGIC_V2, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, codec,
    crc,
};

/// Why a record cannot join a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BuildError {
    /// The batch would be larger than its length field can say.
    #[error("the batch would be larger than 2 GiB")]
    TooLarge,
    /// The timestamp is too far from the first one of the batch.
    #[error("the timestamp is too far from the first one of the batch")]
    Timestamp,
}

/// Collects records and packs them into one batch. Offsets start at 0 unless told otherwise; the leader sets them.
#[derive(Debug, Clone)]
pub struct BatchBuilder {
    compression: Compression,
    header: BatchHeader,
    records: Vec<u8>,
    scratch: Vec<u8>,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl BatchBuilder {
    /// Uncompressed records sent by an ordinary producer.
    pub fn new() -> Self {
        let header = BatchHeader {
            base_offset: 0,
            length: BatchHeader::LENGTH_MIN,
            partition_leader_epoch: -1,
            magic: MAGIC_V2,
            crc: 0,
            attributes: 0,
            last_offset_delta: -1,
            base_timestamp: NO_TIMESTAMP,
            max_timestamp: NO_TIMESTAMP,
            producer_id: NO_PRODUCER_ID,
            producer_epoch: NO_PRODUCER_EPOCH,
            base_sequence: NO_SEQUENCE,
            record_count: 0,
        };
        Self { compression: Compression::None, header, records: Vec::new(), scratch: Vec::new() }
    }

    /// How the records are packed.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Offset of the first record.
    #[must_use]
    pub fn base_offset(mut self, offset: i64) -> Self {
        self.header.base_offset = offset;
        self
    }

    /// Epoch of the leader.
    #[must_use]
    pub fn leader_epoch(mut self, epoch: i32) -> Self {
        self.header.partition_leader_epoch = epoch;
        self
    }

    /// Makes it a batch of an idempotent producer.
    #[must_use]
    pub fn producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> Self {
        self.header.producer_id = id;
        self.header.producer_epoch = epoch;
        self.header.base_sequence = base_sequence;
        self
    }

    /// Makes it part of a transaction.
    #[must_use]
    pub fn transactional(mut self) -> Self {
        self.header.attributes |= TRANSACTIONAL_BIT;
        self
    }

    /// Makes it a control batch, which consumers skip.
    #[must_use]
    pub fn control(mut self) -> Self {
        self.header.attributes |= CONTROL_BIT;
        self
    }

    /// Claims that the broker stamped the records.
    #[must_use]
    pub fn log_append_time(mut self) -> Self {
        self.header.attributes |= LOG_APPEND_TIME_BIT;
        self
    }

    /// Adds a record at the next offset. `timestamp` is in milliseconds.
    pub fn push(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> Result<(), BuildError> {
        let first = self.header.record_count == 0;
        let base = if first { timestamp } else { self.header.base_timestamp };
        let timestamp_delta = timestamp.checked_sub(base).ok_or(BuildError::Timestamp)?;
        let offset_delta = self.header.last_offset_delta + 1;
        self.scratch.clear();
        self.scratch.push(0);
        put_varlong(&mut self.scratch, timestamp_delta);
        put_varint(&mut self.scratch, offset_delta);
        put_bytes(&mut self.scratch, key)?;
        put_bytes(&mut self.scratch, value)?;
        put_varint(&mut self.scratch, i32::try_from(headers.len()).map_err(|_| BuildError::TooLarge)?);
        for (key, value) in headers {
            put_bytes(&mut self.scratch, Some(key))?;
            put_bytes(&mut self.scratch, *value)?;
        }
        let length = i32::try_from(self.scratch.len()).map_err(|_| BuildError::TooLarge)?;
        // Room for the header and for what a codec may add to data that does not shrink.
        let size = self.records.len() + self.scratch.len() + self.scratch.len() / 64 + 1024;
        i32::try_from(size).map_err(|_| BuildError::TooLarge)?;
        put_varint(&mut self.records, length);
        self.records.extend_from_slice(&self.scratch);
        self.header.base_timestamp = base;
        self.header.max_timestamp = if first { timestamp } else { self.header.max_timestamp.max(timestamp) };
        self.header.last_offset_delta = offset_delta;
        self.header.record_count += 1;
        Ok(())
    }

    /// Number of records so far.
    pub fn len(&self) -> usize {
        self.header.record_count as usize
    }

    /// Whether no record was added yet.
    pub fn is_empty(&self) -> bool {
        self.header.record_count == 0
    }

    /// Bytes of the batch if it were not compressed.
    pub fn uncompressed_size(&self) -> usize {
        BatchHeader::LEN + self.records.len()
    }

    /// Packs the batch, with its length and checksum.
    pub fn build(&self) -> Vec<u8> {
        let mut header = self.header;
        header.attributes |= self.compression as i16;
        header.last_offset_delta = header.last_offset_delta.max(0);
        let mut batch = Vec::with_capacity(self.uncompressed_size());
        batch.resize(BatchHeader::LEN, 0);
        codec::compress(self.compression, &self.records, &mut batch);
        let length = batch.len() - (BatchHeader::LEN - BatchHeader::LENGTH_MIN as usize);
        header.length = i32::try_from(length).expect("push keeps the batch below 2 GiB");
        batch[..BatchHeader::LEN].copy_from_slice(&header.encode());
        crc::seal(&mut batch);
        batch
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) -> Result<(), BuildError> {
    let Some(bytes) = bytes else {
        put_varint(out, -1);
        return Ok(());
    };
    put_varint(out, i32::try_from(bytes.len()).map_err(|_| BuildError::TooLarge)?);
    out.extend_from_slice(bytes);
    Ok(())
}
