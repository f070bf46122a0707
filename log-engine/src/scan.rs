//! Walking the batch headers of a segment file, from a position to an end.
//!
//! Headers are read in blocks, so that a run of small batches costs one read. The walk checks that each batch lies
//! within the file and that offsets go up; it does not read record bytes. In *warm* mode nothing waits for the device.

use std::path::Path;
use std::sync::Arc;

use records::BatchHeader;

use crate::disk::DiskFile;
use crate::error::{FileError, ReadError};

/// Bytes read at once; a small batch brings its neighbours along.
const BLOCK_BYTES: usize = 4096;

/// Why a read of segment or index bytes gave nothing.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The bytes are not in memory, and waiting was not allowed.
    Cold,
    Io(FileError),
    /// The bytes at this position are not a batch (of this log).
    Damaged {
        position: u64,
        reason: String,
    },
}

impl Fault {
    pub(crate) fn io(action: &'static str, path: &Path, source: std::io::Error) -> Fault {
        match source.kind() {
            std::io::ErrorKind::WouldBlock => Fault::Cold,
            _ => Fault::Io(FileError::new(action, path, source)),
        }
    }

    /// As an answer to a reader who may wait, to whom nothing is cold.
    pub(crate) fn into_read_error(self, path: &Path) -> ReadError {
        match self {
            Fault::Cold => ReadError::Io(FileError::new("read", path, std::io::ErrorKind::WouldBlock.into())),
            Fault::Io(e) => ReadError::Io(e),
            Fault::Damaged { position, reason } => {
                ReadError::Damaged { reason, path: path.to_owned(), position }
            }
        }
    }
}

/// Reads `buf` from `offset`, waiting for the device only if not `warm`.
pub(crate) fn read_at(
    file: &dyn DiskFile,
    path: &Path,
    buf: &mut [u8],
    offset: u64,
    warm: bool,
) -> Result<(), Fault> {
    let read = match warm {
        true => file.read_at_warm(buf, offset),
        false => file.read_at(buf, offset),
    };
    read.map_err(|e| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            Fault::Damaged { position: offset, reason: "file ends before its known size".into() }
        }
        _ => Fault::io("read", path, e),
    })
}

/// A batch header and where it lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) position: u64,
    pub(crate) header: BatchHeader,
}

impl Found {
    /// Position after the batch.
    pub(crate) fn end(&self) -> u64 {
        self.position + self.header.size() as u64
    }
}

/// The walk.
pub(crate) struct HeaderScan {
    file: Arc<dyn DiskFile>,
    path: Arc<Path>,
    position: u64,
    end: u64,
    base_offset: i64,
    /// The least base offset that the next batch may have.
    offset_min: i64,
    warm: bool,
    block: Vec<u8>,
    block_at: u64,
}

impl HeaderScan {
    /// Walks from `position`, which must be the start of a batch, to `end`. `base_offset` is the segment's: offsets in it are
    /// at least that, and within reach of its indexes.
    pub(crate) fn new(
        file: Arc<dyn DiskFile>,
        path: &Arc<Path>,
        position: u64,
        end: u64,
        base_offset: i64,
        warm: bool,
    ) -> HeaderScan {
        HeaderScan {
            file,
            path: path.clone(),
            position,
            end,
            base_offset,
            offset_min: base_offset,
            warm,
            block: Vec::new(),
            block_at: 0,
        }
    }

    /// The next batch, or `None` at the end. After an error the walk stands where it was.
    pub(crate) fn next(&mut self) -> Result<Option<Found>, Fault> {
        if self.position >= self.end {
            return Ok(None);
        }
        let left = self.end - self.position;
        if left < BatchHeader::LEN as u64 {
            return Err(self.damaged(format!("{left} bytes are too few for a batch")));
        }
        let header = self.header()?;
        if header.size() as u64 > left {
            return Err(self.damaged(format!("batch of {} bytes does not fit {left}", header.size())));
        }
        if header.last_offset_delta < 0 || header.base_offset < self.offset_min {
            return Err(self.damaged(format!("batch has offset {} out of order", header.base_offset)));
        }
        let Some(next) = header.base_offset.checked_add(i64::from(header.last_offset_delta) + 1) else {
            return Err(self.damaged("batch ends beyond the last offset".into()));
        };
        // The offset is not under the batch's checksum.
        if next - 1 - self.base_offset > i64::from(i32::MAX) {
            return Err(
                self.damaged(format!("batch has offset {}, out of its segment's reach", header.base_offset))
            );
        }
        let found = Found { position: self.position, header };
        self.position = found.end();
        self.offset_min = next;
        Ok(Some(found))
    }

    fn header(&mut self) -> Result<BatchHeader, Fault> {
        let within = |block_at: u64, len: usize| {
            self.position >= block_at && self.position + BatchHeader::LEN as u64 <= block_at + len as u64
        };
        if !within(self.block_at, self.block.len()) {
            let len = BLOCK_BYTES.min((self.end - self.position) as usize);
            self.block.resize(len, 0);
            self.block_at = self.position;
            if let Err(e) = read_at(&*self.file, &self.path, &mut self.block, self.position, self.warm) {
                self.block.clear();
                return Err(e);
            }
        }
        let at = (self.position - self.block_at) as usize;
        BatchHeader::parse(&self.block[at..]).map_err(|e| self.damaged(e.to_string()))
    }

    fn damaged(&self, reason: String) -> Fault {
        Fault::Damaged { position: self.position, reason }
    }
}
