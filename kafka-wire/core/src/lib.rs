//! The Kafka protocol as plain structs: bytes in, messages out, and back. Pure: no sockets, no clock, no threads.
//!
//! Reading order: [`frame`] cuts the byte stream into frames, [`header`] reads who asks what in which version,
//! [`api_key`] names the APIs, [`messages`] holds one file per API, whose structs *are* the description of the format
//! (the derive [`KafkaMessage`] turns them into code). [`Reader`] and [`Writer`] carry the primitives.
//!
//! Promises:
//! - Bytes from the network never panic, and decoding allocates at most [`reader::ALLOCATION_PER_BYTE`] times the bytes
//!   present plus [`reader::ALLOCATION_FLOOR`]. Strings, bytes and records are slices of the frame, not copies.
//! - What is left over after a message is an error. Unknown tagged fields are skipped.
//! - Encoding yields a gather list ([`Gathered`]): record data, and regions of files, are never copied.
//! - A field at its default is never written as a tagged field; a value that the version cannot carry is an error unless
//!   the field is ignorable.

extern crate self as kafka_wire_core;

pub mod api_key;
pub mod consumer_protocol;
pub mod error;
pub mod error_code;
pub mod frame;
pub mod header;
pub mod message;
pub mod messages;
pub mod reader;
pub mod record_data;
#[cfg(feature = "testing")]
pub mod sample;
pub mod text;
pub mod wire;
pub mod writer;

pub use api_key::ApiKey;
pub use error::{DecodeError, DecodeErrorKind, EncodeError, EncodeErrorKind};
pub use error_code::ErrorCode;
pub use header::{RequestHeader, ResponseHeader};
pub use kafka_wire_derive::{KafkaMessage, KafkaStruct};
pub use message::{Message, Request};
pub use reader::Reader;
pub use record_data::{Part, Records, Region};
pub use text::Str;
pub use writer::{Gathered, Writer};
