//! What opening a log reads: seals, and of the segment that was written last what no clean stop follows. Never more because
//! there is more data. And what a cut reads of the segment that is cut.

#![allow(clippy::unwrap_used, reason = "a test fails by it, also in its helper functions")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use log_engine::{
    DataDir, DataDirOptions, DirEntry, Disk, DiskFile, FileSystem, LockGuard, Log, LogConfig, LogName,
    OpenError, OpenMode, RecoveryReport, Sealing, SimDisk,
};
use parking_lot::Mutex;
use records::{BatchBuilder, BatchHeader};
use uuid::Uuid;

const NAME: LogName = LogName { topic_id: Uuid::from_u128(5), partition: 0 };
const NOW: i64 = 1_700_000_000_000;
const SEGMENTS: u64 = 6;
const BATCH_BYTES: usize = 1024;
const DIR: &str = "data";

/// Looks into segments: the first batch, the last one, and those around the beginning of an epoch; each by a few blocks of
/// 4 KiB. And into indexes for that: by blocks of 257 entries.
const LOOKS_MAX: u64 = 12 * (4096 + 257 * 8 + 32 * 8);
/// Flushed ends, epochs, producers, append times.
const SMALL_FILES_MAX: u64 = 4096;

const PAGE_BYTES: u64 = 4096;
/// What Linux reads at least of a file that is read from its beginning, unless it was told that this does not pay.
const READ_AHEAD_PAGES: u64 = 4;

/// What was read: bytes of each file, and the pages that a device would have read for them if nothing was in memory.
#[derive(Default)]
struct Counts {
    bytes: Mutex<BTreeMap<PathBuf, u64>>,
    pages: Mutex<BTreeSet<(PathBuf, u64)>>,
}

impl Counts {
    fn of(&self, suffix: &str) -> u64 {
        let counts = self.bytes.lock();
        let fit = counts.iter().filter(|(path, _)| path.extension().is_some_and(|found| found == suffix));
        fit.map(|(_, bytes)| bytes).sum()
    }

    fn all(&self) -> u64 {
        self.bytes.lock().values().sum()
    }

    /// Bytes that the device had to read of the log's files.
    fn of_device(&self) -> u64 {
        let of_log =
            |(path, _): &&(PathBuf, u64)| path.parent().is_some_and(|dir| dir.ends_with(NAME.to_string()));
        self.pages.lock().iter().filter(of_log).count() as u64 * PAGE_BYTES
    }
}

/// Counts what is read.
struct CountingDisk {
    disk: Arc<SimDisk>,
    counts: Arc<Counts>,
}

struct CountingFile {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    counts: Arc<Counts>,
    is_read_ahead: AtomicBool,
}

impl CountingFile {
    fn note(&self, offset: u64, len: u64) {
        *self.counts.bytes.lock().entry(self.path.clone()).or_default() += len;
        let ahead =
            if offset == 0 && self.is_read_ahead.load(Ordering::Relaxed) { READ_AHEAD_PAGES } else { 0 };
        let end = (offset + len).div_ceil(PAGE_BYTES).max(ahead);
        let end = end.min(self.file.len().unwrap_or(0).div_ceil(PAGE_BYTES));
        let pages = (offset / PAGE_BYTES..end).map(|page| (self.path.clone(), page));
        self.counts.pages.lock().extend(pages);
    }
}

impl Disk for CountingDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.open(path, mode)?;
        Ok(Arc::new(CountingFile {
            file,
            path: path.to_owned(),
            counts: self.counts.clone(),
            is_read_ahead: AtomicBool::new(true),
        }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.disk.list(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_dir(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }

    fn file_system(&self, dir: &Path) -> io::Result<Box<dyn FileSystem>> {
        self.disk.file_system(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn LockGuard>>> {
        self.disk.lock(path)
    }
}

impl DiskFile for CountingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.note(offset, buf.len() as u64);
        self.file.read_at(buf, offset)
    }

    fn read_at_warm(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.note(offset, buf.len() as u64);
        self.file.read_at_warm(buf, offset)
    }

    fn is_warm(&self, offset: u64, len: u64) -> bool {
        self.file.is_warm(offset, len)
    }

    fn warm_up(&self, offset: u64, len: u64) {
        self.note(offset, len);
        self.file.warm_up(offset, len);
    }

    fn read_ahead(&self, pays: bool) {
        self.is_read_ahead.store(pays, Ordering::Relaxed);
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(bytes, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn reserve(&self, offset: u64, len: u64) -> bool {
        self.file.reserve(offset, len)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn os_file(&self) -> Option<Arc<File>> {
        self.file.os_file()
    }
}

fn open(disk: &Arc<SimDisk>, counts: &Arc<Counts>) -> (DataDir, Log, RecoveryReport) {
    open_with(disk, counts, LogConfig::default())
}

fn open_with(disk: &Arc<SimDisk>, counts: &Arc<Counts>, config: LogConfig) -> (DataDir, Log, RecoveryReport) {
    let data = open_dir(disk, counts);
    let (log, report) = Log::open(&data, NAME, config, NOW).unwrap();
    (data, log, report)
}

fn open_dir(disk: &Arc<SimDisk>, counts: &Arc<Counts>) -> DataDir {
    let options = DataDirOptions {
        cluster_id: "c1".into(),
        node_id: 1,
        new_directory_id: Uuid::from_u128(9),
        descriptors_max: 100,
    };
    let counting = CountingDisk { disk: disk.clone(), counts: counts.clone() };
    DataDir::open(Arc::new(counting), Path::new(DIR), &options).unwrap()
}

fn append(log: &mut Log, batches: u64) {
    for _ in 0..batches {
        let mut builder = BatchBuilder::new().base_offset(log.end()).leader_epoch(3).producer(7, 0, 0);
        builder.push(NOW, None, Some(&[b'x'; BATCH_BYTES]), &[]).unwrap();
        let batch = builder.build();
        log.append(&batch, &[BatchHeader::parse(&batch).unwrap()], NOW).unwrap();
    }
}

fn flush(log: &mut Log) {
    let handle = log.begin_flush().unwrap();
    let result = handle.sync();
    log.on_flushed(handle.done(result));
}

/// A closed log of sealed segments and one that takes appends, each of so many batches.
fn write(disk: &Arc<SimDisk>, batches: u64) {
    let (data, mut log, _) = open(disk, &Arc::default());
    for segment in 0..SEGMENTS {
        append(&mut log, batches);
        if segment + 1 < SEGMENTS {
            log.roll().unwrap();
        }
        flush(&mut log);
    }
    while let Some((_, sealing)) = data.seal_next(Duration::ZERO) {
        assert_eq!(sealing.unwrap(), Sealing::Sealed);
    }
    log.close().unwrap();
    data.close_clean().unwrap();
}

/// What may be read by the design: the seals, and the segment that was written last; in pages.
fn seals_and_tail(disk: &SimDisk) -> u64 {
    let names = disk.list(&Path::new(DIR).join(NAME.to_string())).unwrap();
    let of = |suffix: &'static str| names.iter().filter(move |entry| entry.name.ends_with(suffix));
    of(".seal").chain(of(".log").next_back()).map(|entry| entry.len.next_multiple_of(PAGE_BYTES)).sum()
}

fn bytes_on_disk(disk: &SimDisk, suffix: &str) -> u64 {
    let names = disk.list(&Path::new(DIR).join(NAME.to_string())).unwrap();
    let fit = names.iter().filter(|entry| Path::new(&entry.name).extension().is_some_and(|e| e == suffix));
    fit.map(|entry| entry.len).sum()
}

#[test]
fn a_clean_start_reads_seals_and_looks_here_and_there() {
    for batches in [32, 64, 1024, 4096] {
        let disk = SimDisk::new(1);
        write(&disk, batches);
        let seals = bytes_on_disk(&disk, "seal");
        let counts = Arc::new(Counts::default());
        let (_data, log, report) = open(&disk, &counts);
        assert_eq!((log.end() as u64, report.seals_read as u64), (SEGMENTS * batches, SEGMENTS - 1));
        assert_eq!(counts.of("seal"), seals);
        let (read, data) = (counts.all(), bytes_on_disk(&disk, "log"));
        assert!(
            read <= seals + LOOKS_MAX + SMALL_FILES_MAX,
            "{read} of {data} bytes: {:?}",
            counts.bytes.lock()
        );
        let (device, allowed) = (counts.of_device(), seals_and_tail(&disk));
        assert!(device <= allowed, "{device} of {allowed} bytes: {:?}", counts.pages.lock());
    }
}

/// On a slow disk many of them take long, and who hears nothing takes it for one that hangs.
#[test]
fn a_start_tells_of_each_seal_and_can_be_ended_there() {
    let disk = SimDisk::new(1);
    write(&disk, 64);
    let seals_max = SEGMENTS - 1;
    for enough in 1..=seals_max {
        let (counts, mut told) = (Arc::new(Counts::default()), 0);
        let data = open_dir(&disk, &counts);
        let mut watch = |_| {
            told += 1;
            // The first time nothing was done yet.
            told <= enough
        };
        let ended = Log::open_watched(&data, NAME, LogConfig::default(), NOW, &mut watch).err();
        let is_ended =
            |e: &OpenError| matches!(e, OpenError::Io(e) if e.source.kind() == io::ErrorKind::Interrupted);
        assert!(ended.as_ref().is_some_and(is_ended), "{ended:?}");
        let (read, all) = (counts.of("seal"), bytes_on_disk(&disk, "seal"));
        assert_eq!(read, all / seals_max * enough, "{all} bytes of {seals_max} seals");
    }
}

#[test]
fn a_start_after_a_crash_reads_the_tail_too_and_of_other_segments_no_more() {
    for batches in [32, 64, 1024, 4096] {
        let disk = SimDisk::new(1);
        write(&disk, batches);
        let (data, mut log, _) = open(&disk, &Arc::default());
        append(&mut log, 10);
        drop((data, log));
        disk.restart_process();
        let seals = bytes_on_disk(&disk, "seal");
        let counts = Arc::new(Counts::default());
        let (_data, log, report) = open(&disk, &counts);
        assert_eq!((log.end() as u64, report.seals_read as u64), (SEGMENTS * batches + 10, SEGMENTS - 1));
        let active = format!("{:020}.log", (SEGMENTS - 1) * batches);
        let of_others = |path: &Path| !path.ends_with(&active);
        let others: u64 =
            counts.bytes.lock().iter().filter(|(path, _)| of_others(path)).map(|(_, bytes)| bytes).sum();
        assert!(others <= seals + LOOKS_MAX + SMALL_FILES_MAX, "{others} bytes: {:?}", counts.bytes.lock());
        let unflushed = 10 * (BATCH_BYTES as u64 + 100);
        assert!(report.bytes_verified <= unflushed, "{report:?}");
        let (device, allowed) = (counts.of_device(), seals_and_tail(&disk));
        assert!(device <= allowed, "{device} of {allowed} bytes: {:?}", counts.pages.lock());
    }
}

#[test]
fn a_cut_reads_what_lies_behind_the_last_index_entry_and_the_last_producer_snapshot() {
    const SNAPSHOT_BYTES: u64 = 128 << 10;
    for batches in [512, 4096] {
        for restarted in [false, true] {
            let (disk, counts) = (SimDisk::new(1), Arc::new(Counts::default()));
            let config =
                LogConfig { producer_snapshot_interval_bytes: SNAPSHOT_BYTES, ..LogConfig::default() };
            let (mut data, mut log, _) = open_with(&disk, &counts, config.clone());
            append(&mut log, batches);
            flush(&mut log);
            if restarted {
                log.close().unwrap();
                data.close_clean().unwrap();
                drop(data);
                (data, log, _) = open_with(&disk, &counts, config);
            }
            counts.bytes.lock().clear();
            let to = log.end() - 5;
            assert_eq!(log.truncate_to(to).unwrap(), to);
            let (read, size) = (counts.of("log"), bytes_on_disk(&disk, "log"));
            // Where to cut, where the batches end then, indexes, producers.
            let enough = SNAPSHOT_BYTES + 12 * 4096;
            assert!(read <= enough, "{read} of {size} bytes, {batches} batches, restarted: {restarted}");
            append(&mut log, 1);
            log.close().unwrap();
            data.close_clean().unwrap();
        }
    }
}
