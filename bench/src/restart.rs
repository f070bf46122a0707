//! How long a node with many partitions takes to start, after a clean stop and after SIGKILL, and what it reads for that:
//! at three sizes of the same segments, since neither may grow with the data. Nothing of the files is in memory before.

use crate::cpu::read_mib;
use crate::kafka_client::produce_to;
use crate::report::{print_table, spread};
use crate::weir::Weir;
use crate::{Failure, clock};
use cluster_tests::clients::weir;
use cluster_tests::clock::wait_until;
use log_engine::{DataDir, DataDirOptions, Log, LogConfig, LogName, RealDisk};
use records::{BatchBuilder, BatchHeader};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Milliseconds; the age of the records is of no interest.
const NOW: i64 = 1_700_000_000_000;
const RECORD_BYTES: usize = 1024;
/// Records of each partition that no clean stop follows.
const RECORDS_UNCLEAN: usize = 20;
const TOPIC: &str = "restart";
const PAGE_BYTES: u64 = 4096;
/// How long a new topic may take to have its directories.
const MADE_MAX: Duration = Duration::from_secs(60);

/// Options of `bench restart`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Partitions of the node.
    #[arg(long, default_value_t = 1_000)]
    partitions: usize,
    /// Segments of each partition.
    #[arg(long, default_value_t = 10)]
    segments: usize,
    /// KiB of each segment, one measurement for each.
    #[arg(long, value_delimiter = ',', default_value = "64,256,1024")]
    segment_kib: Vec<usize>,
    /// Starts of each kind.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

#[derive(Default)]
struct Series {
    seconds: Vec<f64>,
    asked_mib: Vec<f64>,
    device_mib: Vec<f64>,
}

impl Series {
    fn cells(&self) -> [String; 3] {
        [spread(&self.seconds, 2), spread(&self.asked_mib, 1), spread(&self.device_mib, 1)]
    }
}

/// Runs the measurement and prints a table.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let head = [
        "data, MiB",
        "seals and tails, MiB",
        "clean start, s",
        "read, MiB",
        "of it from the device",
        "after SIGKILL: seals and tails, MiB",
        "start, s",
        "read, MiB",
        "of it from the device",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for &kib in &args.segment_kib {
        let home = tempfile::tempdir()?;
        prepare(home.path(), args, kib)?;
        let needed = seals_and_tails(home.path())?;
        let (mut clean, mut killed) = (Series::default(), Series::default());
        let mut needed_killed = Vec::new();
        for _ in 0..args.rounds {
            let running = start(home.path(), args, &mut clean)?;
            // Something in every partition that no clean stop follows.
            let count = i32::try_from(args.partitions)?;
            let bytes = (RECORDS_UNCLEAN * args.partitions * RECORD_BYTES) as u64;
            produce_to(&running.bootstrap(), TOPIC, count, "1", bytes, &[running.id()])?;
            running.kill()?;
            needed_killed.push(seals_and_tails(home.path())?);
            start(home.path(), args, &mut killed)?.stop()?;
        }
        let mib = args.partitions * args.segments * kib / 1024;
        let mut row = vec![mib.to_string(), format!("{needed:.1}")];
        row.extend(clean.cells());
        row.push(spread(&needed_killed, 1));
        row.extend(killed.cells());
        rows.push(row);
    }
    print_table(&rows);
    Ok(())
}

/// Starts the node with nothing of its files in memory; notes how long it took until every copy was open, and what its
/// process had read until then.
fn start(home: &Path, args: &Args, series: &mut Series) -> Result<Weir, Failure> {
    evict(home)?;
    let start = clock::now();
    let mut running = Weir::start(home)?;
    running.wait_open(args.partitions)?;
    series.seconds.push(start.elapsed().as_secs_f64());
    let read = read_mib(running.id())?;
    series.asked_mib.push(read.asked);
    series.device_mib.push(read.device);
    Ok(running)
}

/// Lets the operating system forget what the files below hold.
fn evict(home: &Path) -> Result<(), Failure> {
    each_file(home, &mut |path| {
        let file = fs::File::open(path)?;
        file.sync_data()?;
        Ok(rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?)
    })
}

/// What a start may read by the design: seals, and the segments that have none, which are those that were written last; as
/// devices read, in pages.
fn seals_and_tails(home: &Path) -> Result<f64, Failure> {
    let (dir, names) = logs_below(home)?.ok_or("no logs")?;
    let mut bytes = 0;
    for name in names {
        each_file(&dir.join(name.to_string()), &mut |path| {
            let is_needed = match path.extension().and_then(|extension| extension.to_str()) {
                Some("seal") => true,
                Some("log") => !path.with_extension("seal").exists(),
                Some(_) | None => false,
            };
            if is_needed {
                bytes += fs::metadata(path)?.len().next_multiple_of(PAGE_BYTES);
            }
            Ok(())
        })?;
    }
    Ok(bytes as f64 / f64::from(1 << 20))
}

fn each_file(dir: &Path, action: &mut impl FnMut(&Path) -> Result<(), Failure>) -> Result<(), Failure> {
    for entry in fs::read_dir(dir)?.flatten() {
        match entry.file_type()?.is_dir() {
            true => each_file(&entry.path(), action)?,
            false => action(&entry.path())?,
        }
    }
    Ok(())
}

/// A topic of that many partitions, and segments in each of them, written without the node.
fn prepare(home: &Path, args: &Args, kib: usize) -> Result<(), Failure> {
    let mut running = Weir::start(home)?;
    running.wait_ready()?;
    let partitions = args.partitions.to_string();
    weir(
        &running.bootstrap(),
        &["topic", "create", TOPIC, "--partitions", &partitions, "--config", "retention.ms=-1"],
        b"",
    );
    let all = || logs_below(home).ok().flatten().filter(|(_, names)| names.len() >= args.partitions);
    let (dir, names) = wait_until(MADE_MAX, all).ok_or("not all partitions have a directory")?;
    running.stop()?;
    let data = open(&dir)?;
    for name in names {
        fill(&data, name, args.segments, kib)?;
    }
    data.close_clean()?;
    Ok(())
}

/// The data directory, and the logs in it.
fn logs_below(home: &Path) -> Result<Option<(PathBuf, Vec<LogName>)>, Failure> {
    let mut waiting = vec![home.to_owned()];
    while let Some(dir) = waiting.pop() {
        let mut names = Vec::new();
        for entry in fs::read_dir(&dir)?.flatten().filter(|entry| entry.path().is_dir()) {
            match entry.file_name().to_str().and_then(LogName::parse) {
                Some(name) => names.push(name),
                None => waiting.push(entry.path()),
            }
        }
        if !names.is_empty() {
            return Ok(Some((dir, names)));
        }
    }
    Ok(None)
}

/// As the node that it belongs to.
fn open(dir: &Path) -> Result<DataDir, Failure> {
    let meta = fs::read_to_string(dir.join("meta.properties"))?;
    let value = |key: &str| meta.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let options = DataDirOptions {
        cluster_id: value("cluster.id").ok_or("no cluster.id")?.to_owned(),
        node_id: value("node.id").ok_or("no node.id")?.parse()?,
        new_directory_id: uuid::Uuid::nil(),
        descriptors_max: 1_000,
    };
    Ok(DataDir::open(Arc::new(RealDisk), dir, &options)?)
}

fn fill(data: &DataDir, name: LogName, segments: usize, kib: usize) -> Result<(), Failure> {
    let (mut log, _) = Log::open(data, name, LogConfig::default(), NOW)?;
    for segment in 0..segments {
        for _ in 0..kib.div_ceil(16) {
            let mut builder = BatchBuilder::new().base_offset(log.end()).leader_epoch(0);
            for _ in 0..16.min(kib) {
                builder.push(NOW, None, Some(&[b'x'; RECORD_BYTES]), &[])?;
            }
            let batch = builder.build();
            log.append(&batch, &[BatchHeader::parse(&batch)?], NOW)?;
        }
        if segment + 1 < segments {
            log.roll()?;
        }
    }
    if let Some(flush) = log.begin_flush() {
        let result = flush.sync();
        log.on_flushed(flush.done(result));
    }
    // Few segments can wait for it.
    while let Some((_, sealing)) = data.seal_next(Duration::ZERO) {
        sealing?;
    }
    Ok(log.close()?)
}
