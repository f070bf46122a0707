//! [`Wire`]: how each Rust type looks on the wire. The derive puts structs together out of these.
//!
//! | Rust | Kafka |
//! |---|---|
//! | `bool` `i8` `i16` `u16` `i32` `u32` `i64` `f64` `Uuid` [`ErrorCode`] | the fixed-width type of that size |
//! | [`Str`], `Bytes`, [`Records`], `Vec<T>` | string, bytes, records, array; compact in flexible versions |
//! | `Option` of these | the nullable form |
//! | `Option` of a struct | a byte (1, or -1 for null), then the struct |

use bytes::Bytes;
use uuid::Uuid;

use crate::error::{DecodeError, DecodeErrorKind, EncodeError};
use crate::error_code::ErrorCode;
use crate::reader::Reader;
use crate::record_data::Records;
use crate::text::Str;
use crate::writer::Writer;

/// A version of a message, with what all its parts need to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireVersion {
    /// The number that the header states.
    pub number: i16,
    /// Compact lengths, and tagged fields at the end of every struct.
    pub flexible: bool,
}

/// A type with a form on the wire.
pub trait Wire: Sized {
    /// Bytes that a value takes at least; bounds the length of arrays.
    fn min_size(v: WireVersion) -> usize;
    /// Reads a value.
    fn decode_wire(r: &mut Reader, v: WireVersion) -> Result<Self, DecodeError>;
    /// Writes a value.
    fn encode_wire(&self, w: &mut Writer, v: WireVersion) -> Result<(), EncodeError>;
}

/// A type that can be null on the wire.
pub trait NullableWire: Sized {
    /// Bytes that a value or null takes at least.
    fn min_nullable_size(v: WireVersion) -> usize;
    /// Reads a value or null.
    fn decode_nullable(r: &mut Reader, v: WireVersion) -> Result<Option<Self>, DecodeError>;
    /// Writes a value or null.
    fn encode_nullable(value: Option<&Self>, w: &mut Writer, v: WireVersion) -> Result<(), EncodeError>;
}

macro_rules! fixed {
    ($($ty:ty, $name:ident;)*) => {$(
        impl Wire for $ty {
            fn min_size(_: WireVersion) -> usize {
                size_of::<$ty>()
            }
            fn decode_wire(r: &mut Reader, _: WireVersion) -> Result<Self, DecodeError> {
                r.$name()
            }
            fn encode_wire(&self, w: &mut Writer, _: WireVersion) -> Result<(), EncodeError> {
                w.$name(*self);
                Ok(())
            }
        }
    )*};
}

fixed! {
    bool, bool;
    i8, i8;
    i16, i16;
    u16, u16;
    i32, i32;
    u32, u32;
    i64, i64;
    f64, f64;
    Uuid, uuid;
}

impl Wire for ErrorCode {
    fn min_size(_: WireVersion) -> usize {
        2
    }

    fn decode_wire(r: &mut Reader, _: WireVersion) -> Result<Self, DecodeError> {
        r.i16().map(ErrorCode::from_code)
    }

    fn encode_wire(&self, w: &mut Writer, _: WireVersion) -> Result<(), EncodeError> {
        w.i16(self.code());
        Ok(())
    }
}

/// The types whose plain form is their nullable form without the null.
macro_rules! null_refused {
    ($($ty:ty $(, $bound:ident)?;)*) => {$(
        impl$(<$bound: Wire>)? Wire for $ty {
            fn min_size(v: WireVersion) -> usize {
                Self::min_nullable_size(v)
            }
            fn decode_wire(r: &mut Reader, v: WireVersion) -> Result<Self, DecodeError> {
                Self::decode_nullable(r, v)?.ok_or_else(|| DecodeErrorKind::Null.into())
            }
            fn encode_wire(&self, w: &mut Writer, v: WireVersion) -> Result<(), EncodeError> {
                Self::encode_nullable(Some(self), w, v)
            }
        }
    )*};
}

null_refused! {
    Str;
    Bytes;
    Records;
    Vec<T>, T;
}

impl NullableWire for Str {
    fn min_nullable_size(v: WireVersion) -> usize {
        if v.flexible { 1 } else { 2 }
    }

    fn decode_nullable(r: &mut Reader, v: WireVersion) -> Result<Option<Self>, DecodeError> {
        r.string(v.flexible)
    }

    fn encode_nullable(value: Option<&Self>, w: &mut Writer, v: WireVersion) -> Result<(), EncodeError> {
        w.string_length(value.map(|text| text.as_bytes().len()), v.flexible)?;
        if let Some(text) = value {
            w.bytes(text.as_bytes());
        }
        Ok(())
    }
}

impl NullableWire for Bytes {
    fn min_nullable_size(v: WireVersion) -> usize {
        if v.flexible { 1 } else { 4 }
    }

    fn decode_nullable(r: &mut Reader, v: WireVersion) -> Result<Option<Self>, DecodeError> {
        r.long_length(v.flexible)?.map(|length| r.slice(length)).transpose()
    }

    fn encode_nullable(value: Option<&Self>, w: &mut Writer, v: WireVersion) -> Result<(), EncodeError> {
        w.long_length(value.map(Bytes::len), v.flexible)?;
        if let Some(bytes) = value {
            w.bytes(bytes);
        }
        Ok(())
    }
}

impl NullableWire for Records {
    fn min_nullable_size(v: WireVersion) -> usize {
        Bytes::min_nullable_size(v)
    }

    fn decode_nullable(r: &mut Reader, v: WireVersion) -> Result<Option<Self>, DecodeError> {
        Ok(Bytes::decode_nullable(r, v)?.map(Records::Bytes))
    }

    fn encode_nullable(value: Option<&Self>, w: &mut Writer, v: WireVersion) -> Result<(), EncodeError> {
        w.long_length(value.map(Records::len), v.flexible)?;
        if let Some(records) = value {
            w.records(records);
        }
        Ok(())
    }
}

impl<T: Wire> NullableWire for Vec<T> {
    fn min_nullable_size(v: WireVersion) -> usize {
        if v.flexible { 1 } else { 4 }
    }

    fn decode_nullable(r: &mut Reader, v: WireVersion) -> Result<Option<Self>, DecodeError> {
        let Some(count) = r.long_length(v.flexible)? else {
            return Ok(None);
        };
        r.claim_elements(count, T::min_size(v), size_of::<T>())?;
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(T::decode_wire(r, v)?);
        }
        Ok(Some(elements))
    }

    fn encode_nullable(value: Option<&Self>, w: &mut Writer, v: WireVersion) -> Result<(), EncodeError> {
        w.long_length(value.map(Vec::len), v.flexible)?;
        value.into_iter().flatten().try_for_each(|element| element.encode_wire(w, v))
    }
}

/// Reads a struct or null.
pub fn decode_nullable_struct<T: Wire>(r: &mut Reader, v: WireVersion) -> Result<Option<T>, DecodeError> {
    if r.i8()? < 0 {
        return Ok(None);
    }
    T::decode_wire(r, v).map(Some)
}

/// Writes a struct or null.
pub fn encode_nullable_struct<T: Wire>(
    value: Option<&T>,
    w: &mut Writer,
    v: WireVersion,
) -> Result<(), EncodeError> {
    w.i8(if value.is_some() { 1 } else { -1 });
    value.map_or(Ok(()), |value| value.encode_wire(w, v))
}
