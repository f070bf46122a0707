//! What can go wrong, one enum per operation. None of these is worth a blind retry unless it says so.

use std::io;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::LogName;
use crate::log::is_disk_full;
use crate::lost_disk::REPLACES_LOST_DISK;

/// An operation on a file failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct FileError {
    /// What was tried, as a verb: "read", "sync", …
    pub action: &'static str,
    pub path: PathBuf,
    pub source: io::Error,
}

impl FileError {
    pub(crate) fn new(action: &'static str, path: impl AsRef<Path>, source: io::Error) -> FileError {
        FileError { action, path: path.as_ref().to_owned(), source }
    }
}

/// Why a data directory is not opened.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error("data directory {} belongs to cluster {found}, not to {expected}", path.display())]
    OtherCluster { path: PathBuf, expected: String, found: String },
    #[error("data directory {} belongs to node {found}, not to node {expected}", path.display())]
    OtherNode { path: PathBuf, expected: i32, found: i32 },
    #[error("data directory {} is in use by another process", path.display())]
    InUse { path: PathBuf },
    #[error(
        "data directory {} is damaged: {reason}; restore the file from a backup, or take the directory for lost: put an empty \
         one in its place with a file named {} in it",
        path.display(),
        REPLACES_LOST_DISK
    )]
    Damaged { path: PathBuf, reason: String },
    /// There is nothing where the node had a directory.
    #[error(
        "there is no data directory in {} (no meta.properties), but this node had {directory} there; see that its disk is \
         mounted, or, if it is lost, put an empty directory there with a file named {} in it",
        path.display(),
        REPLACES_LOST_DISK
    )]
    Missing { path: PathBuf, directory: Uuid },
    /// The node has gone on without it.
    #[error(
        "data directory {} ({directory}) was given up for lost, and the node has gone on without what it holds; put back the \
         one that has replaced it, or an empty one with a file named {} in it",
        path.display(),
        REPLACES_LOST_DISK
    )]
    GivenUp { path: PathBuf, directory: Uuid },
    #[error(
        "{} says {word:?}, which is not the id of a data directory; leave the file empty, or write the ids of the lost \
         directories into it",
        path.display()
    )]
    BadNote { path: PathBuf, word: String },
    #[error(
        "data directory {} is not empty but was not made by Weir (it has no {file}); choose an empty directory",
        path.display()
    )]
    Foreign { path: PathBuf, file: &'static str },
    #[error("data directory: {0}")]
    Io(#[from] FileError),
}

/// Why a log is not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Bytes that were flushed are gone or wrong. The copy must stay offline; opening it would lose records silently.
    #[error("log {log} is damaged below its flushed end {flushed_end}: {reason} ({}, byte {position})", path.display())]
    Damaged { log: LogName, flushed_end: i64, reason: String, path: PathBuf, position: u64 },
    /// Another data directory has the log, or had it last.
    #[error(
        "log was moved to data directory {directory}, which is not open: bring that one back and start the node again, or, if it is          gone for good, take away from the name of {} what follows the log's and start again",
        path.display()
    )]
    MovedAway { path: PathBuf, directory: Uuid },
    #[error("log cannot be opened: {0}")]
    Io(#[from] FileError),
}

/// Why nothing was appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// No space is left. The log is unharmed; the append may be tried again once there is space.
    #[error("no space left: {0}")]
    DiskFull(FileError),
    /// A write or sync failed, now or earlier. The log takes no more appends until it was opened anew.
    #[error("log is closed for writing after a failed write or sync: {reason}")]
    Poisoned { reason: String },
    /// The batches do not continue the log.
    #[error("batch begins at offset {found} but the log ends at {end}")]
    OutOfOrder { found: i64, end: i64 },
    /// The headers do not describe the bytes.
    #[error("batch headers describe {described} bytes, but {given} were given")]
    Mismatch { described: usize, given: usize },
    /// A batch is larger than any segment may be: positions in segments have 31 bits.
    #[error("a batch of {bytes} bytes is larger than a segment can be")]
    TooLarge { bytes: usize },
}

/// Why a log could not be changed otherwise (truncate, set start, roll, close, delete).
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("log is closed for writing after a failed write or sync: {reason}")]
    Poisoned { reason: String },
    #[error("offset {offset} is outside of the log, which spans {start} to {end}")]
    OutOfRange { offset: i64, start: i64, end: i64 },
    #[error(transparent)]
    Io(#[from] FileError),
}

impl LogError {
    /// Whether the bytes on disk are not what was written: a good copy is needed, another try changes nothing.
    pub fn is_damage(&self) -> bool {
        matches!(self, LogError::Io(error) if error.source.kind() == io::ErrorKind::InvalidData)
    }
}

/// Why a flush failed.
#[derive(Debug, thiserror::Error)]
pub enum FlushError {
    /// Data may be lost though the cache still shows them: the log is poisoned by it.
    #[error("flush failed: {0}")]
    Failed(FileError),
    /// No space is left for a small file that goes with the data. Nothing is lost; the log will want to be flushed
    /// again.
    #[error("flush found no space: {0}")]
    DiskFull(FileError),
}

/// Why a read found nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("offset {offset} is outside of the log, which spans {start} to {end}")]
    OffsetOutOfRange { offset: i64, start: i64, end: i64 },
    /// The bytes on disk are not what was written. The copy must go offline; nothing of it was served.
    #[error("log is damaged: {reason} ({}, byte {position})", path.display())]
    Damaged { reason: String, path: PathBuf, position: u64 },
    #[error(transparent)]
    Io(#[from] FileError),
}

/// Why a pass of compaction ended early. The log is as it was before, or partly compacted, which is the same to readers.
#[derive(Debug, thiserror::Error)]
pub enum CompactionError {
    /// The one who sets the pace said so.
    #[error("compaction was stopped")]
    Stopped,
    /// The log was cut, shortened, begun anew or deleted meanwhile.
    #[error("the log changed while it was compacted")]
    Changed,
    /// A batch is not what was written. Nothing of its segment is compacted.
    #[error("log is damaged: {reason} ({}, byte {position})", path.display())]
    Damaged { reason: String, path: PathBuf, position: u64 },
    /// Batches that were written anew with their codec became larger than what a segment can address.
    #[error(
        "the compacted segment at {base_offset} would take {bytes} bytes, more than 2 GiB; lower segment.bytes"
    )]
    TooLarge { base_offset: i64, bytes: u64 },
    /// The one who sets the pace keeps what room there is. Nothing is lost.
    #[error("the disk has no room for a compacted segment of {bytes} bytes beside what is kept free")]
    NoRoom { bytes: u64 },
    /// There is no memory for the map of keys. Nothing was done.
    #[error("no memory for a map of {bytes} bytes; lower log.cleaner.dedupe.buffer.size")]
    OutOfMemory { bytes: usize },
    /// No space is left for the new segment. Nothing is lost.
    #[error("no space left: {0}")]
    DiskFull(FileError),
    #[error("{0}")]
    Io(FileError),
}

/// Why a log was not moved to another data directory. It is where it was, unless the error says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// The one who sets the pace said so.
    #[error("the move was stopped")]
    Stopped,
    /// The one who sets the pace keeps what room there is.
    #[error("the target has no room for the log beside what is kept free; free some there and move it again")]
    NoRoom,
    /// So it is known by now to the one who sets the pace.
    #[error("the target data directory is offline: {reason}")]
    TargetOffline { reason: String },
    /// The log has grown faster than it was copied: copy on before it is closed the next time.
    #[error("{bytes} bytes are left to copy, too many while the log is closed")]
    TooMuchLeft { bytes: u64 },
    /// Copying on has not helped.
    #[error("{bytes} bytes are left to copy while the log is closed, no fewer than the last time")]
    NeverLittle { bytes: u64 },
    /// The target has a log of this name.
    #[error("there is a log of this name already, left from another time: remove {}", path.display())]
    Taken { path: PathBuf },
    /// What an earlier move of the log left is not removed yet: two of that would be hard to tell apart after a crash.
    #[error("old files of this log, from an earlier move, are not removed yet; if they stay, remove {}", path.display())]
    OldFiles { path: PathBuf },
    /// The log is not as a clean close leaves it.
    #[error("the log cannot be moved as it is: {reason}")]
    NotSettled { reason: &'static str },
    /// The bytes are not what was written.
    #[error("log is damaged: {reason} ({}, byte {position})", path.display())]
    Damaged { reason: String, path: PathBuf, position: u64 },
    /// Both directories have the files, whole, and only the next start can tell under which names: until then neither may be
    /// opened.
    #[error("nobody knows whether the log has its new place for good; start the node again: {0}")]
    InDoubt(FileError),
    #[error("{0}")]
    Io(#[from] FileError),
}

impl From<FileError> for CompactionError {
    fn from(error: FileError) -> CompactionError {
        match is_disk_full(&error.source) {
            true => CompactionError::DiskFull(error),
            false => CompactionError::Io(error),
        }
    }
}

impl From<ReadError> for CompactionError {
    fn from(error: ReadError) -> CompactionError {
        match error {
            ReadError::Damaged { reason, path, position } => {
                CompactionError::Damaged { reason, path, position }
            }
            ReadError::Io(error) => error.into(),
            ReadError::OffsetOutOfRange { .. } => CompactionError::Changed,
        }
    }
}
