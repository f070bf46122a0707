//! What a node pays for partitions that nobody uses at the moment: memory, descriptors, CPU; and what it costs to create them.

use crate::cpu::{cpu_seconds, descriptors, resident_mib, threads};
use crate::kafka_client::produce_to;
use crate::report::print_table;
use crate::weir::Weir;
use crate::{Failure, clock};
use cluster_tests::clients::weir;
use std::path::Path;
use std::time::Duration;

const TOPIC: &str = "idle";
const RECORD_BYTES: u64 = 1024;

/// Options of `bench idle`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Partitions of the node, one measurement for each.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000")]
    partitions: Vec<usize>,
    /// Seconds of idleness before anything is read, and then over which CPU is counted.
    #[arg(long, default_value_t = 10)]
    idle_seconds: u64,
}

/// What a process needs when nobody asks anything.
struct Idle {
    resident_mib: f64,
    descriptors: usize,
    threads: usize,
    cpu_percent: f64,
}

/// Runs the measurement and prints a table.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let home = tempfile::tempdir()?;
    let mut running = Weir::start(home.path())?;
    running.wait_open(0)?;
    let none = idle(&running, args)?;
    running.stop()?;
    let head =
        ["partitions", "state", "took, s", "resident, MiB", "KiB each", "descriptors", "threads", "CPU, %"];
    let mut rows = vec![head.map(str::to_owned).to_vec(), row(0, "started", None, &none, &none)];
    for &partitions in &args.partitions {
        let home = tempfile::tempdir()?;
        measure(home.path(), args, partitions, |state, seconds, found| {
            rows.push(row(partitions, state, Some(seconds), found, &none));
        })?;
    }
    print_table(&rows);
    Ok(())
}

fn measure(
    home: &Path,
    args: &Args,
    partitions: usize,
    mut found: impl FnMut(&str, f64, &Idle),
) -> Result<(), Failure> {
    let mut running = Weir::start(home)?;
    running.wait_open(0)?;
    let start = clock::now();
    weir(&running.bootstrap(), &["topic", "create", TOPIC, "--partitions", &partitions.to_string()], b"");
    running.wait_open(partitions)?;
    let took = start.elapsed().as_secs_f64();
    found("created", took, &idle(&running, args)?);

    let (start, count) = (clock::now(), i32::try_from(partitions)?);
    let bytes = partitions as u64 * RECORD_BYTES;
    produce_to(&running.bootstrap(), TOPIC, count, "all", bytes, &[running.id()])?;
    let took = start.elapsed().as_secs_f64();
    found("a record in each", took, &idle(&running, args)?);
    running.stop()?;

    let start = clock::now();
    let mut running = Weir::start(home)?;
    running.wait_open(partitions)?;
    let took = start.elapsed().as_secs_f64();
    found("started again", took, &idle(&running, args)?);
    running.stop()
}

fn idle(running: &Weir, args: &Args) -> Result<Idle, Failure> {
    let pause = Duration::from_secs(args.idle_seconds);
    std::thread::sleep(pause);
    let (start, before) = (clock::now(), cpu_seconds(running.id())?);
    std::thread::sleep(pause);
    let used = cpu_seconds(running.id())? - before;
    Ok(Idle {
        resident_mib: resident_mib(running.id())?,
        descriptors: descriptors(running.id())?,
        threads: threads(running.id())?,
        cpu_percent: 100.0 * used / start.elapsed().as_secs_f64(),
    })
}

fn row(partitions: usize, state: &str, took: Option<f64>, idle: &Idle, none: &Idle) -> Vec<String> {
    let each = (idle.resident_mib - none.resident_mib) * 1024.0 / partitions.max(1) as f64;
    vec![
        partitions.to_string(),
        state.to_owned(),
        took.map_or(String::new(), |seconds| format!("{seconds:.2}")),
        format!("{:.1}", idle.resident_mib),
        if partitions == 0 { String::new() } else { format!("{each:.1}") },
        idle.descriptors.to_string(),
        idle.threads.to_string(),
        format!("{:.1}", idle.cpu_percent),
    ]
}
