//! One file of the raft log: a header, then records with checksums, in order of index without gaps.
//!
//! A record is `length, checksum of the payload, checksum of these two and of the record's place`, then the payload. The
//! place (first index of the file and position) is inside the checksum, so a record that the disk brings from somewhere
//! else is noticed.
//!
//! At the end of the newest file there may be a torn record: a crash came before its sync. It is told from damage by its
//! look: a write that did not reach the disk leaves the file short, or whole sectors of zeros. Anything else is damage.

use super::disk::{DiskFile, Open, SharedDisk, read_exact_at};
use super::store_error::{AtPath, StoreError, crc32c, sync_directory};
use super::stored::{DISK_VERSION, DiskKind};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"WEIRRAFT";
/// magic, kind, version, 4 reserved, first index, checksum, 4 reserved.
pub(crate) const FILE_HEADER: u64 = 32;
/// length, payload checksum, header checksum.
pub(crate) const RECORD_HEADER: u64 = 12;
const SECTOR: usize = 512;
/// Largest payload, bytes. Plans are far smaller; the fall-over of one node with 200,000 partitions fits.
pub(crate) const PAYLOAD_MAX: usize = 16 << 20;

/// An open file of the log.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    file: Box<dyn DiskFile>,
    first: u64,
    /// Where each record begins.
    positions: Vec<u64>,
    /// Where the next record goes.
    end: u64,
}

/// What opening a file found.
pub(crate) enum Opened {
    /// A usable file; true if a torn record was cut off its end.
    Usable(Segment, bool),
    /// A crash came before the file's header was on disk: it holds nothing.
    Unborn,
}

impl Segment {
    /// Makes an empty file whose first record will have index `first`, durably.
    pub(crate) fn create(disk: &SharedDisk, directory: &Path, first: u64) -> Result<Self, StoreError> {
        let path = directory.join(file_name(first));
        let file = disk.open(&path, Open::New).at("create", &path)?;
        file.write_all_at(&file_header(first), 0).at("write", &path)?;
        file.sync().at("sync", &path)?;
        sync_directory(disk, directory)?;
        Ok(Self { path, file, first, positions: Vec::new(), end: FILE_HEADER })
    }

    /// Opens a file and checks every byte of it. Only in the `newest` file a torn end is allowed, and it is cut off.
    /// `check` looks at each payload (index, bytes).
    pub(crate) fn open(
        disk: &SharedDisk,
        path: &Path,
        newest: bool,
        mut check: impl FnMut(u64, &[u8]) -> Result<(), String>,
    ) -> Result<Opened, StoreError> {
        let file = disk.open(path, Open::Existing).at("open", path)?;
        let bytes = disk.read(path).at("read", path)?;
        let Some(first) = parse_file_header(&bytes) else {
            let header = &bytes[..bytes.len().min(FILE_HEADER as usize)];
            if newest && bytes.len() <= FILE_HEADER as usize && header.iter().all(|byte| *byte == 0) {
                return Ok(Opened::Unborn);
            }
            return Err(StoreError::damaged(path, "its header has the wrong checksum"));
        };
        let mut segment =
            Self { path: path.to_owned(), file, first, positions: Vec::new(), end: FILE_HEADER };
        let mut cut = false;
        while (segment.end as usize) < bytes.len() {
            match parse_record(&bytes, first, segment.end as usize) {
                Ok(payload) => {
                    let index = segment.next();
                    check(index, payload).map_err(|what| {
                        StoreError::damaged(path, format!("the record of index {index} {what}"))
                    })?;
                    segment.positions.push(segment.end);
                    segment.end += RECORD_HEADER + payload.len() as u64;
                }
                Err(Broken { torn: true }) if newest => {
                    cut = true;
                    break;
                }
                Err(Broken { .. }) => {
                    let what =
                        format!("the record of index {} at byte {} is broken", segment.next(), segment.end);
                    return Err(StoreError::damaged(path, what));
                }
            }
        }
        if cut {
            segment.file.set_len(segment.end).at("cut the torn end of", path)?;
            segment.file.sync().at("sync", path)?;
        }
        Ok(Opened::Usable(segment, cut))
    }

    /// Index of the first record.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Index that the next record will have.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.positions.len() as u64
    }

    /// Length of the file, bytes.
    pub(crate) fn len(&self) -> u64 {
        self.end
    }

    /// Appends payloads with one write. Not on disk before [`Segment::sync`].
    pub(crate) fn append(&mut self, payloads: &[Vec<u8>]) -> Result<(), StoreError> {
        let total: usize = payloads.iter().map(|payload| payload.len() + RECORD_HEADER as usize).sum();
        let mut bytes = Vec::with_capacity(total);
        let mut positions = Vec::with_capacity(payloads.len());
        for payload in payloads {
            let position = self.end + bytes.len() as u64;
            bytes.extend_from_slice(&record_header(self.first, position, payload));
            bytes.extend_from_slice(payload);
            positions.push(position);
        }
        self.file.write_all_at(&bytes, self.end).at("write", &self.path)?;
        self.positions.extend(positions);
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Waits until everything appended is on disk.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.file.sync().at("sync", &self.path)
    }

    /// Reads one record's payload and checks it again.
    pub(crate) fn read(&self, index: u64) -> Result<Vec<u8>, StoreError> {
        let at = usize::try_from(index - self.first).expect("positions are in memory");
        let position = self.positions[at];
        let end = self.positions.get(at + 1).copied().unwrap_or(self.end);
        let mut bytes = vec![0_u8; usize::try_from(end - position).expect("records are small")];
        read_exact_at(&*self.file, &mut bytes, position).at("read", &self.path)?;
        match check_record(&bytes, self.first, position) {
            Some(payload) => Ok(payload.to_vec()),
            None => Err(StoreError::damaged(&self.path, format!("the record of index {index} is broken"))),
        }
    }

    /// Removes the records from `next` on, durably.
    pub(crate) fn truncate(&mut self, next: u64) -> Result<(), StoreError> {
        let keep = usize::try_from(next - self.first).expect("positions are in memory");
        if let Some(position) = self.positions.get(keep).copied() {
            self.file.set_len(position).at("shorten", &self.path)?;
            self.file.sync().at("sync", &self.path)?;
            self.positions.truncate(keep);
            self.end = position;
        }
        Ok(())
    }
}

/// Name of the file whose first record has this index.
pub(crate) fn file_name(first: u64) -> String {
    format!("{first:020}.raft")
}

/// The first index out of a file's name, if it is one of ours.
pub(crate) fn index_of_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".raft")?;
    (digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
}

fn file_header(first: u64) -> [u8; FILE_HEADER as usize] {
    let mut header = [0_u8; FILE_HEADER as usize];
    header[..8].copy_from_slice(MAGIC);
    header[8..10].copy_from_slice(&(DiskKind::Segment as u16).to_le_bytes());
    header[10..12].copy_from_slice(&DISK_VERSION.to_le_bytes());
    header[16..24].copy_from_slice(&first.to_le_bytes());
    let checksum = crc32c(&[&header[..24]]);
    header[24..28].copy_from_slice(&checksum.to_le_bytes());
    header
}

fn parse_file_header(bytes: &[u8]) -> Option<u64> {
    let found = bytes.get(..FILE_HEADER as usize)?;
    let first = u64::from_le_bytes(found[16..24].try_into().ok()?);
    (found == file_header(first)).then_some(first)
}

fn record_header(first: u64, position: u64, payload: &[u8]) -> [u8; RECORD_HEADER as usize] {
    let mut header = [0_u8; RECORD_HEADER as usize];
    header[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    header[4..8].copy_from_slice(&crc32c(&[payload]).to_le_bytes());
    let checksum = crc32c(&[&header[..8], &first.to_le_bytes(), &position.to_le_bytes()]);
    header[8..].copy_from_slice(&checksum.to_le_bytes());
    header
}

/// The payload of exactly one record, or `None` if any of its checksums is wrong.
fn check_record(bytes: &[u8], first: u64, position: u64) -> Option<&[u8]> {
    let (header, payload) = bytes.split_at_checked(RECORD_HEADER as usize)?;
    (header == record_header(first, position, payload)).then_some(payload)
}

struct Broken {
    torn: bool,
}

/// The payload of the record at `at`.
fn parse_record(bytes: &[u8], first: u64, at: usize) -> Result<&[u8], Broken> {
    let payload_at = at + RECORD_HEADER as usize;
    let Some(header) = bytes.get(at..payload_at) else {
        return Err(Broken { torn: true });
    };
    let length = u32::from_le_bytes(header[..4].try_into().expect("four bytes")) as usize;
    let header_is_whole = {
        let place = (first.to_le_bytes(), (at as u64).to_le_bytes());
        let checksum = crc32c(&[&header[..8], &place.0, &place.1]);
        length <= PAYLOAD_MAX && header[8..] == checksum.to_le_bytes()
    };
    if !header_is_whole {
        return Err(Broken { torn: has_lost_sector(bytes, at, payload_at) });
    }
    let end = payload_at + length;
    match bytes.get(at..end).and_then(|record| check_record(record, first, at as u64)) {
        Some(payload) => Ok(payload),
        None if bytes.len() < end => Err(Broken { torn: true }),
        // Something readable after it means that its write had been finished.
        None if end < bytes.len() && parse_record(bytes, first, end).is_ok() => Err(Broken { torn: false }),
        None => Err(Broken { torn: has_lost_sector(bytes, at, end) }),
    }
}

/// Whether a whole sector's share of `from..to` is zeros, which is how a sector looks that was never written.
fn has_lost_sector(bytes: &[u8], from: usize, to: usize) -> bool {
    let mut at = from;
    while at < to {
        let next = ((at / SECTOR + 1) * SECTOR).min(to);
        if bytes[at..next.min(bytes.len())].iter().all(|byte| *byte == 0) {
            return true;
        }
        at = next;
    }
    false
}
