//! Coordinators that are killed, and coordinators that are stopped and go on, while groups commit: no commit is lost, and
//! nobody is told an older one, whoever owns the shard.
//!
//! Each group has one committer, which fetches after every commit, so that what it must be told is known exactly: its last
//! acknowledged commit, or a later one of unknown outcome. `WEIR_KILL_TIMES` says how often (3 if not set).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cluster_tests::clients::{kafka_tool, kcat};
use cluster_tests::clock::{Stopwatch, wait_until};
use kafka_wire::{Client, ClientConfig};
use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::find_coordinator::FindCoordinatorRequest;
use kafka_wire_core::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_wire_core::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use rustix::process::Signal;

use crate::separate_daemons::Daemons;

/// Groups that commit side by side; they spread over the shards of both coordinators.
const GROUPS: usize = 8;
/// Commits of every group between two blows, at least.
const PROGRESS: u64 = 20;
/// How long a commit may take to succeed again after a blow: session, take-over, and a busy machine.
const RECOVERY_LIMIT: Duration = Duration::from_secs(30);
/// Longer than the session: the shards have another owner when the coordinator goes on.
const PAUSE: Duration = Duration::from_secs(10);

fn times() -> usize {
    match std::env::var("WEIR_KILL_TIMES") {
        Ok(times) => times.parse().expect("WEIR_KILL_TIMES is a number"),
        Err(_) => 3,
    }
}

/// The committers of all groups, and how far each has come.
struct Committers {
    stop: Arc<AtomicBool>,
    committed: Vec<Arc<AtomicU64>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Committers {
    fn start(bootstrap: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let committed: Vec<Arc<AtomicU64>> = (0..GROUPS).map(|_| Arc::default()).collect();
        let threads = committed.iter().enumerate().map(|(n, committed)| {
            let (stop, committed) = (Arc::clone(&stop), Arc::clone(committed));
            let (bootstrap, group) = (bootstrap.to_owned(), format!("group-{n}"));
            std::thread::spawn(move || commit_until(&bootstrap, &group, &stop, &committed))
        });
        let threads = threads.collect();
        Self { stop, committed, threads }
    }

    /// Waits until every group has committed a few times more; how long that took.
    fn wait_for_progress(&self) -> Duration {
        let watch = Stopwatch::start();
        let before: Vec<u64> = self.committed.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let progress = wait_until(RECOVERY_LIMIT, || {
            let moved =
                |(now, before): (&Arc<AtomicU64>, &u64)| now.load(Ordering::Relaxed) >= before + PROGRESS;
            self.committed.iter().zip(&before).all(moved).then_some(())
        });
        let now: BTreeMap<usize, u64> =
            self.committed.iter().map(|count| count.load(Ordering::Relaxed)).enumerate().collect();
        assert!(progress.is_some(), "no progress within {RECOVERY_LIMIT:?}: {before:?}, then {now:?}");
        watch.elapsed()
    }

    fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("every answer was right");
        }
    }
}

/// Commits 1, 2, 3 ... and fetches after each, until told to stop.
fn commit_until(bootstrap: &str, group: &str, stop: &AtomicBool, committed: &AtomicU64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut config = ClientConfig::new(vec![bootstrap.parse().expect("an address")]);
        config.request_timeout = Duration::from_secs(8);
        let client = Client::connect(config).await.expect("the node is up");
        let mut acknowledged = -1;
        while !stop.load(Ordering::Relaxed) {
            let next = acknowledged + 1;
            let outcome = commit(&client, group, next).await;
            let told = loop {
                match fetch(&client, group).await {
                    Ok(told) => break told,
                    Err(_) if stop.load(Ordering::Relaxed) => return,
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            };
            match outcome {
                Ok(()) => assert_eq!(told, next, "{group}: {next} was acknowledged"),
                // It may have been carried out all the same.
                Err(_) => assert!(
                    told == acknowledged || told == next,
                    "{group}: told {told} after {acknowledged}, and {next} of unknown outcome"
                ),
            }
            acknowledged = told;
            committed.fetch_add(1, Ordering::Relaxed);
        }
    });
}

async fn commit(client: &Client, group: &str, offset: i64) -> Result<(), String> {
    let partition = OffsetCommitRequestPartition {
        partition_index: 0,
        committed_offset: offset,
        committed_metadata: Some("".into()),
        ..Default::default()
    };
    let topic =
        OffsetCommitRequestTopic { name: "t".into(), partitions: vec![partition], ..Default::default() };
    let request = OffsetCommitRequest {
        group_id: group.into(),
        generation_id_or_member_epoch: -1,
        topics: vec![topic],
        ..Default::default()
    };
    let connection = client.any().await.map_err(|error| error.to_string())?;
    let response = connection.call_version(&request, 8).await.map_err(|error| error.to_string())?;
    match response.topics[0].partitions[0].error_code {
        ErrorCode::None => Ok(()),
        error if error.is_retriable() => Err(error.to_string()),
        error => panic!("{group}: {error}"),
    }
}

async fn fetch(client: &Client, group: &str) -> Result<i64, String> {
    let topics =
        OffsetFetchRequestTopics { name: "t".into(), partition_indexes: vec![0], ..Default::default() };
    let asked =
        OffsetFetchRequestGroup { group_id: group.into(), topics: Some(vec![topics]), ..Default::default() };
    let request = OffsetFetchRequest { groups: vec![asked], require_stable: true, ..Default::default() };
    let connection = client.any().await.map_err(|error| error.to_string())?;
    let response = connection.call_version(&request, 8).await.map_err(|error| error.to_string())?;
    let group = &response.groups[0];
    match group.error_code {
        ErrorCode::None => Ok(group.topics[0].partitions[0].committed_offset),
        error if error.is_retriable() => Err(error.to_string()),
        error => panic!("{}: {error}", group.group_id),
    }
}

fn cluster(test: &str) -> (Daemons, Committers) {
    let daemons = Daemons::start_with_coordinators(test, 2);
    let at = daemons.bootstrap();
    kafka_tool("kafka-topics", &at, &["--create", "--topic", "t", "--partitions", "1"], b"");
    create_offsets_topic(&at);
    let committers = Committers::start(&at);
    committers.wait_for_progress();
    (daemons, committers)
}

/// The first question for a coordinator creates the topic of the offsets.
pub(crate) fn create_offsets_topic(bootstrap: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = Client::connect(ClientConfig::new(vec![bootstrap.parse().expect("an address")]));
        let client = client.await.expect("the node is up");
        let request = FindCoordinatorRequest { coordinator_keys: vec!["g".into()], ..Default::default() };
        let found = client.any().await.expect("connected").call_version(&request, 4).await.expect("answered");
        assert_eq!(found.coordinators[0].error_code, ErrorCode::None, "{found:?}");
    });
}

#[test]
fn a_killed_coordinator_loses_no_commit() {
    let (mut daemons, committers) = cluster("coordinators-killed");
    for time in 0..times() {
        let victim = time % 2;
        daemons.coordinators[victim].kill();
        let took = committers.wait_for_progress();
        println!("kill {time} of coordinator {}: all groups commit again after {took:?}", victim + 1);
        daemons.coordinators[victim].start();
        committers.wait_for_progress();
    }
    committers.finish();
}

#[test]
fn a_coordinator_that_stood_still_tells_nobody_old_offsets() {
    let (daemons, committers) = cluster("coordinators-stopped");
    for time in 0..times() {
        let victim = &daemons.coordinators[time % 2];
        victim.signal(Signal::STOP);
        let took = committers.wait_for_progress();
        println!("stop {time}: all groups commit again after {took:?}");
        std::thread::sleep(PAUSE.saturating_sub(took));
        victim.signal(Signal::CONT);
        committers.wait_for_progress();
        committers.wait_for_progress();
    }
    committers.finish();
}

#[test]
fn a_coordinator_that_is_stopped_hands_its_shards_over() {
    let (mut daemons, committers) = cluster("coordinators-handed-over");
    for time in 0..times() {
        let leaving = time % 2;
        daemons.coordinators[leaving].stop();
        let took = committers.wait_for_progress();
        println!("clean stop {time}: all groups commit again after {took:?}");
        daemons.coordinators[leaving].start();
        committers.wait_for_progress();
    }
    committers.finish();
}

#[test]
fn a_consumer_resumes_where_its_group_was() {
    let mut daemons = Daemons::start_with_coordinators("coordinators-resume", 1);
    let at = daemons.bootstrap();
    kafka_tool("kafka-topics", &at, &["--create", "--topic", "t", "--partitions", "3"], b"");
    kcat(&at, &["-P", "-t", "t", "-X", "acks=all"], b"1\n2\n3\n");
    let consume = || {
        let arguments = ["-G", "resumed", "-e", "-q", "-X", "auto.offset.reset=earliest", "t"];
        let mut lines: Vec<String> = kcat(&at, &arguments, b"").lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(consume(), ["1", "2", "3"]);
    kcat(&at, &["-P", "-t", "t", "-X", "acks=all"], b"4\n5\n");
    assert_eq!(consume(), ["4", "5"]);
    daemons.coordinators[0].kill();
    daemons.coordinators[0].start();
    kcat(&at, &["-P", "-t", "t", "-X", "acks=all"], b"6\n");
    assert_eq!(consume(), ["6"]);
    let described = kafka_tool("kafka-consumer-groups", &at, &["--describe", "--group", "resumed"], b"");
    let lags: Vec<&str> = described
        .lines()
        .filter(|line| line.starts_with("resumed"))
        .filter_map(|line| line.split_whitespace().nth(5))
        .collect();
    // A partition without records has nothing to commit.
    assert!(!lags.is_empty() && lags.iter().all(|lag| *lag == "0"), "{described}");
}
