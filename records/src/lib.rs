//! The Kafka record batch, version 2: the one format in which records travel and rest.
//!
//! Reading order: [`BatchHeader`] (the 61 fixed bytes) → [`batches`] (walk a buffer of whole batches) →
//! [`BatchView::records`] (unpack one batch, with a cap on the decompressed size) → [`Record`].
//! A leader patches a batch in place with [`set_base_offset`], [`set_leader_epoch`] (both outside of the
//! checksum) and, on topics with `LogAppendTime`, [`set_log_append_time`]. [`BatchBuilder`] makes batches, [`EndMarker`]
//! those that end a transaction. [`BatchFilter`] takes records out of them (compaction).
//!
//! This package is pure: bytes in, facts out. Every byte is treated as hostile: no function here panics on
//! input, and none allocates more than the stated cap.

mod batches;
mod builder;
mod codec;
mod control;
mod crc;
mod error;
mod filter;
mod header;
mod patch;
mod record;
mod varint;

pub use batches::{BatchView, Batches, batches};
pub use builder::{BatchBuilder, BuildError};
pub use control::EndMarker;
pub use crc::{check_crc, compute_crc};
pub use error::BatchError;
pub use filter::{BatchFilter, Filtered, Horizon, put_emptied_batch};
pub use header::{
    BatchHeader, Compression, MAGIC_V2, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP,
    TimestampType, peek_magic, peek_size,
};
pub use patch::{set_base_offset, set_leader_epoch, set_log_append_time};
pub use record::{Header, Headers, Record, RecordIter, Records};
