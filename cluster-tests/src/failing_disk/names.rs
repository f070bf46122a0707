//! The numbers of files: each path has one as long as it lasts, and a number is never used again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fuser::INodeNo;

/// Both ways.
#[derive(Debug)]
pub(super) struct Names {
    paths: BTreeMap<u64, PathBuf>,
    numbers: BTreeMap<PathBuf, u64>,
    next: u64,
}

impl Names {
    /// The root is `below`.
    pub(super) fn new(below: &Path) -> Names {
        let root = INodeNo::ROOT.0;
        Names {
            paths: [(root, below.to_owned())].into(),
            numbers: [(below.to_owned(), root)].into(),
            next: root + 1,
        }
    }

    pub(super) fn path(&self, inode: INodeNo) -> Option<PathBuf> {
        self.paths.get(&inode.0).cloned()
    }

    /// The number of a path, which gets one if it has none.
    pub(super) fn inode(&mut self, path: &Path) -> INodeNo {
        if let Some(number) = self.numbers.get(path) {
            return INodeNo(*number);
        }
        let number = self.next;
        self.next += 1;
        self.paths.insert(number, path.to_owned());
        self.numbers.insert(path.to_owned(), number);
        INodeNo(number)
    }

    /// Nothing has this path any more.
    pub(super) fn remove(&mut self, path: &Path) {
        if let Some(number) = self.numbers.remove(path) {
            self.paths.remove(&number);
        }
    }

    /// What has the one path, and all below it, has the other from now on; what had that has none.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) {
        self.remove(to);
        let moved: Vec<PathBuf> =
            self.numbers.keys().filter(|path| path.starts_with(from)).cloned().collect();
        for old in moved {
            let Some(number) = self.numbers.remove(&old) else { continue };
            let rest = old.strip_prefix(from).unwrap_or(&old);
            let new = if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) };
            self.paths.insert(number, new.clone());
            self.numbers.insert(new, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_renamed_with_all_that_is_in_it() {
        let mut names = Names::new(Path::new("/r"));
        let (dir, file) = (names.inode(Path::new("/r/a")), names.inode(Path::new("/r/a/x")));
        let (other, replaced) = (names.inode(Path::new("/r/ab")), names.inode(Path::new("/r/b")));
        names.rename(Path::new("/r/a"), Path::new("/r/b"));
        assert_eq!(names.path(dir), Some("/r/b".into()));
        assert_eq!(names.path(file), Some("/r/b/x".into()));
        assert_eq!(names.path(other), Some("/r/ab".into()));
        assert_eq!(names.path(replaced), None);
        assert_eq!(names.inode(Path::new("/r/b/x")), file);
        names.remove(Path::new("/r/b/x"));
        assert_ne!(names.inode(Path::new("/r/b/x")), file);
    }
}
