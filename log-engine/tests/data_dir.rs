//! Whose a data directory is, and what is refused with which sentence.

#![allow(clippy::unwrap_used, reason = "a test fails by it, also in its helper functions")]

use std::path::Path;
use std::sync::Arc;

use log_engine::{DataDir, DataDirError, DataDirOptions, Disk, OpenMode, RealDisk, SimDisk};
use uuid::Uuid;

fn options(cluster_id: &str, node_id: i32) -> DataDirOptions {
    DataDirOptions {
        cluster_id: cluster_id.into(),
        node_id,
        new_directory_id: Uuid::from_u128(0x0123_4567_89ab_4def_8123_4567_89ab_cdef),
        descriptors_max: 10,
    }
}

fn refused(disk: Arc<dyn Disk>, path: &Path, options: &DataDirOptions) -> DataDirError {
    DataDir::open(disk, path, options).err().expect("this must be refused")
}

fn suite(disk: Arc<dyn Disk>, path: &Path) {
    let ours = options("c1", 1);
    let data = DataDir::open(disk.clone(), path, &ours).unwrap();
    assert!(data.was_clean(), "a new directory has nothing to recover");
    let id = data.directory_id();
    let in_use = refused(disk.clone(), path, &ours);
    assert!(matches!(in_use, DataDirError::InUse { .. }));
    assert!(in_use.to_string().ends_with("is in use by another process"), "{in_use}");
    drop(data);

    let again = DataDirOptions { new_directory_id: Uuid::from_u128(1), ..ours.clone() };
    let data = DataDir::open(disk.clone(), path, &again).unwrap();
    assert_eq!(data.directory_id(), id, "a directory keeps its id");
    assert!(!data.was_clean(), "it was not closed");
    assert!(data.close_clean().unwrap());
    drop(data);
    assert!(DataDir::open(disk.clone(), path, &ours).unwrap().was_clean());
    assert!(!DataDir::open(disk.clone(), path, &ours).unwrap().was_clean(), "the mark is consumed");

    let other = refused(disk.clone(), path, &options("c2", 1)).to_string();
    assert!(other.ends_with("belongs to cluster c1, not to c2"), "{other}");
    let other = refused(disk.clone(), path, &options("c1", 2)).to_string();
    assert!(other.ends_with("belongs to node 1, not to node 2"), "{other}");

    let meta = path.join("meta.properties");
    for text in [
        "",
        "version=1\ncluster.id=c1\n",
        "version=2\n",
        "version=1\ncluster.id=c1\nnode.id=x\ndirectory.id=y\n",
    ] {
        disk.open(&meta, OpenMode::CreateOrEmpty).unwrap().write_at(text.as_bytes(), 0).unwrap();
        let damaged = refused(disk.clone(), path, &ours);
        assert!(matches!(damaged, DataDirError::Damaged { .. }), "{text:?}: {damaged}");
    }
}

#[test]
fn real_disk() {
    let dir = tempfile::tempdir().unwrap();
    suite(Arc::new(RealDisk), &dir.path().join("a/data"));
}

#[test]
fn simulated_disk() {
    suite(SimDisk::new(1), Path::new("a/data"));
}

#[test]
fn a_restart_of_the_machine_is_noticed_until_it_is_remembered() {
    let (disk, path) = (SimDisk::new(1), Path::new("data"));
    let open = || DataDir::open(disk.clone(), path, &options("c1", 1)).unwrap();
    let data = open();
    assert!(!data.may_lack_unflushed(Some("boot 1")).unwrap(), "it is new");
    drop(data);
    // It died before it remembered anything: which run of the machine that was is not known.
    let data = open();
    assert!(data.may_lack_unflushed(Some("boot 1")).unwrap());
    data.remember_boot("boot 1").unwrap();
    drop(data);
    let data = open();
    assert!(!data.may_lack_unflushed(Some("boot 1")).unwrap(), "only the process died");
    drop(data);
    disk.restart();
    for _ in 0..2 {
        assert!(open().may_lack_unflushed(Some("boot 2")).unwrap(), "as long as nobody was told");
    }
    let data = open();
    data.remember_boot("boot 2").unwrap();
    assert!(data.close_clean().unwrap());
    drop(data);
    assert!(!open().may_lack_unflushed(Some("boot 3")).unwrap(), "a clean stop leaves nothing unflushed");
}

#[test]
fn lost_ends_of_logs_are_told_until_somebody_knows() {
    let (disk, path, file) = (SimDisk::new(1), Path::new("data"), Path::new("data/flushed-ends"));
    let open = || {
        disk.restart();
        DataDir::open(disk.clone(), path, &options("c1", 1)).unwrap()
    };
    for damage in ["none", "missing", "cut short", "not ours", "missing"] {
        match damage {
            "missing" => disk.remove_file(file).unwrap(),
            "cut short" => disk.open(file, OpenMode::ReadWrite).unwrap().set_len(20).unwrap(),
            "not ours" => disk.flip_bit(file, 3, 1),
            _ => assert!(!open().has_lost_ends(), "it is new"),
        }
        disk.sync_dir(path).unwrap();
        for _ in 0..2 {
            assert_eq!(open().has_lost_ends(), damage != "none", "{damage}");
        }
        // A disk that has no room for saying so says it again.
        let data = open();
        disk.set_capacity(Some(0));
        assert_eq!(data.told_of_lost_ends().is_err(), damage != "none");
        disk.set_capacity(None);
        drop(data);
        let data = open();
        assert_eq!(data.has_lost_ends(), damage != "none", "{damage}");
        data.told_of_lost_ends().unwrap();
        assert!(!data.has_lost_ends());
        drop(data);
        assert!(!open().has_lost_ends(), "{damage}");
    }
}

#[test]
fn a_directory_of_other_files_is_not_taken() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("letter.txt"), "dear").unwrap();
    let foreign = refused(Arc::new(RealDisk), dir.path(), &options("c1", 1));
    assert!(matches!(foreign, DataDirError::Foreign { .. }), "{foreign}");
}

/// A crash at any operation of the very first open leaves a directory that opens.
#[test]
fn making_a_directory_survives_a_crash_at_any_operation() {
    for seed in 0..10 {
        for crash in 1..30 {
            let disk = SimDisk::new(seed);
            disk.crash_at(crash);
            let made = DataDir::open(disk.clone(), Path::new("data"), &options("c1", 1));
            let made = made.is_ok() && !disk.is_crashed();
            disk.restart();
            let again = DataDirOptions { new_directory_id: Uuid::from_u128(1), ..options("c1", 1) };
            let data = DataDir::open(disk, Path::new("data"), &again).unwrap();
            assert!(!made || data.directory_id() == options("c1", 1).new_directory_id);
        }
    }
}
