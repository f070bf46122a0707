//! How long a node that missed a gigabyte takes until it is in sync again, while others keep writing a little.

use crate::cluster::{self, Profile};
use crate::report::{print_table, spread};
use crate::steady_producer::SteadyProducer;
use crate::{Failure, clock, kafka_client};

/// Options of `bench catch-up`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What the node misses, in MiB.
    #[arg(long, default_value_t = 1024)]
    mib: u64,
    /// Rounds.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Partitions of the topic.
    #[arg(long, default_value_t = 6)]
    partitions: i32,
}

/// Runs the measurement and prints a table.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut seconds = Vec::new();
    let mut worst = Vec::new();
    for round in 0..args.rounds {
        // A cluster for each round: the disk need not hold them all.
        let home = tempfile::tempdir()?;
        let mut cluster = cluster::start(home.path(), Profile::Default)?;
        let bootstrap = cluster.bootstrap();
        kafka_client::create_topic_with(&bootstrap, "missed", args.partitions, 3)?;
        let leader = cluster::wait_in_sync(&cluster, "missed")?;
        let away = 1 + leader % cluster::NODES;
        cluster.node(away).stop();
        let ids = cluster::node_ids(&mut cluster);
        kafka_client::produce_to(&bootstrap, "missed", args.partitions, "all", args.mib << 20, &ids)?;
        let producer = SteadyProducer::start(&bootstrap, "missed", 100, 1024)?;
        let begin = clock::now();
        cluster.node(away).start();
        cluster::wait_in_sync(&cluster, "missed")?;
        seconds.push(begin.elapsed().as_secs_f64());
        let answers = producer.finish()?;
        let during = answers.iter().filter(|answer| answer.sent >= begin);
        worst.push(during.map(|answer| (answer.answered - answer.sent).as_secs_f64()).fold(0.0, f64::max));
        cluster.stop();
        eprintln!("bench: round {} of {} done", round + 1, args.rounds);
    }
    print_table(&[
        vec![
            format!("a node that missed {} MiB, {} partitions", args.mib, args.partitions),
            "median (min-max)".to_owned(),
        ],
        vec!["from its start until all copies are in sync, s".to_owned(), spread(&seconds, 2)],
        vec!["longest acknowledgement of others meanwhile, s".to_owned(), spread(&worst, 3)],
    ]);
    Ok(())
}
