//! What a batch must be before a leader looks at it: everything that the opaque bytes cannot be trusted with.
//!
//! The header and the checksum are always checked. The records are looked into only where the topic makes it necessary
//! (compacted topics need keys; timestamps that the header shows to be out of bounds, or that it cannot bound), and then
//! with a cap on what a compressed batch may grow to. Nothing here touches a disk or a clock.

use records::{BatchError, BatchHeader, BatchView, Compression, NO_TIMESTAMP, Record, TimestampType};

use super::settings::TopicSettings;

/// The first version of Produce that may carry zstd.
const ZSTD_PRODUCE_VERSION_MIN: i16 = 7;
/// Bytes of the smallest record.
const RECORD_BYTES_MIN: i64 = 7;
/// Refused records that an answer names; the rest is only counted.
const RECORD_ERRORS_MAX: usize = 100;

/// Why a batch is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidBatch {
    /// The bytes are damaged.
    #[error("the record batch is damaged: {0}")]
    Corrupt(BatchError),
    /// Not exactly one batch of format 2, or its fields contradict each other.
    #[error("{0}")]
    Malformed(String),
    /// A codec that this version of Produce must not use.
    #[error("Produce requests with version {version} are not allowed to use ZStandard compression")]
    Compression { version: i16 },
    /// Larger than `max.message.bytes`, or than the cap when decompressed.
    #[error(
        "The record batch size in the append is {size} bytes, which exceeds the maximum configured value of {max}"
    )]
    TooLarge { size: usize, max: usize },
    /// Larger than a segment.
    #[error("the record batch of {size} bytes is larger than a segment of {segment_bytes} bytes")]
    LargerThanSegment { size: usize, segment_bytes: usize },
    /// Transactions are not served.
    #[error("transactions are not available in this version of Weir; produce without a transactional id")]
    Transactional,
    /// Records without a key, or records that contradict the batch.
    #[error("One or more records have been rejected: {}", .0.first().map_or("", |error| error.message.as_str()))]
    Records(Vec<RecordError>),
    /// Records with timestamps that the topic does not allow, and nothing else wrong.
    #[error("One or more records have been rejected due to invalid timestamp")]
    Timestamps(Vec<RecordError>),
}

/// What is wrong with one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordError {
    /// The record's position in its batch.
    pub(crate) index: i32,
    /// For people.
    pub(crate) message: String,
}

/// Whether checking the batch may take long enough to be done on a thread for it: it has to be decompressed.
pub(crate) fn needs_unpacking(settings: &TopicSettings, bytes: &[u8], now_ms: i64) -> bool {
    let Ok(header) = BatchHeader::parse(bytes) else { return false };
    header.compression() != Ok(Compression::None) && must_look_into(settings, &header, now_ms)
}

/// Checks the bytes that a client sent for one partition of a topic. `now_ms` is the wall clock.
pub(crate) fn validate(
    settings: &TopicSettings,
    produce_version: i16,
    bytes: &[u8],
    now_ms: i64,
) -> Result<BatchHeader, InvalidBatch> {
    let batch = single_batch(produce_version, bytes)?;
    let header = *batch.header();
    check_compression(produce_version, &header)?;
    let size = header.size();
    if size > settings.batch_bytes_max {
        return Err(InvalidBatch::TooLarge { size, max: settings.batch_bytes_max });
    }
    if size > settings.segment_bytes {
        return Err(InvalidBatch::LargerThanSegment { size, segment_bytes: settings.segment_bytes });
    }
    batch.check_crc().map_err(InvalidBatch::Corrupt)?;
    check_header(&header)?;
    check_room(&batch)?;
    if must_look_into(settings, &header, now_ms) {
        check_records(settings, &batch, now_ms)?;
    }
    Ok(header)
}

/// Exactly one whole batch of format 2.
fn single_batch(version: i16, bytes: &[u8]) -> Result<BatchView<'_>, InvalidBatch> {
    let malformed =
        |what: &str| InvalidBatch::Malformed(format!("Produce requests with version {version} {what}"));
    match BatchView::parse(bytes) {
        Ok(batch) if batch.bytes().len() == bytes.len() => Ok(batch),
        // Bytes behind the batch: its own length may be what is damaged.
        Ok(batch) => {
            batch.check_crc().map_err(InvalidBatch::Corrupt)?;
            Err(malformed("are only allowed to contain exactly one record batch per partition"))
        }
        Err(BatchError::UnsupportedMagic(_)) => {
            Err(malformed("are only allowed to contain record batches with magic version 2"))
        }
        Err(BatchError::Truncated { .. }) => {
            Err(malformed("must have exactly one record batch per partition"))
        }
        Err(error) => Err(InvalidBatch::Corrupt(error)),
    }
}

fn check_compression(version: i16, header: &BatchHeader) -> Result<(), InvalidBatch> {
    match header.compression() {
        Ok(Compression::Zstd) if version < ZSTD_PRODUCE_VERSION_MIN => {
            Err(InvalidBatch::Compression { version })
        }
        Ok(_) => Ok(()),
        Err(error) => Err(InvalidBatch::Corrupt(error)),
    }
}

/// The fields against each other, and what clients must not claim.
fn check_header(header: &BatchHeader) -> Result<(), InvalidBatch> {
    let malformed = |message: String| Err(InvalidBatch::Malformed(message));
    if header.base_offset != 0 {
        return malformed(format!(
            "The baseOffset of the record batch in the append should be 0, but it is {}",
            header.base_offset
        ));
    }
    if header.record_count <= 0 || header.last_offset_delta < 0 {
        return malformed(format!("Invalid reported count for record batch: {}", header.record_count));
    }
    if i64::from(header.last_offset_delta) + 1 != i64::from(header.record_count) {
        return malformed(format!(
            "Inconsistent batch offset range [0, {}] and count of records {}",
            header.last_offset_delta, header.record_count
        ));
    }
    if header.is_control() {
        return malformed("Clients are not allowed to write control records".to_owned());
    }
    if header.is_transactional() {
        return Err(InvalidBatch::Transactional);
    }
    if header.delete_horizon().is_some() {
        return malformed("Clients are not allowed to set a delete horizon".to_owned());
    }
    if header.has_producer_id() && (header.base_sequence < 0 || header.producer_epoch < 0) {
        return malformed(format!(
            "Invalid sequence number {} or epoch {} in record batch with producerId {}",
            header.base_sequence, header.producer_epoch, header.producer_id
        ));
    }
    Ok(())
}

/// The bytes can hold as many records as the header says. A batch that claims more would stop every reader of the
/// partition, and with the offsets that it takes fill a segment by itself. Of compressed ones only a walk could tell
/// exactly; here they get the benefit of their codec's best ratio.
fn check_room(batch: &BatchView<'_>) -> Result<(), InvalidBatch> {
    let header = batch.header();
    let least = i64::from(header.record_count) * RECORD_BYTES_MIN;
    let ratio_max = header.compression().map_err(InvalidBatch::Corrupt)?.ratio_max();
    if least > (batch.body().len() as i64).saturating_mul(ratio_max) {
        return Err(InvalidBatch::Corrupt(BatchError::InvalidRecordCount(header.record_count)));
    }
    Ok(())
}

/// Whether the header alone cannot tell that the records are allowed.
fn must_look_into(settings: &TopicSettings, header: &BatchHeader, now_ms: i64) -> bool {
    if settings.compacted || header.timestamp_type() == TimestampType::LogAppendTime {
        return true;
    }
    if settings.timestamp_type == TimestampType::LogAppendTime {
        return false;
    }
    let too_new = exceeds(header.max_timestamp, now_ms, settings.timestamp_after_ms_max)
        || exceeds(header.base_timestamp, now_ms, settings.timestamp_after_ms_max);
    too_new || settings.timestamp_before_ms_max < now_ms
}

fn exceeds(timestamp: i64, now_ms: i64, max: i64) -> bool {
    timestamp != NO_TIMESTAMP && timestamp.saturating_sub(now_ms) > max
}

/// Looks at every record.
fn check_records(settings: &TopicSettings, batch: &BatchView<'_>, now_ms: i64) -> Result<(), InvalidBatch> {
    let records = batch.records(settings.unpacked_batch_bytes_max).map_err(|error| match error {
        BatchError::OutputTooLarge { cap } => InvalidBatch::TooLarge { size: cap + 1, max: cap },
        other => InvalidBatch::Corrupt(other),
    })?;
    let mut refused = Refused::default();
    for (index, record) in records.iter().enumerate() {
        let record = record.map_err(InvalidBatch::Corrupt)?;
        check_record(settings, batch.header(), index as i32, &record, now_ms, &mut refused);
    }
    refused.into_result()
}

/// The records that are refused so far.
#[derive(Default)]
struct Refused {
    errors: Vec<RecordError>,
    beyond_timestamps: bool,
}

impl Refused {
    fn add(&mut self, index: i32, is_timestamp: bool, message: String) {
        self.beyond_timestamps |= !is_timestamp;
        if self.errors.len() < RECORD_ERRORS_MAX {
            self.errors.push(RecordError { index, message });
        }
    }

    fn into_result(self) -> Result<(), InvalidBatch> {
        if self.errors.is_empty() {
            return Ok(());
        }
        match self.beyond_timestamps {
            true => Err(InvalidBatch::Records(self.errors)),
            false => Err(InvalidBatch::Timestamps(self.errors)),
        }
    }
}

fn check_record(
    settings: &TopicSettings,
    header: &BatchHeader,
    index: i32,
    record: &Record<'_>,
    now_ms: i64,
    refused: &mut Refused,
) {
    if record.offset != i64::from(index) {
        refused.add(
            index,
            false,
            format!("Record at position {index} has offset {} instead of {index}", record.offset),
        );
        return;
    }
    if settings.compacted && record.key.is_none() {
        let topic = &settings.topic_name;
        refused.add(
            index,
            false,
            format!("Compacted topic cannot accept message without key in topic {topic}."),
        );
        return;
    }
    if header.timestamp_type() == TimestampType::LogAppendTime {
        let message = format!(
            "Invalid timestamp type in message {index}. Producer should not set timestamp type to LogAppendTime."
        );
        refused.add(index, true, message);
        return;
    }
    if settings.timestamp_type == TimestampType::LogAppendTime || record.timestamp == NO_TIMESTAMP {
        return;
    }
    let too_old = now_ms.saturating_sub(record.timestamp) > settings.timestamp_before_ms_max;
    if too_old || exceeds(record.timestamp, now_ms, settings.timestamp_after_ms_max) {
        let earliest = now_ms.saturating_sub(settings.timestamp_before_ms_max);
        let latest = now_ms.saturating_add(settings.timestamp_after_ms_max);
        let message = format!(
            "Timestamp {} of message with offset {index} is out of range. \
             The timestamp should be within [{earliest}, {latest}]",
            record.timestamp
        );
        refused.add(index, true, message);
    }
}

#[cfg(test)]
#[path = "validation_tests.rs"]
mod tests;
