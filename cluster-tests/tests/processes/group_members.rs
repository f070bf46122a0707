//! A busy group of members that join, sync, heartbeat, consume and commit, while the coordinator that owns its shard is
//! killed, or stands still for 10 s and goes on; members come and go meanwhile.
//!
//! Measured at the members: no acknowledged commit is lost, no partition has two owners within one generation, nor across
//! generations for longer than the session or rebalance time-out, and the group is stable again within 10 s: one
//! generation, all partitions held, heartbeats answered with NONE, commits accepted. `WEIR_KILL_TIMES` says how many rounds
//! of blows there are (3 if not set; `cargo xtask chaos-groups --times 20` sets it).

mod ledger;
mod member;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster_tests::clients::kafka_tool;
use cluster_tests::clock::wait_until;
use cluster_tests::moments::Moments;
use kafka_wire::Client;
use kafka_wire_core::Records;
use kafka_wire_core::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use records::BatchBuilder;
use rustix::process::Signal;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::coordinators::create_offsets_topic;
use crate::separate_daemons::Daemons;
use ledger::Ledger;
use member::{Member, Order, client_config, fetch_committed};

const TOPIC: &str = "shared";
const GROUP: &str = "busy";
const PARTITIONS: i32 = 12;
const MEMBERS: usize = 4;
/// The shortest that coordinators allow.
const SESSION: Duration = Duration::from_secs(6);
const REBALANCE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the group may take to be stable again.
const STABLE_LIMIT: Duration = Duration::from_secs(10);
/// The same beside other tests, on a machine that may stand still at the worst moment.
const STABLE_LIMIT_BESIDE_OTHERS: Duration = Duration::from_secs(30);
/// How long it must stay so, with new heartbeats and commits.
const SETTLED: Duration = Duration::from_secs(1);
/// When it has said nothing for so long after it was stable, it is not.
const SETTLING_LIMIT: Duration = Duration::from_secs(3);
/// Longer than the session of coordinators: the shard has another owner when the coordinator goes on.
const PAUSE: Duration = Duration::from_secs(10);
/// Silence of a member that outlasts its session.
const STALL: Duration = Duration::from_secs(9);
/// How long a coordinator may take to start and to get shards.
const READY_LIMIT: Duration = Duration::from_secs(30);
const PRODUCE_INTERVAL: Duration = Duration::from_millis(50);
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// How many rounds, and how long the group may take to be stable each time.
fn rounds() -> (usize, Duration) {
    match std::env::var("WEIR_KILL_TIMES") {
        Ok(times) => (times.parse().expect("WEIR_KILL_TIMES is a number"), STABLE_LIMIT),
        Err(_) => (3, STABLE_LIMIT_BESIDE_OTHERS),
    }
}

/// A running member.
struct Running {
    orders: watch::Sender<Order>,
    task: JoinHandle<()>,
}

/// The cluster, the members, and the times that things took.
struct Stage {
    /// First, so that the tasks end before the daemons do.
    runtime: Runtime,
    daemons: Daemons,
    ledger: Arc<Ledger>,
    members: BTreeMap<usize, Running>,
    begun: usize,
    moments: Moments,
    times: BTreeMap<&'static str, Vec<Duration>>,
    stable_limit: Duration,
}

impl Stage {
    fn set(stable_limit: Duration) -> Self {
        let daemons = Daemons::start_with_coordinators("group-members", 2);
        let at = daemons.bootstrap();
        let partitions = PARTITIONS.to_string();
        // The records have no times worth the name.
        let create =
            ["--create", "--topic", TOPIC, "--partitions", &partitions, "--config", "retention.ms=-1"];
        kafka_tool("kafka-topics", &at, &create, b"");
        create_offsets_topic(&at);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let ledger = Arc::new(Ledger::new(PARTITIONS));
        runtime.spawn(produce(at.clone(), Arc::clone(&ledger)));
        let moments = Moments::from_env("group_members");
        let (members, times) = Default::default();
        let mut stage = Self { runtime, daemons, ledger, members, begun: 0, moments, times, stable_limit };
        (0..MEMBERS).for_each(|_| stage.begin_member());
        let ready = wait_until(READY_LIMIT, || {
            stage.ledger.assert_no_fault();
            stage.ledger.stable_generation(Duration::ZERO).ok()
        });
        if ready.is_none() {
            stage.ledger.fail(&format!("{:?}", stage.ledger.stable_generation(Duration::ZERO)));
        }
        stage.runtime.spawn(watch_offsets(at, Arc::clone(&stage.ledger)));
        stage
    }

    fn begin_member(&mut self) {
        let number = self.begun;
        self.begun += 1;
        self.ledger.enters(number);
        let (orders, receiver) = watch::channel(Order::Stay);
        let run = Member::run(number, self.daemons.bootstrap(), Arc::clone(&self.ledger), receiver);
        self.members.insert(number, Running { orders, task: self.runtime.spawn(run) });
    }

    /// Some member, the one that leads the group as well as any other.
    fn some_member(&mut self) -> usize {
        let index = self.moments.next_number() as usize % self.members.len();
        *self.members.keys().nth(index).expect("it is below the count")
    }

    fn order(&self, member: usize, order: Order) {
        self.members[&member].orders.send(order).expect("members end when they are told to");
    }

    /// Has some member leave, and waits until it has.
    fn one_leaves(&mut self) {
        let leaving = self.some_member();
        self.order(leaving, Order::Leave);
        let gone = wait_until(READY_LIMIT, || self.ledger.is_gone(leaving).then_some(()));
        if gone.is_none() {
            self.ledger.fail(&format!("member {leaving} cannot leave"));
        }
        self.members.remove(&leaving);
    }

    /// Some member ends without a word.
    fn one_dies(&mut self) {
        let dying = self.some_member();
        let running = self.members.remove(&dying).expect("it is one of them");
        running.task.abort();
        let ended = wait_until(READY_LIMIT, || running.task.is_finished().then_some(()));
        assert!(ended.is_some(), "a task ends when it is told to");
        self.ledger.quits(dying);
    }

    fn groups_at(&self, coordinator: usize) -> Option<f64> {
        self.daemons.coordinators[coordinator].metric("weir_coordinator_groups")
    }

    fn is_serving(&self, coordinator: usize) -> bool {
        let metric = |name| self.daemons.coordinators[coordinator].metric(name);
        metric("weir_coordinator_shards").is_some_and(|shards| shards > 0.0)
            && metric("weir_coordinator_shards_loading") == Some(0.0)
    }

    /// Waits until both coordinators serve shards; the one that owns the group's.
    fn owner(&self) -> usize {
        let owner = wait_until(READY_LIMIT, || {
            self.ledger.assert_no_fault();
            if !(self.is_serving(0) && self.is_serving(1)) {
                return None;
            }
            match (self.groups_at(0)?, self.groups_at(1)?) {
                (1.0, 0.0) => Some(0),
                (0.0, 1.0) => Some(1),
                _ => None,
            }
        });
        match owner {
            Some(owner) => owner,
            None => self.ledger.fail(&format!("no owner: {:?}, {:?}", self.groups_at(0), self.groups_at(1))),
        }
    }

    /// The blow must have hit the owner: now the other one has the group.
    fn assert_owner_is(&self, expected: usize) {
        let moved = wait_until(SETTLING_LIMIT, || (self.groups_at(expected) == Some(1.0)).then_some(()));
        if moved.is_none() {
            self.ledger.fail(&format!("coordinator {} does not have the group", expected + 1));
        }
    }

    /// Waits until the group is stable again, and stays so; the time from `since` until it was.
    fn wait_stable(&mut self, what: &'static str, since: Duration) {
        let (mut mark, mut stable) = (since, None);
        let at = loop {
            self.ledger.assert_no_fault();
            let now = self.ledger.now();
            match (self.ledger.stable_generation(mark), stable) {
                (Ok(generation), Some((same, at))) if generation == same => {
                    if now - at >= SETTLED && self.ledger.stable_generation(at).is_ok() {
                        break at;
                    }
                    if now - at > SETTLING_LIMIT {
                        (mark, stable) = (now, None);
                    }
                }
                (Ok(generation), _) => stable = Some((generation, now)),
                (Err(why), _) => {
                    stable = None;
                    if now.saturating_sub(since) > self.stable_limit {
                        let limit = self.stable_limit;
                        self.ledger.fail(&format!("not stable {limit:?} after {what}: {why}"));
                    }
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let took = at.saturating_sub(since);
        self.ledger.note(format!("stable {took:?} after {what}"));
        eprintln!("stable {took:?} after {what}");
        if took > self.stable_limit {
            self.ledger.fail(&format!("stable only {took:?} after {what}"));
        }
        self.times.entry(what).or_default().push(took);
        self.check_owners();
    }

    fn check_owners(&self) {
        self.ledger.check_owners(SESSION.max(REBALANCE_TIMEOUT));
        self.ledger.assert_no_fault();
    }

    /// kill -9 of the owner, with a member that joins at that moment in every other round; then it is started again.
    fn kill(&mut self, round: usize) {
        let owner = self.owner();
        if round % 2 == 1 {
            self.begin_member();
            let within = self.moments.within(Duration::from_millis(100));
            std::thread::sleep(within);
        }
        self.ledger.note(format!("kill -9 of coordinator {}", owner + 1));
        let since = self.ledger.now();
        self.daemons.coordinators[owner].kill();
        self.wait_stable("kill -9", since);
        self.assert_owner_is(1 - owner);
        self.daemons.coordinators[owner].start();
        let ready = wait_until(READY_LIMIT, || self.is_serving(owner).then(|| self.ledger.now()));
        let Some(ready) = ready else {
            self.ledger.fail(&format!("coordinator {} gets no shards", owner + 1));
        };
        self.ledger.note(format!("coordinator {} serves again", owner + 1));
        self.wait_stable("the start of a coordinator", ready);
        if round % 2 == 1 {
            let since = self.ledger.now();
            self.one_leaves();
            // A coordinator that is stopped before the next generation takes the news with it, as in Kafka; the group is
            // whole again when the member's session has ended at the next one.
            self.wait_stable("a member's leave", since);
        }
    }

    /// The owner stands still, in every other round while a member leaves and another one joins, and goes on.
    fn pause(&mut self, round: usize) {
        let owner = self.owner();
        self.ledger.note(format!("SIGSTOP of coordinator {}", owner + 1));
        let since = self.ledger.now();
        self.daemons.coordinators[owner].signal(Signal::STOP);
        self.wait_stable("SIGSTOP", since);
        self.assert_owner_is(1 - owner);
        if round.is_multiple_of(2) {
            self.one_leaves();
            self.begin_member();
        }
        std::thread::sleep(PAUSE.saturating_sub(self.ledger.now() - since));
        self.ledger.note(format!("SIGCONT of coordinator {}", owner + 1));
        let since = self.ledger.now();
        self.daemons.coordinators[owner].signal(Signal::CONT);
        self.wait_stable("SIGCONT", since);
    }

    /// What members do among themselves, in turn.
    fn change_members(&mut self, round: usize) {
        match round % 3 {
            0 => {
                let stalling = self.some_member();
                let since = self.ledger.now() + STALL;
                self.order(stalling, Order::Stall(STALL));
                std::thread::sleep(STALL);
                self.wait_stable("a member's silence", since);
                // So that the same order is news the next time.
                self.order(stalling, Order::Stay);
            }
            1 => {
                let since = self.ledger.now();
                self.one_dies();
                self.begin_member();
                self.wait_stable("a member's death", since);
            }
            _ => {
                let since = self.ledger.now();
                self.begin_member();
                self.one_leaves();
                self.wait_stable("a member for another", since);
            }
        }
    }

    /// All members leave; tells what was measured.
    fn finish(mut self) -> String {
        let (commits, fetches, generations) = self.ledger.counts();
        let limit = SESSION.max(REBALANCE_TIMEOUT);
        let overlaps = self.ledger.check_owners(limit);
        while !self.members.is_empty() {
            self.one_leaves();
        }
        self.ledger.assert_no_fault();
        let mut report = vec![
            format!("{generations} generations, {commits} commits accepted, {fetches} offset fetches right"),
            format!(
                "two owners across generations: {} times, {:?} at most (allowed {limit:?})",
                overlaps.count, overlaps.longest,
            ),
        ];
        for (what, times) in &mut self.times {
            times.sort();
            let seconds = |index: usize| times.get(index).map_or(0.0, Duration::as_secs_f64);
            report.push(format!(
                "stable after {what:26} {:3} times: min {:5.2} s, median {:5.2} s, 90 % {:5.2} s, max {:5.2} s",
                times.len(),
                seconds(0),
                seconds(times.len() / 2),
                seconds(times.len() * 9 / 10),
                seconds(times.len().saturating_sub(1)),
            ));
        }
        report.join("\n")
    }
}

/// One record after the other to every partition.
async fn produce(bootstrap: String, ledger: Arc<Ledger>) {
    let client = Client::connect(client_config(&bootstrap, "producer")).await.expect("the node is up");
    let mut batch = BatchBuilder::new();
    batch.push(0, None, Some(b"one record"), &[]).expect("it is small");
    let bytes = Bytes::from(batch.build());
    let partition = |index| PartitionProduceData { index, records: Some(Records::Bytes(bytes.clone())) };
    let topic = TopicProduceData {
        name: TOPIC.into(),
        partition_data: (0..PARTITIONS).map(partition).collect(),
        ..TopicProduceData::default()
    };
    let request =
        ProduceRequest { acks: -1, timeout_ms: 10_000, topic_data: vec![topic], ..Default::default() };
    loop {
        let connection = client.any().await.expect("the node is up");
        // The last version that names topics.
        if let Err(error) = connection.call_version(&request, 12).await {
            ledger.fault(format!("the producer: {error}"));
        }
        tokio::time::sleep(PRODUCE_INTERVAL).await;
    }
}

/// Asks for all offsets all the time; the ledger checks the answers.
async fn watch_offsets(bootstrap: String, ledger: Arc<Ledger>) {
    let client = Client::connect(client_config(&bootstrap, "watcher")).await.expect("the node is up");
    let all: BTreeSet<i32> = (0..PARTITIONS).collect();
    loop {
        let _later = fetch_committed(&client, &ledger, "the watcher", &all).await;
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

#[test]
fn a_busy_group_survives_its_coordinators() {
    let (rounds, stable_limit) = rounds();
    let mut stage = Stage::set(stable_limit);
    for round in 0..rounds {
        eprintln!("round {round}");
        stage.kill(round);
        stage.pause(round);
        stage.change_members(round);
    }
    println!("{}", stage.finish());
}
