//! Looking at the files of a log without opening it: for tools, while no process has the directory.
//!
//! [`dump_file`] tells what one file says, entry by entry; [`verify_log`] compares all files of a log with each other, and
//! [`verify_data_dir`] reads those that stand beside the logs. Nothing is changed, nothing is believed, and memory is bounded by the batches of one segment. Files that Apache Kafka
//! wrote are read as well.

use std::path::Path;
use std::sync::Arc;

use log_engine_core::seal::Seal;
use log_engine_core::{EpochEntry, EpochHistory, ProducerState, producer_snapshot};
use records::BatchHeader;

use crate::data_dir::read_file;
use crate::disk::{Disk, OpenMode};
use crate::error::FileError;
use crate::index::{Entry, IndexEntry, TimeEntry};
use crate::scan::{Fault, HeaderScan};
use crate::segment::parse_file_name;
use crate::{LogName, epoch_file, flushed_ends, seal};

mod verify;
mod verify_dir;

/// How far each log of a data directory was on disk when that was last noted. Damaged records tell nothing.
pub fn flushed_ends(disk: &dyn Disk, dir: &Path) -> Result<Vec<(LogName, i64)>, FileError> {
    let known = flushed_ends::read(disk, &dir.join(flushed_ends::FILE_NAME))?;
    let ends = known.into_iter().flat_map(|known| known.ends);
    Ok(ends.map(|(log, end)| (log, end.end)).collect())
}

pub use verify::{Finding, Severity, Verdict, verify_log};
pub use verify_dir::verify_data_dir;

/// An index or snapshot of more is not read.
const SMALL_BYTES_MAX: u64 = 1 << 30;
/// Bytes of an entry of a transaction index.
const TXN_ENTRY_BYTES: usize = 34;
/// Producers of a snapshot that are shown.
const PRODUCERS_MAX: usize = 10_000_000;

/// One thing that a file says.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// A batch, where it lies, and its bytes.
    Batch {
        header: BatchHeader,
        position: u64,
        bytes: Vec<u8>,
        /// Whether its checksum fits.
        valid: bool,
    },
    /// The batch that ends at `offset` begins at `position`.
    Index { offset: i64, position: u32 },
    /// The largest timestamp up to the batch that ends at `offset`.
    TimeIndex { timestamp: i64, offset: i64 },
    /// An aborted transaction.
    Txn(AbortedTxn),
    /// A producer as of the snapshot's offset.
    Producer { id: i64, state: ProducerState },
    /// A leader epoch and where it began.
    Epoch(EpochEntry),
    /// What a segment held when it was sealed.
    Seal(Seal),
    /// Nothing more can be made out from there on.
    Broken { position: u64, reason: String },
}

/// An entry of a transaction index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedTxn {
    pub version: i16,
    pub producer_id: i64,
    pub first_offset: i64,
    pub last_offset: i64,
    pub last_stable_offset: i64,
}

/// Why a file cannot be dumped.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    #[error(
        "{path} is no file of a log that can be dumped: its name must be <20 digits> and .log, .index, .timeindex, \
         .txnindex, .snapshot or .seal, or leader-epoch-checkpoint"
    )]
    UnknownKind { path: String },
    #[error(transparent)]
    Io(#[from] FileError),
}

/// Tells everything that a file says, in its order.
pub fn dump_file(disk: &dyn Disk, path: &Path, each: &mut dyn FnMut(Item)) -> Result<(), DumpError> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let unknown = || DumpError::UnknownKind { path: path.display().to_string() };
    if name == epoch_file::FILE_NAME {
        let text = String::from_utf8_lossy(&small(disk, path)?).into_owned();
        match EpochHistory::decode(&text) {
            Ok(history) => history.entries().iter().for_each(|entry| each(Item::Epoch(*entry))),
            Err(error) => each(Item::Broken { position: 0, reason: error.to_string() }),
        }
        return Ok(());
    }
    let (base, suffix) = parse_file_name(name).ok_or_else(unknown)?;
    match suffix {
        "log" => dump_segment(disk, path, base, each)?,
        "index" => entries::<IndexEntry>(&small(disk, path)?, base, &mut |entry| {
            each(entry.map_or_else(|item| item, |e| Item::Index { offset: e.offset, position: e.position }));
        }),
        "timeindex" => {
            entries::<TimeEntry>(&small(disk, path)?, base, &mut |entry| {
                each(entry.map_or_else(
                    |item| item,
                    |e| Item::TimeIndex { timestamp: e.timestamp, offset: e.offset },
                ));
            })
        }
        "txnindex" => aborted(&small(disk, path)?, each),
        "snapshot" => match producer_snapshot::decode(&small(disk, path)?, PRODUCERS_MAX) {
            Ok((states, _)) => {
                states.iter().for_each(|(id, state)| each(Item::Producer { id, state: state.clone() }));
            }
            Err(error) => each(Item::Broken { position: 0, reason: error.to_string() }),
        },
        seal::SUFFIX => match Seal::decode(&small(disk, path)?, base) {
            Ok(seal) => each(Item::Seal(seal)),
            Err(error) => each(Item::Broken { position: 0, reason: error.to_string() }),
        },
        _ => return Err(unknown()),
    }
    Ok(())
}

fn small(disk: &dyn Disk, path: &Path) -> Result<Vec<u8>, FileError> {
    let missing = || FileError::new("read", path, std::io::ErrorKind::NotFound.into());
    read_file(disk, path, SMALL_BYTES_MAX)?.ok_or_else(missing)
}

fn dump_segment(
    disk: &dyn Disk,
    path: &Path,
    base: i64,
    each: &mut dyn FnMut(Item),
) -> Result<(), FileError> {
    let failed = |e| FileError::new("read", path, e);
    let file = disk.open(path, OpenMode::Read).map_err(failed)?;
    let (size, path): (u64, Arc<Path>) = (file.len().map_err(failed)?, path.into());
    let mut scan = HeaderScan::new(file.clone(), &path, 0, size, base, false);
    loop {
        match scan.next() {
            Ok(None) => return Ok(()),
            Ok(Some(found)) => {
                let mut bytes = vec![0; found.header.size()];
                file.read_at(&mut bytes, found.position).map_err(failed)?;
                let valid = records::check_crc(&bytes).is_ok();
                each(Item::Batch { header: found.header, position: found.position, bytes, valid });
            }
            Err(Fault::Damaged { position, reason }) => {
                each(Item::Broken { position, reason });
                return Ok(());
            }
            Err(Fault::Io(error)) => return Err(error),
            Err(Fault::Cold) => return Err(failed(std::io::ErrorKind::WouldBlock.into())),
        }
    }
}

/// The entries of an index up to where only zeros follow: so far the file was only made large, as Kafka does.
fn entries<E: Entry>(bytes: &[u8], base: i64, each: &mut dyn FnMut(Result<E, Item>)) {
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let used = used.next_multiple_of(E::BYTES);
    let whole = used.min(bytes.len() / E::BYTES * E::BYTES);
    for entry in bytes[..whole].chunks_exact(E::BYTES) {
        each(Ok(E::decode(entry, base)));
    }
    if used > whole {
        let reason = format!("{} bytes are no entry", bytes.len() - whole);
        each(Err(Item::Broken { position: whole as u64, reason }));
    }
}

fn aborted(bytes: &[u8], each: &mut dyn FnMut(Item)) {
    let (whole, rest) = bytes.split_at(bytes.len() / TXN_ENTRY_BYTES * TXN_ENTRY_BYTES);
    for entry in whole.chunks_exact(TXN_ENTRY_BYTES) {
        let number = |nth: usize| i64::from_be_bytes(std::array::from_fn(|i| entry[2 + 8 * nth + i]));
        each(Item::Txn(AbortedTxn {
            version: i16::from_be_bytes([entry[0], entry[1]]),
            producer_id: number(0),
            first_offset: number(1),
            last_offset: number(2),
            last_stable_offset: number(3),
        }));
    }
    if !rest.is_empty() {
        let reason = format!("{} bytes are no entry", rest.len());
        each(Item::Broken { position: whole.len() as u64, reason });
    }
}
