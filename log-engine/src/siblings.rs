//! What a data directory remembers of all that its node has: their ids and paths. So a node that cannot read one of them can
//! still say whose it is, and one that finds nothing where it had one does not take the empty directory for a new one. Those that
//! are lost ([`crate::lost_disk`]) are remembered too, without a path: the old disk must not come back.
//!
//! ```text
//! <directory id> <path, none if it is lost>
//! crc32c <of the lines above, hexadecimal>
//! ```

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::checked_text::{checked_lines, with_checksum};
use crate::data_dir::{DataDir, read_file, write_file};
use crate::disk::Disk;
use crate::error::FileError;

pub(crate) const FILE_NAME: &str = "directories";
/// Paths are short, and a node has few directories.
const BYTES_MAX: u64 = 1 << 20;

impl DataDir {
    /// Writes down the node's data directories; those that are lost have an empty path. A path with a line break is left out.
    pub fn remember_siblings(&self, siblings: &[(Uuid, PathBuf)]) -> Result<(), FileError> {
        let text = encode(siblings);
        let path = self.path().join(FILE_NAME);
        if read_file(&**self.disk(), &path, BYTES_MAX).ok().flatten().as_deref() == Some(text.as_bytes()) {
            return Ok(());
        }
        write_file(&**self.disk(), self.path(), FILE_NAME, text.as_bytes())
    }

    /// The node's data directories as they were written down last; none if the file is damaged or missing.
    pub fn siblings(&self) -> Vec<(Uuid, PathBuf)> {
        let read = read(&**self.disk(), self.path()).map(Option::unwrap_or_default);
        read.unwrap_or_else(|Damaged| {
            let path = self.path().join(FILE_NAME);
            tracing::warn!(path = %path.display(), "the file is damaged: it is written again");
            Vec::new()
        })
    }
}

/// The file does not say what was written to it.
pub(crate) struct Damaged;

/// What the file says; `None` if it is missing or cannot be read.
pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<Vec<(Uuid, PathBuf)>>, Damaged> {
    let bytes = read_file(disk, &dir.join(FILE_NAME), BYTES_MAX).ok().flatten();
    bytes.map(|bytes| decode(&bytes).ok_or(Damaged)).transpose()
}

fn encode(siblings: &[(Uuid, PathBuf)]) -> String {
    let mut text = String::new();
    for (id, path) in siblings {
        let path = path.display().to_string();
        if !path.contains('\n') {
            writeln!(text, "{id} {path}").expect("writing to a string cannot fail");
        }
    }
    with_checksum(text)
}

fn decode(bytes: &[u8]) -> Option<Vec<(Uuid, PathBuf)>> {
    let sibling = |line: &str| {
        let (id, path) = line.split_once(' ')?;
        Some((Uuid::parse_str(id).ok()?, PathBuf::from(path)))
    };
    checked_lines(bytes)?.lines().map(sibling).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_damaged_tells_nothing() {
        let siblings = vec![
            (Uuid::from_u128(1), PathBuf::from("/disk 1/weir")),
            (Uuid::from_u128(2), PathBuf::from("b")),
            (Uuid::from_u128(3), PathBuf::new()),
        ];
        let text = encode(&siblings);
        assert_eq!(decode(text.as_bytes()), Some(siblings));
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert_eq!(decode(&bytes), None, "byte {at}");
            assert_eq!(decode(&text.as_bytes()[..at]), None, "{at} bytes");
        }
    }
}
