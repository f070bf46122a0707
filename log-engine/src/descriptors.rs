//! A bounded cache of open files, shared by all logs of one data directory.
//!
//! A file with unflushed bytes is *pinned*: were its descriptor closed, a failed write-back could be reported to
//! nobody. Unpinned files are closed in order of last use when the bound is reached. Whoever still holds the `Arc` of
//! a closed file, a reader in the middle of a `sendfile` for one, may finish with it.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::disk::{Disk, DiskFile, OpenMode};

/// The cache.
pub(crate) struct Descriptors {
    disk: Arc<dyn Disk>,
    open_max: usize,
    next_id: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: HashMap<u64, Entry>,
    /// Unpinned files by last use.
    idle: BTreeMap<u64, u64>,
    tick: u64,
}

struct Entry {
    file: Arc<dyn DiskFile>,
    pins: usize,
    last_use: u64,
}

/// A file that may or may not be open at the moment.
#[derive(Debug, Clone)]
pub(crate) struct CachedFile {
    id: u64,
    path: Arc<Path>,
}

impl CachedFile {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn path(&self) -> &Arc<Path> {
        &self.path
    }
}

/// Keeps a file's descriptor open while it lives.
pub(crate) struct Pin {
    cache: Arc<Descriptors>,
    id: u64,
    file: Arc<dyn DiskFile>,
    path: Arc<Path>,
}

impl Pin {
    pub(crate) fn file(&self) -> &Arc<dyn DiskFile> {
        &self.file
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut state = self.cache.state.lock();
        // The file may have been forgotten, and opened again by a reader that was late.
        let same = |entry: &&mut Entry| Arc::ptr_eq(&entry.file, &self.file);
        let Some(entry) = state.open.get_mut(&self.id).filter(same) else { return };
        entry.pins -= 1;
        if entry.pins == 0 {
            let last_use = entry.last_use;
            state.idle.insert(last_use, self.id);
        }
        let closed = state.close_idle(self.cache.open_max);
        drop(state);
        drop(closed);
    }
}

impl Descriptors {
    pub(crate) fn new(disk: Arc<dyn Disk>, open_max: usize) -> Arc<Descriptors> {
        Arc::new(Descriptors {
            disk,
            open_max: open_max.max(1),
            next_id: AtomicU64::new(1),
            state: Mutex::default(),
        })
    }

    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Names a file; nothing is opened yet.
    pub(crate) fn name(&self, path: PathBuf) -> CachedFile {
        CachedFile { id: self.next_id.fetch_add(1, Ordering::Relaxed), path: path.into() }
    }

    /// The open file, opened if need be.
    pub(crate) fn get(&self, file: &CachedFile) -> io::Result<Arc<dyn DiskFile>> {
        if let Some(open) = self.get_open(file) {
            return Ok(open);
        }
        let opened = self.disk.open(&file.path, OpenMode::ReadWrite)?;
        Ok(self.insert(file, opened, 0))
    }

    /// The file if it is open; never touches the disk.
    pub(crate) fn get_open(&self, file: &CachedFile) -> Option<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        state.touch(file.id)
    }

    /// Opens the file if need be and keeps it open until the pin is dropped.
    pub(crate) fn pin(self: &Arc<Self>, file: &CachedFile, mode: OpenMode) -> io::Result<Pin> {
        let mut state = self.state.lock();
        let open = match state.touch(file.id) {
            Some(open) => {
                state.add_pin(file.id);
                drop(state);
                open
            }
            None => {
                drop(state);
                let opened = self.disk.open(&file.path, mode)?;
                self.insert(file, opened, 1)
            }
        };
        Ok(Pin { cache: self.clone(), id: file.id, file: open, path: file.path.clone() })
    }

    /// Takes a file over that is open already, under whatever name, and keeps it open until the pin is dropped.
    pub(crate) fn pin_open(self: &Arc<Self>, file: &CachedFile, opened: Arc<dyn DiskFile>) -> Pin {
        let file_open = self.insert(file, opened, 1);
        Pin { cache: self.clone(), id: file.id, file: file_open, path: file.path.clone() }
    }

    /// Forgets a file that was removed or replaced on disk.
    pub(crate) fn forget(&self, file: &CachedFile) {
        let mut state = self.state.lock();
        let entry = state.open.remove(&file.id);
        if let Some(entry) = &entry {
            state.idle.remove(&entry.last_use);
        }
        drop(state);
    }

    /// Files open at the moment.
    pub(crate) fn open_count(&self) -> usize {
        self.state.lock().open.len()
    }

    fn insert(&self, file: &CachedFile, opened: Arc<dyn DiskFile>, pins: usize) -> Arc<dyn DiskFile> {
        let mut state = self.state.lock();
        // Two may have opened it at once: the first descriptor stays, or unflushed bytes would be behind the other.
        let open = match state.touch(file.id) {
            Some(open) => open,
            None => {
                state.tick += 1;
                let last_use = state.tick;
                state.open.insert(file.id, Entry { file: opened.clone(), pins: 0, last_use });
                state.idle.insert(last_use, file.id);
                opened
            }
        };
        for _ in 0..pins {
            state.add_pin(file.id);
        }
        let closed = state.close_idle(self.open_max);
        drop(state);
        drop(closed);
        open
    }
}

impl State {
    fn touch(&mut self, id: u64) -> Option<Arc<dyn DiskFile>> {
        self.tick += 1;
        let tick = self.tick;
        let entry = self.open.get_mut(&id)?;
        let before = std::mem::replace(&mut entry.last_use, tick);
        if entry.pins == 0 {
            self.idle.remove(&before);
            self.idle.insert(tick, id);
        }
        Some(entry.file.clone())
    }

    fn add_pin(&mut self, id: u64) {
        if let Some(entry) = self.open.get_mut(&id) {
            entry.pins += 1;
            self.idle.remove(&entry.last_use);
        }
    }

    /// Takes idle files out until the bound holds or only pinned ones are left; the caller closes them outside of
    /// the lock.
    fn close_idle(&mut self, open_max: usize) -> Vec<Entry> {
        let mut closed = Vec::new();
        while self.open.len() > open_max {
            let Some((_, id)) = self.idle.pop_first() else { break };
            closed.extend(self.open.remove(&id));
        }
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimDisk;

    fn cache(open_max: usize) -> (Arc<Descriptors>, Vec<CachedFile>) {
        let disk = SimDisk::new(1);
        let cache = Descriptors::new(disk.clone(), open_max);
        let files: Vec<CachedFile> = (0..6).map(|i| cache.name(PathBuf::from(format!("f{i}")))).collect();
        for file in &files {
            disk.open(file.path(), OpenMode::CreateNew).unwrap();
        }
        (cache, files)
    }

    #[test]
    fn the_longest_unused_file_is_closed_and_a_pinned_one_never() {
        let (cache, files) = cache(3);
        let pin = cache.pin(&files[0], OpenMode::ReadWrite).unwrap();
        for file in &files[1..] {
            cache.get(file).unwrap();
        }
        assert_eq!(cache.open_count(), 3);
        assert!(cache.get_open(&files[0]).is_some());
        assert!(cache.get_open(&files[3]).is_none());
        assert!(cache.get_open(&files[4]).is_some() && cache.get_open(&files[5]).is_some());
        drop(pin);
        // Now the once pinned file is the oldest.
        cache.get(&files[1]).unwrap();
        assert!(cache.get_open(&files[0]).is_none());
    }

    #[test]
    fn a_pin_of_a_forgotten_file_does_not_count_for_its_successor() {
        let (cache, files) = cache(1);
        let old = cache.pin(&files[0], OpenMode::ReadWrite).unwrap();
        cache.forget(&files[0]);
        cache.get(&files[0]).unwrap();
        drop(old);
        cache.get(&files[1]).unwrap();
        assert!(cache.get_open(&files[0]).is_none(), "it can still be closed");
        assert_eq!(cache.open_count(), 1);
    }

    #[test]
    fn pins_may_exceed_the_bound_until_they_are_dropped() {
        let (cache, files) = cache(2);
        let pins: Vec<Pin> = files.iter().map(|f| cache.pin(f, OpenMode::ReadWrite).unwrap()).collect();
        assert_eq!(cache.open_count(), 6);
        let again = cache.pin(&files[0], OpenMode::ReadWrite).unwrap();
        drop(pins);
        assert_eq!(cache.open_count(), 2);
        assert!(cache.get_open(&files[0]).is_some());
        drop(again);
        cache.forget(&files[0]);
        assert_eq!(cache.open_count(), 1);
    }
}
