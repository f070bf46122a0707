//! One directory of logs: who owns it, whose it is, and what its logs share.
//!
//! A directory belongs to one node of one cluster (file `meta.properties`, Kafka's keys) and to one process at a time
//! (file `.lock`). Its logs share the descriptor cache and the record of flushed ends. `clean-shutdown` is written
//! last at a clean stop and removed first at the next start, so that a crash while loading never looks clean.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use uuid::Uuid;

use crate::LogName;
use crate::compact::cleaned_ends::CleanedEnds;
use crate::descriptors::Descriptors;
use crate::disk::{Disk, LockGuard, OpenMode};
use crate::error::{DataDirError, FileError};
use crate::flushed_ends::{self, FlushedEnds};
use crate::lost_disk::REPLACES_LOST_DISK;
use crate::relocate;
use crate::seal::SealQueue;

mod meta;

pub(crate) use meta::{META_FILE, Meta};

const LOCK_FILE: &str = ".lock";
pub(crate) const CLEAN_FILE: &str = "clean-shutdown";
/// Holds the id of the machine's run in which the directory was last opened.
pub(crate) const BOOT_FILE: &str = "boot-id";
pub(crate) const DELETED_SUFFIX: &str = ".deleted";
pub(crate) const TMP_SUFFIX: &str = ".tmp";
const BOOT_BYTES_MAX: u64 = 4 << 10;

/// How a data directory is opened.
#[derive(Debug, Clone)]
pub struct DataDirOptions {
    pub cluster_id: String,
    pub node_id: i32,
    /// Id that the directory gets if it is new; a fresh random one, the engine has no randomness of its own.
    pub new_directory_id: Uuid,
    /// Descriptors kept open for the logs of this directory.
    pub descriptors_max: usize,
}

/// An open data directory. A clone is the same directory; the lock is held until the last is dropped.
#[derive(Clone)]
pub struct DataDir {
    inner: Arc<Inner>,
}

struct Inner {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    directory_id: Uuid,
    was_clean: bool,
    last_written_ms: Option<i64>,
    /// Set when a log could not be written: the next start must not believe in a clean stop.
    unclean: AtomicBool,
    descriptors: Arc<Descriptors>,
    ends: Arc<FlushedEnds>,
    seals: SealQueue,
    cleaned: CleanedEnds,
    dropped: CleanedEnds,
    _lock: Box<dyn LockGuard>,
}

impl DataDir {
    /// Opens the directory, or makes it if it does not exist or is empty.
    pub fn open(disk: Arc<dyn Disk>, path: &Path, options: &DataDirOptions) -> Result<DataDir, DataDirError> {
        disk.create_dir_all(path).map_err(|e| FileError::new("create directory", path, e))?;
        let lock_path = path.join(LOCK_FILE);
        let lock = disk.lock(&lock_path).map_err(|e| FileError::new("lock", &lock_path, e))?;
        let lock = lock.ok_or_else(|| DataDirError::InUse { path: path.to_owned() })?;
        let entries = disk.list(path).map_err(|e| FileError::new("list", path, e))?;
        let is_new = !entries.iter().any(|e| e.name == META_FILE);
        if is_new {
            let of_unfinished_format = |name: &str| {
                [flushed_ends::FILE_NAME, LOCK_FILE, REPLACES_LOST_DISK].contains(&name)
                    || name.ends_with(TMP_SUFFIX)
            };
            if entries.iter().any(|e| !of_unfinished_format(&e.name) && e.name != "lost+found") {
                return Err(DataDirError::Foreign { path: path.to_owned(), file: META_FILE });
            }
            if let Some(above) = path.parent() {
                // A relative path of one name lies in the current directory.
                let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
                disk.sync_dir(above).map_err(|e| FileError::new("sync", above, e))?;
            }
        }
        let meta = match is_new {
            false => Some(Meta::read(disk.as_ref(), path)?),
            true => None,
        };
        if let Some(meta) = &meta {
            meta.check(path, options)?;
        }
        let last_written_ms = disk.modified_ms(&path.join(flushed_ends::FILE_NAME)).ok().flatten();
        let was_clean = consume_clean_marker(disk.as_ref(), path)?;
        if !is_new && !was_clean {
            // What is found now must be found again: a process that died, or a sync that failed, may have left names in between.
            disk.sync_dir(path).map_err(|e| FileError::new("sync", path, e))?;
        }
        let ends = Arc::new(FlushedEnds::open(disk.clone(), path, is_new)?);
        let meta = match meta {
            Some(meta) => meta,
            None => {
                let meta = Meta::new(options);
                meta.write(disk.as_ref(), path)?;
                meta
            }
        };
        meta::add_checksum(disk.as_ref(), path, &meta);
        remove_leftovers(disk.as_ref(), path)?;
        relocate::remove_unfinished(disk.as_ref(), path, &ends)?;
        let mut logs = list_logs(disk.as_ref(), path)?;
        // They may come back.
        logs.extend(relocate::moved_away(disk.as_ref(), path)?.iter().map(|away| away.name));
        let cleaned = CleanedEnds::open(disk.clone(), path, &logs)?;
        let dropped = CleanedEnds::open_dropped(disk.clone(), path, &logs, (&ends, is_new))?;
        let descriptors = Descriptors::new(disk.clone(), options.descriptors_max);
        let inner = Inner {
            disk,
            path: path.to_owned(),
            directory_id: meta.directory_id,
            was_clean: was_clean || is_new,
            last_written_ms,
            unclean: AtomicBool::new(false),
            descriptors,
            ends,
            seals: SealQueue::default(),
            cleaned,
            dropped,
            _lock: lock,
        };
        Ok(DataDir { inner: Arc::new(inner) })
    }

    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// The id that this directory got when it was made and keeps for life.
    pub fn directory_id(&self) -> Uuid {
        self.inner.directory_id
    }

    /// Whether the last process that had it stopped cleanly (or there was none).
    pub fn was_clean(&self) -> bool {
        self.inner.was_clean
    }

    /// Whether writes that no sync confirmed may be gone: a process that did not stop cleanly had this directory in another
    /// run of the machine than `boot`. Says so until [`remember_boot`](Self::remember_boot); a directory that remembers no
    /// run was in another one, and a run that is not known (`None`) may be any.
    pub fn may_lack_unflushed(&self, boot: Option<&str>) -> Result<bool, FileError> {
        Ok(!self.inner.was_clean && !boot.map_or(Ok(false), |boot| self.remembers(boot))?)
    }

    fn remembers(&self, boot: &str) -> Result<bool, FileError> {
        let remembered = read_file(&*self.inner.disk, &self.inner.path.join(BOOT_FILE), BOOT_BYTES_MAX)?;
        Ok(remembered.as_deref() == Some(boot.as_bytes()))
    }

    /// Writes down the machine's present run, once whoever must know what was lost in the last one knows it.
    pub fn remember_boot(&self, boot: &str) -> Result<(), FileError> {
        // On a full disk it could not be written again.
        if self.remembers(boot).unwrap_or(false) {
            return Ok(());
        }
        write_file(&*self.inner.disk, &self.inner.path, BOOT_FILE, boot.as_bytes())
    }

    /// Whether how far the logs here were flushed is not known any more, because the record of it was lost or has rotted: the
    /// end of any of them may be gone, and what is left looks whole. Says so until
    /// [`told_of_lost_ends`](Self::told_of_lost_ends).
    pub fn has_lost_ends(&self) -> bool {
        self.inner.ends.is_loss_untold()
    }

    /// Writes down that whoever counts on the logs here knows that their ends were lost.
    pub fn told_of_lost_ends(&self) -> Result<(), FileError> {
        self.inner.ends.loss_told()
    }

    /// When an earlier process last noted flushed ends here, in milliseconds since the Unix epoch; `None` in a new directory.
    pub fn last_written_ms(&self) -> Option<i64> {
        self.inner.last_written_ms
    }

    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.inner.disk
    }

    /// Descriptors that the logs of this directory have open at the moment.
    pub fn descriptors_open(&self) -> usize {
        self.inner.descriptors.open_count()
    }

    /// The logs that have a directory here, sorted.
    pub fn list(&self) -> Result<Vec<LogName>, FileError> {
        list_logs(self.inner.disk.as_ref(), &self.inner.path)
    }

    /// The logs that were ever flushed here and not deleted: one that is not in [`list`](Self::list) was lost.
    pub fn known_logs(&self) -> Vec<LogName> {
        self.inner.ends.logs()
    }

    /// Writes and syncs what is known to be flushed. Flush rounds do it by themselves; call it on an idle directory
    /// (now and then) so that a crash later has nothing to scan.
    pub fn checkpoint(&self) -> Result<(), FileError> {
        self.inner.ends.write()?;
        self.inner.ends.sync()
    }

    /// Notes that every log was closed without an error, so that the next start may believe the files. Call it last.
    /// Answers `false`, and leaves no mark, if some log could not be written.
    pub fn close_clean(&self) -> Result<bool, FileError> {
        self.checkpoint()?;
        if self.inner.unclean.load(Ordering::Acquire) {
            return Ok(false);
        }
        // Empty, so that it finds room on a full disk.
        write_file(&*self.inner.disk, &self.inner.path, CLEAN_FILE, b"")?;
        Ok(true)
    }

    pub(crate) fn descriptors(&self) -> &Arc<Descriptors> {
        &self.inner.descriptors
    }

    pub(crate) fn ends(&self) -> &FlushedEnds {
        &self.inner.ends
    }

    pub(crate) fn seal_queue(&self) -> &SealQueue {
        &self.inner.seals
    }

    pub(crate) fn cleaned(&self) -> &CleanedEnds {
        &self.inner.cleaned
    }

    pub(crate) fn dropped(&self) -> &CleanedEnds {
        &self.inner.dropped
    }

    /// Some log here could not be written, or is left as an earlier process left it: no stop of this process is clean.
    pub fn set_unclean(&self) {
        self.inner.unclean.store(true, Ordering::Release);
    }
}

fn list_logs(disk: &dyn Disk, path: &Path) -> Result<Vec<LogName>, FileError> {
    let entries = disk.list(path).map_err(|e| FileError::new("list", path, e))?;
    let mut logs: Vec<LogName> =
        entries.iter().filter(|e| e.is_dir).filter_map(|e| LogName::parse(&e.name)).collect();
    logs.sort_unstable();
    Ok(logs)
}

/// Writes a small file whole or not at all: new file, sync, rename, sync of the directory.
pub(crate) fn write_file(disk: &dyn Disk, dir: &Path, name: &str, bytes: &[u8]) -> Result<(), FileError> {
    let path = dir.join(name);
    let tmp = dir.join(format!("{name}{TMP_SUFFIX}"));
    let write = || -> io::Result<()> {
        let file = disk.open(&tmp, OpenMode::CreateOrEmpty)?;
        file.write_at(bytes, 0)?;
        file.sync()?;
        disk.rename(&tmp, &path)?;
        disk.sync_dir(dir)
    };
    write().map_err(|e| {
        // It would keep the room that it got. If it cannot be removed, the next start does it.
        let _ = disk.remove_file(&tmp);
        FileError::new("write", path, e)
    })
}

/// Reads a whole file that should not be larger than `bytes_max`; `None` if it does not exist.
pub(crate) fn read_file(disk: &dyn Disk, path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>, FileError> {
    let read = || -> io::Result<Vec<u8>> {
        let file = disk.open(path, OpenMode::Read)?;
        let len = file.len()?;
        if len > bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut bytes = vec![0; len as usize];
        file.read_at(&mut bytes, 0)?;
        Ok(bytes)
    };
    match read() {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(FileError::new("read", path, e)),
    }
}

/// Removes a directory of files and everything in it; one that does not exist is fine.
pub(crate) fn remove_dir_and_files(disk: &dyn Disk, dir: &Path) -> Result<(), FileError> {
    let entries = match disk.list(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(FileError::new("list", dir, e)),
    };
    for entry in entries {
        let path = dir.join(&entry.name);
        match disk.remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(FileError::new("remove", path, e)),
            Ok(()) | Err(_) => {}
        }
    }
    match disk.remove_dir(dir) {
        // Somebody else may be at it too: what a log left is removed in the background, and before its name is used again.
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(FileError::new("remove", dir, e)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn consume_clean_marker(disk: &dyn Disk, path: &Path) -> Result<bool, FileError> {
    let marker = path.join(CLEAN_FILE);
    // Planted: the marker stays, and says after a crash that there was none.
    if cfg!(weir_planted_bug = "B8") {
        let entries = disk.list(path).map_err(|e| FileError::new("list", path, e))?;
        return Ok(entries.iter().any(|entry| entry.name == CLEAN_FILE));
    }
    match disk.remove_file(&marker) {
        Ok(()) => {
            disk.sync_dir(path).map_err(|e| FileError::new("sync", path, e))?;
            Ok(true)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(FileError::new("remove", marker, e)),
    }
}

/// What deletions and replacements left when the process died in the middle.
fn remove_leftovers(disk: &dyn Disk, path: &Path) -> Result<(), FileError> {
    for entry in disk.list(path).map_err(|e| FileError::new("list", path, e))? {
        let leftover = path.join(&entry.name);
        let name = entry.name.strip_suffix(DELETED_SUFFIX);
        if entry.is_dir && name.is_some_and(|name| LogName::parse(name).is_some()) {
            remove_dir_and_files(disk, &leftover)?;
        } else if !entry.is_dir && entry.name.ends_with(TMP_SUFFIX) {
            disk.remove_file(&leftover).map_err(|e| FileError::new("remove", leftover, e))?;
        }
    }
    Ok(())
}
