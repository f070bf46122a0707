//! Why bytes are not a message, and why a message has no bytes.
//!
//! Both errors name the innermost struct and field, so that a log line says what a client sent wrong.

use thiserror::Error;

/// Bytes that are not the message they claim to be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}{separator}{field}: {kind}", separator = separator(self.message))]
pub struct DecodeError {
    /// What is wrong.
    pub kind: DecodeErrorKind,
    /// The innermost struct; empty outside of any.
    pub message: &'static str,
    /// Its field.
    pub field: &'static str,
}

/// What is wrong with received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeErrorKind {
    /// More bytes are announced than present.
    #[error("{needed} bytes needed, {left} left")]
    Truncated {
        /// Bytes that the value takes at least.
        needed: usize,
        /// Bytes present.
        left: usize,
    },
    /// A length below -1, or one that does not fit.
    #[error("impossible length {0}")]
    Length(i64),
    /// A varint of more than five bytes, or above 2^32 - 1.
    #[error("varint does not fit in 32 bits")]
    Varint,
    /// Null where this version has no null.
    #[error("null is not allowed here")]
    Null,
    /// The message would take more memory than one of its size may.
    #[error("too much memory for a message of this size")]
    TooMuchMemory,
    /// A tagged field whose value does not fill its stated size.
    #[error("tagged field is longer than its value by {0} bytes")]
    TaggedFieldSize(usize),
    /// Bytes after the end of the message.
    #[error("{0} bytes after the end of the message")]
    Trailing(usize),
    /// An API key that Kafka does not have.
    #[error("unknown API key {0}")]
    UnknownApiKey(i16),
    /// A version that the codec does not know.
    #[error("unknown version {0}")]
    UnknownVersion(i16),
}

impl DecodeError {
    /// Names the struct and field, unless a deeper one is named already.
    #[must_use]
    pub fn at(mut self, message: &'static str, field: &'static str) -> Self {
        if self.message.is_empty() {
            (self.message, self.field) = (message, field);
        }
        self
    }
}

impl From<DecodeErrorKind> for DecodeError {
    fn from(kind: DecodeErrorKind) -> Self {
        DecodeError { kind, message: "", field: "" }
    }
}

/// A message that this version cannot carry.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}{separator}{field}: {kind}", separator = separator(self.message))]
pub struct EncodeError {
    /// What is wrong.
    pub kind: EncodeErrorKind,
    /// The innermost struct; empty outside of any.
    pub message: &'static str,
    /// Its field.
    pub field: &'static str,
}

/// Why a message cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EncodeErrorKind {
    /// A value other than the default in a field that the version lacks and that must not be dropped.
    #[error("version {0} does not carry this field")]
    NotInVersion(i16),
    /// Null where this version has no null.
    #[error("null is not allowed here")]
    Null,
    /// Longer than the length field can say.
    #[error("{0} bytes or elements are too many")]
    TooLong(usize),
    /// A version that the codec does not know.
    #[error("unknown version {0}")]
    UnknownVersion(i16),
}

impl EncodeError {
    /// Names the struct and field, unless a deeper one is named already.
    #[must_use]
    pub fn at(mut self, message: &'static str, field: &'static str) -> Self {
        if self.message.is_empty() {
            (self.message, self.field) = (message, field);
        }
        self
    }

    /// A null that this version has no place for.
    #[must_use]
    pub fn null() -> Self {
        EncodeErrorKind::Null.into()
    }

    /// A value that `version` would lose.
    #[must_use]
    pub fn not_in_version(version: i16) -> Self {
        EncodeErrorKind::NotInVersion(version).into()
    }
}

impl From<EncodeErrorKind> for EncodeError {
    fn from(kind: EncodeErrorKind) -> Self {
        EncodeError { kind, message: "", field: "" }
    }
}

fn separator(message: &str) -> &'static str {
    if message.is_empty() { "" } else { "." }
}
