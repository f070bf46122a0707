//! A record batch of version 2, as the documentation of the format describes it: header, checksum, records.

use super::crc32c;
use super::scan::Scan;

/// Bytes before the part that the length field counts.
const LENGTH_OVERHEAD: usize = 12;
/// Bytes before the part that the checksum covers: base offset, length, leader epoch, magic, checksum.
const CRC_FROM: usize = 21;
const HEADER: usize = 61;
const COMPRESSION: i16 = 0x07;
const CONTROL: i16 = 0x20;

/// A batch and where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    /// Index of its segment in the copy.
    pub(crate) segment: usize,
    /// Byte in the segment's file.
    pub(crate) position: usize,
    pub(crate) size: usize,
    pub(crate) base: i64,
    pub(crate) last: i64,
    pub(crate) epoch: i32,
    pub(crate) attributes: i16,
    pub(crate) max_timestamp: i64,
    pub(crate) producer: i64,
    pub(crate) producer_epoch: i16,
    pub(crate) first_sequence: i32,
    pub(crate) records: i32,
}

/// A record of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) offset: i64,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    /// The value of its first header.
    pub(crate) header: Option<&'a [u8]>,
}

impl Batch {
    /// Reads and checks the batch at `position`; the error says what is wrong.
    pub(crate) fn parse(bytes: &[u8], segment: usize, position: usize) -> Result<Batch, &'static str> {
        let rest = bytes.get(position..).unwrap_or_default();
        let mut scan = Scan::new(rest);
        let cut = "it is cut off";
        let base = scan.i64().ok_or(cut)?;
        let length = scan.i32().ok_or(cut)?;
        let epoch = scan.i32().ok_or(cut)?;
        if scan.u8().ok_or(cut)? != 2 {
            return Err("its magic byte is not 2");
        }
        let crc = scan.u32().ok_or(cut)?;
        let attributes = scan.i16().ok_or(cut)?;
        let last_offset_delta = scan.i32().ok_or(cut)?;
        let _base_timestamp = scan.i64().ok_or(cut)?;
        let max_timestamp = scan.i64().ok_or(cut)?;
        let producer = scan.i64().ok_or(cut)?;
        let producer_epoch = scan.i16().ok_or(cut)?;
        let first_sequence = scan.i32().ok_or(cut)?;
        let records = scan.i32().ok_or(cut)?;
        let size = usize::try_from(length).map_err(|_| "its length is negative")? + LENGTH_OVERHEAD;
        if size < HEADER || last_offset_delta < 0 || base < 0 {
            return Err("its header makes no sense");
        }
        let covered = rest.get(CRC_FROM..size).ok_or(cut)?;
        if crc32c(&[covered]) != crc {
            return Err("its checksum is wrong");
        }
        let last = base + i64::from(last_offset_delta);
        Ok(Batch {
            segment,
            position,
            size,
            base,
            last,
            epoch,
            attributes,
            max_timestamp,
            producer,
            producer_epoch,
            first_sequence,
            records,
        })
    }

    pub(crate) fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    pub(crate) fn is_compressed(&self) -> bool {
        self.attributes & COMPRESSION != 0
    }

    /// Calls `each` with every record of a batch without compression; false if they cannot be read.
    pub(crate) fn for_each_record<'a>(&self, bytes: &'a [u8], mut each: impl FnMut(Record<'a>)) -> bool {
        let records = bytes.get(self.position + HEADER..self.position + self.size).unwrap_or_default();
        let mut scan = Scan::new(records);
        (0..self.records).all(|_| self.record(&mut scan, &mut each).is_some())
    }

    fn record<'a>(&self, scan: &mut Scan<'a>, each: &mut impl FnMut(Record<'a>)) -> Option<()> {
        let length = usize::try_from(scan.varint()?).ok()?;
        let mut record = Scan::new(scan.take(length)?);
        let _attributes = record.u8()?;
        let _timestamp_delta = record.varint()?;
        let offset_delta = record.varint()?;
        let key = bytes_of(&mut record)?;
        let value = bytes_of(&mut record)?;
        let header = match record.varint()? {
            0 => None,
            _ => {
                let _name = bytes_of(&mut record)?;
                bytes_of(&mut record)?
            }
        };
        each(Record { offset: self.base + offset_delta, key, value, header });
        Some(())
    }
}

/// Bytes behind a varint length; the inner `None` is null.
fn bytes_of<'a>(scan: &mut Scan<'a>) -> Option<Option<&'a [u8]>> {
    match usize::try_from(scan.varint()?) {
        Ok(length) => scan.take(length).map(Some),
        Err(_) => Some(None),
    }
}
