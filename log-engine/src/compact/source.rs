//! Reads a segment that is to be compacted: in large blocks, every batch's checksum checked.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use log_engine_core::compact::SegmentFacts;
use records::{BatchError, BatchHeader, BatchView};

use super::Pace;
use crate::data_dir::DataDir;
use crate::disk::{DiskFile, OpenMode};
use crate::error::{CompactionError, FileError};
use crate::segment::file_name;

/// Bytes that are read at once; larger batches are read whole.
const BLOCK_BYTES: usize = 1 << 20;

pub(super) struct Source {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    /// Bytes of the segment.
    end: u64,
    /// A stretch of the file, from `block_at` on; the present batch begins at `at` in it.
    block: Vec<u8>,
    block_at: u64,
    at: usize,
    /// Size of the present batch, 0 before the first.
    size: usize,
    offset_min: i64,
}

impl Source {
    pub(super) fn open(data: &DataDir, dir: &Path, facts: &SegmentFacts) -> Result<Source, CompactionError> {
        let path = dir.join(file_name(facts.base_offset, "log"));
        let file = data.disk().open(&path, OpenMode::Read);
        let file = file.map_err(|e| FileError::new("open", &path, e))?;
        Ok(Source {
            file,
            path,
            end: facts.bytes,
            block: Vec::new(),
            block_at: 0,
            at: 0,
            size: 0,
            offset_min: facts.base_offset,
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
        match end.filter(|_| header.base_offset >= self.offset_min && header.last_offset_delta >= 0) {
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
        let have = self.block.len();
        let want = (bytes.max(BLOCK_BYTES) as u64).min(left) as usize;
        if !pace.spend((want - have) as u64) {
            return Err(CompactionError::Stopped);
        }
        self.block.resize(want, 0);
        let read = self.file.read_at(&mut self.block[have..], self.block_at + have as u64);
        match read {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(self.fault("file ends before its known size".into()))
            }
            Err(e) => Err(FileError::new("read", &self.path, e).into()),
        }
    }
}
