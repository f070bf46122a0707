//! Attributes of files, from the form of the file system below to that of FUSE.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, utimensat};

pub(super) fn attributes(inode: INodeNo, metadata: &Metadata) -> FileAttr {
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    FileAttr {
        ino: inode,
        size: metadata.len(),
        blocks: metadata.blocks(),
        atime: time(metadata.atime(), metadata.atime_nsec()),
        mtime: time(metadata.mtime(), metadata.mtime_nsec()),
        ctime: time(metadata.ctime(), metadata.ctime_nsec()),
        crtime: SystemTime::UNIX_EPOCH,
        kind: if metadata.is_dir() { FileType::Directory } else { FileType::RegularFile },
        perm: u16::try_from(metadata.mode() & 0o7777).unwrap_or_default(),
        nlink: small(metadata.nlink()),
        uid: metadata.uid(),
        gid: metadata.gid(),
        rdev: small(metadata.rdev()),
        blksize: small(metadata.blksize()),
        flags: 0,
    }
}

/// Files from before 1970 are not to be expected.
fn time(seconds: i64, nanos: i64) -> SystemTime {
    let (seconds, nanos) =
        (u64::try_from(seconds).unwrap_or_default(), u32::try_from(nanos).unwrap_or_default());
    SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos)
}

/// Sets the times of a file, those that are given.
pub(super) fn set_times(
    path: &Path,
    accessed: Option<TimeOrNow>,
    modified: Option<TimeOrNow>,
) -> io::Result<()> {
    let times = Timestamps { last_access: timespec(accessed)?, last_modification: timespec(modified)? };
    Ok(utimensat(CWD, path, &times, AtFlags::empty())?)
}

fn timespec(time: Option<TimeOrNow>) -> io::Result<Timespec> {
    Ok(match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => {
            let since = time.duration_since(SystemTime::UNIX_EPOCH).map_err(io::Error::other)?;
            let seconds = i64::try_from(since.as_secs()).map_err(io::Error::other)?;
            Timespec { tv_sec: seconds, tv_nsec: since.subsec_nanos().into() }
        }
    })
}
