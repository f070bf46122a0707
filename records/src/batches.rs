//! Walking a buffer of whole batches, one after another, as a Produce request, a Fetch response or a segment
//! holds them.

use crate::record::Records;
use crate::{BatchError, BatchHeader, crc};

/// The batches in `bytes`, front to back. Ends after the last whole batch; bytes that are no batch, or only part
/// of one, give one error and then the end. Checksums are not checked here: see [`BatchView::check_crc`].
pub fn batches(bytes: &[u8]) -> Batches<'_> {
    Batches { rest: bytes }
}

/// Iterator of [`batches`].
#[derive(Debug, Clone)]
pub struct Batches<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<BatchView<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let view = BatchView::parse(self.rest);
        self.rest = match &view {
            Ok(view) => &self.rest[view.bytes.len()..],
            Err(_) => &[],
        };
        Some(view)
    }
}

/// One whole batch inside a larger buffer: its parsed header and exactly its bytes.
#[derive(Debug, Clone, Copy)]
pub struct BatchView<'a> {
    header: BatchHeader,
    bytes: &'a [u8],
}

impl<'a> BatchView<'a> {
    /// The batch at the start of `bytes`, which may hold more.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BatchError> {
        let header = BatchHeader::parse(bytes)?;
        match bytes.get(..header.size()) {
            Some(bytes) => Ok(Self { header, bytes }),
            None => Err(BatchError::Truncated { needed: header.size(), available: bytes.len() }),
        }
    }

    /// The parsed header.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// All bytes of the batch, header included.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes after the header: the records, compressed as the header says.
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[BatchHeader::LEN..]
    }

    /// Checks the checksum.
    pub fn check_crc(&self) -> Result<(), BatchError> {
        let computed = crc::compute_crc(self.bytes);
        if computed != self.header.crc {
            return Err(BatchError::CrcMismatch { stored: self.header.crc, computed });
        }
        Ok(())
    }

    /// Unpacks the records. An uncompressed batch is borrowed; a compressed one is decompressed into at most
    /// `output_cap` bytes.
    pub fn records(&self, output_cap: usize) -> Result<Records<'a>, BatchError> {
        Records::unpack(self.header, self.body(), output_cap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BatchBuilder;

    fn batch(value: &[u8]) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        builder.push(5, None, Some(value), &[]).unwrap();
        builder.build()
    }

    #[test]
    fn walks_whole_batches_and_reports_the_torn_one() {
        let mut bytes = batch(b"one");
        let first = bytes.len();
        bytes.extend(batch(b"two"));
        bytes.extend(&batch(b"three")[..70]);
        let seen: Vec<_> = batches(&bytes).map(|view| view.map(|view| view.bytes().len())).collect();
        assert_eq!(seen[..2], [Ok(first), Ok(first)]);
        assert!(matches!(seen[2], Err(BatchError::Truncated { available: 70, .. })));
        assert_eq!(seen.len(), 3);
    }

    #[test]
    fn a_flipped_bit_is_found() {
        let mut bytes = batch(b"value");
        BatchView::parse(&bytes).unwrap().check_crc().unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        let error = BatchView::parse(&bytes).unwrap().check_crc().unwrap_err();
        assert!(matches!(error, BatchError::CrcMismatch { .. }));
    }
}
