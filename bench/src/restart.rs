//! How long a node with many partitions takes to start, after a clean stop and after SIGKILL, and what it reads for that:
//! at three sizes of the same segments, since neither may grow with the data.

use crate::report::{print_table, spread};
use crate::weir::Weir;
use crate::{Failure, clock};
use cluster_tests::clients::{kcat, weir};
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
const TOPIC: &str = "restart";
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
    #[arg(long, value_delimiter = ',', default_value = "16,64,256")]
    segment_kib: Vec<usize>,
    /// Starts of each kind.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

#[derive(Default)]
struct Series {
    seconds: Vec<f64>,
    read_mib: Vec<f64>,
}

/// Runs the measurement and prints a table.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut rows = vec![
        ["data, MiB", "clean start, s", "read by it, MiB", "start after SIGKILL, s", "read by it, MiB"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for &kib in &args.segment_kib {
        let home = tempfile::tempdir()?;
        prepare(home.path(), args, kib)?;
        let (mut clean, mut killed) = (Series::default(), Series::default());
        for _ in 0..args.rounds {
            let running = start(home.path(), &mut clean)?;
            // Something in every partition that no clean stop follows.
            let lines: String = (0..20 * args.partitions).map(|n| format!("line {n}\n")).collect();
            kcat(&running.bootstrap(), &["-P", "-t", TOPIC, "-X", "acks=1"], lines.as_bytes());
            running.kill()?;
            start(home.path(), &mut killed)?.stop()?;
        }
        let mib = args.partitions * args.segments * kib / 1024;
        rows.push(vec![
            mib.to_string(),
            spread(&clean.seconds, 2),
            spread(&clean.read_mib, 1),
            spread(&killed.seconds, 2),
            spread(&killed.read_mib, 1),
        ]);
    }
    print_table(&rows);
    Ok(())
}

/// Starts the node and notes how long it took until clients were served, and what its process had read until then.
fn start(home: &Path, series: &mut Series) -> Result<Weir, Failure> {
    let start = clock::now();
    let mut running = Weir::start(home)?;
    running.wait_ready()?;
    series.seconds.push(start.elapsed().as_secs_f64());
    let io = fs::read_to_string(format!("/proc/{}/io", running.id()))?;
    let read = io.lines().find_map(|line| line.strip_prefix("rchar: ")).ok_or("no rchar")?;
    series.read_mib.push(read.trim().parse::<f64>()? / f64::from(1 << 20));
    Ok(running)
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
        while let Some((_, sealing)) = data.seal_next(Duration::ZERO) {
            sealing?;
        }
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
    Ok(log.close()?)
}
