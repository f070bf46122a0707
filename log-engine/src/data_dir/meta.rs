//! Whose a data directory is: Kafka's file `meta.properties`, which Kafka's tools can read, with one key more.
//!
//! ```text
//! version=1
//! cluster.id=<of the cluster>
//! node.id=<of the node>
//! directory.id=<of this directory>
//! crc32c=<of these lines in this order, hexadecimal>
//! ```
//!
//! A directory that comes back as another one, or as another node's, would be believed to hold what it does not. So a file with
//! a wrong checksum is refused. One without a checksum is of an older version of Weir, and gets one.

use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::{DataDirOptions, read_file, write_file};
use crate::checked_text::checksum;
use crate::disk::Disk;
use crate::error::{DataDirError, FileError};

pub(crate) const META_FILE: &str = "meta.properties";
/// A real one has five short lines.
const META_BYTES_MAX: u64 = 64 << 10;
const CHECKSUM_KEY: &str = "crc32c";

/// The content of `meta.properties`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) cluster_id: String,
    pub(crate) node_id: i32,
    pub(crate) directory_id: Uuid,
    /// Whether the file had the checksum of the rest.
    pub(crate) is_checked: bool,
}

impl Meta {
    /// Of a directory that is about to be made.
    pub(super) fn new(options: &DataDirOptions) -> Meta {
        Meta {
            cluster_id: options.cluster_id.clone(),
            node_id: options.node_id,
            directory_id: options.new_directory_id,
            is_checked: true,
        }
    }

    /// Reads the file. A missing one is damage: whoever asks has found others that go with it.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> Result<Meta, DataDirError> {
        let bytes = read_file(disk, &dir.join(META_FILE), META_BYTES_MAX)?.unwrap_or_default();
        Meta::parse(&bytes).map_err(|reason| DataDirError::Damaged { path: dir.to_owned(), reason })
    }

    fn parse(bytes: &[u8]) -> Result<Meta, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| format!("{META_FILE} is not text"))?;
        let find = |key: &str| {
            let line = text.lines().find_map(|l| l.split_once('=').filter(|(k, _)| k.trim() == key));
            line.map(|(_, value)| value.trim())
        };
        let value = |key: &str| find(key).ok_or_else(|| format!("{META_FILE} has no {key}"));
        if value("version")? != "1" {
            return Err(format!("{META_FILE} has an unknown version"));
        }
        let (node_id, directory_id) = (value("node.id")?, value("directory.id")?);
        let checksum = find(CHECKSUM_KEY);
        let meta = Meta {
            cluster_id: value("cluster.id")?.to_owned(),
            node_id: node_id
                .parse()
                .map_err(|_| format!("node.id '{node_id}' in {META_FILE} is not a number"))?,
            directory_id: Uuid::parse_str(directory_id)
                .map_err(|_| format!("directory.id '{directory_id}' in {META_FILE} is not a UUID"))?,
            is_checked: checksum.is_some(),
        };
        let said = checksum.map(|said| u32::from_str_radix(said, 16));
        if said.is_some_and(|said| said != Ok(meta.checksum())) {
            return Err(format!(
                "{META_FILE} does not have the checksum that it names (whoever has changed it on purpose must take out the \
                 line {CHECKSUM_KEY})"
            ));
        }
        Ok(meta)
    }

    /// Refuses the directory of another cluster or node.
    pub(super) fn check(&self, path: &Path, options: &DataDirOptions) -> Result<(), DataDirError> {
        if self.cluster_id != options.cluster_id {
            return Err(DataDirError::OtherCluster {
                path: path.to_owned(),
                expected: options.cluster_id.clone(),
                found: self.cluster_id.clone(),
            });
        }
        if self.node_id != options.node_id {
            return Err(DataDirError::OtherNode {
                path: path.to_owned(),
                expected: options.node_id,
                found: self.node_id,
            });
        }
        Ok(())
    }

    /// Writes the file, whole or not at all.
    pub(super) fn write(&self, disk: &dyn Disk, dir: &Path) -> Result<(), FileError> {
        let text = format!("{}{CHECKSUM_KEY}={:08x}\n", self.lines(), self.checksum());
        write_file(disk, dir, META_FILE, text.as_bytes())
    }

    fn lines(&self) -> String {
        format!(
            "version=1\ncluster.id={}\nnode.id={}\ndirectory.id={}\n",
            self.cluster_id, self.node_id, self.directory_id
        )
    }

    fn checksum(&self) -> u32 {
        checksum(self.lines().as_bytes())
    }
}

/// Gives the file of an older version its checksum. Without room it stays as it is.
pub(super) fn add_checksum(disk: &dyn Disk, dir: &Path, meta: &Meta) {
    if meta.is_checked {
        return;
    }
    let path: PathBuf = dir.join(META_FILE);
    match meta.write(disk, dir) {
        Ok(()) => tracing::info!(path = %path.display(), "the file has got its checksum"),
        Err(error) => tracing::warn!(%error, "the file stays without its checksum"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> Meta {
        Meta {
            cluster_id: "Some-cluster_1".into(),
            node_id: 23,
            directory_id: Uuid::from_u128(0x0123_4567_89ab_4def_8123_4567_89ab_cdef),
            is_checked: true,
        }
    }

    fn text() -> String {
        format!("{}{CHECKSUM_KEY}={:08x}\n", meta().lines(), meta().checksum())
    }

    #[test]
    fn whatever_bit_flips_nothing_else_is_believed() {
        let whole = text();
        assert_eq!(Meta::parse(whole.as_bytes()), Ok(meta()));
        let mut refused = 0;
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut bytes = whole.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                match Meta::parse(&bytes) {
                    // A line of which the key has changed may be the checksum's.
                    Ok(read) => assert_eq!(Meta { is_checked: true, ..read }, meta(), "byte {at} bit {bit}"),
                    Err(reason) => {
                        assert!(reason.contains(META_FILE), "{reason}");
                        refused += 1;
                    }
                }
            }
            if let Ok(cut) = Meta::parse(&whole.as_bytes()[..at]) {
                assert_eq!(Meta { is_checked: true, ..cut }, meta(), "{at} bytes");
            }
        }
        assert!(refused > 6 * meta().lines().len(), "{refused}");
    }

    #[test]
    fn a_file_that_another_tool_has_written_anew_is_the_same() {
        let mut lines: Vec<String> = text().lines().map(str::to_owned).collect();
        lines.reverse();
        lines.insert(0, "#Mon Jan 05 10:00:00 UTC 2026".to_owned());
        assert_eq!(Meta::parse(lines.join("\r\n").as_bytes()), Ok(meta()));
    }

    #[test]
    fn one_of_an_older_version_is_believed() {
        let read = Meta::parse(meta().lines().as_bytes()).unwrap();
        assert_eq!(read, Meta { is_checked: false, ..meta() });
    }
}
