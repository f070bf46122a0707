//! A disk in memory that loses at a power cut what was not synced.
//!
//! Of un-synced writes any set of sectors survives, in any order; of changed names (made, renamed, removed) the first so
//! many, as with a file system that keeps a journal. After a crash the files belong to the next life of the machine: what
//! an older one still holds gives errors.

use super::world::{below, one_in_thousand};
use crate::quorum::disk::{Disk, DiskFile, Open};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SECTOR: usize = 512;

type Inode = u64;

/// The device and all that is on it.
#[derive(Debug, Clone, Default)]
pub(super) struct Device {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    life: u64,
    next: Inode,
    files: BTreeMap<Inode, Content>,
    names: BTreeMap<PathBuf, Inode>,
    durable_names: BTreeMap<PathBuf, Inode>,
    /// Names changed since their directory was synced, in order.
    renamed: Vec<Vec<(PathBuf, Option<Inode>)>>,
    directories: BTreeSet<PathBuf>,
}

#[derive(Debug, Default)]
struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Pending>,
}

#[derive(Debug)]
enum Pending {
    Write(usize, Vec<u8>),
    Length(usize),
}

impl Device {
    /// The disk of a new life.
    pub(super) fn boot(&self) -> Arc<SimDisk> {
        Arc::new(SimDisk { state: Arc::clone(&self.state), life: self.state.lock().life })
    }

    /// Ends the life. Without power, what was not synced may be gone.
    pub(super) fn crash(&self, power_cut: bool) {
        let mut state = self.state.lock();
        state.life += 1;
        if power_cut {
            state.lose();
        }
    }

    /// Empties the device, as a new one in its place.
    pub(super) fn wipe(&self) {
        let mut state = self.state.lock();
        let life = state.life + 1;
        *state = State { life, ..State::default() };
    }
}

impl State {
    fn lose(&mut self) {
        let survive = below(self.renamed.len() as u64 + 1) as usize;
        for (path, inode) in std::mem::take(&mut self.renamed).into_iter().take(survive).flatten() {
            set(&mut self.durable_names, path, inode);
        }
        self.names = self.durable_names.clone();
        for content in self.files.values_mut() {
            // Often all or nothing; else each sector for itself.
            let odds = [0, 1000, 500, 800][below(4) as usize];
            for pending in std::mem::take(&mut content.pending) {
                pending.survive(&mut content.durable, odds);
            }
            content.now = content.durable.clone();
        }
    }

    /// Changes names, all of them or, after a power cut, none.
    fn change(&mut self, changes: Vec<(PathBuf, Option<Inode>)>) {
        for (path, inode) in &changes {
            set(&mut self.names, path.clone(), *inode);
        }
        self.renamed.push(changes);
    }
}

fn set(names: &mut BTreeMap<PathBuf, Inode>, path: PathBuf, inode: Option<Inode>) {
    match inode {
        Some(inode) => {
            names.insert(path, inode);
        }
        None => {
            names.remove(&path);
        }
    }
}

impl Pending {
    fn survive(self, durable: &mut Vec<u8>, odds: u64) {
        match self {
            Pending::Length(length) if one_in_thousand(odds) => durable.resize(length, 0),
            Pending::Length(_) => {}
            Pending::Write(at, bytes) => {
                let mut from = 0;
                while from < bytes.len() {
                    let until = ((at + from) / SECTOR * SECTOR + SECTOR - at).min(bytes.len());
                    if one_in_thousand(odds) {
                        put(durable, at + from, &bytes[from..until]);
                    }
                    from = until;
                }
            }
        }
    }
}

fn put(content: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if content.len() < at + bytes.len() {
        content.resize(at + bytes.len(), 0);
    }
    content[at..at + bytes.len()].copy_from_slice(bytes);
}

/// The device in one life of its machine.
#[derive(Debug)]
pub(super) struct SimDisk {
    state: Arc<Mutex<State>>,
    life: u64,
}

#[derive(Debug)]
struct SimFile {
    state: Arc<Mutex<State>>,
    life: u64,
    inode: Inode,
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

fn alive<R>(
    state: &Mutex<State>,
    life: u64,
    work: impl FnOnce(&mut State) -> io::Result<R>,
) -> io::Result<R> {
    let mut state = state.lock();
    if state.life != life {
        return Err(io::Error::other("the machine is down"));
    }
    work(&mut state)
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, open: Open) -> io::Result<Box<dyn DiskFile>> {
        let inode = alive(&self.state, self.life, |state| match (state.names.get(path), open) {
            (Some(inode), Open::Existing) => Ok(*inode),
            (None, Open::Existing) => Err(not_found()),
            (Some(_), Open::New) => Err(io::ErrorKind::AlreadyExists.into()),
            (None, Open::New) | (_, Open::Empty) => {
                state.next += 1;
                let inode = state.next;
                state.files.insert(inode, Content::default());
                state.change(vec![(path.to_owned(), Some(inode))]);
                Ok(inode)
            }
        })?;
        Ok(Box::new(SimFile { state: Arc::clone(&self.state), life: self.life, inode }))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        alive(&self.state, self.life, |state| {
            let inode = state.names.get(path).ok_or_else(not_found)?;
            Ok(state.files[inode].now.clone())
        })
    }

    fn exists(&self, path: &Path) -> bool {
        self.state.lock().names.contains_key(path)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        alive(&self.state, self.life, |state| {
            state.directories.insert(path.to_owned());
            Ok(())
        })
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        alive(&self.state, self.life, |state| {
            let inside = state.names.keys().filter(|path| path.parent() == Some(directory));
            Ok(inside.cloned().collect())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        alive(&self.state, self.life, |state| {
            let inode = *state.names.get(from).ok_or_else(not_found)?;
            state.change(vec![(to.to_owned(), Some(inode)), (from.to_owned(), None)]);
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        alive(&self.state, self.life, |state| {
            if !state.names.contains_key(path) {
                return Err(not_found());
            }
            state.change(vec![(path.to_owned(), None)]);
            Ok(())
        })
    }

    fn sync_directory(&self, _path: &Path) -> io::Result<()> {
        alive(&self.state, self.life, |state| {
            state.renamed.clear();
            state.durable_names = state.names.clone();
            Ok(())
        })
    }
}

impl SimFile {
    fn with<R>(&self, work: impl FnOnce(&mut Content) -> R) -> io::Result<R> {
        alive(&self.state, self.life, |state| {
            Ok(work(state.files.get_mut(&self.inode).expect("files are never forgotten")))
        })
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        self.with(|content| {
            let rest = content.now.get(at as usize..).unwrap_or_default();
            let count = rest.len().min(bytes.len());
            bytes[..count].copy_from_slice(&rest[..count]);
            count
        })
    }

    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.with(|content| {
            put(&mut content.now, at as usize, bytes);
            content.pending.push(Pending::Write(at as usize, bytes.to_vec()));
        })
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.with(|content| {
            content.now.resize(length as usize, 0);
            content.pending.push(Pending::Length(length as usize));
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|content| {
            content.pending.clear();
            content.durable.clone_from(&content.now);
        })
    }
}
