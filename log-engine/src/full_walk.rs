//! Reading a segment file from end to end: every batch is checked, and the file is hashed in pieces.
//!
//! What seals are made of and checked by. Memory is one piece, however large a batch is. What had to be fetched from the
//! device for it is let go again, so that a walk over a large log does not push out of memory what clients read.

use std::path::Path;

use crc_fast::{CrcAlgorithm, Digest};
use log_engine_core::seal::{PIECE_BYTES, crc32c};
use records::{BatchHeader, NO_TIMESTAMP};

use crate::disk::DiskFile;
use crate::index::TimeEntry;
use crate::scan::{Fault, read_at};

/// Bytes of a batch that its checksum leaves out.
const UNCHECKED: usize = 21;

/// What a segment file holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Walked {
    pub(crate) batches: u64,
    pub(crate) records: u64,
    /// Last offset of the last batch; `None` in an empty file.
    pub(crate) last_offset: Option<i64>,
    /// The largest timestamp and the last offset of the first batch that has it.
    pub(crate) max_timestamp: Option<TimeEntry>,
    pub(crate) pieces: Vec<u32>,
}

/// How fast to go: told the bytes before they are read. It waits as long as it likes; `false` ends the walk.
pub(crate) type Pace<'a> = &'a mut dyn FnMut(u64) -> bool;

/// Walks the first `size` bytes of the segment at `base_offset`. `None` if the pace ended it.
pub(crate) fn walk_all(
    file: &dyn DiskFile,
    path: &Path,
    base_offset: i64,
    size: u64,
    pace: Pace<'_>,
) -> Result<Option<Walked>, Fault> {
    walk_until(file, path, (base_offset, i64::MAX), size, pace)
}

/// The same where damage behind all batches below `enough` is none: it is the torn end of what no sync confirmed.
pub(crate) fn walk_until(
    file: &dyn DiskFile,
    path: &Path,
    (base_offset, enough): (i64, i64),
    size: u64,
    pace: Pace<'_>,
) -> Result<Option<Walked>, Fault> {
    let mut check = BatchCheck::new(base_offset);
    let mut piece = Vec::new();
    let mut at = 0;
    while at < size {
        let len = PIECE_BYTES.min(size - at);
        if !pace(len) {
            return Ok(None);
        }
        let cold = !file.is_warm(at, len);
        piece.resize(len as usize, 0);
        read_at(file, path, &mut piece, at, false)?;
        if cold {
            file.let_go(at, len);
        }
        check.walked.pieces.push(crc32c(&piece));
        let fed = check.feed(&piece);
        if fed.is_err() && check.offset_min >= enough {
            return Ok(Some(check.walked));
        }
        fed?;
        at += len;
    }
    if check.offset_min < enough {
        check.end(size)?;
    }
    Ok(Some(check.walked))
}

/// Checks batches that come in arbitrary pieces.
pub(crate) struct BatchCheck {
    walked: Walked,
    /// Where the batch at hand begins.
    position: u64,
    /// The least base offset that the batch at hand may have.
    offset_min: i64,
    /// Of the batch at hand, until all of its header is there.
    header: Vec<u8>,
    body: Option<Body>,
}

/// A batch of which the header was read.
struct Body {
    header: BatchHeader,
    digest: Digest,
    left: usize,
}

impl BatchCheck {
    /// Of a segment whose batches begin at `base_offset` or later.
    pub(crate) fn new(base_offset: i64) -> BatchCheck {
        BatchCheck {
            walked: Walked::default(),
            position: 0,
            offset_min: base_offset,
            header: Vec::with_capacity(BatchHeader::LEN),
            body: None,
        }
    }

    /// The bytes that follow.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let Some(mut body) = self.body.take() else {
                let (of_header, rest) = bytes.split_at(bytes.len().min(BatchHeader::LEN - self.header.len()));
                self.header.extend_from_slice(of_header);
                bytes = rest;
                if self.header.len() == BatchHeader::LEN {
                    self.begin()?;
                }
                continue;
            };
            let (of_body, rest) = bytes.split_at(bytes.len().min(body.left));
            body.digest.update(of_body);
            body.left -= of_body.len();
            bytes = rest;
            match body.left {
                0 => self.finish(&body)?,
                _ => self.body = Some(body),
            }
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(), Fault> {
        let header = BatchHeader::parse(&self.header).map_err(|e| self.damaged(e.to_string()))?;
        if header.last_offset_delta < 0 || header.base_offset < self.offset_min {
            return Err(self.damaged(format!("batch has offset {} out of order", header.base_offset)));
        }
        let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        digest.update(&self.header[UNCHECKED..]);
        let body = Body { header, digest, left: header.size() - BatchHeader::LEN };
        match body.left {
            0 => self.finish(&body)?,
            _ => self.body = Some(body),
        }
        Ok(())
    }

    fn finish(&mut self, body: &Body) -> Result<(), Fault> {
        let header = &body.header;
        let computed = body.digest.finalize() as u32;
        if computed != header.crc {
            let stored = header.crc;
            return Err(
                self.damaged(format!("batch has checksum {stored:08x}, its bytes give {computed:08x}"))
            );
        }
        let next = header.base_offset.checked_add(i64::from(header.last_offset_delta) + 1);
        self.offset_min = next.ok_or_else(|| self.damaged("batch ends beyond the last offset".into()))?;
        self.position += header.size() as u64;
        self.header.clear();
        let walked = &mut self.walked;
        walked.batches += 1;
        walked.records += u64::try_from(header.record_count).unwrap_or(0);
        walked.last_offset = Some(header.last_offset());
        let max = walked.max_timestamp.map_or(NO_TIMESTAMP, |max| max.timestamp);
        let newest = header.newest_timestamp();
        if newest > max || walked.max_timestamp.is_none() {
            let timestamp = newest.max(max);
            walked.max_timestamp = Some(TimeEntry { timestamp, offset: header.last_offset() });
        }
        Ok(())
    }

    /// There are no more than these.
    pub(crate) fn end(&self, size: u64) -> Result<(), Fault> {
        match self.position == size {
            true => Ok(()),
            false => Err(self.damaged(format!("the last batch ends beyond the file, at byte {size}"))),
        }
    }

    fn damaged(&self, reason: String) -> Fault {
        Fault::Damaged { position: self.position, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, OpenMode, SimDisk};
    use records::BatchBuilder;

    /// Batches of one record each, from offset 100 on; some larger than a piece.
    fn segment(sizes: &[usize]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (i, size) in sizes.iter().enumerate() {
            let mut builder = BatchBuilder::new().base_offset(100 + i as i64);
            builder.push(1_000 - i as i64, None, Some(&vec![b'x'; *size]), &[]).unwrap();
            bytes.extend_from_slice(&builder.build());
        }
        bytes
    }

    fn walk(bytes: &[u8]) -> Result<Option<Walked>, Fault> {
        let disk = SimDisk::new(1);
        let path = Path::new("x.log");
        let file = disk.open(path, OpenMode::CreateNew).unwrap();
        file.write_at(bytes, 0).unwrap();
        walk_all(&*file, path, 100, bytes.len() as u64, &mut |_| true)
    }

    #[test]
    fn all_is_counted_wherever_pieces_end() {
        let piece = PIECE_BYTES as usize;
        for first in [0, 10, piece - 200, piece - 100, piece - 70, piece, 3 * piece + 17] {
            let bytes = segment(&[first, 20, 30]);
            let walked = walk(&bytes).unwrap().unwrap();
            assert_eq!((walked.batches, walked.records, walked.last_offset), (3, 3, Some(102)));
            assert_eq!(walked.max_timestamp, Some(TimeEntry { timestamp: 1_000, offset: 100 }));
            let pieces: Vec<u32> = bytes.chunks(piece).map(crc32c).collect();
            assert_eq!(walked.pieces, pieces);
        }
        assert_eq!(walk(&[]).unwrap().unwrap(), Walked::default());
    }

    #[test]
    fn damage_is_found_where_it_is() {
        let bytes = segment(&[10, 20, 30]);
        let second = 61 + 17;
        let expect = |damaged: &[u8], expected: u64| match walk(damaged) {
            Err(Fault::Damaged { position, .. }) => assert_eq!(position, expected),
            other => panic!("{other:?}"),
        };
        let mut flipped = bytes.clone();
        flipped[second + 70] ^= 1;
        assert!(bytes.len() > second + 70);
        expect(&flipped, second as u64);
        let mut magic = bytes.clone();
        magic[second + 16] = 9;
        expect(&magic, second as u64);
        let mut offset = bytes.clone();
        offset[second + 7] = 0;
        expect(&offset, second as u64);
        let short = &bytes[..bytes.len() - 1];
        expect(short, second as u64 + 61 + 27);
        expect(&bytes[..second + 30], second as u64);
    }

    #[test]
    fn the_pace_ends_a_walk() {
        let bytes = segment(&[2 * PIECE_BYTES as usize]);
        let disk = SimDisk::new(1);
        let path = Path::new("x.log");
        let file = disk.open(path, OpenMode::CreateNew).unwrap();
        file.write_at(&bytes, 0).unwrap();
        let mut told = Vec::new();
        let mut pace = |bytes| {
            told.push(bytes);
            told.len() < 2
        };
        assert_eq!(walk_all(&*file, path, 100, bytes.len() as u64, &mut pace).unwrap(), None);
        assert_eq!(told, [PIECE_BYTES, PIECE_BYTES]);
    }
}
