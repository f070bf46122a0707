//! What can be wrong with the bytes of a batch.

use thiserror::Error;

use crate::Compression;

/// Why bytes are not a usable record batch. None of these is worth a retry with the same bytes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BatchError {
    /// The buffer ends before the batch does.
    #[error("batch needs {needed} bytes but only {available} are left")]
    Truncated { needed: usize, available: usize },
    /// The length field cannot belong to a version 2 batch.
    #[error("batch length field is {0}, which no version 2 batch can have")]
    InvalidLength(i32),
    /// Not a version 2 batch. Versions 0 and 1 are the message sets of clients before Kafka 0.11.
    #[error("batch has magic {0}; only version 2 is supported")]
    UnsupportedMagic(i8),
    /// The stored checksum is not the checksum of the bytes.
    #[error("batch has CRC {stored:08x} but its bytes have {computed:08x}")]
    CrcMismatch { stored: u32, computed: u32 },
    /// The compression bits of the attributes name no codec.
    #[error("compression type {0} is unknown")]
    UnknownCompression(u8),
    /// The record count is negative, or more records are announced than the bytes can hold.
    #[error("batch announces {0} records, which its bytes cannot hold")]
    InvalidRecordCount(i32),
    /// The compressed part cannot be decompressed.
    #[error("the {codec} data of the batch is damaged: {reason}")]
    Decompression { codec: Compression, reason: String },
    /// The decompressed records would be larger than the caller allows.
    #[error("the records of the batch are larger than {cap} bytes when decompressed")]
    OutputTooLarge { cap: usize },
    /// A record inside the batch breaks the format.
    #[error("record {index} of the batch is damaged: {reason}")]
    InvalidRecord { index: usize, reason: &'static str },
    /// Bytes are left after the last announced record.
    #[error("{0} bytes are left after the last record of the batch")]
    TrailingBytes(usize),
}
