//! The records inside one batch: unpacked once, then walked without allocation.
//!
//! A record is `length, attributes, timestamp delta, offset delta, key, value, headers`, all lengths and deltas
//! as variable-length integers. The walk checks every length against the bytes left in the record itself, so a
//! lying length is an error of that record and nothing more.

use std::borrow::Cow;

use crate::codec;
use crate::varint::Cursor;
use crate::{BatchError, BatchHeader, TimestampType};

/// Bytes of the smallest possible record: seven fields of one byte each.
const RECORD_SIZE_MIN: usize = 7;
/// Bytes of the smallest possible header: an empty key and a null value.
const HEADER_SIZE_MIN: usize = 2;

/// The unpacked records of one batch.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    header: BatchHeader,
    count: usize,
    data: Cow<'a, [u8]>,
}

impl<'a> Records<'a> {
    pub(crate) fn unpack(header: BatchHeader, body: &'a [u8], output_cap: usize) -> Result<Self, BatchError> {
        let count = usize::try_from(header.record_count)
            .map_err(|_| BatchError::InvalidRecordCount(header.record_count))?;
        let data = codec::decompress(header.compression()?, body, output_cap)?;
        if count > data.len() / RECORD_SIZE_MIN {
            return Err(BatchError::InvalidRecordCount(header.record_count));
        }
        Ok(Self { header, count, data })
    }

    /// Number of records that the header announces; the walk yields as many or an error.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the batch has no records (compaction leaves such batches).
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Size of the records in bytes, decompressed.
    pub fn size(&self) -> usize {
        self.data.len()
    }

    /// The records as they lie, unpacked.
    pub(crate) fn data(&self) -> &[u8] {
        &self.data
    }

    /// Walks the records in order. After an error the walk ends.
    pub fn iter(&self) -> RecordIter<'_> {
        RecordIter { header: self.header, count: self.count, index: 0, rest: Cursor::new(&self.data) }
    }
}

/// Iterator over the records of a batch.
#[derive(Debug, Clone)]
pub struct RecordIter<'a> {
    header: BatchHeader,
    count: usize,
    index: usize,
    rest: Cursor<'a>,
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<Record<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.index == self.count {
            let left = std::mem::replace(&mut self.rest, Cursor::new(&[])).left();
            return (left > 0).then_some(Err(BatchError::TrailingBytes(left)));
        }
        match read_record(&self.header, &mut self.rest) {
            Ok(record) => {
                self.index += 1;
                Some(Ok(record))
            }
            Err(reason) => {
                let index = self.index;
                self.index = self.count;
                self.rest = Cursor::new(&[]);
                Some(Err(BatchError::InvalidRecord { index, reason }))
            }
        }
    }
}

/// One record, borrowed from its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Absolute offset.
    pub offset: i64,
    /// Milliseconds; the append time where the broker stamps.
    pub timestamp: i64,
    /// The key; null and empty are different things.
    pub key: Option<&'a [u8]>,
    /// The value; null is a tombstone on compacted topics.
    pub value: Option<&'a [u8]>,
    /// The headers, in order, duplicates kept.
    pub headers: Headers<'a>,
}

/// The headers of one record; checked when the record was read, so that walking cannot fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers<'a> {
    count: usize,
    bytes: &'a [u8],
}

/// One record header. Keys are text by convention but bytes by format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
}

impl<'a> Headers<'a> {
    /// Number of headers.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Walks the headers in order.
    pub fn iter(&self) -> impl Iterator<Item = Header<'a>> + use<'a> {
        let mut rest = Cursor::new(self.bytes);
        (0..self.count).map_while(move |_| read_header(&mut rest).ok())
    }
}

pub(crate) fn read_record<'a>(
    header: &BatchHeader,
    rest: &mut Cursor<'a>,
) -> Result<Record<'a>, &'static str> {
    let length = rest.varint().ok_or("its length is damaged")?;
    let length = usize::try_from(length).map_err(|_| "its length is negative")?;
    let mut body = Cursor::new(rest.take(length).ok_or("it is longer than its batch")?);
    body.byte().ok_or("its attributes are missing")?;
    let timestamp_delta = body.varlong().ok_or("its timestamp is damaged")?;
    let offset_delta = body.varint().ok_or("its offset is damaged")?;
    let key = body.nullable_bytes().ok_or("its key is longer than the record")?;
    let value = body.nullable_bytes().ok_or("its value is longer than the record")?;
    let headers = read_headers(&mut body)?;
    let timestamp = match header.timestamp_type() {
        TimestampType::LogAppendTime => header.max_timestamp,
        TimestampType::CreateTime => {
            header.base_timestamp.checked_add(timestamp_delta).ok_or("its timestamp overflows")?
        }
    };
    let offset = header.base_offset.checked_add(i64::from(offset_delta)).ok_or("its offset overflows")?;
    Ok(Record { offset, timestamp, key, value, headers })
}

/// Checks all headers once; what is left of the record afterwards must be nothing.
fn read_headers<'a>(body: &mut Cursor<'a>) -> Result<Headers<'a>, &'static str> {
    let count = body.varint().ok_or("its header count is damaged")?;
    let count = usize::try_from(count).map_err(|_| "its header count is negative")?;
    if count > body.left() / HEADER_SIZE_MIN {
        return Err("it announces more headers than it can hold");
    }
    let bytes = body.rest();
    for _ in 0..count {
        read_header(body)?;
    }
    if body.left() != 0 {
        return Err("bytes are left after its headers");
    }
    Ok(Headers { count, bytes })
}

fn read_header<'a>(rest: &mut Cursor<'a>) -> Result<Header<'a>, &'static str> {
    let key = rest.nullable_bytes().ok_or("a header key is longer than the record")?;
    let key = key.ok_or("a header key is null")?;
    let value = rest.nullable_bytes().ok_or("a header value is longer than the record")?;
    Ok(Header { key, value })
}
