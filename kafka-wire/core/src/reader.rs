//! [`Reader`]: primitives out of a frame, every length checked against the bytes left.
//!
//! Memory is bounded twice. An array may announce at most as many elements as its smallest encoding lets fit in the bytes
//! left, and all arrays of one frame together may take [`ALLOCATION_PER_BYTE`] times the frame plus [`ALLOCATION_FLOOR`]
//! (structs in memory are larger than their smallest encoding). Strings, bytes and records are slices of the frame; only
//! text that is not UTF-8 is copied, out of the same budget.

use bytes::Bytes;
use uuid::Uuid;

use crate::error::{DecodeError, DecodeErrorKind};
use crate::text::Str;

/// Bytes of memory that arrays may take for each byte of the frame.
pub const ALLOCATION_PER_BYTE: usize = 16;
/// Bytes of memory that arrays of a small frame may always take.
pub const ALLOCATION_FLOOR: usize = 64 * 1024;
/// Longest string in either form, bytes.
const STRING_BYTES_MAX: usize = 32_767;
/// Memory that a byte of text may take while it is replaced: three bytes for U+FFFD, in a buffer that grows by doubling.
const REPLACED_TEXT_PER_BYTE: usize = 8;

/// A cursor over one frame.
#[derive(Clone, Debug)]
pub struct Reader {
    bytes: Bytes,
    at: usize,
    /// Nothing at or behind this position may be read; inside a tagged field, the end of its value.
    end: usize,
    /// Bytes of memory that may still be taken.
    budget: usize,
}

impl Reader {
    /// Reads `bytes` from their start.
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        let end = bytes.len();
        let budget = end.saturating_mul(ALLOCATION_PER_BYTE).saturating_add(ALLOCATION_FLOOR);
        Reader { bytes, at: 0, end, budget }
    }

    /// Bytes not yet read.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.end - self.at
    }

    /// All bytes not yet read, without a copy; they stay unread.
    #[must_use]
    pub fn rest(&self) -> Bytes {
        self.bytes.slice(self.at..self.end)
    }

    /// Ends the message: anything left over is an error.
    pub fn finish(self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            left => Err(DecodeErrorKind::Trailing(left).into()),
        }
    }

    fn advance(&mut self, needed: usize) -> Result<usize, DecodeError> {
        let left = self.remaining();
        if needed > left {
            return Err(DecodeErrorKind::Truncated { needed, left }.into());
        }
        let from = self.at;
        self.at += needed;
        Ok(from)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let from = self.advance(N)?;
        let mut out = [0; N];
        out.copy_from_slice(&self.bytes[from..from + N]);
        Ok(out)
    }

    /// `length` bytes, without a copy.
    pub fn slice(&mut self, length: usize) -> Result<Bytes, DecodeError> {
        let from = self.advance(length)?;
        Ok(self.bytes.slice(from..from + length))
    }

    /// Boolean: any byte but 0 is true.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.array::<1>()?[0] != 0)
    }

    /// One signed byte.
    pub fn i8(&mut self) -> Result<i8, DecodeError> {
        Ok(i8::from_be_bytes(self.array()?))
    }

    /// Two bytes, big endian.
    pub fn i16(&mut self) -> Result<i16, DecodeError> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    /// Two bytes, big endian, without sign.
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    /// Four bytes, big endian.
    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// Four bytes, big endian, without sign.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// Eight bytes, big endian.
    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// Eight bytes, IEEE 754, big endian.
    pub fn f64(&mut self) -> Result<f64, DecodeError> {
        Ok(f64::from_be_bytes(self.array()?))
    }

    /// Sixteen bytes.
    pub fn uuid(&mut self) -> Result<Uuid, DecodeError> {
        Ok(Uuid::from_bytes(self.array()?))
    }

    /// Unsigned varint: seven bits a byte, low ones first, at most five bytes and 32 bits. Padding with zero bits is
    /// accepted as Kafka accepts it.
    pub fn uvarint(&mut self) -> Result<u32, DecodeError> {
        let mut value = 0u32;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.array::<1>()?[0];
            let bits = u32::from(byte & 0x7f);
            if shift == 28 && byte > 0x0f {
                return Err(DecodeErrorKind::Varint.into());
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeErrorKind::Varint.into())
    }

    /// A string or null: its length in two bytes, or as a varint of length + 1, then its bytes. What is not UTF-8 is
    /// replaced by U+FFFD, as Kafka does: a client with names in another encoding is answered as there. Longer ones than the two
    /// bytes can say are refused in either form, as there.
    pub(crate) fn string(&mut self, flexible: bool) -> Result<Option<Str>, DecodeError> {
        let length = if flexible { self.compact_length()? } else { signed_length(i64::from(self.i16()?))? };
        let Some(length) = length else { return Ok(None) };
        if length > STRING_BYTES_MAX {
            return Err(DecodeErrorKind::Length(i64::try_from(length).unwrap_or(i64::MAX)).into());
        }
        let bytes = self.slice(length)?;
        match Str::from_utf8(bytes.clone()) {
            Some(text) => Ok(Some(text)),
            None => {
                self.claim_memory(length.saturating_mul(REPLACED_TEXT_PER_BYTE))?;
                Ok(Some(Str::from_utf8_lossy(bytes)))
            }
        }
    }

    /// Length of bytes, records or an array: four bytes, or a varint of length + 1; `None` is null.
    pub(crate) fn long_length(&mut self, flexible: bool) -> Result<Option<usize>, DecodeError> {
        if flexible {
            return self.compact_length();
        }
        let length = self.i32()?;
        signed_length(i64::from(length))
    }

    fn compact_length(&mut self) -> Result<Option<usize>, DecodeError> {
        // u32 fits in usize on every platform that the log store supports.
        Ok(self.uvarint()?.checked_sub(1).map(|length| length as usize))
    }

    /// Asks for room for `count` elements of at least `min_size` encoded bytes, each `memory` bytes in memory.
    pub(crate) fn claim_elements(
        &mut self,
        count: usize,
        min_size: usize,
        memory: usize,
    ) -> Result<(), DecodeError> {
        let needed = count.saturating_mul(min_size.max(1));
        let left = self.remaining();
        if needed > left {
            return Err(DecodeErrorKind::Truncated { needed, left }.into());
        }
        self.claim_memory(count.saturating_mul(memory))
    }

    fn claim_memory(&mut self, memory: usize) -> Result<(), DecodeError> {
        match self.budget.checked_sub(memory) {
            Some(budget) => self.budget = budget,
            None => return Err(DecodeErrorKind::TooMuchMemory.into()),
        }
        Ok(())
    }

    /// Reads a section of tagged fields. `field` gets each tag with a reader that ends where the value ends, and says
    /// whether it knows the tag; the values of unknown tags are skipped.
    pub fn tagged_fields(
        &mut self,
        mut field: impl FnMut(u32, &mut Reader) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        // Each turn consumes at least two bytes, so the count needs no bound of its own.
        for _ in 0..self.uvarint()? {
            let tag = self.uvarint()?;
            let size = self.uvarint()? as usize;
            let left = self.remaining();
            if size > left {
                return Err(DecodeErrorKind::Truncated { needed: size, left }.into());
            }
            let outer = std::mem::replace(&mut self.end, self.at + size);
            if field(tag, self)? {
                match self.remaining() {
                    0 => {}
                    left => return Err(DecodeErrorKind::TaggedFieldSize(left).into()),
                }
            }
            self.at = self.end;
            self.end = outer;
        }
        Ok(())
    }
}

fn signed_length(length: i64) -> Result<Option<usize>, DecodeError> {
    match length {
        -1 => Ok(None),
        length => usize::try_from(length).map(Some).map_err(|_| DecodeErrorKind::Length(length).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uvarint(bytes: &'static [u8]) -> Result<u32, DecodeErrorKind> {
        Reader::new(Bytes::from_static(bytes)).uvarint().map_err(|e| e.kind)
    }

    #[test]
    fn varints_fit_in_32_bits_or_are_refused() {
        assert_eq!(uvarint(&[0x00]), Ok(0));
        assert_eq!(uvarint(&[0xac, 0x02]), Ok(300));
        assert_eq!(uvarint(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Ok(u32::MAX));
        assert_eq!(uvarint(&[0x80, 0x00]), Ok(0));
        let too_big = Err(DecodeErrorKind::Varint);
        assert_eq!(uvarint(&[0xff, 0xff, 0xff, 0xff, 0x1f]), too_big);
        assert_eq!(uvarint(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]), too_big);
        assert!(matches!(uvarint(&[0x80]), Err(DecodeErrorKind::Truncated { needed: 1, left: 0 })));
    }

    #[test]
    fn no_form_carries_a_string_above_32_767_bytes() {
        let compact = |length: usize| {
            let mut bytes = vec![];
            // The length and one more, as a varint of three bytes.
            let announced = length + 1;
            bytes.extend(
                [announced & 0x7f | 0x80, announced >> 7 & 0x7f | 0x80, announced >> 14].map(|b| b as u8),
            );
            bytes.extend(vec![b'x'; length]);
            Reader::new(Bytes::from(bytes)).string(true).map_err(|error| error.kind)
        };
        assert_eq!(compact(32_767).map(|text| text.map(|text| text.len())), Ok(Some(32_767)));
        assert_eq!(compact(32_768), Err(DecodeErrorKind::Length(32_768)));
    }

    #[test]
    fn a_tagged_field_ends_where_it_says() {
        // One field, tag 0, two bytes; then a byte that belongs to somebody else.
        let bytes = Bytes::from_static(&[1, 0, 2, 0, 7, 9]);
        let mut seen = None;
        let mut reader = Reader::new(bytes.clone());
        let read = reader.tagged_fields(|tag, r| {
            seen = Some((tag, r.i16()?));
            Ok(true)
        });
        assert_eq!((read, seen), (Ok(()), Some((0, 7))));
        assert_eq!(reader.remaining(), 1);

        let shorter = Reader::new(bytes.clone()).tagged_fields(|_, r| r.i8().map(|_| true));
        assert_eq!(shorter, Err(DecodeErrorKind::TaggedFieldSize(1).into()));
        let longer = Reader::new(bytes).tagged_fields(|_, r| r.i32().map(|_| true));
        assert_eq!(longer, Err(DecodeErrorKind::Truncated { needed: 4, left: 2 }.into()));
    }

    #[test]
    fn elements_are_bounded_by_bytes_and_by_memory() {
        let mut reader = Reader::new(Bytes::from(vec![0; 100_000]));
        assert!(reader.claim_elements(50_001, 2, 1).is_err());
        assert_eq!(reader.claim_elements(50_000, 2, 48), Err(DecodeErrorKind::TooMuchMemory.into()));
        assert!(reader.claim_elements(50_000, 2, 32).is_ok());
        assert!(reader.claim_elements(50_000, 2, 32).is_err());
    }
}
