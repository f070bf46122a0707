//! The checksum of a batch: CRC-32C over everything from the attributes to the end.

use crc_fast::CrcAlgorithm;

use crate::header::{ATTRIBUTES_AT, CRC_AT};
use crate::{BatchError, BatchHeader};

/// Checks the checksum of the batch at the start of `bytes`, which must be whole.
pub fn check_crc(bytes: &[u8]) -> Result<(), BatchError> {
    let header = BatchHeader::parse(bytes)?;
    let Some(batch) = bytes.get(..header.size()) else {
        return Err(BatchError::Truncated { needed: header.size(), available: bytes.len() });
    };
    let computed = compute_crc(batch);
    if computed != header.crc {
        return Err(BatchError::CrcMismatch { stored: header.crc, computed });
    }
    Ok(())
}

/// The checksum that belongs into `batch`, which is exactly one batch. Shorter input counts as empty.
pub fn compute_crc(batch: &[u8]) -> u32 {
    let covered = batch.get(ATTRIBUTES_AT..).unwrap_or_default();
    // The algorithm yields 32 bits in a u64.
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, covered) as u32
}

/// Stores the checksum of `batch` in it.
pub(crate) fn seal(batch: &mut [u8]) {
    let crc = compute_crc(batch);
    batch[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
}
