//! What every [`Disk`] must do, run on the operating system's and on the simulated one.

#![allow(clippy::unwrap_used, reason = "a test fails by it, also in its helper functions")]

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use log_engine::{Disk, OpenMode, RealDisk, SimDisk, SimFault};

fn suite(disk: Arc<dyn Disk>, root: &Path) {
    files_are_opened_as_asked(&*disk, root);
    reads_and_writes_are_exact(&*disk, root);
    names_come_and_go(&*disk, root);
    an_open_file_outlives_its_name(&*disk, root);
    locks_exclude(&*disk, root);
}

#[test]
fn real_disk() {
    let dir = tempfile::tempdir().unwrap();
    suite(Arc::new(RealDisk), dir.path());
}

#[test]
fn simulated_disk() {
    let disk = SimDisk::new(1);
    disk.create_dir_all(Path::new("root")).unwrap();
    suite(disk, Path::new("root"));
}

fn kind<T>(result: std::io::Result<T>) -> ErrorKind {
    result.err().expect("this must fail").kind()
}

fn files_are_opened_as_asked(disk: &dyn Disk, root: &Path) {
    let path = root.join("modes");
    assert_eq!(kind(disk.open(&path, OpenMode::Read)), ErrorKind::NotFound);
    assert_eq!(kind(disk.open(&path, OpenMode::ReadWrite)), ErrorKind::NotFound);
    disk.open(&path, OpenMode::CreateNew).unwrap().write_at(b"abc", 0).unwrap();
    assert_eq!(kind(disk.open(&path, OpenMode::CreateNew)), ErrorKind::AlreadyExists);
    assert_eq!(disk.open(&path, OpenMode::ReadWrite).unwrap().len().unwrap(), 3);
    assert!(disk.open(&path, OpenMode::CreateOrEmpty).unwrap().is_empty().unwrap());
    assert_eq!(kind(disk.open(&root.join("no/such"), OpenMode::CreateNew)), ErrorKind::NotFound);
}

fn reads_and_writes_are_exact(disk: &dyn Disk, root: &Path) {
    let path = root.join("data");
    let file = disk.open(&path, OpenMode::CreateNew).unwrap();
    file.reserve(0, 1 << 16);
    assert_eq!(file.len().unwrap(), 0);
    file.write_at(b"hello", 0).unwrap();
    file.write_at(b"world", 8).unwrap();
    file.sync().unwrap();
    let other = disk.open(&path, OpenMode::Read).unwrap();
    let mut buf = [9; 13];
    other.read_at(&mut buf, 0).unwrap();
    assert_eq!(&buf, b"hello\0\0\0world");
    let mut warm = [0; 5];
    match other.read_at_warm(&mut warm, 8) {
        Ok(()) => assert_eq!(&warm, b"world"),
        Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
    }
    assert_eq!(kind(other.read_at(&mut buf, 1)), ErrorKind::UnexpectedEof);
    file.set_len(3).unwrap();
    assert_eq!(other.len().unwrap(), 3);
    file.set_len(6).unwrap();
    let mut buf = [9; 6];
    other.read_at(&mut buf, 0).unwrap();
    assert_eq!(&buf, b"hel\0\0\0");
}

fn names_come_and_go(disk: &dyn Disk, root: &Path) {
    let dir = root.join("a/b");
    assert_eq!(kind(disk.list(&dir)), ErrorKind::NotFound);
    disk.create_dir_all(&dir).unwrap();
    disk.create_dir_all(&dir).unwrap();
    for name in ["y", "x"] {
        disk.open(&dir.join(name), OpenMode::CreateNew).unwrap().write_at(name.as_bytes(), 3).unwrap();
    }
    disk.create_dir_all(&dir.join("z")).unwrap();
    let names = |path: &Path| -> Vec<(String, bool, u64)> {
        disk.list(path).unwrap().into_iter().map(|e| (e.name, e.is_dir, e.len)).collect()
    };
    assert_eq!(names(&dir), [("x".into(), false, 4), ("y".into(), false, 4), ("z".into(), true, 0)]);
    disk.rename(&dir.join("x"), &dir.join("y")).unwrap();
    let mut byte = [0];
    disk.open(&dir.join("y"), OpenMode::Read).unwrap().read_at(&mut byte, 3).unwrap();
    assert_eq!(&byte, b"x");
    disk.sync_dir(&dir).unwrap();
    assert!(disk.remove_dir(&dir).is_err());
    assert_eq!(kind(disk.rename(&dir.join("x"), &dir.join("w"))), ErrorKind::NotFound);
    disk.rename(&dir, &root.join("a/c")).unwrap();
    assert_eq!(names(&root.join("a/c")).len(), 2);
    disk.remove_file(&root.join("a/c/y")).unwrap();
    assert_eq!(kind(disk.remove_file(&root.join("a/c/y"))), ErrorKind::NotFound);
    disk.remove_dir(&root.join("a/c/z")).unwrap();
    disk.remove_dir(&root.join("a/c")).unwrap();
    assert!(names(&root.join("a")).is_empty());
    disk.file_system(root).unwrap().sync().unwrap();
}

fn an_open_file_outlives_its_name(disk: &dyn Disk, root: &Path) {
    let path = root.join("short-lived");
    let file = disk.open(&path, OpenMode::CreateNew).unwrap();
    file.write_at(b"still here", 0).unwrap();
    disk.remove_file(&path).unwrap();
    let mut buf = [0; 10];
    file.read_at(&mut buf, 0).unwrap();
    assert_eq!(&buf, b"still here");
}

fn locks_exclude(disk: &dyn Disk, root: &Path) {
    let path = root.join(".lock");
    let held = disk.lock(&path).unwrap().expect("nobody has it");
    assert!(disk.lock(&path).unwrap().is_none());
    drop(held);
    assert!(disk.lock(&path).unwrap().is_some());
}

/// What only the simulated disk can show: everything that was not synced may go, what was synced stays.
#[test]
fn a_power_cut_keeps_what_was_synced_and_only_that_for_sure() {
    let (mut lost_data, mut kept_data, mut torn, mut lost_name) = (0, 0, 0, 0);
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        disk.create_dir_all(Path::new("d")).unwrap();
        disk.sync_dir(Path::new("")).unwrap();
        let synced = disk.open(Path::new("d/synced"), OpenMode::CreateNew).unwrap();
        synced.write_at(&[1; 2048], 0).unwrap();
        synced.sync().unwrap();
        disk.sync_dir(Path::new("d")).unwrap();
        synced.write_at(&[2; 2048], 2048).unwrap();
        disk.open(Path::new("d/unsynced"), OpenMode::CreateNew).unwrap();
        disk.restart();
        assert!(synced.len().is_err(), "handles die with the power");
        let file = disk.open(Path::new("d/synced"), OpenMode::Read).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes[..2048], &[1; 2048]);
        match bytes[2048..].iter().filter(|&&b| b == 2).count() {
            0 => lost_data += 1,
            2048 => kept_data += 1,
            _ => torn += 1,
        }
        lost_name += usize::from(disk.open(Path::new("d/unsynced"), OpenMode::Read).is_err());
    }
    for (what, count) in [("lost", lost_data), ("kept", kept_data), ("torn", torn), ("nameless", lost_name)] {
        assert!(count > 10, "{what}: {count}");
    }
}

#[test]
fn a_failed_sync_loses_pages_that_the_cache_still_shows() {
    let disk = SimDisk::new(1);
    let path = Path::new("f");
    let writer = disk.open(path, OpenMode::CreateNew).unwrap();
    disk.sync_dir(Path::new("")).unwrap();
    let other = disk.open(path, OpenMode::ReadWrite).unwrap();
    writer.write_at(b"gone", 0).unwrap();
    disk.inject(SimFault::Sync("f".into()));
    assert!(writer.sync().is_err());
    // The second sync says all is well, and so does a descriptor that is opened now.
    writer.sync().unwrap();
    disk.open(path, OpenMode::ReadWrite).unwrap().sync().unwrap();
    assert!(other.sync().is_err(), "one that was open hears of it");
    let mut buf = [0; 4];
    other.read_at(&mut buf, 0).unwrap();
    assert_eq!(&buf, b"gone");
    disk.restart();
    assert_eq!(disk.open(path, OpenMode::Read).unwrap().len().unwrap(), 0);
}

#[test]
fn a_write_back_error_is_told_to_the_writing_descriptor_only() {
    let disk = SimDisk::new(1);
    let path = Path::new("f");
    let writer = disk.open(path, OpenMode::CreateNew).unwrap();
    writer.write_at(b"gone", 0).unwrap();
    disk.lose_dirty_pages(path);
    disk.open(path, OpenMode::ReadWrite).unwrap().sync().unwrap();
    assert!(writer.sync().is_err());
}
