//! Zig-zag variable-length integers as records use them. Strict: at most 5 (32 bit) or 10 (64 bit) bytes, and
//! no bits beyond the width of the type.

/// Takes bytes off the front of a slice; every read is checked against what is left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(crate) fn left(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(first)
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        Some(head)
    }

    pub(crate) fn varint(&mut self) -> Option<i32> {
        let raw = self.unsigned(5, 32)?;
        let raw = u32::try_from(raw).ok()?;
        Some(((raw >> 1) as i32) ^ -((raw & 1) as i32))
    }

    pub(crate) fn varlong(&mut self) -> Option<i64> {
        let raw = self.unsigned(10, 64)?;
        Some(((raw >> 1) as i64) ^ -((raw & 1) as i64))
    }

    /// A length-prefixed byte string: −1 is null, anything below is an error (the outer `None`).
    #[expect(clippy::option_option, reason = "outer: the bytes are damaged; inner: the value is null")]
    pub(crate) fn nullable_bytes(&mut self) -> Option<Option<&'a [u8]>> {
        match self.varint()? {
            -1 => Some(None),
            len => self.take(usize::try_from(len).ok()?).map(Some),
        }
    }

    fn unsigned(&mut self, bytes_max: u32, bits: u32) -> Option<u64> {
        let mut value = 0u64;
        for index in 0..bytes_max {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            let shift = index * 7;
            if index + 1 == bytes_max && part >> (bits - shift) != 0 {
                return None;
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

pub(crate) fn put_varint(out: &mut Vec<u8>, value: i32) {
    put_unsigned(out, u64::from(((value << 1) ^ (value >> 31)) as u32));
}

pub(crate) fn put_varlong(out: &mut Vec<u8>, value: i64) {
    put_unsigned(out, ((value << 1) ^ (value >> 63)) as u64);
}

fn put_unsigned(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_round_trip() {
        for value in [0, 1, -1, 63, 64, -64, -65, i32::MAX, i32::MIN] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(Cursor::new(&out).varint(), Some(value));
            out.clear();
            put_varlong(&mut out, i64::from(value));
            assert_eq!(Cursor::new(&out).varlong(), Some(i64::from(value)));
        }
        for value in [i64::MAX, i64::MIN, 1 << 40] {
            let mut out = Vec::new();
            put_varlong(&mut out, value);
            assert_eq!(Cursor::new(&out).varlong(), Some(value));
        }
    }

    #[test]
    fn overlong_and_overflowing_are_refused() {
        assert_eq!(Cursor::new(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]).varint(), None);
        assert_eq!(Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0x1f]).varint(), None);
        assert_eq!(Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0x0f]).varint(), Some(i32::MIN));
        assert_eq!(Cursor::new(&[0x80]).varint(), None);
        assert_eq!(Cursor::new(&[0xff; 10]).varlong(), None);
    }
}
