//! A disk in memory that behaves as badly as real ones may.
//!
//! Every file has a cached and a durable content and the list of operations between the two; so has every directory.
//! A power cut keeps any subset of the unsynced writes at sector grain and any subset of the unsynced names, chosen by
//! the seed. A failed sync drops the dirty pages: the cache still shows them, the device never gets them, and only
//! handles that were open at the time hear of it, once. The same seed and the same calls give the same disk.

mod choices;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

pub use choices::CrashChoices;
use state::{FileOp, Node, SimInode, State, is_root};

use super::{DirEntry, Disk, DiskFile, DiskSpace, FileSystem, LockGuard, OpenMode};

/// A fault that the next matching operation meets, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SimFault {
    /// A write to a file whose path ends so writes half of its bytes and fails with EIO.
    Write(String),
    /// A sync of such a file fails and its dirty pages are lost.
    Sync(String),
    /// The same with ENOSPC, as on file systems that find out about space only at write-back.
    SyncNoSpace(String),
    /// A read of such a file fails with EIO.
    Read(String),
    /// A rename of such a file or directory fails with EIO, and changes nothing.
    Rename(String),
    /// A sync of such a directory fails; which of its names last is as open as before.
    SyncDir(String),
    /// The first sync of the directory after something in it whose name ends so got another name.
    SyncDirAfterRename(String),
    /// The next sync of the whole file system fails; the dirty pages of such a file are lost.
    FileSystemSync(String),
}

/// The simulated disk. Cheap to share: wrap it in `Arc`.
pub struct SimDisk {
    this: Weak<SimDisk>,
    state: Mutex<State>,
}

struct SimFile {
    disk: Arc<SimDisk>,
    inode: u64,
    path: PathBuf,
    life: u64,
    errors_seen: Mutex<u64>,
}

struct SimFileSystem {
    disk: Arc<SimDisk>,
    life: u64,
    own_mount: bool,
}

struct SimLock {
    disk: Arc<SimDisk>,
    path: PathBuf,
    life: u64,
}

impl SimDisk {
    pub fn new(seed: u64) -> Arc<SimDisk> {
        let state = State {
            random: seed,
            choices: None,
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            name_ops: Vec::new(),
            locked: BTreeSet::new(),
            next_inode: 1,
            ops: 0,
            crash_at: None,
            crashed: false,
            life: 0,
            faults: Vec::new(),
            capacity: None,
            inodes_max: None,
            own_mount: false,
        };
        Arc::new_cyclic(|this| SimDisk { this: this.clone(), state: Mutex::new(state) })
    }

    /// Operations so far that change the disk or make it durable; the clock of [`crash_at`](Self::crash_at).
    pub fn ops(&self) -> u64 {
        self.state.lock().ops
    }

    /// The power goes when `ops` reaches this number: that operation and all after it fail.
    pub fn crash_at(&self, ops: u64) {
        self.state.lock().crash_at = Some(ops);
    }

    /// Whether the power is off.
    pub fn is_crashed(&self) -> bool {
        self.state.lock().crashed
    }

    /// Power off (if it is not yet) and on again: what was not synced survives by chance. Older handles are dead.
    pub fn restart(&self) {
        self.state.lock().restart(true);
    }

    /// The same, but of what was not synced those survive that `choices` say, which it answers when all are settled.
    pub fn restart_choosing(&self, choices: CrashChoices) -> CrashChoices {
        let mut state = self.state.lock();
        state.choices = Some(choices);
        state.restart(true);
        state.choices.take().unwrap_or_default()
    }

    /// The process died but the machine did not: everything that was written is still there, synced or not.
    pub fn restart_process(&self) {
        self.state.lock().restart(false);
    }

    /// Arms a fault.
    pub fn inject(&self, fault: SimFault) {
        self.state.lock().faults.push(fault);
    }

    /// Bytes that all files together may take; more, or a directory when they are taken, is ENOSPC.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state.lock().capacity = bytes;
    }

    /// Files and directories that there may be; one more is ENOSPC.
    pub fn set_inodes_max(&self, count: Option<usize>) {
        self.state.lock().inodes_max = count;
    }

    /// Files and directories that there are.
    pub fn used_inodes(&self) -> usize {
        self.state.lock().names.len()
    }

    /// Bytes that all files together take, what is reserved for them included.
    pub fn used_bytes(&self) -> u64 {
        self.state.lock().used_bytes()
    }

    /// What [`FileSystem::is_own_mount`] says of handles opened from now on.
    pub fn set_own_mount(&self, own_mount: bool) {
        self.state.lock().own_mount = own_mount;
    }

    /// The device fails to write back the dirty pages of a file in the background.
    pub fn lose_dirty_pages(&self, path: &Path) {
        let mut state = self.state.lock();
        if let Some(&Node::File(inode)) = state.names.get(path) {
            state.lose_dirty_pages(inode);
        }
    }

    /// Changes durable and cached bytes behind everybody's back, as rot does. The file must reach that far.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) {
        let mut state = self.state.lock();
        if let Some(&Node::File(inode)) = state.names.get(path)
            && let Some(file) = state.files.get_mut(&inode)
        {
            for content in [&mut file.cached, &mut file.durable] {
                if let Some(byte) = content.get_mut(offset as usize) {
                    *byte ^= 1 << (bit & 7);
                }
            }
        }
    }

    fn arc(&self) -> Arc<SimDisk> {
        self.this.upgrade().expect("a SimDisk lives in the Arc that its constructor made")
    }
}

fn eio() -> io::Error {
    rustix::io::Errno::IO.into()
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or_else(|| Path::new(""))
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        state.check_power()?;
        let existing = match state.names.get(path) {
            Some(Node::File(inode)) => Some(*inode),
            Some(Node::Dir) => return Err(io::ErrorKind::IsADirectory.into()),
            None => None,
        };
        let inode = match (mode, existing) {
            (OpenMode::Read | OpenMode::ReadWrite, Some(inode)) => inode,
            (OpenMode::Read | OpenMode::ReadWrite, None) => return Err(io::ErrorKind::NotFound.into()),
            (OpenMode::CreateNew, Some(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
            (OpenMode::CreateOrEmpty, Some(inode)) => {
                state.count()?;
                if let Some(file) = state.files.get_mut(&inode) {
                    file.cached.clear();
                    file.unsynced.push(FileOp::SetLen(0));
                }
                inode
            }
            (OpenMode::CreateNew | OpenMode::CreateOrEmpty, None) => {
                let dir = parent(path);
                if !is_root(dir) && state.names.get(dir) != Some(&Node::Dir) {
                    return Err(io::ErrorKind::NotFound.into());
                }
                state.check_inodes()?;
                state.count()?;
                let inode = state.next_inode;
                state.next_inode += 1;
                state.files.insert(inode, SimInode::default());
                state.change_names(dir, vec![(path.to_owned(), Some(Node::File(inode)))]);
                inode
            }
        };
        state.check_power()?;
        let errors_seen = Mutex::new(state.files.get(&inode).map_or(0, |f| f.errors));
        let life = state.life;
        Ok(Arc::new(SimFile { disk: self.arc(), inode, path: path.to_owned(), life, errors_seen }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_power()?;
        let mut above: Vec<&Path> = path.ancestors().filter(|p| !is_root(p)).collect();
        above.reverse();
        for dir in above {
            match state.names.get(dir) {
                Some(Node::Dir) => {}
                Some(Node::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                // A directory takes room, though not much.
                None if state.capacity.is_some_and(|capacity| state.used_bytes() >= capacity) => {
                    return Err(rustix::io::Errno::NOSPC.into());
                }
                None => {
                    state.check_inodes()?;
                    state.count()?;
                    state.change_names(parent(dir), vec![(dir.to_owned(), Some(Node::Dir))]);
                    state.check_power()?;
                }
            }
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let state = self.state.lock();
        state.check_power()?;
        if state.names.get(dir) != Some(&Node::Dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let children = state.names.iter().filter(|(path, _)| path.parent() == Some(dir));
        Ok(children
            .map(|(path, node)| {
                let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
                match node {
                    Node::Dir => DirEntry { name, is_dir: true, len: 0 },
                    Node::File(inode) => {
                        let len = state.files.get(inode).map_or(0, |f| f.cached.len() as u64);
                        DirEntry { name, is_dir: false, len }
                    }
                }
            })
            .collect())
    }

    fn space(&self, _dir: &Path) -> io::Result<Option<DiskSpace>> {
        let state = self.state.lock();
        state.check_power()?;
        Ok(state.capacity.map(|total_bytes| DiskSpace {
            total_bytes,
            available_bytes: total_bytes.saturating_sub(state.used_bytes()),
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_power()?;
        if parent(from) != parent(to) {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        let node = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        if state.take_fault(|f| matches!(f, SimFault::Rename(suffix) if ends_so(from, suffix))) {
            return Err(eio());
        }
        state.count()?;
        if state.take_fault(|f| matches!(f, SimFault::SyncDirAfterRename(suffix) if ends_so(from, suffix))) {
            state.faults.push(SimFault::SyncDir(parent(from).to_string_lossy().into_owned()));
        }
        let mut changes = vec![(from.to_owned(), None), (to.to_owned(), Some(node))];
        if node == Node::Dir {
            let inside: Vec<(PathBuf, Node)> = state
                .names
                .iter()
                .filter(|(path, _)| path.starts_with(from) && path.as_path() != from)
                .map(|(path, node)| (path.clone(), *node))
                .collect();
            // What is inside moves with the directory, durably or not, whatever was synced there.
            for (path, node) in inside {
                let moved = to.join(path.strip_prefix(from).map_err(io::Error::other)?);
                changes.push((path, None));
                changes.push((moved, Some(node)));
            }
        }
        state.change_names(parent(from), changes);
        state.check_power()
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_power()?;
        match state.names.get(path) {
            Some(Node::File(_)) => {}
            Some(Node::Dir) => return Err(io::ErrorKind::IsADirectory.into()),
            None => return Err(io::ErrorKind::NotFound.into()),
        }
        state.count()?;
        state.change_names(parent(path), vec![(path.to_owned(), None)]);
        state.check_power()
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_power()?;
        if state.names.get(path) != Some(&Node::Dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if state.names.keys().any(|p| p.parent() == Some(path)) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        state.count()?;
        state.change_names(parent(path), vec![(path.to_owned(), None)]);
        state.check_power()
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_power()?;
        let dir = if dir == Path::new(".") { Path::new("") } else { dir };
        if !is_root(dir) && state.names.get(dir) != Some(&Node::Dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.count()?;
        state.check_power()?;
        if state.take_fault(|f| matches!(f, SimFault::SyncDir(suffix) if ends_so(dir, suffix))) {
            return Err(eio());
        }
        state.sync_names(Some(dir));
        Ok(())
    }

    fn file_system(&self, _dir: &Path) -> io::Result<Box<dyn FileSystem>> {
        let state = self.state.lock();
        state.check_power()?;
        Ok(Box::new(SimFileSystem { disk: self.arc(), life: state.life, own_mount: state.own_mount }))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn LockGuard>>> {
        let mut state = self.state.lock();
        state.check_power()?;
        if !state.locked.insert(path.to_owned()) {
            return Ok(None);
        }
        Ok(Some(Box::new(SimLock { disk: self.arc(), path: path.to_owned(), life: state.life })))
    }
}

impl LockGuard for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.disk.state.lock();
        if state.life == self.life {
            state.locked.remove(&self.path);
        }
    }
}

impl FileSystem for SimFileSystem {
    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        if state.life != self.life {
            return Err(eio());
        }
        state.count()?;
        state.check_power()?;
        let fault = state.faults.iter().position(|f| matches!(f, SimFault::FileSystemSync(_)));
        if let Some(SimFault::FileSystemSync(suffix)) = fault.map(|at| state.faults.remove(at)) {
            let victim = state.names.iter().find_map(|(path, node)| match node {
                Node::File(inode) if ends_so(path, &suffix) => Some(*inode),
                Node::File(_) | Node::Dir => None,
            });
            if let Some(inode) = victim {
                state.lose_dirty_pages(inode);
            }
            return Err(eio());
        }
        let inodes: Vec<u64> = state.files.keys().copied().collect();
        for inode in inodes {
            state.sync_inode(inode);
        }
        state.sync_names(None);
        Ok(())
    }

    fn is_own_mount(&self) -> bool {
        self.own_mount
    }
}

fn ends_so(path: &Path, suffix: &str) -> bool {
    path.to_string_lossy().ends_with(suffix)
}

impl SimFile {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.state.lock();
        state.check_power()?;
        match state.life == self.life {
            true => f(&mut state),
            false => Err(eio()),
        }
    }

    fn write_inode(&self, state: &mut State, op: FileOp) {
        if let Some(file) = state.files.get_mut(&self.inode) {
            op.apply(&mut file.cached);
            file.unsynced.push(op);
        }
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.with(|state| {
            if state.take_fault(|f| matches!(f, SimFault::Read(suffix) if ends_so(&self.path, suffix))) {
                return Err(eio());
            }
            let file = state.files.get(&self.inode).ok_or_else(eio)?;
            let end = (offset as usize).saturating_add(buf.len());
            let bytes = file.cached.get(offset as usize..end).ok_or(io::ErrorKind::UnexpectedEof)?;
            buf.copy_from_slice(bytes);
            Ok(())
        })
    }

    fn read_at_warm(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_at(buf, offset)
    }

    fn is_warm(&self, _offset: u64, _len: u64) -> bool {
        true
    }

    fn warm_up(&self, _offset: u64, _len: u64) {}

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.with(|state| {
            state.count()?;
            if state.take_fault(|f| matches!(f, SimFault::Write(suffix) if ends_so(&self.path, suffix))) {
                let half = bytes[..bytes.len() / 2].to_vec();
                self.write_inode(state, FileOp::Write { offset, bytes: half });
                return Err(eio());
            }
            let length = state.files.get(&self.inode).map_or(0, SimInode::space);
            let growth = (offset + bytes.len() as u64).saturating_sub(length);
            let full = state.capacity.is_some_and(|capacity| state.used_bytes() + growth > capacity);
            if growth > 0 && full {
                let room = bytes.len() / 2;
                self.write_inode(state, FileOp::Write { offset, bytes: bytes[..room].to_vec() });
                return Err(rustix::io::Errno::NOSPC.into());
            }
            self.write_inode(state, FileOp::Write { offset, bytes: bytes.to_vec() });
            state.check_power()
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|state| Ok(state.files.get(&self.inode).map_or(0, |f| f.cached.len() as u64)))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with(|state| {
            state.count()?;
            self.write_inode(state, FileOp::SetLen(len));
            if let Some(file) = state.files.get_mut(&self.inode) {
                file.reserved = len;
            }
            state.check_power()
        })
    }

    fn reserve(&self, offset: u64, len: u64) -> bool {
        let mut state = self.disk.state.lock();
        let taken = state.files.get(&self.inode).map_or(0, SimInode::space);
        let growth = (offset + len).saturating_sub(taken);
        let room = state.capacity.is_none_or(|capacity| state.used_bytes() + growth <= capacity);
        if let Some(file) = state.files.get_mut(&self.inode).filter(|_| room) {
            file.reserved = file.reserved.max(offset + len);
        }
        room
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|state| {
            state.count()?;
            state.check_power()?;
            if state.take_fault(|f| matches!(f, SimFault::Sync(suffix) if ends_so(&self.path, suffix))) {
                state.lose_dirty_pages(self.inode);
                *self.errors_seen.lock() = state.files.get(&self.inode).map_or(0, |f| f.errors);
                return Err(eio());
            }
            if state.take_fault(|f| matches!(f, SimFault::SyncNoSpace(end) if ends_so(&self.path, end))) {
                state.lose_dirty_pages(self.inode);
                *self.errors_seen.lock() = state.files.get(&self.inode).map_or(0, |f| f.errors);
                return Err(rustix::io::Errno::NOSPC.into());
            }
            state.sync_inode(self.inode);
            let errors = state.files.get(&self.inode).map_or(0, |f| f.errors);
            let mut seen = self.errors_seen.lock();
            match std::mem::replace(&mut *seen, errors) < errors {
                true => Err(eio()),
                false => Ok(()),
            }
        })
    }

    fn os_file(&self) -> Option<Arc<std::fs::File>> {
        None
    }
}
