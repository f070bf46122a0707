//! acks=all on three nodes with three copies, beside Apache Kafka with three nodes: throughput, CPU of all brokers together, and
//! the time from sending a record to its acknowledgement at a moderate rate. Weir flushes before it acknowledges and encrypts what
//! its nodes say to each other; Kafka does neither.

use crate::cluster::{self, Profile};
use crate::floor::Cost;
use crate::report::{median, percentile, print_table, spread};
use crate::steady_producer::SteadyProducer;
use crate::{Failure, kafka_client};
use cluster_tests::oracle::broker::{BrokerOptions, KafkaCluster, SHIPPED_JVM};
use std::time::Duration;

const LATENCY_TOPIC: &str = "latency";

/// Options of `bench replicated`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Bytes per round and system, in MiB.
    #[arg(long, default_value_t = 256)]
    mib: u64,
    /// Rounds; the systems take turns in each.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Partitions of the topic.
    #[arg(long, default_value_t = 6)]
    partitions: i32,
    /// Records a second for the latency.
    #[arg(long, default_value_t = 1000)]
    rate: u32,
    /// Seconds for the latency, in each round.
    #[arg(long, default_value_t = 10)]
    latency_seconds: u64,
    /// Measure Weir alone.
    #[arg(long)]
    without_kafka: bool,
}

#[derive(Default)]
struct Series {
    produce: Vec<Cost>,
    /// Milliseconds of every record.
    latencies: Vec<f64>,
}

/// Runs the measurement and prints a table.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let home = tempfile::tempdir()?;
    let mut weir = cluster::start(home.path(), Profile::Default)?;
    let weir_ids = cluster::node_ids(&mut weir);
    let kafka = match args.without_kafka {
        true => None,
        false => {
            let options = BrokerOptions { nodes: 3, jvm: SHIPPED_JVM, ..BrokerOptions::default() };
            Some(KafkaCluster::start(&options)?)
        }
    };
    let (mut ours, mut theirs) = (Series::default(), Series::default());
    for round in 0..args.rounds {
        measure(&weir.bootstrap(), round, args, &weir_ids, &mut ours)?;
        if let Some(kafka) = &kafka {
            measure(&kafka.bootstrap(), round, args, &kafka.process_ids(), &mut theirs)?;
        }
        eprintln!("bench: round {} of {} done", round + 1, args.rounds);
    }
    if let Some(kafka) = kafka {
        kafka.stop()?;
    }
    weir.stop();
    print(args, &ours, &theirs);
    Ok(())
}

fn measure(
    bootstrap: &str,
    round: usize,
    args: &Args,
    brokers: &[u32],
    series: &mut Series,
) -> Result<(), Failure> {
    let topic = format!("replicated-{round}");
    kafka_client::create_topic_with(bootstrap, &topic, args.partitions, 3)?;
    kafka_client::warm_up(bootstrap, &topic)?;
    series.produce.push(kafka_client::produce_to(
        bootstrap,
        &topic,
        args.partitions,
        "all",
        args.mib << 20,
        brokers,
    )?);
    if round == 0 {
        kafka_client::create_topic_with(bootstrap, LATENCY_TOPIC, 1, 3)?;
        kafka_client::warm_up(bootstrap, LATENCY_TOPIC)?;
    }
    let producer = SteadyProducer::start(bootstrap, LATENCY_TOPIC, args.rate, 1024)?;
    std::thread::sleep(Duration::from_secs(args.latency_seconds));
    let answers = producer.finish()?;
    // The first ones wait for the connection.
    let steady = answers.iter().skip(usize::try_from(args.rate)?);
    series.latencies.extend(steady.map(|answer| (answer.answered - answer.sent).as_secs_f64() * 1e3));
    Ok(())
}

fn print(args: &Args, ours: &Series, theirs: &Series) {
    let row = |name: &str, series: &Series| {
        let cpu: Vec<f64> = series.produce.iter().map(|cost| cost.cpu_seconds_per_gb).collect();
        let speed: Vec<f64> = series.produce.iter().map(|cost| cost.megabytes_per_second).collect();
        let our_cpu: Vec<f64> = ours.produce.iter().map(|cost| cost.cpu_seconds_per_gb).collect();
        vec![
            name.to_owned(),
            spread(&speed, 0),
            spread(&cpu, 2),
            format!("{:.2}", median(&our_cpu) / median(&cpu)),
            format!("{:.2}", percentile(&series.latencies, 0.5)),
            format!("{:.2}", percentile(&series.latencies, 0.99)),
        ]
    };
    let head = format!(
        "acks=all, 3 copies, {} partitions, 1 KiB, {} MiB x {}; latency at {}/s",
        args.partitions, args.mib, args.rounds, args.rate
    );
    let names = ["MB/s", "CPU s/GB, all nodes", "Weir's CPU / this", "p50 ms", "p99 ms"];
    let mut rows = vec![std::iter::once(head).chain(names.map(str::to_owned)).collect()];
    rows.push(row("Weir (flush, TLS between nodes)", ours));
    if !args.without_kafka {
        rows.push(row("Apache Kafka (no flush, plaintext)", theirs));
    }
    print_table(&rows);
}
