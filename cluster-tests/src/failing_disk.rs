//! A file system over a folder whose syncs can be slow, and whose reads, writes or syncs can fail as those of a dying disk do.
//!
//! It lives in this process (FUSE; needs root and `/dev/fuse`, no helper program) and hands everything through to the folder.
//! Nothing is cached behind the caller's back but pages that he has read: a write is done when it is answered, and whether it is
//! durable is the affair of the file system below and of the syncs, which are handed through too.

mod attributes;
mod names;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use rustix::fs::FallocateFlags;

use crate::netns::NetworkError;
use attributes::attributes;
use names::Names;

/// Requests that are worked on at the same time.
const THREADS: usize = 4;
/// The kernel keeps no names and attributes: it asks each time.
const KEEP: Duration = Duration::ZERO;

/// What does not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// Every read that reaches the disk, with an input/output error.
    Reads,
    /// Every write, likewise.
    Writes,
    /// Every sync, likewise.
    Syncs,
}

/// The mounted file system; unmounted when dropped.
#[derive(Debug)]
pub struct FailingDisk {
    mount: PathBuf,
    state: Arc<State>,
    _session: BackgroundSession,
}

impl FailingDisk {
    /// Whether this machine lets us have one.
    pub fn is_possible() -> bool {
        File::options().read(true).write(true).open("/dev/fuse").is_ok()
    }

    /// Shows the folder `below` at `mount`, which is made.
    pub fn mount(below: &Path, mount: &Path) -> Result<FailingDisk, NetworkError> {
        let failed =
            |error: io::Error| NetworkError(format!("mount a file system at {}: {error}", mount.display()));
        fs::create_dir_all(mount).map_err(failed)?;
        let state = Arc::new(State::default());
        let shown = Shown {
            names: Mutex::new(Names::new(below)),
            open: Mutex::default(),
            handles: AtomicU64::new(1),
            state: state.clone(),
        };
        let mut config = Config::default();
        config.mount_options =
            vec![MountOption::FSName("failing-disk".to_owned()), MountOption::DefaultPermissions];
        config.n_threads = Some(THREADS);
        let session = fuser::spawn_mount(shown, mount, &config).map_err(failed)?;
        Ok(FailingDisk { mount: mount.to_owned(), state, _session: session })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// From now on each sync takes so long.
    pub fn slow_down(&self, delay: Duration) {
        self.state.set(Trouble { delay, failing: None });
    }

    /// From now on something fails.
    pub fn fail(&self, failing: Failing) {
        self.state.set(Trouble { delay: Duration::ZERO, failing: Some(failing) });
    }

    /// Everything works again. Syncs that wait go on. Answers whether something failed.
    pub fn mend(&self) -> bool {
        let failed = lock(&self.state.trouble).failing.is_some();
        self.state.set(Trouble::default());
        failed
    }

    /// Has the system forget what it holds in memory of the files below a folder of the mount.
    pub fn forget(&self, dir: &Path) -> Result<(), NetworkError> {
        let failed = |error: io::Error| NetworkError(format!("open a file in {}: {error}", dir.display()));
        let entries = match fs::read_dir(dir) {
            // The daemon may have removed it just now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            if path.is_dir() {
                self.forget(&path)?;
            } else if let Ok(file) = File::open(&path) {
                // Opening it does it, unless something is in use; files come and go meanwhile.
                let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
            }
        }
        Ok(())
    }

    /// How many requests were slow or failed so far.
    pub fn met(&self) -> u64 {
        self.state.met.load(Ordering::Relaxed)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Trouble {
    delay: Duration,
    failing: Option<Failing>,
}

#[derive(Debug, Default)]
struct State {
    trouble: Mutex<Trouble>,
    changed: Condvar,
    met: AtomicU64,
}

impl State {
    fn set(&self, trouble: Trouble) {
        *lock(&self.trouble) = trouble;
        self.changed.notify_all();
    }

    fn check(&self, what: Failing) -> io::Result<()> {
        if lock(&self.trouble).failing != Some(what) {
            return Ok(());
        }
        self.met.fetch_add(1, Ordering::Relaxed);
        Err(rustix::io::Errno::IO.into())
    }

    /// How long a sync is to wait.
    fn delay(&self) -> Duration {
        lock(&self.trouble).delay
    }

    /// Waits as long as syncs take, or until they take less.
    fn wait(&self, delay: Duration) {
        self.met.fetch_add(1, Ordering::Relaxed);
        let guard = lock(&self.trouble);
        let waited = self.changed.wait_timeout_while(guard, delay, |trouble| trouble.delay >= delay);
        drop(waited);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct Shown {
    names: Mutex<Names>,
    open: Mutex<BTreeMap<u64, (INodeNo, Arc<File>)>>,
    handles: AtomicU64,
    state: Arc<State>,
}

impl Shown {
    fn path(&self, inode: INodeNo) -> io::Result<PathBuf> {
        lock(&self.names).path(inode).ok_or_else(|| rustix::io::Errno::NOENT.into())
    }

    fn child(&self, parent: INodeNo, name: &OsStr) -> io::Result<PathBuf> {
        Ok(self.path(parent)?.join(name))
    }

    fn file(&self, handle: FileHandle) -> io::Result<Arc<File>> {
        let open = lock(&self.open);
        open.get(&handle.0).map(|(_, file)| file.clone()).ok_or_else(|| rustix::io::Errno::BADF.into())
    }

    /// Whoever has it open may use a file whose name is gone.
    fn any_file(&self, inode: INodeNo, handle: Option<FileHandle>) -> Option<Arc<File>> {
        if let Some(file) = handle.and_then(|handle| self.file(handle).ok()) {
            return Some(file);
        }
        lock(&self.open).values().find(|(of, _)| *of == inode).map(|(_, file)| file.clone())
    }

    fn add(&self, inode: INodeNo, file: File) -> FileHandle {
        let handle = self.handles.fetch_add(1, Ordering::Relaxed);
        lock(&self.open).insert(handle, (inode, Arc::new(file)));
        FileHandle(handle)
    }

    fn metadata(&self, inode: INodeNo, handle: Option<FileHandle>) -> io::Result<fs::Metadata> {
        match self.any_file(inode, handle) {
            Some(file) => file.metadata(),
            None => self.path(inode)?.symlink_metadata(),
        }
    }

    fn entry(&self, path: &Path) -> io::Result<fuser::FileAttr> {
        let metadata = path.symlink_metadata()?;
        Ok(attributes(lock(&self.names).inode(path), &metadata))
    }

    fn resize(&self, inode: INodeNo, handle: Option<FileHandle>, size: u64) -> io::Result<()> {
        self.state.check(Failing::Writes)?;
        match handle {
            Some(handle) => self.file(handle)?.set_len(size),
            None => File::options().write(true).open(self.path(inode)?)?.set_len(size),
        }
    }

    fn sync(file: &File, state: &State, only_data: bool) -> io::Result<()> {
        state.check(Failing::Syncs)?;
        if only_data { file.sync_data() } else { file.sync_all() }
    }

    /// A slow one keeps nobody else waiting.
    fn answer_sync(&self, file: Arc<File>, only_data: bool, reply: ReplyEmpty) {
        let (state, delay) = (self.state.clone(), self.state.delay());
        let work = move || {
            if !delay.is_zero() {
                state.wait(delay);
            }
            answer(Shown::sync(&file, &state, only_data), reply);
        };
        if delay.is_zero() {
            work();
        } else {
            std::thread::spawn(work);
        }
    }
}

fn answer(done: io::Result<()>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error.into()),
    }
}

impl Filesystem for Shown {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.child(parent, name).and_then(|path| self.entry(&path)) {
            Ok(attributes) => reply.entry(&KEEP, &attributes, Generation(0)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        match self.metadata(inode, handle) {
            Ok(metadata) => reply.attr(&KEEP, &attributes(inode, &metadata)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _changed_flags: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = || {
            if let Some(size) = size {
                self.resize(inode, handle, size)?;
            }
            if let Some(mode) = mode {
                fs::set_permissions(self.path(inode)?, fs::Permissions::from_mode(mode))?;
            }
            if uid.is_some() || gid.is_some() {
                std::os::unix::fs::lchown(self.path(inode)?, uid, gid)?;
            }
            if accessed.is_some() || modified.is_some() {
                attributes::set_times(&self.path(inode)?, accessed, modified)?;
            }
            self.metadata(inode, handle)
        };
        match set() {
            Ok(metadata) => reply.attr(&KEEP, &attributes(inode, &metadata)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let make = || {
            self.state.check(Failing::Writes)?;
            let path = self.child(parent, name)?;
            fs::create_dir(&path)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(mode & !umask))?;
            self.entry(&path)
        };
        match make() {
            Ok(attributes) => reply.entry(&KEEP, &attributes, Generation(0)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let remove = || {
            self.state.check(Failing::Writes)?;
            let path = self.child(parent, name)?;
            fs::remove_file(&path)?;
            lock(&self.names).remove(&path);
            Ok(())
        };
        answer(remove(), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let remove = || {
            self.state.check(Failing::Writes)?;
            let path = self.child(parent, name)?;
            fs::remove_dir(&path)?;
            lock(&self.names).remove(&path);
            Ok(())
        };
        answer(remove(), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let rename = || {
            if !flags.is_empty() {
                return Err(rustix::io::Errno::INVAL.into());
            }
            self.state.check(Failing::Writes)?;
            let (from, to) = (self.child(parent, name)?, self.child(new_parent, new_name)?);
            fs::rename(&from, &to)?;
            lock(&self.names).rename(&from, &to);
            Ok(())
        };
        answer(rename(), reply);
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let open = || {
            let writes = flags.acc_mode() != fuser::OpenAccMode::O_RDONLY;
            // A file that was opened to be written is read by others: the kernel asks for whole pages.
            let file = File::options().read(true).write(writes).open(self.path(inode)?)?;
            Ok::<_, io::Error>(self.add(inode, file))
        };
        match open() {
            Ok(handle) => reply.opened(handle, FopenFlags::empty()),
            Err(error) => reply.error(error.into()),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let exclusive = flags & i32::try_from(rustix::fs::OFlags::EXCL.bits()).unwrap_or_default() != 0;
        let create = || {
            self.state.check(Failing::Writes)?;
            let path = self.child(parent, name)?;
            let mut options = File::options();
            options.read(true).write(true).mode(mode & !umask);
            let options =
                if exclusive { options.create_new(true) } else { options.create(true).truncate(false) };
            let file = options.open(&path)?;
            let attributes = self.entry(&path)?;
            Ok::<_, io::Error>((self.add(attributes.ino, file), attributes))
        };
        match create() {
            Ok((handle, attributes)) => {
                reply.created(&KEEP, &attributes, Generation(0), handle, FopenFlags::empty())
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn read(
        &self,
        _: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = || {
            self.state.check(Failing::Reads)?;
            let file = self.file(handle)?;
            let mut bytes = vec![0; usize::try_from(size).map_err(io::Error::other)?];
            let mut done = 0;
            while done < bytes.len() {
                match file.read_at(&mut bytes[done..], offset + done as u64)? {
                    0 => break,
                    more => done += more,
                }
            }
            bytes.truncate(done);
            Ok::<_, io::Error>(bytes)
        };
        match read() {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error.into()),
        }
    }

    fn write(
        &self,
        _: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let write = || {
            self.state.check(Failing::Writes)?;
            self.file(handle)?.write_all_at(bytes, offset)?;
            u32::try_from(bytes.len()).map_err(io::Error::other)
        };
        match write() {
            Ok(size) => reply.written(size),
            Err(error) => reply.error(error.into()),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let closed = lock(&self.open).remove(&handle.0);
        drop(closed);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, only_data: bool, reply: ReplyEmpty) {
        match self.file(handle) {
            Ok(file) => self.answer_sync(file, only_data, reply),
            Err(error) => reply.error(error.into()),
        }
    }

    fn fsyncdir(&self, _: &Request, inode: INodeNo, _: FileHandle, only_data: bool, reply: ReplyEmpty) {
        match self.path(inode).and_then(File::open) {
            Ok(dir) => self.answer_sync(Arc::new(dir), only_data, reply),
            Err(error) => reply.error(error.into()),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let list = || {
            let path = self.path(inode)?;
            let mut entries = Vec::new();
            for entry in fs::read_dir(&path)? {
                entries.push(entry?.file_name());
            }
            entries.sort();
            Ok::<_, io::Error>((path, entries))
        };
        let (path, entries) = match list() {
            Ok(found) => found,
            Err(error) => return reply.error(error.into()),
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, name) in entries.iter().enumerate().skip(from) {
            let child = path.join(name);
            let kind = if child.is_dir() { FileType::Directory } else { FileType::RegularFile };
            let number = lock(&self.names).inode(&child);
            if reply.add(number, at as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, inode: INodeNo, reply: ReplyStatfs) {
        let found = self.path(inode).and_then(|path| Ok(rustix::fs::statvfs(path)?));
        match found {
            Ok(s) => {
                let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
                let (block, name, fragment) = (small(s.f_bsize), small(s.f_namemax), small(s.f_frsize));
                reply.statfs(s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_ffree, block, name, fragment);
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let allocate = || {
            self.state.check(Failing::Writes)?;
            let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
            Ok(rustix::fs::fallocate(&*self.file(handle)?, mode, offset, length)?)
        };
        answer(allocate(), reply);
    }

    fn access(&self, _: &Request, _: INodeNo, _: fuser::AccessFlags, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, SeekFrom, Write};

    use super::*;
    use crate::clock::Stopwatch;

    #[test]
    fn everything_is_handed_through_until_something_fails() {
        let dir = tempfile::tempdir().unwrap();
        let (below, mount) = (dir.path().join("below"), dir.path().join("mount"));
        fs::create_dir(&below).unwrap();
        let disk = match FailingDisk::mount(&below, &mount) {
            Ok(disk) => disk,
            Err(error) => return eprintln!("NO FAILING DISK ON THIS MACHINE: {error}"),
        };
        fs::create_dir(mount.join("a")).unwrap();
        let (old, new) = (mount.join("a/old"), mount.join("b/new"));
        let mut file = File::options().read(true).write(true).create_new(true).open(&old).unwrap();
        file.write_all(b"twelve bytes").unwrap();
        file.sync_data().unwrap();
        fs::rename(mount.join("a"), mount.join("b")).unwrap();
        assert_eq!(fs::read(below.join("b/new")).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::rename(mount.join("b/old"), &new).unwrap();
        assert_eq!(fs::read(below.join("b/new")).unwrap(), b"twelve bytes");
        assert_eq!(fs::read(&new).unwrap(), b"twelve bytes");
        let names: Vec<_> = fs::read_dir(mount.join("b")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["new"]);
        file.set_len(6).unwrap();
        assert_eq!(below.join("b/new").metadata().unwrap().len(), 6);
        fs::remove_file(&new).unwrap();
        // Whoever has it open still has it.
        assert_eq!(file.metadata().unwrap().len(), 6);
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "twelve");

        let is_eio = |done: io::Result<()>| assert_eq!(done.unwrap_err().raw_os_error(), Some(5));
        disk.fail(Failing::Writes);
        is_eio(file.write_all(b"x"));
        file.sync_data().unwrap();
        disk.fail(Failing::Syncs);
        file.write_all(b"x").unwrap();
        is_eio(file.sync_data());
        is_eio(File::open(&mount).unwrap().sync_all());
        disk.fail(Failing::Reads);
        fs::write(mount.join("c"), "x").unwrap();
        is_eio(fs::read(mount.join("c")).map(drop));
        assert!(disk.met() >= 4);
        assert!(disk.mend());
        assert_eq!(fs::read(mount.join("c")).unwrap(), b"x");

        disk.slow_down(Duration::from_millis(300));
        let watch = Stopwatch::start();
        file.sync_data().unwrap();
        assert!(watch.elapsed() >= Duration::from_millis(300));
        disk.slow_down(Duration::from_secs(60));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| file.sync_data());
            crate::clock::wait_until(Duration::from_secs(30), || (disk.met() >= 6).then_some(())).unwrap();
            assert!(!disk.mend(), "nothing failed");
            waits.join().unwrap().unwrap();
        });
        assert!(watch.elapsed() < Duration::from_secs(60), "a sync goes on when all is well again");
    }
}
