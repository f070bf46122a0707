//! Compaction of a log by key: what is due, and what of it stays. Files and threads are `log-engine`'s and the node's.
//!
//! A pass over a log, from its start to the end of its last whole segment below the high watermark and the last stable
//! offset, has two halves. [`Mapping`] reads the *dirty* part, which no pass has seen, and notes the last offset of each key
//! in a map of fixed size; when the map is full the pass ends there,
//! and so it does where as many aborted transactions are known as there is memory for ([`AbortedCollector`]). [`Cleaning`] then reads everything below that end and
//! writes what stays, segments merged by [`groups`]:
//!
//! - of each key the newest record, and all records that the map does not reach;
//! - a tombstone until its *delete horizon*: the pass that first keeps it as the newest of its key writes the horizon into the
//!   batch (KIP-534), a later pass drops it;
//! - no record of an aborted transaction; a transaction's marker until a pass finds none of its data any more, and then for
//!   as long as a tombstone; control records of other kinds for ever;
//! - the last batch of each producer that is still known, and the last of each segment, emptied if need be, so that
//!   sequences and the ends of segments survive.
//!
//! Records without a key go, as in Kafka. A batch that cannot be unpacked stays, and so does what it may rest on. Offsets never change. [`look`] says which part is dirty and whether it is time.
//!
//! Reading order: [`look`] → [`Mapping`] → [`Cleaning`] → [`KeyMap`], [`AbortedRanges`].

mod cleaning;
mod dirtiness;
mod groups;
mod key_map;
mod mapping;
mod transactions;

pub use cleaning::{Carried, Cleaned, Cleaning, CleaningRules, LastBatch, last_batches};
pub use dirtiness::{CompactionPolicy, Dirtiness, SegmentFacts, look};
pub use groups::{GroupLimits, groups};
pub use key_map::{KeyHash, KeyMap};
pub use mapping::Mapping;
pub use transactions::{AbortedCollector, AbortedRanges, Control, control_of};
