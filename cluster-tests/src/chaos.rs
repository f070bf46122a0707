//! Chaos on a replicated cluster of real processes: stock clients write and read without pause while faults come and go; then
//! everything is healed, read back, and judged from outside ([`crate::checker`]) and from inside ([`crate::fsck`]).
//!
//! Everything that happens is drawn from one seed: which fault, at whom, for how long. (What a process does at that moment is its
//! own affair, so a seed repeats the plan of a run, not its every step.) [`faults`] is the list of what can happen, [`load`] the
//! clients, [`verdict`] the judgement.

pub mod faults;
pub mod load;
mod verdict;

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::clients::kafka_tool_output;
use crate::clock::{Stopwatch, wait_until};
use crate::moments::Moments;
use crate::netns::NetworkError;
use crate::replicated_cluster::{ReplicatedCluster, Role, Shape};
use faults::Fault;
use load::{Load, LoadShape};
pub use verdict::Verdict;

/// The topic that is written and read.
pub const TOPIC: &str = "chaos";
/// How long writes may take to go on after a fault was taken back.
const PROGRESS_LIMIT: Duration = Duration::from_secs(60);
/// How long every copy may take to be in sync again after that.
const SYNC_LIMIT: Duration = Duration::from_secs(120);
/// At the end, so long nothing may fail any more.
const CALM: Duration = Duration::from_secs(5);
/// Writing must have begun before the first fault.
const FIRST_RECORDS: u64 = 500;
/// Size of each daemon's disk; what a run writes fits several times.
const DISK_MIB: u64 = 1024;

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where chance comes from.
    pub seed: u64,
    /// How long faults go on.
    pub duration: Duration,
    /// Which faults may come.
    pub faults: Vec<Fault>,
    /// Copies of each partition: 3, or fewer to try the harness.
    pub replication_factor: usize,
    /// Partitions.
    pub partitions: u16,
    /// Clients.
    pub load: LoadShape,
}

impl Plan {
    /// Three copies of six partitions, all faults.
    pub fn new(seed: u64, duration: Duration) -> Plan {
        Plan {
            seed,
            duration,
            faults: Fault::ALL.to_vec(),
            replication_factor: 3,
            partitions: 6,
            load: LoadShape::default(),
        }
    }
}

/// What happened when.
#[derive(Debug)]
pub struct Diary {
    watch: Stopwatch,
    text: String,
    /// Faults with the times at which they began, in microseconds of the monotonic clock.
    begun: Vec<(u64, String)>,
    /// What must not be: liveness, a daemon that ended by itself.
    pub complaints: Vec<String>,
}

impl Diary {
    fn new() -> Diary {
        Diary { watch: Stopwatch::start(), text: String::new(), begun: Vec::new(), complaints: Vec::new() }
    }

    /// Writes down and prints what happens.
    pub fn note(&mut self, what: &str) {
        let line = format!("{:8.1} s  {what}", self.watch.elapsed().as_secs_f64());
        eprintln!("{line}");
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }

    fn fault(&mut self, what: &str) {
        self.begun.push((crate::clock::monotonic_us(), what.to_owned()));
        self.note(what);
    }

    fn complain(&mut self, what: String) {
        self.note(&format!("COMPLAINT: {what}"));
        self.complaints.push(what);
    }
}

/// Runs a plan in a folder and judges it.
pub fn run(dir: &Path, plan: &Plan) -> Result<Verdict, NetworkError> {
    let shape = Shape { disk_mib: Some(DISK_MIB), namespaces: true, ..Shape::default() };
    let mut diary = Diary::new();
    let mut cluster = ReplicatedCluster::start(dir, &shape)?;
    if let Some(why) = &cluster.without_namespaces {
        diary.note(&format!(
            "NO NAMESPACES, NO CUTS, NO POWER CUTS, NO FULL DISKS: signals only, because {why}"
        ));
    }
    create_topic(&cluster, plan)?;
    let load = Load::start(&cluster, dir, plan.partitions, &plan.load)?;
    let begun = wait_until(PROGRESS_LIMIT, || (load.acknowledged() >= FIRST_RECORDS).then_some(()));
    if begun.is_none() {
        return Err(NetworkError(format!("the clients do not get going; see {}", dir.display())));
    }
    diary.note(&format!("the cluster works; seed {}", plan.seed));
    storm(&mut cluster, plan, &load, &mut diary)?;
    judge_calm(&mut cluster, plan, &load, &mut diary)?;
    let histories = load.finish(&cluster, &mut diary)?;
    diary.note("stopping the cluster");
    cluster.stop();
    let verdict = verdict::judge(&cluster, dir, &histories, diary, TOPIC);
    drop(cluster);
    verdict
}

/// Faults until the time is over.
fn storm(
    cluster: &mut ReplicatedCluster,
    plan: &Plan,
    load: &Load,
    diary: &mut Diary,
) -> Result<(), NetworkError> {
    let mut chance = Moments::new(plan.seed);
    let possible: Vec<Fault> =
        plan.faults.iter().copied().filter(|fault| fault.is_possible(cluster)).collect();
    if possible.is_empty() {
        return Err(NetworkError("none of the chosen faults is possible on this machine".to_owned()));
    }
    let watch = Stopwatch::start();
    while watch.elapsed() < plan.duration {
        let acknowledged = load.acknowledged();
        let first = pick(&mut chance, &possible);
        let what = first.begin(cluster, &mut chance)?;
        diary.fault(&what);
        let hold = first.hold(&mut chance);
        // Now and then another one before the first is over.
        if chance.next_number().is_multiple_of(4) {
            std::thread::sleep(hold / 2);
            let second = pick(&mut chance, &possible);
            let what = second.begin(cluster, &mut chance)?;
            diary.fault(&format!("  and {what}"));
        }
        std::thread::sleep(hold);
        look_after(cluster, diary);
        cluster.heal()?;
        diary.note(&format!("  healed; {} acknowledged meanwhile", load.acknowledged() - acknowledged));
        if chance.next_number().is_multiple_of(2) {
            wait_for_sync(cluster, plan, diary);
        } else {
            wait_for_progress(load, diary);
            std::thread::sleep(chance.within(Duration::from_secs(5)));
        }
    }
    Ok(())
}

fn pick(chance: &mut Moments, faults: &[Fault]) -> Fault {
    let index = usize::try_from(chance.next_number() % faults.len() as u64).expect("a few faults");
    faults[index]
}

/// Nobody may have ended by himself.
fn look_after(cluster: &mut ReplicatedCluster, diary: &mut Diary) {
    for daemon in cluster.daemons_mut() {
        if let Some(what) = daemon.ended() {
            diary.complain(what);
            // So that the run can go on and show more.
            daemon.kill();
        }
    }
}

fn wait_for_progress(load: &Load, diary: &mut Diary) {
    let before = load.acknowledged();
    let watch = Stopwatch::start();
    match wait_until(PROGRESS_LIMIT, || (load.acknowledged() > before + 50).then_some(())) {
        Some(()) => diary.note(&format!("  writes go on after {:.1} s", watch.elapsed().as_secs_f64())),
        None => diary.complain(format!("writes do not go on within {PROGRESS_LIMIT:?} after healing")),
    }
}

fn wait_for_sync(cluster: &ReplicatedCluster, plan: &Plan, diary: &mut Diary) {
    let watch = Stopwatch::start();
    match wait_until(SYNC_LIMIT, || is_in_sync(cluster, plan).then_some(())) {
        Some(()) => diary.note(&format!("  all in sync after {:.1} s", watch.elapsed().as_secs_f64())),
        None => {
            let told = cluster.partitions(1, TOPIC);
            diary.complain(format!(
                "not all copies are in sync within {SYNC_LIMIT:?} after healing: {told:?}"
            ));
        }
    }
}

/// Whether every node tells that every partition has a leader and all its copies in sync.
fn is_in_sync(cluster: &ReplicatedCluster, plan: &Plan) -> bool {
    let nodes = cluster.daemons().iter().filter(|daemon| daemon.role == Role::StorageNode);
    nodes.map(|node| node.id).all(|node| {
        cluster.partitions(node, TOPIC).is_some_and(|partitions| {
            partitions.len() == usize::from(plan.partitions)
                && partitions.iter().all(|partition| {
                    partition.leader.is_some() && partition.isr.len() == plan.replication_factor
                })
        })
    })
}

/// After everything is healed all must be well, and stay so for a while.
fn judge_calm(
    cluster: &mut ReplicatedCluster,
    plan: &Plan,
    load: &Load,
    diary: &mut Diary,
) -> Result<(), NetworkError> {
    diary.note("the storm is over");
    cluster.heal()?;
    wait_for_sync(cluster, plan, diary);
    wait_for_progress(load, diary);
    let unanswered = load.failed();
    let before = load.acknowledged();
    std::thread::sleep(CALM);
    look_after(cluster, diary);
    if load.failed() > unanswered {
        diary.complain(format!("{} records failed in calm", load.failed() - unanswered));
    }
    if load.acknowledged() == before {
        diary.complain("nothing was acknowledged in calm".to_owned());
    }
    Ok(())
}

/// Creates the topic; a cluster that has just started may need a moment for as many nodes.
fn create_topic(cluster: &ReplicatedCluster, plan: &Plan) -> Result<(), NetworkError> {
    let (partitions, copies) = (plan.partitions.to_string(), plan.replication_factor.to_string());
    let mut args = vec!["--create", "--if-not-exists", "--topic", TOPIC, "--partitions", &partitions];
    args.extend(["--replication-factor", &copies]);
    let mut said = String::new();
    let created = wait_until(PROGRESS_LIMIT, || {
        let output = kafka_tool_output("kafka-topics", &cluster.bootstrap(), &args, b"");
        said = crate::clients::all_output(&output);
        output.status.success().then_some(())
    });
    created.ok_or_else(|| NetworkError(format!("the topic cannot be created: {said}")))
}
