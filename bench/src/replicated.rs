//! acks=all on three nodes with three copies, beside Apache Kafka with three nodes: throughput, CPU of all brokers together, and
//! the time from sending a record to its acknowledgement at a moderate rate, for Weir also leg by leg. Weir flushes before it acknowledges and encrypts what
//! its nodes say to each other; Kafka does neither.

use crate::cluster::{self, Profile};
use crate::floor::{Cost, Floor};
use crate::produce_legs::ProduceLegs;
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

/// Weir's own split of the time of requests.
#[derive(Default)]
struct Split {
    /// As many bytes as it takes.
    full: ProduceLegs,
    /// At the moderate rate.
    steady: ProduceLegs,
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
    let (floor, floor_of_copies) = (Floor::start(home.path())?, Floor::start_with_copies(home.path())?);
    let (mut least, mut least_of_copies) = (Series::default(), Series::default());
    let mut split = Split::default();
    for round in 0..args.rounds {
        let before = ProduceLegs::scrape(&weir)?;
        measure_throughput(&weir.bootstrap(), round, args, &weir_ids, &mut ours)?;
        let between = ProduceLegs::scrape(&weir)?;
        measure_latency(&weir.bootstrap(), round, args, &mut ours)?;
        between.add_since(&before, &mut split.full);
        ProduceLegs::scrape(&weir)?.add_since(&between, &mut split.steady);
        least.produce.push(floor.produce(args.mib << 20)?);
        least_of_copies.produce.push(floor_of_copies.produce(args.mib << 20)?);
        if let Some(kafka) = &kafka {
            measure_throughput(&kafka.bootstrap(), round, args, &kafka.process_ids(), &mut theirs)?;
            measure_latency(&kafka.bootstrap(), round, args, &mut theirs)?;
        }
        eprintln!("bench: round {} of {} done", round + 1, args.rounds);
    }
    if let Some(kafka) = kafka {
        kafka.stop()?;
    }
    weir.stop();
    print(args, &ours, &theirs, [&least_of_copies, &least]);
    split.steady.print(&format!("Weir's requests at {} records/s, leg by leg", args.rate));
    split.full.print("Weir's requests at full speed, leg by leg");
    Ok(())
}

fn measure_throughput(
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
    Ok(())
}

fn measure_latency(bootstrap: &str, round: usize, args: &Args, series: &mut Series) -> Result<(), Failure> {
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

fn print(args: &Args, ours: &Series, theirs: &Series, [least_of_copies, least]: [&Series; 2]) {
    let latency = |series: &Series, part| match series.latencies.is_empty() {
        true => "-".to_owned(),
        false => format!("{:.2}", percentile(&series.latencies, part)),
    };
    let row = |name: &str, series: &Series| {
        let cpu: Vec<f64> = series.produce.iter().map(|cost| cost.cpu_seconds_per_gb).collect();
        let speed: Vec<f64> = series.produce.iter().map(|cost| cost.megabytes_per_second).collect();
        let our_cpu: Vec<f64> = ours.produce.iter().map(|cost| cost.cpu_seconds_per_gb).collect();
        vec![
            name.to_owned(),
            spread(&speed, 0),
            spread(&cpu, 2),
            format!("{:.2}", median(&our_cpu) / median(&cpu)),
            latency(series, 0.5),
            latency(series, 0.99),
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
    rows.push(row("floor: one socket, three files, flush, TLS between them", least_of_copies));
    rows.push(row("floor: one socket, one file, no copies, no flush", least));
    print_table(&rows);
}
