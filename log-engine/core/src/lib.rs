//! The pure rules of a partition's log: no files, no clock, no threads.
//!
//! Reading order: [`producers`] (the idempotence window), [`transactions`] (which are open, which were aborted),
//! [`producer_snapshot`] (its bytes on disk),
//! [`epoch_history`] (which leader epoch began where, and its bytes on disk), [`roll`] (when a segment is full), [`seal`]
//! (what a full one holds), [`retention`] (when it has been kept long enough) with [`append_times`] (when it was appended,
//! by the broker's clock), [`compact`] (which records a compacted log keeps).
//! `log-engine` keeps these beside its files; `storage-node-core` asks them before it lets a leader append.

pub mod append_times;
pub mod compact;
pub mod epoch_history;
pub mod producer_snapshot;
pub mod producers;
pub mod retention;
pub mod roll;
pub mod seal;
pub mod transactions;

pub use epoch_history::{EpochEntry, EpochHistory};
pub use producers::{
    BatchWindow, MarkerCheck, MarkerEpochRule, ProducerBatch, ProducerState, ProducerStates, SequenceCheck,
};
pub use roll::{RollLimits, RollReason, SegmentFill};
pub use seal::{FileSum, Seal, SealError};
pub use transactions::{
    AbortedDigest, AbortedIndex, AbortedTransaction, CompletedTransaction, TransactionMarker,
    TransactionOutcome,
};
