//! A small value in a file, in two copies with checksums, so that a crash while writing leaves one of them whole.
//!
//! Two ways to write. *Durable* writes and syncs one copy after the other: whatever single copy is damaged later, by a
//! crash or by the disk, the other one holds a value that is right to use. *Lazy* writes alternate between the copies
//! without waiting for the disk: for values that are only lower bounds.

use super::disk::{DiskFile, Open, SharedDisk};
use super::store_error::{AtPath, StoreError, crc32c};
use std::path::{Path, PathBuf};

/// Distance of the copies: a block, so that no device writes both at once.
const SLOT: u64 = 4096;
const MAGIC: u32 = 0x5753_4c54;
/// magic, length, sequence, checksum.
const HEADER: usize = 20;
/// Largest value, bytes.
pub(crate) const VALUE_MAX: usize = SLOT as usize - HEADER;

/// An open file of this kind.
#[derive(Debug)]
pub(crate) struct SlotFile {
    path: PathBuf,
    file: Box<dyn DiskFile>,
    /// Sequence number of the newest copy; its parity says which one it is.
    sequence: u64,
}

impl SlotFile {
    /// Makes the file with a first value. The caller makes its name durable ([`sync_directory`]).
    ///
    /// [`sync_directory`]: super::store_error::sync_directory
    pub(crate) fn create(disk: &SharedDisk, path: &Path, value: &[u8]) -> Result<Self, StoreError> {
        let file = disk.open(path, Open::Empty).at("create", path)?;
        let mut slots = Self { path: path.to_owned(), file, sequence: 0 };
        slots.write_lazy(value)?;
        slots.write_lazy(value)?;
        slots.file.sync().at("sync", path)?;
        Ok(slots)
    }

    /// Opens the file and reads its newest whole value. One damaged copy is what a crash may leave and is passed over; so
    /// that the other one never stands alone, or beside an older value, both are made the same.
    pub(crate) fn open(disk: &SharedDisk, path: &Path) -> Result<(Self, Vec<u8>), StoreError> {
        let file = disk.open(path, Open::Existing).at("open", path)?;
        let copies = [0, 1]
            .into_iter()
            .map(|slot| read_slot(&*file, slot).at("read", path))
            .collect::<Result<Vec<_>, _>>()?;
        let whole = copies.into_iter().flatten().collect::<Vec<_>>();
        let newest = whole.iter().max_by_key(|(sequence, _)| *sequence).cloned();
        let Some((sequence, value)) = newest else {
            return Err(StoreError::damaged(path, "neither of its two copies has the right checksum"));
        };
        let mut slots = Self { path: path.to_owned(), file, sequence };
        if whole.len() < 2 || whole.iter().any(|(_, other)| *other != value) {
            slots.write_durable(&value)?;
        }
        Ok((slots, value))
    }

    /// Writes both copies and waits for the disk after each.
    pub(crate) fn write_durable(&mut self, value: &[u8]) -> Result<(), StoreError> {
        for _ in 0..2 {
            self.write_lazy(value)?;
            self.file.sync().at("sync", &self.path)?;
        }
        Ok(())
    }

    /// Writes the older copy and leaves it to the system when that reaches the disk.
    pub(crate) fn write_lazy(&mut self, value: &[u8]) -> Result<(), StoreError> {
        assert!(value.len() <= VALUE_MAX, "values of slot files are small");
        self.sequence += 1;
        let mut bytes = Vec::with_capacity(HEADER + value.len());
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        let checksum = crc32c(&[&bytes, value]);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes.extend_from_slice(value);
        let slot = self.sequence % 2;
        self.file.write_all_at(&bytes, slot * SLOT).at("write", &self.path)
    }
}

/// One copy, or `None` if it is not whole.
fn read_slot(file: &dyn DiskFile, slot: u64) -> std::io::Result<Option<(u64, Vec<u8>)>> {
    let mut bytes = vec![0_u8; SLOT as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        let read = file.read_at(&mut bytes[filled..], slot * SLOT + filled as u64)?;
        if read == 0 {
            break;
        }
        filled += read;
    }
    bytes.truncate(filled);
    Ok(parse_slot(&bytes).filter(|(sequence, _)| sequence % 2 == slot))
}

fn parse_slot(bytes: &[u8]) -> Option<(u64, Vec<u8>)> {
    let number = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    if number(0)? != MAGIC {
        return None;
    }
    let sequence = u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
    let value = bytes.get(HEADER..HEADER.checked_add(number(4)? as usize)?)?;
    (crc32c(&[&bytes[..16], value]) == number(16)?).then(|| (sequence, value.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::disk::system_disk;

    fn fresh() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("value");
        (dir, path)
    }

    #[test]
    fn the_newest_value_is_read() {
        let (_dir, path) = fresh();
        let mut file = SlotFile::create(&system_disk(), &path, b"one").expect("created");
        file.write_lazy(b"two").expect("written");
        file.write_lazy(b"three").expect("written");
        drop(file);
        let (mut file, value) = SlotFile::open(&system_disk(), &path).expect("opened");
        assert_eq!(value, b"three");
        file.write_durable(b"four").expect("written");
        assert_eq!(SlotFile::open(&system_disk(), &path).expect("opened").1, b"four");
    }

    #[test]
    fn any_single_bit_flip_leaves_a_durable_value_readable() {
        let (_dir, path) = fresh();
        SlotFile::create(&system_disk(), &path, b"value").expect("created");
        let whole = std::fs::read(&path).expect("read");
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            std::fs::write(&path, &bytes).expect("write");
            assert_eq!(
                SlotFile::open(&system_disk(), &path).expect("one copy is whole").1,
                b"value",
                "byte {at}"
            );
        }
    }

    #[test]
    fn damage_to_the_other_copy_later_brings_back_nothing_older() {
        let (_dir, path) = fresh();
        // Sequence 3 stands in copy 1; the crash came before copy 0 was written too.
        SlotFile::create(&system_disk(), &path, b"older")
            .expect("created")
            .write_lazy(b"newer")
            .expect("written");
        drop(SlotFile::open(&system_disk(), &path).expect("opened"));
        for slot in 0..2 {
            let mut bytes = std::fs::read(&path).expect("read");
            bytes[slot * SLOT as usize + HEADER] ^= 1;
            std::fs::write(&path, &bytes).expect("write");
            assert_eq!(
                SlotFile::open(&system_disk(), &path).expect("opened").1,
                b"newer",
                "without copy {slot}"
            );
        }
    }

    #[test]
    fn damage_to_both_copies_is_noticed() {
        let (_dir, path) = fresh();
        SlotFile::create(&system_disk(), &path, b"value").expect("created");
        let mut bytes = std::fs::read(&path).expect("read");
        bytes[HEADER] ^= 1;
        bytes[SLOT as usize + HEADER] ^= 1;
        std::fs::write(&path, &bytes).expect("write");
        assert!(matches!(SlotFile::open(&system_disk(), &path), Err(StoreError::Damaged { .. })));
        std::fs::write(&path, b"").expect("write");
        assert!(matches!(SlotFile::open(&system_disk(), &path), Err(StoreError::Damaged { .. })));
    }
}
