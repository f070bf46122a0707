//! Compaction of one log on real files, by one thread: MB/s of input, and where the time goes.
//!
//! The log is written first (records of about `record-bytes`, batches of `batch-kib`, `keys` different keys, so that each
//! pass drops most of it), then compacted in one pass. Input is what was in the segments, as it lay there; each byte is
//! read twice, once for the map and once to be written anew.

use crate::clock::now;
use crate::cpu::cpu_seconds;
use crate::report::{print_table, spread};
use crate::{Failure, report};
use log_engine::{
    CompactionRequest, DataDir, DataDirOptions, Installed, Log, LogConfig, LogName, Pace, RealDisk,
};
use log_engine_core::compact::CompactionPolicy;
use records::{BatchBuilder, BatchHeader, Compression};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Options of `bench compaction`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Bytes of the log, in MiB, before compression.
    #[arg(long, default_value_t = 1024)]
    mib: u64,
    /// Bytes of a record's value.
    #[arg(long, default_value_t = 1024)]
    record_bytes: usize,
    /// Records of a batch.
    #[arg(long, default_value_t = 16)]
    batch_records: usize,
    /// Different keys.
    #[arg(long, default_value_t = 100_000)]
    keys: u64,
    /// Codecs, one table row for each.
    #[arg(long, value_delimiter = ',', default_value = "none,lz4")]
    codecs: Vec<String>,
    /// Rounds.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Where the log is made; its files go afterwards. The default is the system's temporary directory.
    #[arg(long)]
    directory: Option<PathBuf>,
}

/// What one pass took.
struct Cost {
    bytes_in: u64,
    bytes_out: u64,
    seconds: f64,
    map_seconds: f64,
    install_seconds: f64,
    cpu_seconds: f64,
}

/// Takes no time, and stops nothing.
struct AtOnce;

impl Pace for AtOnce {
    fn spend(&mut self, _bytes: u64) -> bool {
        true
    }

    fn has_room(&mut self, _bytes: u64) -> bool {
        true
    }

    fn now_ms(&mut self) -> Option<i64> {
        Some(1_000)
    }
}

/// Runs the measurement and prints a table.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let head = ["codec", "MiB in", "MiB out", "MB/s", "MB/s of CPU", "map s", "clean s", "replace s"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for name in &args.codecs {
        let codec = Compression::from_name(name).ok_or_else(|| format!("there is no codec {name}"))?;
        let costs = (0..args.rounds).map(|_| measure(codec, args)).collect::<Result<Vec<Cost>, Failure>>()?;
        let column = |value: fn(&Cost) -> f64| costs.iter().map(value).collect::<Vec<f64>>();
        rows.push(vec![
            name.clone(),
            format!("{:.0}", report::median(&column(|c| c.bytes_in as f64 / 1048576.0))),
            format!("{:.0}", report::median(&column(|c| c.bytes_out as f64 / 1048576.0))),
            spread(&column(|c| c.bytes_in as f64 / 1e6 / c.seconds), 0),
            spread(&column(|c| c.bytes_in as f64 / 1e6 / c.cpu_seconds), 0),
            spread(&column(|c| c.map_seconds), 2),
            spread(&column(|c| c.seconds - c.map_seconds - c.install_seconds), 2),
            spread(&column(|c| c.install_seconds), 3),
        ]);
    }
    print_table(&rows);
    Ok(())
}

fn measure(codec: Compression, args: &Args) -> Result<Cost, Failure> {
    let directory = match &args.directory {
        Some(directory) => tempfile::tempdir_in(directory)?,
        None => tempfile::tempdir()?,
    };
    let options = DataDirOptions {
        cluster_id: "bench".into(),
        node_id: 1,
        new_directory_id: Uuid::from_u128(1),
        descriptors_max: 1000,
    };
    let data = DataDir::open(Arc::new(RealDisk), &directory.path().join("data"), &options)?;
    let config = LogConfig { segment_bytes: 128 << 20, ..LogConfig::default() };
    let name = LogName::new(Uuid::from_u128(2), 0);
    let (mut log, _) = Log::open(&data, name, config, 0)?;
    fill(&mut log, codec, args)?;
    // As a node does in the background, when a segment has been flushed.
    while let Some((_, sealing)) = data.seal_next(Duration::ZERO) {
        sealing?;
    }
    let me = std::process::id();
    let (began, cpu) = (now(), cpu_seconds(me)?);
    let policy = CompactionPolicy { min_dirty_ratio: 0.0, min_lag_ms: 0, max_lag_ms: i64::MAX };
    let bound = log.flushed();
    let request = CompactionRequest {
        bound,
        dirtiness: log.reader().dirtiness(&data, bound, Some(1_000), &policy),
        now_ms: Some(1_000),
        delete_retention_ms: 1_000,
        keep_from: i64::MAX,
        map_bytes_max: 128 << 20,
    };
    let mut pass = log.begin_compaction(&request).ok_or("there is nothing to compact")?;
    pass.prepare(&mut AtOnce)?;
    let map_seconds = began.elapsed().as_secs_f64();
    let mut install_seconds = 0.0;
    while let Some(segment) = pass.next_segment(&mut AtOnce)? {
        let installing = now();
        if !matches!(log.install(segment)?, Installed::Yes) {
            return Err("the log changed while it was compacted".into());
        }
        install_seconds += installing.elapsed().as_secs_f64();
    }
    let seconds = began.elapsed().as_secs_f64();
    let cpu_seconds = cpu_seconds(me)? - cpu;
    let counts = pass.counts();
    log.close()?;
    let (bytes_in, bytes_out) = (counts.bytes_in, counts.bytes_out);
    Ok(Cost { bytes_in, bytes_out, seconds, map_seconds, install_seconds, cpu_seconds })
}

/// Writes the log: values of which half is always the same, as compressors like it.
fn fill(log: &mut Log, codec: Compression, args: &Args) -> Result<(), Failure> {
    let records = (args.mib << 20) / args.record_bytes.max(1) as u64;
    let mut value = vec![b'v'; args.record_bytes];
    let mut random = 1u64;
    let mut written = 0;
    while written < records {
        let base = log.end();
        let mut builder = BatchBuilder::new().compression(codec).base_offset(base).leader_epoch(0);
        for _ in 0..args.batch_records {
            for at in (0..value.len() / 2).step_by(8) {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let end = (at + 8).min(value.len());
                value[at..end].copy_from_slice(&random.to_le_bytes()[..end - at]);
            }
            let key = format!("key-{:012}", (random >> 33) % args.keys.max(1));
            builder.push(1, Some(key.as_bytes()), Some(&value), &[])?;
            written += 1;
        }
        let bytes = builder.build();
        let header = BatchHeader::parse(&bytes)?;
        log.append(&bytes, &[header], 0)?;
    }
    log.roll()?;
    let mut builder = BatchBuilder::new().base_offset(log.end()).leader_epoch(0);
    builder.push(1, Some(b"last"), None, &[])?;
    let bytes = builder.build();
    log.append(&bytes, &[BatchHeader::parse(&bytes)?], 0)?;
    let flush = log.begin_flush().ok_or("there is nothing to flush")?;
    let result = flush.sync();
    log.on_flushed(flush.done(result));
    Ok(())
}
