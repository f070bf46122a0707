//! How long writes stand still when the leader of their partition dies or is stopped, with all copies in sync before: until
//! the other nodes name a new leader, and until a stock producer that was connected to the old one has its next
//! acknowledgement. What is between the two is the client's own: how soon it gives up and looks again.

use crate::cluster::{self, Profile};
use crate::report::{median, percentile, print_table};
use crate::steady_producer::{Answer, SteadyProducer};
use crate::{Failure, clock, kafka_client};
use cluster_tests::replicated_cluster::ReplicatedCluster;
use rustix::process::Signal;
use std::time::{Duration, Instant};

const TOPIC: &str = "failover";
const LIMIT: Duration = Duration::from_secs(60);
const RECORD: usize = 100;

/// Options of `bench failover`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many times the leader ends.
    #[arg(long, default_value_t = 100)]
    times: usize,
    /// How soon a silent node is given up.
    #[arg(long, value_enum, default_value = "default")]
    profile: Profile,
    /// Stop the leader cleanly (SIGTERM) instead of kill -9.
    #[arg(long)]
    clean: bool,
    /// Pause between full in-sync sets and the next end, milliseconds. librdkafka remembers for ten seconds how often a node
    /// refused it (reconnect.backoff.max.ms), and then waits for a node that is back: ends that follow each other sooner
    /// measure that as well.
    #[arg(long, default_value_t = 11_000)]
    calm_ms: u64,
    /// Records a second, acks=all.
    #[arg(long, default_value_t = 100)]
    rate: u32,
    /// The client's longest pause between two looks for the new leader (retry.backoff.max.ms), milliseconds. Its default
    /// is a second, which is then part of what is measured.
    #[arg(long, default_value_t = 1000)]
    client_backoff_ms: u32,
    /// What the client is to say of itself on standard error (librdkafka's `debug`, as `broker,topic,metadata,msg`).
    #[arg(long)]
    client_debug: Option<String>,
}

/// Runs the measurement and prints a table.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let home = tempfile::tempdir()?;
    let mut cluster = cluster::start(home.path(), args.profile)?;
    kafka_client::create_topic_with(&cluster.bootstrap(), TOPIC, 1, 3)?;
    cluster::wait_in_sync(&cluster, TOPIC)?;
    let settings = client_settings(args);
    let producer = SteadyProducer::start_with(&cluster.bootstrap(), TOPIC, args.rate, RECORD, &settings)?;
    wait_for_first(&producer)?;
    let mut seconds = Vec::new();
    let mut elected = Vec::new();
    let mut sync_seconds = Vec::new();
    let mut moments = Vec::new();
    for round in 0..args.times {
        let leader = cluster::wait_in_sync(&cluster, TOPIC)?;
        std::thread::sleep(Duration::from_millis(args.calm_ms));
        let begin = clock::now();
        end(&mut cluster, leader, args.clean)?;
        wait_for_another(&cluster, leader, begin)?;
        elected.push(begin.elapsed().as_secs_f64());
        let resumed = wait_for_resumption(&producer, begin)?;
        seconds.push((resumed - begin).as_secs_f64());
        // One that stops cleanly takes its time, and serves others meanwhile.
        cluster.node(leader).stop();
        let again = clock::now();
        cluster.node(leader).start();
        cluster::wait_in_sync(&cluster, TOPIC)?;
        sync_seconds.push(again.elapsed().as_secs_f64());
        moments.push((begin, clock::now()));
        if (round + 1) % 10 == 0 {
            eprintln!(
                "bench: {} of {} done, the median so far is {:.2} s",
                round + 1,
                args.times,
                median(&seconds)
            );
        }
    }
    let answers = producer.finish()?;
    cluster.stop();
    print(args, &elected, &seconds, &sync_seconds, &moments, &answers);
    Ok(())
}

/// With the defaults every setting stays as the library has it.
fn client_settings(args: &Args) -> Vec<(&'static str, String)> {
    let mut settings = Vec::new();
    if args.client_backoff_ms != 1000 {
        let backoff = args.client_backoff_ms.to_string();
        settings.push(("retry.backoff.max.ms", backoff.clone()));
        settings.push(("reconnect.backoff.max.ms", backoff));
    }
    if let Some(debug) = &args.client_debug {
        settings.push(("debug", debug.clone()));
    }
    settings
}

fn wait_for_first(producer: &SteadyProducer) -> Result<(), Failure> {
    let start = clock::now();
    wait_for_resumption(producer, start).map(drop)
}

fn end(cluster: &mut ReplicatedCluster, leader: usize, clean: bool) -> Result<(), Failure> {
    match cluster.node(leader).process() {
        Some(process) if clean => process.signal(Signal::TERM)?,
        Some(_) | None => cluster.node(leader).kill(),
    }
    Ok(())
}

fn wait_for_another(cluster: &ReplicatedCluster, old: usize, since: Instant) -> Result<(), Failure> {
    loop {
        let told = cluster::partitions(cluster, TOPIC);
        let leader = told.and_then(|partitions| partitions.first().and_then(|partition| partition.leader));
        if leader.is_some_and(|leader| leader != old) {
            return Ok(());
        }
        if since.elapsed() > LIMIT {
            return Err(format!("no other leader within {LIMIT:?}").into());
        }
    }
}

fn wait_for_resumption(producer: &SteadyProducer, since: Instant) -> Result<Instant, Failure> {
    loop {
        if let Some(resumed) = producer.first_sent_after(since) {
            return Ok(resumed);
        }
        if since.elapsed() > LIMIT {
            return Err(format!("no acknowledgement within {LIMIT:?}").into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The longest time between two acknowledgements within `moments`.
fn longest_gap(answers: &[Answer], (begin, end): (Instant, Instant)) -> f64 {
    let mut times: Vec<Instant> = answers
        .iter()
        .filter(|answer| answer.acknowledged)
        .map(|answer| answer.answered)
        .filter(|time| (begin..=end).contains(time))
        .collect();
    times.push(begin);
    times.sort_unstable();
    times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).fold(0.0, f64::max)
}

fn print(
    args: &Args,
    elected: &[f64],
    seconds: &[f64],
    sync_seconds: &[f64],
    moments: &[(Instant, Instant)],
    answers: &[Answer],
) {
    let gaps: Vec<f64> = moments.iter().map(|moments| longest_gap(answers, *moments)).collect();
    let failed = answers.iter().filter(|answer| !answer.acknowledged).count();
    let row = |name: &str, values: &[f64]| {
        let cell = |part: f64| format!("{:.3}", percentile(values, part));
        vec![name.to_owned(), cell(0.5), cell(0.99), cell(1.0)]
    };
    let how = if args.clean { "clean stop" } else { "kill -9" };
    let head = format!(
        "{how} of the leader, {} times, profile {:?}, client back-off up to {} ms",
        args.times, args.profile, args.client_backoff_ms
    );
    print_table(&[
        vec![head, "p50".to_owned(), "p99".to_owned(), "max".to_owned()],
        row("until the other nodes name another leader, s", elected),
        row("until a record sent after it is acknowledged, s", seconds),
        row("longest gap between acknowledgements, s", &gaps),
        row("from the restart until all copies are in sync, s", sync_seconds),
        vec![
            "errors that the application saw".to_owned(),
            failed.to_string(),
            format!("of {}", answers.len()),
            String::new(),
        ],
    ]);
}
