//! The log of a partition on disk, in Kafka's own file formats.
//!
//! What is promised: a batch below [`Log::flushed`] survives any crash; what is present after a crash is a prefix of
//! what was appended; no byte that was never appended is served; after a failed write or sync nothing more is accepted
//! until the log was opened, and verified, anew.
//!
//! ```text
//! <data directory>/                 one process, one node, one cluster
//!   meta.properties  .lock  flushed-ends  clean-shutdown  boot-id
//!   cleaner-offset-checkpoint  cleaner-dropped-checkpoint  directories
//!   <topic id>-<partition>.moved-to.<directory id>/   what a log that was moved has left
//!   <topic id>-<partition>/
//!     00000000000000000000.log          batches            ─┐
//!     00000000000000000000.index        offset → position   ├ one segment
//!     00000000000000000000.timeindex    timestamp → offset  │
//!     00000000000000000000.txnindex     what was aborted    │ (if anything was)
//!     00000000000000000000.seal         what it holds      ─┘
//!     00000000000000000000.appendtimes  offset → broker time of its append, once it is sealed
//!     00000000000000004711.log …        the next segment
//!     00000000000000004711.snapshot     producers as of that offset
//!     leader-epoch-checkpoint           epoch → first offset
//! ```
//!
//! Reading order: [`Log`] (append, roll, flush, close) → `cut` (truncate, set start) and `restart` → [`LogReader`] → `segment` →
//! `recovery` (open after a crash) → [`DataDir`] and `flushed_ends` → [`Flusher`] → `compact` → [`disk`](Disk). Everything is
//! synchronous and belongs on threads that may wait for the device, but for [`LogReader::try_read_warm`].

mod append_times;
mod checked_text;
mod compact;
mod config;
mod cut;
mod data_dir;
mod delete;
mod descriptors;
mod disk;
mod epoch_file;
mod error;
mod flush;
mod flushed_ends;
mod full_walk;
mod index;
pub mod inspect;
mod log;
mod log_flush;
mod log_name;
mod log_open;
mod log_transactions;
mod lost_disk;
mod poison;
mod reader;
mod recovery;
mod relocate;
mod replay;
mod restart;
mod retention;
mod scan;
mod scrub;
mod seal;
mod segment;
mod set_aside;
mod siblings;
mod snapshots;
mod txn_index;

pub use compact::{
    CompactedSegment, Compaction, CompactionCounts, CompactionRequest, FinishedCompaction, Installed, Pace,
};
pub use config::{DESCRIPTORS_MAX_DEFAULT, FlusherConfig, LogConfig};
pub use data_dir::{DataDir, DataDirOptions};
pub use delete::{DetachedLog, DetachedSegments};
pub use disk::{
    CrashChoices, DirEntry, Disk, DiskFile, DiskSpace, FileSystem, LockGuard, OpenMode, RealDisk, SimDisk,
    SimFault,
};
pub use error::{
    AppendError, CompactionError, DataDirError, FileError, FlushError, LogError, MoveError, OpenError,
    ReadError,
};
pub use flush::{FlushDone, FlushHandle, Flusher};
pub use log::{Appended, Log};
pub use log_name::LogName;
pub use lost_disk::{REPLACES_LOST_DISK, is_unused, lost_disk_note};
pub use reader::{LogReader, LogSlice, SlicePart, TimestampOffset};
pub use recovery::{RecoveryProgress, RecoveryReport, RecoveryWatch};
pub use relocate::{LogMove, MovePace, SettledMoves, settle_moves};
pub use replay::{ProducerEvent, producer_batch};
pub use scrub::{Scrubbed, WrittenSegment};
pub use seal::{Sealing, is_seal};
