//! One producer, one consumer, one node: Weir, Apache Kafka and the floor in turns.

use crate::floor::{Cost, Floor};
use crate::report::{median, print_table, spread};
use crate::weir::Weir;
use crate::{Failure, kafka_client};
use cluster_tests::oracle::broker::{BrokerOptions, KafkaCluster, SHIPPED_JVM};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Options of `bench one-node`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Bytes per round and system, in MiB.
    #[arg(long, default_value_t = 1024)]
    mib: u64,
    /// Rounds; the systems take turns in each.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Acknowledgements that the producer asks for: 1 or all. Weir flushes before it answers `all`; Kafka does not.
    #[arg(long, default_value = "1")]
    acks: String,
}

#[derive(Default)]
struct Series {
    produce: Vec<Cost>,
    consume: Vec<Cost>,
}

/// Runs the measurement and prints a table.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let bytes = args.mib << 20;
    let home = tempfile::tempdir()?;
    warm_memory(home.path(), bytes * 3)?;
    let mut weir = Weir::start(&home.path().join("weir"))?;
    weir.wait_ready()?;
    let kafka = KafkaCluster::start(&BrokerOptions { jvm: SHIPPED_JVM, ..BrokerOptions::default() })?;
    let kafka_pid = *kafka.process_ids().first().ok_or("Kafka has no process")?;

    let (mut ours, mut theirs, mut floor) = (Series::default(), Series::default(), Series::default());
    for round in 0..args.rounds {
        let topic = format!("bench-{round}");
        measure(&weir.bootstrap(), &topic, args, bytes, weir.id(), &mut ours)?;
        measure(&kafka.bootstrap(), &topic, args, bytes, kafka_pid, &mut theirs)?;
        let server = Floor::start(home.path())?;
        floor.produce.push(server.produce(bytes)?);
        floor.consume.push(server.fetch()?);
        eprintln!("bench: round {} of {} done", round + 1, args.rounds);
    }
    kafka.stop()?;
    weir.stop()?;
    print(args, &ours, &theirs, &floor);
    Ok(())
}

fn measure(
    bootstrap: &str,
    topic: &str,
    args: &Args,
    bytes: u64,
    broker: u32,
    series: &mut Series,
) -> Result<(), Failure> {
    kafka_client::create_topic(bootstrap, topic)?;
    series.produce.push(kafka_client::produce(bootstrap, topic, &args.acks, bytes, broker)?);
    series.consume.push(kafka_client::consume(bootstrap, topic, bytes, broker)?);
    Ok(())
}

/// The first touch of memory that the host has taken back costs many times the later ones: touch it before measuring.
fn warm_memory(directory: &Path, bytes: u64) -> Result<(), Failure> {
    let path = directory.join("warm");
    let mut file = File::create(&path)?;
    let block = vec![0_u8; 1 << 20];
    for _ in 0..bytes.min(6 << 30) >> 20 {
        file.write_all(&block)?;
    }
    drop(file);
    std::fs::remove_file(path)?;
    Ok(())
}

fn print(args: &Args, ours: &Series, theirs: &Series, floor: &Series) {
    let row = |name: &str, costs: &[Cost], ours: &[Cost]| {
        let cpu: Vec<f64> = costs.iter().map(|c| c.cpu_seconds_per_gb).collect();
        let speed: Vec<f64> = costs.iter().map(|c| c.megabytes_per_second).collect();
        let our_cpu: Vec<f64> = ours.iter().map(|c| c.cpu_seconds_per_gb).collect();
        vec![
            name.to_owned(),
            spread(&speed, 0),
            spread(&cpu, 3),
            format!("{:.2}", median(&our_cpu) / median(&cpu)),
        ]
    };
    let head = |what: &str| {
        ["MB/s", "broker CPU s/GB", "Weir's CPU / this"].iter().fold(
            vec![what.to_owned()],
            |mut row, cell| {
                row.push((*cell).to_owned());
                row
            },
        )
    };
    let produce = format!("produce, acks={}, 1 KiB, {} MiB x {}", args.acks, args.mib, args.rounds);
    print_table(&[
        head(&produce),
        row("Weir", &ours.produce, &ours.produce),
        row("Apache Kafka", &theirs.produce, &ours.produce),
        row("floor (1 MiB frames)", &floor.produce, &ours.produce),
        head("consume"),
        row("Weir", &ours.consume, &ours.consume),
        row("Apache Kafka", &theirs.consume, &ours.consume),
        row("floor (sendfile)", &floor.consume, &ours.consume),
    ]);
}
