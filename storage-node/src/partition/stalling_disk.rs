//! A disk for tests whose syncs and removals of some files, and looks into some directories, wait until they are let go; its
//! reads of them do if they are to.

use std::io;
use std::path::Path;
use std::sync::Arc;

use log_engine::{DirEntry, Disk, DiskFile, FileSystem, LockGuard, OpenMode};
use parking_lot::{Condvar, Mutex};

/// What waits.
#[derive(Default)]
struct Gate {
    held: Mutex<Held>,
    opened: Condvar,
}

/// Syncs and removals of files and lists of directories whose path contains this text wait, while there is one.
#[derive(Default)]
struct Held {
    text: Option<String>,
    /// Reads wait too.
    reads: bool,
    /// It must be all of the path.
    is_whole: bool,
    waiting: usize,
}

impl Gate {
    fn pass(&self, path: &str) {
        self.pass_if(path, |_| true);
    }

    fn pass_if(&self, path: &str, waits: impl Fn(&Held) -> bool) {
        let mut held = self.held.lock();
        let is_held = |held: &Held| match &held.text {
            Some(text) if held.is_whole => path == text,
            Some(text) => path.contains(text),
            None => false,
        };
        while waits(&held) && is_held(&held) {
            held.waiting += 1;
            self.opened.wait(&mut held);
            held.waiting -= 1;
        }
    }
}

/// See the module.
pub(crate) struct StallingDisk {
    inner: Arc<dyn Disk>,
    gate: Arc<Gate>,
}

struct StallingFile {
    inner: Arc<dyn DiskFile>,
    path: String,
    gate: Arc<Gate>,
}

impl StallingDisk {
    pub(crate) fn over(inner: Arc<dyn Disk>) -> Arc<Self> {
        Arc::new(Self { inner, gate: Arc::default() })
    }

    /// From now on, syncs and removals of files and lists of directories whose path contains `text` wait.
    pub(crate) fn stall(&self, text: &str) {
        let mut held = self.gate.held.lock();
        (held.text, held.is_whole) = (Some(text.to_owned()), false);
    }

    /// The same for what has this very path.
    pub(crate) fn stall_only(&self, path: &str) {
        let mut held = self.gate.held.lock();
        (held.text, held.is_whole) = (Some(path.to_owned()), true);
    }

    /// The same, and reads of such files.
    pub(crate) fn stall_with_reads(&self, text: &str) {
        let mut held = self.gate.held.lock();
        (held.text, held.reads) = (Some(text.to_owned()), true);
    }

    /// Lets everything go.
    pub(crate) fn release(&self) {
        let mut held = self.gate.held.lock();
        (held.text, held.reads) = (None, false);
        drop(held);
        self.gate.opened.notify_all();
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.gate.held.lock().waiting
    }
}

impl Disk for StallingDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let inner = self.inner.open(path, mode)?;
        let path = path.display().to_string();
        Ok(Arc::new(StallingFile { inner, path, gate: Arc::clone(&self.gate) }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.gate.pass(&dir.display().to_string());
        self.inner.list(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.gate.pass(&path.display().to_string());
        self.inner.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_dir(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }

    fn file_system(&self, dir: &Path) -> io::Result<Box<dyn FileSystem>> {
        self.inner.file_system(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn LockGuard>>> {
        self.inner.lock(path)
    }
}

impl DiskFile for StallingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.gate.pass_if(&self.path, |held| held.reads);
        self.inner.read_at(buf, offset)
    }

    fn read_at_warm(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at_warm(buf, offset)
    }

    fn is_warm(&self, offset: u64, len: u64) -> bool {
        self.inner.is_warm(offset, len)
    }

    fn warm_up(&self, offset: u64, len: u64) {
        self.inner.warm_up(offset, len);
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(bytes, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn reserve(&self, offset: u64, len: u64) -> bool {
        self.inner.reserve(offset, len)
    }

    fn sync(&self) -> io::Result<()> {
        self.gate.pass(&self.path);
        self.inner.sync()
    }

    fn os_file(&self) -> Option<Arc<std::fs::File>> {
        self.inner.os_file()
    }
}
