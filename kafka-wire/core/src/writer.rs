//! [`Writer`]: primitives into a gather list.
//!
//! Small values are collected in buffers of the writer; record data and other long bytes become parts of their own, so
//! that neither is copied and a file region can go out by `sendfile`.

use bytes::{BufMut, Bytes, BytesMut};
use uuid::Uuid;

use crate::error::{EncodeError, EncodeErrorKind};
use crate::record_data::{Part, Records, Region};

/// Bytes up to this length are copied into the writer's buffer: one more entry in a gather list costs more.
pub const COPY_UP_TO: usize = 512;

/// First size of a buffer; most messages fit. Each further one is twice as large, up to [`LAST_BUFFER`].
const FIRST_BUFFER: usize = 256;
/// Largest size of a buffer, unless what is already in it is larger.
const LAST_BUFFER: usize = 64 * 1024;

/// Bytes of the length in front of a frame.
const FRAME_LENGTH: usize = 4;

/// What is written, in order; buffers stay open until the end so that a frame's length can be patched.
#[derive(Debug)]
enum Piece {
    Own(BytesMut),
    Shared(Part),
}

/// Collects one message.
#[derive(Debug)]
pub struct Writer {
    pieces: Vec<Piece>,
    buffer: BytesMut,
    /// Room to ask for when the buffer is full.
    next_buffer: usize,
    /// Bytes in `pieces`.
    flushed: usize,
}

/// A finished message as a gather list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gathered {
    /// The parts in order; none is empty.
    pub parts: Vec<Part>,
    /// Bytes of all parts together.
    pub len: usize,
}

impl Gathered {
    /// All bytes in one piece, copied unless there is only one part; `None` if a region is among them.
    #[must_use]
    pub fn into_bytes(self) -> Option<Bytes> {
        if self.parts.len() <= 1 {
            return match self.parts.into_iter().next() {
                None => Some(Bytes::new()),
                Some(Part::Bytes(bytes)) => Some(bytes),
                Some(Part::Region(_)) => None,
            };
        }
        let mut out = BytesMut::with_capacity(self.len);
        for part in &self.parts {
            match part {
                Part::Bytes(bytes) => out.extend_from_slice(bytes),
                Part::Region(_) => return None,
            }
        }
        Some(out.freeze())
    }
}

impl Default for Writer {
    fn default() -> Self {
        Writer { pieces: Vec::new(), buffer: BytesMut::new(), next_buffer: FIRST_BUFFER, flushed: 0 }
    }
}

impl Writer {
    /// An empty message.
    #[must_use]
    pub fn new() -> Self {
        Writer::default()
    }

    /// A message with its length in front, four bytes; end it with [`Writer::finish_frame`].
    #[must_use]
    pub fn frame() -> Self {
        let mut writer = Writer::default();
        writer.put(&[0; FRAME_LENGTH]);
        writer
    }

    /// Bytes written so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.flushed + self.buffer.len()
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends a message begun with [`Writer::new`].
    #[must_use]
    pub fn finish(mut self) -> Gathered {
        self.flush();
        let parts = self
            .pieces
            .into_iter()
            .map(|piece| match piece {
                Piece::Own(buffer) => Part::Bytes(buffer.freeze()),
                Piece::Shared(part) => part,
            })
            .collect();
        Gathered { parts, len: self.flushed }
    }

    /// Ends a message begun with [`Writer::frame`]: fills in its length. An error if it is longer than a frame can be.
    pub fn finish_frame(mut self) -> Result<Gathered, EncodeError> {
        self.flush();
        let length = self.flushed - FRAME_LENGTH;
        let length = i32::try_from(length).map_err(|_| EncodeErrorKind::TooLong(length))?;
        match self.pieces.first_mut() {
            Some(Piece::Own(buffer)) => {
                buffer[..FRAME_LENGTH].copy_from_slice(&length.to_be_bytes());
            }
            Some(Piece::Shared(_)) | None => unreachable!("a frame begins with its length"),
        }
        Ok(self.finish())
    }

    fn flush(&mut self) {
        if !self.buffer.is_empty() {
            self.flushed += self.buffer.len();
            self.pieces.push(Piece::Own(self.buffer.split()));
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        if self.buffer.capacity() - self.buffer.len() < bytes.len() {
            self.buffer.reserve(bytes.len().max(self.next_buffer));
            self.next_buffer = (self.next_buffer * 2).min(LAST_BUFFER);
        }
        self.buffer.put_slice(bytes);
    }

    fn share(&mut self, part: Part) {
        if part.is_empty() {
            return;
        }
        self.flush();
        self.flushed += part.len();
        self.pieces.push(Piece::Shared(part));
    }

    /// Copies bytes in.
    pub fn copy(&mut self, bytes: &[u8]) {
        self.put(bytes);
    }

    /// Adds bytes, shared when they are longer than [`COPY_UP_TO`].
    pub fn bytes(&mut self, bytes: &Bytes) {
        if bytes.len() <= COPY_UP_TO {
            self.put(bytes);
        } else {
            self.share(Part::Bytes(bytes.clone()));
        }
    }

    /// Adds a region of a file.
    pub fn region(&mut self, region: &Region) {
        self.share(Part::Region(region.clone()));
    }

    /// Adds record data.
    pub fn records(&mut self, records: &Records) {
        match records {
            Records::Bytes(bytes) => self.bytes(bytes),
            Records::Region(region) => self.region(region),
            Records::Gather(parts) => {
                for part in parts {
                    match part {
                        Part::Bytes(bytes) => self.bytes(bytes),
                        Part::Region(region) => self.region(region),
                    }
                }
            }
        }
    }

    /// Boolean, one byte.
    pub fn bool(&mut self, value: bool) {
        self.put(&[u8::from(value)]);
    }

    /// One signed byte.
    pub fn i8(&mut self, value: i8) {
        self.put(&value.to_be_bytes());
    }

    /// Two bytes, big endian.
    pub fn i16(&mut self, value: i16) {
        self.put(&value.to_be_bytes());
    }

    /// Two bytes, big endian, without sign.
    pub fn u16(&mut self, value: u16) {
        self.put(&value.to_be_bytes());
    }

    /// Four bytes, big endian.
    pub fn i32(&mut self, value: i32) {
        self.put(&value.to_be_bytes());
    }

    /// Four bytes, big endian, without sign.
    pub fn u32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }

    /// Eight bytes, big endian.
    pub fn i64(&mut self, value: i64) {
        self.put(&value.to_be_bytes());
    }

    /// Eight bytes, IEEE 754, big endian.
    pub fn f64(&mut self, value: f64) {
        self.put(&value.to_be_bytes());
    }

    /// Sixteen bytes.
    pub fn uuid(&mut self, value: Uuid) {
        self.put(value.as_bytes());
    }

    /// Unsigned varint in its shortest form.
    pub fn uvarint(&mut self, value: u32) {
        let (mut bytes, mut length, mut rest) = ([0; 5], 0, value);
        loop {
            let low = (rest & 0x7f) as u8;
            rest >>= 7;
            bytes[length] = if rest == 0 { low } else { low | 0x80 };
            length += 1;
            if rest == 0 {
                break;
            }
        }
        self.put(&bytes[..length]);
    }

    /// Length of a string: two bytes, or a varint of length + 1; `None` is null.
    pub(crate) fn string_length(&mut self, length: Option<usize>, flexible: bool) -> Result<(), EncodeError> {
        let bound =
            i16::try_from(length.unwrap_or(0)).map_err(|_| EncodeErrorKind::TooLong(length.unwrap_or(0)))?;
        match (flexible, length) {
            (true, None) => self.uvarint(0),
            (true, Some(_)) => self.uvarint(u32::from(bound.unsigned_abs()) + 1),
            (false, None) => self.i16(-1),
            (false, Some(_)) => self.i16(bound),
        }
        Ok(())
    }

    /// Length of bytes, records or an array: four bytes, or a varint of length + 1; `None` is null.
    pub(crate) fn long_length(&mut self, length: Option<usize>, flexible: bool) -> Result<(), EncodeError> {
        let bound =
            i32::try_from(length.unwrap_or(0)).map_err(|_| EncodeErrorKind::TooLong(length.unwrap_or(0)))?;
        match (flexible, length) {
            (true, None) => self.uvarint(0),
            (true, Some(_)) => self.uvarint(bound.unsigned_abs() + 1),
            (false, None) => self.i32(-1),
            (false, Some(_)) => self.i32(bound),
        }
        Ok(())
    }

    /// A section of tagged fields without any.
    pub fn empty_tagged_fields(&mut self) {
        self.uvarint(0);
    }

    /// Appends what another writer collected.
    fn append(&mut self, other: Writer) {
        for part in other.finish().parts {
            match part {
                Part::Bytes(bytes) => self.bytes(&bytes),
                Part::Region(_) => self.share(part),
            }
        }
    }
}

/// Collects the tagged fields of one struct; they must come in ascending order of their tags.
#[derive(Debug, Default)]
pub struct TaggedFields {
    fields: Vec<(u32, Writer)>,
}

impl TaggedFields {
    /// Adds a field; `value` writes what stands behind its size.
    pub fn field(
        &mut self,
        tag: u32,
        value: impl FnOnce(&mut Writer) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        debug_assert!(self.fields.last().is_none_or(|(last, _)| *last < tag));
        let mut writer = Writer::new();
        value(&mut writer)?;
        if u32::try_from(writer.len()).is_err() {
            return Err(EncodeErrorKind::TooLong(writer.len()).into());
        }
        self.fields.push((tag, writer));
        Ok(())
    }

    /// Writes the section: count, then tag, size and value of each.
    pub fn write(self, w: &mut Writer) {
        w.uvarint(count(self.fields.len()));
        for (tag, value) in self.fields {
            w.uvarint(tag);
            w.uvarint(count(value.len()));
            w.append(value);
        }
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).expect("sizes are checked as fields are added, and structs have few fields")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn record_data_is_shared_not_copied() {
        let data = Bytes::from(vec![7; 10_000]);
        let region = Region { source: Arc::new(()), offset: 4096, len: 1_000_000 };
        let mut writer = Writer::frame();
        writer.i32(1);
        writer.records(&Records::Gather(vec![Part::Bytes(data.clone()), Part::Region(region.clone())]));
        writer.i32(2);
        let frame = writer.finish_frame().unwrap();
        let length = 4 + 10_000 + 1_000_000 + 4;
        assert_eq!(frame.len, 4 + length);
        let mut head = i32::try_from(length).unwrap().to_be_bytes().to_vec();
        head.extend_from_slice(&[0, 0, 0, 1]);
        assert_eq!(frame.parts[0], Part::Bytes(head.into()));
        let Part::Bytes(sent) = &frame.parts[1] else { panic!("bytes were turned into a region") };
        assert_eq!(sent.as_ptr(), data.as_ptr());
        assert_eq!(frame.parts[2], Part::Region(region));
        assert_eq!(frame.parts[3], Part::Bytes(Bytes::from_static(&[0, 0, 0, 2])));
        assert_eq!(frame.into_bytes(), None);
    }

    #[test]
    fn varints_take_their_shortest_form() {
        for (value, bytes) in [
            (0, &[0x00][..]),
            (127, &[0x7f]),
            (128, &[0x80, 0x01]),
            (300, &[0xac, 0x02]),
            (u32::MAX, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ] {
            let mut writer = Writer::new();
            writer.uvarint(value);
            assert_eq!(writer.finish().into_bytes().as_deref(), Some(bytes));
        }
    }

    #[test]
    fn lengths_beyond_their_field_are_errors() {
        let mut writer = Writer::new();
        assert!(writer.string_length(Some(32_767), true).is_ok());
        assert!(writer.string_length(Some(32_768), true).is_err());
        assert!(writer.long_length(Some(1 << 31), false).is_err());
    }
}
