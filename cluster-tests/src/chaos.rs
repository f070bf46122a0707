//! Chaos on a replicated cluster of real processes: stock clients write and read without pause while faults come and go; then
//! everything is healed, read back, and judged from outside ([`crate::checker`]) and from inside ([`crate::fsck`]).
//!
//! Everything that happens is drawn from one seed: which fault, at whom, for how long. (What a process does at that moment is its
//! own affair, so a seed repeats the plan of a run, not its every step.) [`faults`] is the list of what can happen, [`load`] the
//! clients (of a compacted topic too), [`verdict`] the judgement, `operator` what a person does meanwhile, `damage` what can become of
//! a node's files.

mod canary;
mod damage;
pub mod faults;
pub mod load;
mod operator;
mod paths;
mod verdict;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::clients::kafka_tool_output;
use crate::clock::{Stopwatch, wait_until};
use crate::moments::Moments;
use crate::netns::NetworkError;
use crate::replicated_cluster::{Daemon, ReplicatedCluster, Role, Shape};
use canary::Canary;
use damage::Damages;
use faults::Fault;
use load::{Load, LoadShape};
use operator::Drained;
pub use verdict::Verdict;

/// The topic that is written and read.
pub const TOPIC: &str = "chaos";
/// The topic that is compacted while its keys are written again and again.
pub const KEYED_TOPIC: &str = "chaos-keyed";
const KEYED_PARTITIONS: u16 = 2;
/// Compacted as often as can be. Whoever is away for longer than deletions are kept copies it anew.
const KEYED_CONFIGS: [&str; 4] = [
    "cleanup.policy=compact",
    "segment.bytes=1048576",
    "min.cleanable.dirty.ratio=0.01",
    "delete.retention.ms=10000",
];
const COMPACTION_BACKOFF_MS: u64 = 250;
/// How long writes may take to go on after a fault was taken back.
const PROGRESS_LIMIT: Duration = Duration::from_secs(60);
/// How long every copy may take to be in sync again after that.
const SYNC_LIMIT: Duration = Duration::from_secs(120);
/// At the end, so long nothing may fail any more.
const CALM: Duration = Duration::from_secs(5);
/// Writing must have begun before the first fault.
const FIRST_RECORDS: u64 = 500;
/// However little time is left, a fault lasts so long if it wants to.
const HOLD_MIN: Duration = Duration::from_secs(1);
/// As many acknowledgements show that writes go on.
const SOME_RECORDS: u64 = 50;
/// A node reads everything that it has so often.
const SCRUB_PERIOD_MS: u64 = 10_000;
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
    /// A disk was filled: daemons may say so.
    disks_filled: bool,
    /// Storage nodes whose files were damaged: they may say so.
    damaged: BTreeSet<String>,
    /// Storage nodes whose disk failed: so too.
    failed: BTreeSet<String>,
    /// A disk stood still: so may its daemon say.
    disks_stalled: bool,
    /// What must not be: liveness, a daemon that ended by itself.
    pub complaints: Vec<String>,
}

impl Diary {
    fn new() -> Diary {
        Diary {
            watch: Stopwatch::start(),
            text: String::new(),
            begun: Vec::new(),
            disks_filled: false,
            damaged: BTreeSet::new(),
            failed: BTreeSet::new(),
            disks_stalled: false,
            complaints: Vec::new(),
        }
    }

    /// Writes down and prints what happens.
    pub fn note(&mut self, what: &str) {
        let line = format!("{:8.1} s  {what}", self.watch.elapsed().as_secs_f64());
        eprintln!("{line}");
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }

    /// Writes down and prints that a fault begins.
    pub fn fault(&mut self, what: &str) {
        self.begun.push((crate::clock::monotonic_us(), what.to_owned()));
        self.note(what);
    }

    /// How many faults began so far.
    pub fn faults(&self) -> usize {
        self.begun.len()
    }

    /// Writes down what must not be.
    pub fn complain(&mut self, what: String) {
        self.note(&format!("COMPLAINT: {what}"));
        self.complaints.push(what);
    }
}

/// Runs a plan in a folder and judges it.
pub fn run(dir: &Path, plan: &Plan) -> Result<Verdict, NetworkError> {
    run_with(dir, plan, random_faults)
}

/// Runs what `storm` does to a cluster under load, and judges it.
pub fn run_with(
    dir: &Path,
    plan: &Plan,
    storm: impl FnOnce(&mut Storm<'_>) -> Result<(), NetworkError>,
) -> Result<Verdict, NetworkError> {
    // Nodes look for damage all the time.
    let node_settings = vec![
        format!("limits.scrub_period_ms={SCRUB_PERIOD_MS}"),
        format!("kafka.log.cleaner.backoff.ms={COMPACTION_BACKOFF_MS}"),
    ];
    let disk_mib = Some(DISK_MIB);
    // Whoever has a storm of his own takes no time for the faults of the plan.
    let needs_failing =
        !plan.duration.is_zero() && plan.faults.iter().any(|fault| fault.needs_failing_disk());
    let failing_disk = needs_failing.then(|| 1 + usize::try_from(plan.seed % 3).unwrap_or_default());
    let shape = Shape {
        disk_mib,
        namespaces: true,
        memory_groups: true,
        failing_disk,
        node_settings,
        ..Shape::default()
    };
    let mut diary = Diary::new();
    let canary = Canary::start();
    let mut cluster = ReplicatedCluster::start(dir, &shape)?;
    if let Some(why) = &cluster.without_namespaces {
        diary.note(&format!(
            "NO NAMESPACES, NO CUTS, NO POWER CUTS, NO FULL DISKS: signals only, because {why}"
        ));
    }
    if let Some(why) = &cluster.without_memory_groups {
        diary.note(&format!("NO MEMORY SQUEEZE: {why}"));
    }
    if let Some(why) = &cluster.without_failing_disk {
        diary.note(&format!("NO SLOW OR FAILING DISK: {why}"));
    }
    create_topic(&cluster, plan, TOPIC, plan.partitions, &[])?;
    create_topic(&cluster, plan, KEYED_TOPIC, KEYED_PARTITIONS, &KEYED_CONFIGS)?;
    let mut load = Load::start(&cluster, dir, plan.partitions, &plan.load)?;
    let begun = wait_until(PROGRESS_LIMIT, || (load.acknowledged() >= FIRST_RECORDS).then_some(()));
    if begun.is_none() {
        return Err(NetworkError(format!("the clients do not get going; see {}", dir.display())));
    }
    diary.note(&format!("the cluster works; seed {}", plan.seed));
    let mut running = Storm {
        cluster: &mut cluster,
        load: &mut load,
        diary: &mut diary,
        drained: Drained::default(),
        damages: Damages::new(dir),
        plan,
        chance: Moments::new(plan.seed),
    };
    running.wait_for_sync();
    storm(&mut running)?;
    running.judge_calm()?;
    let histories = load.finish(&cluster, &mut diary)?;
    diary.note("stopping the cluster");
    cluster.stop();
    let (worst, p99) = canary.finish();
    diary.note(&format!("the machine let a thread wait {worst} ms at worst, {p99} ms 99 times of 100"));
    let verdict = verdict::judge(&cluster, dir, &histories, diary);
    drop(cluster);
    verdict
}

/// A cluster under load, to which things happen.
#[derive(Debug)]
pub struct Storm<'a> {
    /// The cluster.
    pub cluster: &'a mut ReplicatedCluster,
    /// The clients.
    pub load: &'a mut Load,
    /// What happens is written down here.
    pub diary: &'a mut Diary,
    /// Where chance comes from.
    pub chance: Moments,
    drained: Drained,
    damages: Damages,
    plan: &'a Plan,
}

/// Faults of the plan until its time is over: first each kind once, in any order, then whatever chance brings.
fn random_faults(storm: &mut Storm<'_>) -> Result<(), NetworkError> {
    let faults = storm.plan.faults.iter().copied();
    let possible: Vec<Fault> = faults.filter(|fault| fault.is_possible(storm.cluster)).collect();
    if possible.is_empty() {
        return Err(NetworkError("none of the chosen faults is possible on this machine".to_owned()));
    }
    storm.note_choice(&possible);
    let watch = Stopwatch::start();
    let mut waiting = possible.clone();
    while watch.elapsed() < storm.plan.duration || !waiting.is_empty() {
        let first = match waiting.len() {
            0 => pick(&mut storm.chance, &possible),
            _ => {
                let fault = pick(&mut storm.chance, &waiting);
                waiting.retain(|other| *other != fault);
                fault
            }
        };
        let acknowledged = storm.load.acknowledged();
        storm.begin(first)?;
        // Nobody takes the time of those that have not had their turn.
        let rest = storm.plan.duration.saturating_sub(watch.elapsed());
        let share = rest / u32::try_from(waiting.len() + 1).unwrap_or(u32::MAX);
        let hold = first.hold(&mut storm.chance).min(share.max(HOLD_MIN));
        // Now and then another one before the first is over.
        let seconds: Vec<Fault> = possible.iter().copied().filter(|fault| !fault.comes_alone()).collect();
        if storm.chance.next_number().is_multiple_of(4) && !first.comes_alone() && !seconds.is_empty() {
            std::thread::sleep(hold / 2);
            let second = pick(&mut storm.chance, &seconds);
            storm.begin(second)?;
        }
        std::thread::sleep(hold);
        storm.heal()?;
        storm.diary.note(&format!("  {} acknowledged meanwhile", storm.load.acknowledged() - acknowledged));
        if storm.chance.next_number().is_multiple_of(2) {
            storm.wait_for_sync();
        } else {
            storm.wait_for_progress();
            std::thread::sleep(storm.chance.within(Duration::from_secs(5)));
        }
    }
    Ok(())
}

fn pick(chance: &mut Moments, faults: &[Fault]) -> Fault {
    let index = usize::try_from(chance.next_number() % faults.len() as u64).expect("a few faults");
    faults[index]
}

impl Storm<'_> {
    fn note_choice(&mut self, possible: &[Fault]) {
        let names =
            |faults: &mut dyn Iterator<Item = Fault>| faults.map(Fault::name).collect::<Vec<_>>().join(", ");
        self.diary.note(&format!("chosen: {}", names(&mut possible.iter().copied())));
        let all = self.plan.faults.iter().copied();
        let impossible = names(&mut all.filter(|fault| !possible.contains(fault)));
        if !impossible.is_empty() {
            self.diary.note(&format!("NOT POSSIBLE ON THIS MACHINE: {impossible}"));
        }
    }

    /// Begins a fault.
    pub fn begin(&mut self, fault: Fault) -> Result<(), NetworkError> {
        if fault.comes_alone() {
            self.wait_for_sync();
        }
        self.diary.disks_filled |= fault.fills_disks();
        // Without memory every page is read anew.
        self.diary.disks_stalled |= matches!(fault, Fault::SlowDisk | Fault::MemorySqueeze);
        let what = fault.begin(self)?;
        let named =
            self.cluster.daemons().iter().map(Daemon::name).filter(|name| what.contains(name.as_str()));
        match fault {
            Fault::Damage => self.diary.damaged.extend(named),
            Fault::IoErrors => self.diary.failed.extend(named),
            _ => drop(named),
        }
        self.diary.fault(&what);
        Ok(())
    }

    /// Lets the disk of a storage node stand still: whatever it writes or syncs waits until [`Storm::heal`].
    pub fn stall_disk(&mut self, node: usize) -> Result<(), NetworkError> {
        self.diary.disks_stalled = true;
        self.cluster.stall_disk(Role::StorageNode, node)?;
        self.diary.fault(&format!("the disk of storage-node-{node} stands still"));
        Ok(())
    }

    /// Takes everything back. Nobody may have ended by himself.
    pub fn heal(&mut self) -> Result<(), NetworkError> {
        if let Some((node, disk)) = self.cluster.failing_disk() {
            self.diary.note(&format!(
                "  {} requests to the disk of storage-node-{node} met trouble so far",
                disk.met()
            ));
        }
        self.look_after();
        for counts in self.cluster.network().calm()? {
            self.diary.note(&format!("  on the disturbed path: {counts}"));
        }
        self.cluster.heal()?;
        self.load.restart_killed(self.cluster)?;
        if let Err(refused) = self.drained.give_back(self.cluster) {
            self.diary.complain(refused);
        }
        self.diary.note("  healed");
        if let Some(node) = self.damages.take_struck() {
            self.wait_for_repair(node);
        }
        Ok(())
    }

    fn look_after(&mut self) {
        for daemon in self.cluster.daemons_mut() {
            if let Some(what) = daemon.ended() {
                self.diary.complain(what);
                // So that the run can go on and show more.
                daemon.kill();
            }
        }
    }

    /// Waits until writes are acknowledged again.
    pub fn wait_for_progress(&mut self) {
        let before = self.load.acknowledged();
        let watch = Stopwatch::start();
        let goes_on = || (self.load.acknowledged() > before + SOME_RECORDS).then_some(());
        match wait_until(PROGRESS_LIMIT, goes_on) {
            Some(()) => {
                self.diary.note(&format!("  writes go on after {:.1} s", watch.elapsed().as_secs_f64()))
            }
            None => {
                self.diary.complain(format!("writes do not go on within {PROGRESS_LIMIT:?} after healing"))
            }
        }
    }

    /// Waits until every node tells that every copy is in sync.
    pub fn wait_for_sync(&mut self) {
        let watch = Stopwatch::start();
        match wait_until(SYNC_LIMIT, || self.is_in_sync().then_some(())) {
            Some(()) => {
                self.diary.note(&format!("  all in sync after {:.1} s", watch.elapsed().as_secs_f64()))
            }
            None => {
                let told: Vec<_> = (1..=3).map(|node| self.cluster.partitions(node, TOPIC)).collect();
                self.diary.complain(format!("not all in sync within {SYNC_LIMIT:?} after healing: {told:?}"));
            }
        }
    }

    fn is_in_sync(&self) -> bool {
        let nodes = self.cluster.daemons().iter().filter(|daemon| daemon.role == Role::StorageNode);
        nodes.map(|node| node.id).all(|node| {
            self.cluster.partitions(node, TOPIC).is_some_and(|partitions| {
                partitions.len() == usize::from(self.plan.partitions)
                    && partitions.iter().all(|partition| {
                        partition.leader.is_some() && partition.isr.len() == self.plan.replication_factor
                    })
            }) && self.cluster.all_partitions(node).is_some_and(|all| {
                // Those of groups and transactions too.
                all.iter().all(|partition| partition.isr.len() == partition.replicas.len())
            })
        })
    }

    /// After everything is healed all must be well, and stay so for a while.
    fn judge_calm(&mut self) -> Result<(), NetworkError> {
        self.diary.note("the storm is over");
        self.heal()?;
        self.wait_for_sync();
        self.wait_for_progress();
        let (before, failed) = (self.load.acknowledged(), self.load.failed());
        std::thread::sleep(CALM);
        self.look_after();
        if self.load.failed() > failed {
            self.diary.complain(format!("{} records failed in calm", self.load.failed() - failed));
        }
        if self.load.acknowledged() == before {
            self.diary.complain("nothing was acknowledged in calm".to_owned());
        }
        Ok(())
    }
}

/// Creates a topic; a cluster that has just started may need a moment for as many nodes.
fn create_topic(
    cluster: &ReplicatedCluster,
    plan: &Plan,
    topic: &str,
    partitions: u16,
    configs: &[&str],
) -> Result<(), NetworkError> {
    let (partitions, copies) = (partitions.to_string(), plan.replication_factor.to_string());
    let mut args = vec!["--create", "--if-not-exists", "--topic", topic, "--partitions", &partitions];
    args.extend(["--replication-factor", &copies]);
    args.extend(configs.iter().flat_map(|config| ["--config", config]));
    let mut said = String::new();
    let created = wait_until(PROGRESS_LIMIT, || {
        let output = kafka_tool_output("kafka-topics", &cluster.bootstrap(), &args, b"");
        said = crate::clients::all_output(&output);
        output.status.success().then_some(())
    });
    created.ok_or_else(|| NetworkError(format!("the topic {topic} cannot be created: {said}")))
}
