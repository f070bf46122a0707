//! The 61 fixed bytes in front of every version 2 batch.
//!
//! ```text
//!  0 base offset i64 │ 8 length i32 │ 12 leader epoch i32 │ 16 magic i8 │ 17 crc u32 ┐ outside of the CRC
//! 21 attributes i16 │ 23 last offset delta i32 │ 27 base timestamp i64 │ 35 max timestamp i64
//! 43 producer id i64 │ 51 producer epoch i16 │ 53 base sequence i32 │ 57 record count i32 │ 61 records …
//! ```

use std::fmt;

use crate::BatchError;

/// The magic byte of the only batch version that Weir stores.
pub const MAGIC_V2: i8 = 2;
/// Producer id of a batch that no idempotent producer wrote.
pub const NO_PRODUCER_ID: i64 = -1;
/// Producer epoch of such a batch.
pub const NO_PRODUCER_EPOCH: i16 = -1;
/// Base sequence of such a batch.
pub const NO_SEQUENCE: i32 = -1;
/// Timestamp of an empty batch and of records without one.
pub const NO_TIMESTAMP: i64 = -1;

pub(crate) const LENGTH_AT: usize = 8;
pub(crate) const LEADER_EPOCH_AT: usize = 12;
pub(crate) const MAGIC_AT: usize = 16;
pub(crate) const CRC_AT: usize = 17;
pub(crate) const ATTRIBUTES_AT: usize = 21;
pub(crate) const MAX_TIMESTAMP_AT: usize = 35;
/// Bytes in front of what the length field counts: base offset and the length itself.
pub(crate) const LENGTH_OVERHEAD: usize = 12;

const COMPRESSION_BITS: i16 = 0x07;
pub(crate) const LOG_APPEND_TIME_BIT: i16 = 0x08;
pub(crate) const TRANSACTIONAL_BIT: i16 = 0x10;
pub(crate) const CONTROL_BIT: i16 = 0x20;
pub(crate) const DELETE_HORIZON_BIT: i16 = 0x40;

/// How the records of a batch are compressed. The numbers are Kafka's and stand on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Compression {
    #[default]
    None = 0,
    Gzip = 1,
    Snappy = 2,
    Lz4 = 3,
    Zstd = 4,
}

impl Compression {
    /// All codecs, in the order of their numbers.
    pub const ALL: [Compression; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The codec with Kafka's name for it (`none`, `gzip`, `snappy`, `lz4`, `zstd`).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.name() == name)
    }

    /// Kafka's name, as in `compression.type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

impl Compression {
    /// Bytes that come out of one compressed byte at the very most, by the codec's format.
    pub fn ratio_max(self) -> i64 {
        match self {
            Self::None => 1,
            // A match of 258 bytes takes two bits.
            Self::Gzip => 1032,
            // A copy of 64 bytes takes three.
            Self::Snappy => 22,
            // Each byte of a match's length adds 255.
            Self::Lz4 => 255,
            // A block of 128 KiB of one byte takes four.
            Self::Zstd => 32 << 10,
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Who set the timestamps of a batch: the producer, or the leader that appended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TimestampType {
    #[default]
    CreateTime,
    LogAppendTime,
}

/// The fixed part of a batch, field by field, as it stands in the bytes (big-endian there).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record; the leader assigns it.
    pub base_offset: i64,
    /// Bytes that follow the length field; [`BatchHeader::size`] is the size of the whole batch.
    pub length: i32,
    /// Epoch of the leader that appended the batch; −1 until then.
    pub partition_leader_epoch: i32,
    /// Version of the format: always [`MAGIC_V2`] in a parsed header.
    pub magic: i8,
    /// CRC-32C of everything from the attributes to the end of the batch.
    pub crc: u32,
    /// Compression, timestamp type, transactional, control, delete horizon; see the methods.
    pub attributes: i16,
    /// Offset of the last record minus the base offset. Survives compaction, unlike the record count.
    pub last_offset_delta: i32,
    /// Milliseconds; record timestamps are deltas to it. With a delete horizon it holds that instead.
    pub base_timestamp: i64,
    /// Milliseconds; the largest record timestamp, or the append time.
    pub max_timestamp: i64,
    /// Id of the idempotent producer, or [`NO_PRODUCER_ID`].
    pub producer_id: i64,
    /// Its epoch, or [`NO_PRODUCER_EPOCH`].
    pub producer_epoch: i16,
    /// Sequence number of the first record, or [`NO_SEQUENCE`].
    pub base_sequence: i32,
    /// Number of records in the batch.
    pub record_count: i32,
}

impl BatchHeader {
    /// Bytes of the fixed part.
    pub const LEN: usize = 61;
    /// The smallest value of the length field: a batch without records.
    pub const LENGTH_MIN: i32 = (Self::LEN - LENGTH_OVERHEAD) as i32;

    /// Reads the header at the start of `bytes`. The rest of the batch need not be there.
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        if bytes.len() > MAGIC_AT && bytes[MAGIC_AT] as i8 != MAGIC_V2 {
            return Err(BatchError::UnsupportedMagic(bytes[MAGIC_AT] as i8));
        }
        if bytes.len() < Self::LEN {
            return Err(BatchError::Truncated { needed: Self::LEN, available: bytes.len() });
        }
        let header = Self {
            base_offset: i64::from_be_bytes(array_at(bytes, 0)),
            length: i32::from_be_bytes(array_at(bytes, LENGTH_AT)),
            partition_leader_epoch: i32::from_be_bytes(array_at(bytes, LEADER_EPOCH_AT)),
            magic: MAGIC_V2,
            crc: u32::from_be_bytes(array_at(bytes, CRC_AT)),
            attributes: i16::from_be_bytes(array_at(bytes, ATTRIBUTES_AT)),
            last_offset_delta: i32::from_be_bytes(array_at(bytes, 23)),
            base_timestamp: i64::from_be_bytes(array_at(bytes, 27)),
            max_timestamp: i64::from_be_bytes(array_at(bytes, MAX_TIMESTAMP_AT)),
            producer_id: i64::from_be_bytes(array_at(bytes, 43)),
            producer_epoch: i16::from_be_bytes(array_at(bytes, 51)),
            base_sequence: i32::from_be_bytes(array_at(bytes, 53)),
            record_count: i32::from_be_bytes(array_at(bytes, 57)),
        };
        if header.length < Self::LENGTH_MIN {
            return Err(BatchError::InvalidLength(header.length));
        }
        Ok(header)
    }

    /// Writes the header in front of the records; `parse` reads back the same.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0..8].copy_from_slice(&self.base_offset.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.length.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.partition_leader_epoch.to_be_bytes());
        bytes[MAGIC_AT] = self.magic as u8;
        bytes[17..21].copy_from_slice(&self.crc.to_be_bytes());
        bytes[21..23].copy_from_slice(&self.attributes.to_be_bytes());
        bytes[23..27].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        bytes[27..35].copy_from_slice(&self.base_timestamp.to_be_bytes());
        bytes[35..43].copy_from_slice(&self.max_timestamp.to_be_bytes());
        bytes[43..51].copy_from_slice(&self.producer_id.to_be_bytes());
        bytes[51..53].copy_from_slice(&self.producer_epoch.to_be_bytes());
        bytes[53..57].copy_from_slice(&self.base_sequence.to_be_bytes());
        bytes[57..61].copy_from_slice(&self.record_count.to_be_bytes());
        bytes
    }

    /// Bytes of the whole batch, header included.
    pub fn size(&self) -> usize {
        // `parse` refuses lengths below LENGTH_MIN; a hand-made header with one counts as empty.
        usize::try_from(self.length).unwrap_or(0) + LENGTH_OVERHEAD
    }

    /// Offset of the last record. Wraps for hostile headers, so check those before relying on it.
    pub fn last_offset(&self) -> i64 {
        self.base_offset.wrapping_add(i64::from(self.last_offset_delta))
    }

    /// Sequence of the last record (sequences wrap to 0 after `i32::MAX`), or [`NO_SEQUENCE`].
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence == NO_SEQUENCE {
            return NO_SEQUENCE;
        }
        let last = i64::from(self.base_sequence) + i64::from(self.last_offset_delta);
        (last & i64::from(i32::MAX)) as i32
    }

    /// The codec of the records.
    pub fn compression(&self) -> Result<Compression, BatchError> {
        match self.attributes & COMPRESSION_BITS {
            0 => Ok(Compression::None),
            1 => Ok(Compression::Gzip),
            2 => Ok(Compression::Snappy),
            3 => Ok(Compression::Lz4),
            4 => Ok(Compression::Zstd),
            other => Err(BatchError::UnknownCompression(other as u8)),
        }
    }

    /// Who set the timestamps.
    pub fn timestamp_type(&self) -> TimestampType {
        if self.attributes & LOG_APPEND_TIME_BIT != 0 {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        }
    }

    /// The largest timestamp of its records. A batch without any, left by compaction, still says in `max_timestamp` when its
    /// producer wrote it, but no lookup must find that.
    pub fn newest_timestamp(&self) -> i64 {
        if self.record_count > 0 { self.max_timestamp } else { NO_TIMESTAMP }
    }

    /// Part of a transaction.
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL_BIT != 0
    }

    /// Holds control records (transaction markers and the like), which consumers skip.
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL_BIT != 0
    }

    /// Written by an idempotent producer.
    pub fn has_producer_id(&self) -> bool {
        self.producer_id > NO_PRODUCER_ID
    }

    /// When the tombstones of the batch may go, in milliseconds; set by compaction only (KIP-534).
    pub fn delete_horizon(&self) -> Option<i64> {
        (self.attributes & DELETE_HORIZON_BIT != 0).then_some(self.base_timestamp)
    }
}

/// The magic byte of the batch or old message set at the start of `bytes`; it stands at the same place in all
/// versions of the format.
pub fn peek_magic(bytes: &[u8]) -> Option<i8> {
    bytes.get(MAGIC_AT).map(|&byte| byte as i8)
}

/// The size in bytes of the batch (or old message) at the start of `bytes`, by its length field, which stands
/// at the same place in all versions. `None` if the field is not there or negative.
pub fn peek_size(bytes: &[u8]) -> Option<usize> {
    let length = i32::from_be_bytes(bytes.get(LENGTH_AT..LENGTH_AT + 4)?.try_into().ok()?);
    Some(usize::try_from(length).ok()? + LENGTH_OVERHEAD)
}

/// Callers have checked that the bytes are there.
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_refuses_short_old_and_negative() {
        assert_eq!(BatchHeader::parse(&[]), Err(BatchError::Truncated { needed: 61, available: 0 }));
        let mut bytes = [0u8; 61];
        bytes[MAGIC_AT] = 1;
        assert_eq!(BatchHeader::parse(&bytes), Err(BatchError::UnsupportedMagic(1)));
        bytes[MAGIC_AT] = 2;
        assert_eq!(BatchHeader::parse(&bytes), Err(BatchError::InvalidLength(0)));
        bytes[8..12].copy_from_slice(&(-1i32).to_be_bytes());
        assert_eq!(BatchHeader::parse(&bytes), Err(BatchError::InvalidLength(-1)));
    }

    /// T-74.
    #[test]
    fn sequences_wrap_at_i32_max() {
        let mut bytes = [0u8; 61];
        bytes[MAGIC_AT] = 2;
        bytes[8..12].copy_from_slice(&49i32.to_be_bytes());
        let mut header = BatchHeader::parse(&bytes).unwrap();
        header.base_sequence = i32::MAX - 1;
        header.last_offset_delta = 1;
        assert_eq!(header.last_sequence(), i32::MAX);
        header.last_offset_delta = 2;
        assert_eq!(header.last_sequence(), 0);
        header.base_sequence = NO_SEQUENCE;
        assert_eq!(header.last_sequence(), NO_SEQUENCE);
    }

    #[test]
    fn encode_is_the_inverse_of_parse() {
        let mut bytes: [u8; 61] = std::array::from_fn(|i| i as u8);
        bytes[MAGIC_AT] = 2;
        assert_eq!(BatchHeader::parse(&bytes).unwrap().encode(), bytes);
    }
}
