//! What a simulated disk holds, and what a power cut makes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use super::SimFault;
use super::choices::CrashChoices;

/// Grain at which an unsynced write may survive a power cut, in bytes.
const SECTOR: u64 = 512;

pub(super) struct State {
    pub(super) random: u64,
    /// What survives is not left to chance.
    pub(super) choices: Option<CrashChoices>,
    pub(super) files: BTreeMap<u64, SimInode>,
    pub(super) names: BTreeMap<PathBuf, Node>,
    pub(super) durable_names: BTreeMap<PathBuf, Node>,
    pub(super) name_ops: Vec<NameOp>,
    pub(super) locked: BTreeSet<PathBuf>,
    pub(super) next_inode: u64,
    /// Operations so far that change the disk or make it durable.
    pub(super) ops: u64,
    pub(super) crash_at: Option<u64>,
    pub(super) crashed: bool,
    /// Incremented at each restart; handles of an older life are dead.
    pub(super) life: u64,
    pub(super) faults: Vec<SimFault>,
    pub(super) capacity: Option<u64>,
    pub(super) inodes_max: Option<usize>,
    pub(super) own_mount: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    File(u64),
    Dir,
}

#[derive(Default)]
pub(super) struct SimInode {
    pub(super) cached: Vec<u8>,
    pub(super) durable: Vec<u8>,
    pub(super) unsynced: Vec<FileOp>,
    /// Space set aside, as a length.
    pub(super) reserved: u64,
    /// Number of write-back errors so far; a handle that has seen fewer reports one at its next sync.
    pub(super) errors: u64,
}

impl SimInode {
    pub(super) fn space(&self) -> u64 {
        self.reserved.max(self.cached.len() as u64)
    }
}

pub(super) enum FileOp {
    Write { offset: u64, bytes: Vec<u8> },
    SetLen(u64),
}

pub(super) struct NameOp {
    pub(super) dir: PathBuf,
    pub(super) changes: Vec<(PathBuf, Option<Node>)>,
}

impl State {
    /// splitmix64: small, and the same everywhere.
    pub(super) fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.random() % 100 < percent
    }

    /// Whether something that no sync covers survives a power cut.
    fn survives(&mut self, percent: u64) -> bool {
        match &mut self.choices {
            Some(choices) => choices.survives(),
            None => self.chance(percent),
        }
    }

    pub(super) fn check_power(&self) -> io::Result<()> {
        match self.crashed {
            true => Err(io::Error::other("simulated power cut")),
            false => Ok(()),
        }
    }

    /// Counts an operation that changes the disk; the one at which the power goes fails (and so do all later ones).
    /// A write is still recorded as unsynced, since the device may have got it.
    pub(super) fn count(&mut self) -> io::Result<()> {
        self.check_power()?;
        self.ops += 1;
        if self.crash_at.is_some_and(|at| self.ops >= at) {
            self.crashed = true;
        }
        Ok(())
    }

    /// Whether there may be another file or directory.
    pub(super) fn check_inodes(&self) -> io::Result<()> {
        match self.inodes_max.is_some_and(|max| self.names.len() >= max) {
            true => Err(rustix::io::Errno::NOSPC.into()),
            false => Ok(()),
        }
    }

    pub(super) fn take_fault(&mut self, matches: impl Fn(&SimFault) -> bool) -> bool {
        match self.faults.iter().position(matches) {
            Some(at) => {
                self.faults.remove(at);
                true
            }
            None => false,
        }
    }

    pub(super) fn change_names(&mut self, dir: &Path, changes: Vec<(PathBuf, Option<Node>)>) {
        for (path, node) in &changes {
            match node {
                Some(node) => self.names.insert(path.clone(), *node),
                None => self.names.remove(path),
            };
        }
        self.name_ops.push(NameOp { dir: dir.to_owned(), changes });
    }

    pub(super) fn lose_dirty_pages(&mut self, inode: u64) {
        if let Some(file) = self.files.get_mut(&inode)
            && !file.unsynced.is_empty()
        {
            file.unsynced.clear();
            file.errors += 1;
        }
    }

    pub(super) fn sync_inode(&mut self, inode: u64) {
        if let Some(file) = self.files.get_mut(&inode) {
            for op in std::mem::take(&mut file.unsynced) {
                op.apply(&mut file.durable);
            }
        }
    }

    pub(super) fn sync_names(&mut self, dir: Option<&Path>) {
        let (synced, rest) = std::mem::take(&mut self.name_ops)
            .into_iter()
            .partition(|op| dir.is_none_or(|dir| op.dir == dir));
        self.name_ops = rest;
        for op in synced {
            self.apply_name_op(op);
        }
    }

    pub(super) fn apply_name_op(&mut self, op: NameOp) {
        for (path, node) in op.changes {
            match node {
                Some(node) => self.durable_names.insert(path, node),
                None => self.durable_names.remove(&path),
            };
        }
    }

    pub(super) fn restart(&mut self, power_cut: bool) {
        if power_cut {
            self.settle_files();
            self.settle_names();
        }
        let referenced: BTreeSet<u64> = self
            .names
            .values()
            .chain(self.durable_names.values())
            .chain(
                self.name_ops.iter().flat_map(|op| op.changes.iter().filter_map(|(_, node)| node.as_ref())),
            )
            .filter_map(|node| match node {
                Node::File(inode) => Some(*inode),
                Node::Dir => None,
            })
            .collect();
        self.files.retain(|inode, _| referenced.contains(inode));
        self.locked.clear();
        self.faults.clear();
        self.crash_at = None;
        self.crashed = false;
        self.life += 1;
    }

    pub(super) fn settle_files(&mut self) {
        // How much the device had written back on its own: nothing, all, or a part.
        let percent = [0, 0, 50, 90, 100][(self.random() % 5) as usize];
        let inodes: Vec<u64> = self.files.keys().copied().collect();
        for inode in inodes {
            let Some(mut file) = self.files.remove(&inode) else { continue };
            for op in std::mem::take(&mut file.unsynced) {
                match op {
                    FileOp::SetLen(_) if self.survives(percent) => op.apply(&mut file.durable),
                    FileOp::SetLen(_) => {}
                    FileOp::Write { offset, bytes } => {
                        self.settle_write(&mut file.durable, offset, &bytes, percent);
                    }
                }
            }
            // A journal may know the new length though the data never came.
            if file.durable.len() < file.cached.len() && self.survives(percent / 4) {
                file.durable.resize(file.cached.len(), 0);
            }
            file.cached = file.durable.clone();
            self.files.insert(inode, file);
        }
    }

    pub(super) fn settle_write(&mut self, durable: &mut Vec<u8>, offset: u64, bytes: &[u8], percent: u64) {
        let mut at = 0;
        while at < bytes.len() {
            let position = offset + at as u64;
            let sector_end = (position / SECTOR + 1) * SECTOR;
            let end = bytes.len().min(at + (sector_end - position) as usize);
            if self.survives(percent) {
                FileOp::Write { offset: position, bytes: bytes[at..end].to_vec() }.apply(durable);
            }
            at = end;
        }
    }

    pub(super) fn settle_names(&mut self) {
        let percent = [0, 50, 100][(self.random() % 3) as usize];
        for op in std::mem::take(&mut self.name_ops) {
            if self.survives(percent) {
                self.apply_name_op(op);
            }
        }
        // A name in a directory that itself did not survive is gone.
        let mut alive: BTreeMap<PathBuf, Node> = BTreeMap::new();
        for (path, node) in &self.durable_names {
            let parent_alive = path.parent().is_none_or(|p| is_root(p) || alive.get(p) == Some(&Node::Dir));
            if parent_alive {
                alive.insert(path.clone(), *node);
            }
        }
        self.durable_names = alive.clone();
        self.names = alive;
    }

    pub(super) fn used_bytes(&self) -> u64 {
        let inodes = self.names.values().filter_map(|node| match node {
            Node::File(inode) => self.files.get(inode),
            Node::Dir => None,
        });
        inodes.map(SimInode::space).sum()
    }
}

impl FileOp {
    pub(super) fn apply(&self, content: &mut Vec<u8>) {
        match self {
            FileOp::SetLen(len) => content.resize(*len as usize, 0),
            FileOp::Write { offset, bytes } => {
                let end = *offset as usize + bytes.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[*offset as usize..end].copy_from_slice(bytes);
            }
        }
    }
}

pub(super) fn is_root(path: &Path) -> bool {
    path.as_os_str().is_empty() || path == Path::new("/")
}
