//! Reads a segment that is to be compacted, in the pieces that its seal has checksums of.
//!
//! The seal of what comes of it covers whatever was copied, so nothing may be copied that only looks right: of each batch
//! twelve bytes (its offset and leader epoch) are covered by the seal alone. A segment that has none is sealed first.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use log_engine_core::compact::SegmentFacts;
use log_engine_core::seal::{PIECE_BYTES, Seal};
use records::{BatchError, BatchHeader, BatchView};

use super::Pace;
use crate::data_dir::DataDir;
use crate::disk::{DiskFile, OpenMode};
use crate::error::{CompactionError, FileError};
use crate::reader::Shared;
use crate::scrub::{other_bytes, other_length};
use crate::seal::seal_of;
use crate::segment::{Segment, file_name};

pub(super) struct Source {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    seal: Box<Seal>,
    /// Bytes of the segment.
    end: u64,
    /// A stretch of the file, from `block_at` to the end of a piece; the present batch begins at `at` in it.
    block: Vec<u8>,
    block_at: u64,
    at: usize,
    /// Size of the present batch, 0 before the first.
    size: usize,
    offset_min: i64,
    /// Where the next segment begins.
    offset_end: i64,
}

impl Source {
    pub(super) fn open(
        data: &DataDir,
        dir: &Path,
        (shared, segment): (&Shared, &Arc<Segment>),
        facts: &SegmentFacts,
        pace: &mut dyn Pace,
    ) -> Result<Source, CompactionError> {
        let path = dir.join(file_name(facts.base_offset, "log"));
        let mut stopped = false;
        let sealed = seal_of(&**data.disk(), shared, segment, &mut |bytes| {
            stopped = !pace.spend(bytes);
            !stopped
        });
        let seal = match sealed.map_err(|fault| fault.into_read_error(&path))? {
            Some(seal) => seal,
            None if stopped => return Err(CompactionError::Stopped),
            None => return Err(CompactionError::Changed),
        };
        if seal.length != facts.bytes {
            let (reason, position) = (other_length(&seal, facts.bytes), facts.bytes);
            return Err(CompactionError::Damaged { reason, path, position });
        }
        let file = data.disk().open(&path, OpenMode::Read);
        let file = file.map_err(|e| FileError::new("open", &path, e))?;
        Ok(Source {
            file,
            path,
            seal,
            end: facts.bytes,
            block: Vec::new(),
            block_at: 0,
            at: 0,
            size: 0,
            offset_min: facts.base_offset,
            offset_end: facts.end,
        })
    }

    /// Goes to the next batch; `false` at the end.
    pub(super) fn advance(&mut self, pace: &mut dyn Pace) -> Result<bool, CompactionError> {
        self.at += self.size;
        self.size = 0;
        if self.position() == self.end {
            return Ok(false);
        }
        self.fill(BatchHeader::LEN, pace)?;
        let header = BatchHeader::parse(&self.block[self.at..]).map_err(|e| self.damaged(&e))?;
        self.fill(header.size(), pace)?;
        self.size = header.size();
        let end = header.base_offset.checked_add(i64::from(header.last_offset_delta) + 1);
        let in_order = header.base_offset >= self.offset_min && header.last_offset_delta >= 0;
        match end.filter(|&end| in_order && end <= self.offset_end) {
            Some(end) => self.offset_min = end,
            None => return Err(self.fault(format!("batch has offset {} out of order", header.base_offset))),
        }
        let view = BatchView::parse(&self.block[self.at..]).and_then(|view| view.check_crc());
        view.map_err(|e| self.damaged(&e))?;
        Ok(true)
    }

    /// The batch that [`advance`](Self::advance) found.
    pub(super) fn batch(&self) -> Result<BatchView<'_>, CompactionError> {
        BatchView::parse(&self.block[self.at..self.at + self.size]).map_err(|e| self.damaged(&e))
    }

    /// Whether the present batch is the last one.
    pub(super) fn is_last(&self) -> bool {
        self.position() + self.size as u64 == self.end
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.position() + self.size as u64
    }

    /// The present batch stays since it cannot be unpacked. `count` are those before it in this pass: the first is told of.
    pub(super) fn warn_opaque(&self, error: &BatchError, count: &mut u64) {
        if *count == 0 {
            let (path, position) = (self.path.display(), self.position());
            tracing::warn!(
                %path, position, %error,
                "a batch stays whole, since it cannot be unpacked though its checksum is right; tombstones behind it stay too"
            );
        }
        *count += 1;
    }

    fn damaged(&self, error: &BatchError) -> CompactionError {
        self.fault(error.to_string())
    }

    fn fault(&self, reason: String) -> CompactionError {
        CompactionError::Damaged { reason, path: self.path.clone(), position: self.position() }
    }

    fn position(&self) -> u64 {
        self.block_at + self.at as u64
    }

    /// Sees to it that so many bytes from the present position on are in the block.
    fn fill(&mut self, bytes: usize, pace: &mut dyn Pace) -> Result<(), CompactionError> {
        if self.block.len() - self.at >= bytes {
            return Ok(());
        }
        let left = self.end - self.position();
        if bytes as u64 > left {
            return Err(self.fault(format!("batch of {bytes} bytes does not fit {left}")));
        }
        self.block.drain(..self.at);
        self.block_at += self.at as u64;
        self.at = 0;
        while self.block.len() < bytes {
            self.read_piece(pace)?;
        }
        Ok(())
    }

    /// Adds the next piece to the block.
    fn read_piece(&mut self, pace: &mut dyn Pace) -> Result<(), CompactionError> {
        let have = self.block.len();
        let from = self.block_at + have as u64;
        let to = (from + PIECE_BYTES).min(self.end);
        if !pace.spend(to - from) {
            return Err(CompactionError::Stopped);
        }
        self.block.resize(have + (to - from) as usize, 0);
        match self.file.read_at(&mut self.block[have..], from) {
            Ok(()) if self.seal.holds(from / PIECE_BYTES, &self.block[have..]) => Ok(()),
            Ok(()) => {
                let (reason, path) = (other_bytes(from, to), self.path.clone());
                Err(CompactionError::Damaged { reason, path, position: from })
            }
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(self.fault("file ends before its known size".into()))
            }
            Err(e) => Err(FileError::new("read", &self.path, e).into()),
        }
    }
}
