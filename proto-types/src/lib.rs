//! What the daemons say to each other: ids, metadata changes and the messages of each pair of speakers.
//!
//! Everything here is plain data with a postcard encoding and no logic but that encoding. postcard has no schema
//! evolution, so three rules hold (golden bytes in `tests/golden.rs` enforce them):
//!
//! 1. an enum only grows at its end, and a shipped variant never changes: a new field is a new variant;
//! 2. no `#[serde(default)]` and no `skip`: they break silently;
//! 3. leftover bytes after a message are an error ([`decode`]).
//!
//! A type that only one daemon uses lives in that daemon, not here.

pub mod config_schema;
pub mod controller_api;
pub mod coordinator_api;
pub mod encoding;
pub mod error;
pub mod feature;
pub mod ids;
pub mod message_kind;
pub mod metadata;
pub mod profile;
pub mod replication_api;

pub use encoding::{DecodeError, decode, encode};
