//! The whole quorum from a seed: our storage, our messages, raft, the proposer and the changes of voters, over disks that
//! lose what was not synced and a network that delays, loses, repeats and cuts.
//!
//! Each seed draws the size of the quorum and which faults there are and how often. Faults first; then everything is
//! healed, and the quorum must answer again within seconds and agree. [`ghost`] checks the rules at every tick,
//! [`clients`] what clients were told. A failing seed prints the command that repeats it.

mod clients;
mod disk;
mod ghost;
mod machine;
mod world;

use clients::{Directory, History};
use ghost::{Broken, Ghost};
use machine::{Machine, Run};
use openraft::async_runtime::{AsyncRuntime, WatchReceiver};
use openraft_rt_sim::SimRuntime;
use parking_lot::Mutex;
use proto_types::controller_api::AlterVoters;
use proto_types::error::ControllerError;
use proto_types::ids::ControllerId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use world::{Net, Weather, below, now, one_in_thousand, seed_chance, sleep_ms, spawn};

/// Seeds without `WEIR_SEEDS`.
const SEEDS: u64 = 300;
/// How long faults happen, virtual time.
const FAULTS: Duration = Duration::from_secs(16);
/// Within this time after the last fault everybody must agree.
const HEALS_WITHIN: Duration = Duration::from_secs(10);
/// What all seeds together must have seen, else they test less than they should.
const MARKS: [&str; 12] = [
    "leader elected",
    "log cut off",
    "log purged",
    "snapshot beyond the log",
    "power cut",
    "process killed",
    "all went down at once",
    "a way was cut",
    "voter added",
    "voter removed",
    "a wiped machine was refused",
    "leadership handed over",
];

/// How often each fault happens in this run, in a thousand ticks.
#[derive(Debug)]
struct Faults {
    crash: u64,
    crash_all: u64,
    cut: u64,
    heal: u64,
    voters: u64,
    wipe: u64,
    transfer: u64,
}

impl Faults {
    fn draw() -> Self {
        let rate = |most: u64| if below(3) == 0 { 0 } else { below(most) + 1 };
        Self {
            crash: rate(40),
            crash_all: rate(6),
            cut: rate(50),
            heal: 20 + below(100),
            voters: rate(30),
            wipe: rate(4),
            transfer: rate(15),
        }
    }
}

fn draw_weather() -> Weather {
    let some = |most: u64| if below(2) == 0 { 0 } else { below(most) };
    Weather { delay_ms: 1 + below(30), late: some(20), loss: some(100), twice: some(50) }
}

struct Cluster {
    run: Run,
    machines: BTreeMap<u64, Machine>,
    directory: Directory,
    next_id: u64,
    /// The one machine whose directory is lost in this run.
    lost: Option<u64>,
    changing: Arc<AtomicBool>,
}

impl Cluster {
    async fn start(&mut self, id: u64) -> Result<(), Broken> {
        let machine = self.machines.get_mut(&id).expect("it exists");
        machine.start(&self.run).await?;
        let up = machine.up.clone().expect("just started");
        self.directory.lock().insert(id, up);
        Ok(())
    }

    fn crash(&mut self, id: u64, power_cut: bool) {
        self.directory.lock().remove(&id);
        self.machines.get_mut(&id).expect("it exists").crash(&self.run, power_cut);
        let mark = if power_cut { "power cut" } else { "process killed" };
        self.run.ghost.lock().mark(mark);
        self.run.ghost.lock().note((id, power_cut));
    }

    fn ids(&self, up: bool) -> Vec<u64> {
        self.machines
            .values()
            .filter(|machine| machine.up.is_some() == up)
            .map(|machine| machine.id)
            .collect()
    }

    fn look(&self) -> Result<(), Broken> {
        for machine in self.machines.values() {
            machine.look(&self.run)?;
        }
        self.run.broken.lock().take().map_or(Ok(()), Err)
    }

    /// Machines that the others do not accept any more end, and nobody starts them again.
    fn bury(&mut self) {
        let rejected =
            |machine: &Machine| machine.up.as_ref().is_some_and(|up| up.peers.rejected().is_some());
        let dead: Vec<u64> =
            self.machines.values().filter(|machine| rejected(machine)).map(|machine| machine.id).collect();
        for id in dead {
            if self.machines[&id].wiped {
                self.run.ghost.lock().mark("a wiped machine was refused");
            }
            self.crash(id, false);
            self.machines.remove(&id);
        }
    }

    /// Adds a new machine to the quorum, or removes a voter.
    fn change_voters(&mut self) -> Option<u64> {
        let leader = self.leader()?;
        let up = self.machines[&leader].up.clone()?;
        let voters: Vec<u64> = up.raft.metrics().borrow_watched().membership_config.voter_ids().collect();
        let lost = self.lost.filter(|lost| voters.contains(lost));
        let (change, new) = if let Some(lost) = lost {
            // First of all it is to be replaced.
            (AlterVoters::Remove { id: ControllerId(lost) }, None)
        } else if voters.len() > 3 || (voters.len() == 3 && below(2) == 0) {
            let id = ControllerId(voters[below(voters.len() as u64) as usize]);
            (AlterVoters::Remove { id }, None)
        } else {
            // A new machine, or one that waits to be added.
            let waits = self.machines.keys().find(|id| **id > self.run.formed && !voters.contains(id));
            let id = waits.copied().unwrap_or_else(|| {
                self.next_id += 1;
                self.next_id
            });
            let address = format!("c{id}:1");
            let new = !self.machines.contains_key(&id);
            (AlterVoters::Add { id: ControllerId(id), address }, new.then_some(id))
        };
        if let Some(id) = new {
            self.machines.insert(id, Machine::new(id));
        }
        let (run, changing) = (self.run.clone(), Arc::clone(&self.changing));
        changing.store(true, Ordering::Relaxed);
        spawn(async move {
            let outcome = up.voters.alter(change, Duration::from_secs(4)).await;
            run.ghost.lock().note(outcome.is_ok());
            if let Err(ControllerError::Rejected(rejection)) = outcome {
                run.ghost.lock().note(rejection.message);
            }
            changing.store(false, Ordering::Relaxed);
        });
        new
    }

    /// Whoever says that it leads, in the newest term.
    fn leader(&self) -> Option<u64> {
        let leads = |machine: &Machine| {
            let metrics = machine.up.as_ref()?.raft.metrics().borrow_watched().clone();
            metrics.state.is_leader().then_some((metrics.vote.leader_id.term, machine.id))
        };
        self.machines.values().filter_map(leads).max().map(|(_, id)| id)
    }

    async fn fault(&mut self, faults: &Faults) -> Result<(), Broken> {
        let (up, down) = (self.ids(true), self.ids(false));
        if !up.is_empty() && one_in_thousand(faults.crash) {
            let id = up[below(up.len() as u64) as usize];
            self.crash(id, below(3) > 0);
        }
        if one_in_thousand(faults.crash_all) {
            self.run.ghost.lock().mark("all went down at once");
            for id in up {
                self.crash(id, true);
            }
        }
        if !down.is_empty() && one_in_thousand(60) {
            let id = down[below(down.len() as u64) as usize];
            self.start(id).await?;
        }
        if now() > Duration::from_secs(3) && one_in_thousand(faults.wipe * 10) {
            self.lose_a_directory();
        }
        self.fault_of_network(faults);
        if one_in_thousand(faults.voters)
            && !self.changing.load(Ordering::Relaxed)
            && now() > Duration::from_secs(2)
            && let Some(new) = self.change_voters()
        {
            self.start(new).await?;
        }
        if one_in_thousand(faults.transfer)
            && let Some(leader) = self.leader()
            && let Some(up) = self.machines[&leader].up.clone()
        {
            self.run.ghost.lock().mark("leadership handed over");
            let voters: Vec<u64> = up.raft.metrics().borrow_watched().membership_config.voter_ids().collect();
            let heir = voters[below(voters.len() as u64) as usize];
            // It may have ended meanwhile.
            let _asked = up.raft.trigger().transfer_leader(heir).await;
        }
        Ok(())
    }

    /// One directory in a run, of a voter that the others can do without.
    fn lose_a_directory(&mut self) {
        let Some(voters) = self.run.ghost.lock().voters_for_certain() else { return };
        let down = self.ids(false).into_iter().find(|id| voters.contains(id));
        if let Some(id) = down
            && self.lost.is_none()
            && voters.len() >= 3
            && !self.changing.load(Ordering::Relaxed)
        {
            self.lost = Some(id);
            self.machines.get_mut(&id).expect("it exists").wipe(&self.run);
        }
    }

    fn fault_of_network(&self, faults: &Faults) {
        if one_in_thousand(faults.cut) {
            self.run.ghost.lock().mark("a way was cut");
            let ids: Vec<u64> = self.machines.keys().copied().collect();
            let alone = ids[below(ids.len() as u64) as usize];
            let kind = below(4);
            for other in ids.into_iter().filter(|id| *id != alone) {
                // All ways of one, one way of one, or some.
                if kind != 2 {
                    self.run.net.cut(alone, other);
                }
                if kind != 1 {
                    self.run.net.cut(other, alone);
                }
                if kind == 3 && below(2) == 0 {
                    return;
                }
            }
        }
        if one_in_thousand(faults.heal) {
            self.run.net.heal();
        }
    }

    /// Everybody comes back, and then everybody agrees and answers.
    async fn heal(&mut self, history: &History) -> Result<(), Broken> {
        self.run.net.heal();
        self.run.net.set_weather(Weather::FAIR);
        for id in self.ids(false) {
            self.start(id).await?;
        }
        let (begun, done) = (now(), history.done());
        loop {
            sleep_ms(20).await;
            self.bury();
            self.look()?;
            let answers = history.done() > done + 20;
            if answers && self.is_settled() {
                return Ok(());
            }
            if now() - begun > HEALS_WITHIN {
                return Err(format!("C5: not healed; {}", self.describe()));
            }
        }
    }

    /// All voters are up to date, and the metadata says who they are.
    fn is_settled(&self) -> bool {
        let Some(leader) = self.leader() else { return false };
        let Some(up) = &self.machines[&leader].up else { return false };
        let metrics = up.raft.metrics().borrow_watched().clone();
        let membership = metrics.membership_config.membership();
        let written: Vec<u64> =
            up.view.state().controllers().voters().iter().map(|voter| voter.id.0).collect();
        let voters: Vec<u64> = membership.voter_ids().collect();
        let recent = metrics.last_log_index.unwrap_or(0).saturating_sub(50);
        membership.get_joint_config().len() == 1
            && written == voters
            && voters
                .iter()
                .filter_map(|id| self.machines.get(id))
                .filter(|machine| !machine.wiped)
                .all(|machine| machine.up.as_ref().is_some_and(|up| up.view.state().applied().0 >= recent))
    }

    fn describe(&self) -> String {
        let one = |machine: &Machine| match &machine.up {
            Some(up) => {
                let metrics = up.raft.metrics().borrow_watched().clone();
                format!(
                    "{}: {:?} of {:?}, last {:?}, applied {:?}",
                    machine.id,
                    metrics.state,
                    metrics.membership_config.voter_ids().collect::<Vec<_>>(),
                    metrics.last_log_index,
                    metrics.last_applied.map(|id| id.index)
                )
            }
            None => format!("{}: down", machine.id),
        };
        self.machines.values().map(one).collect::<Vec<_>>().join("; ")
    }
}

/// One run: the trace and what was seen.
async fn run(seed: u64) -> Result<(u64, BTreeMap<&'static str, u64>), Broken> {
    seed_chance(seed);
    let formed = if below(3) == 0 { 5 } else { 3 };
    let faults = Faults::draw();
    let run = Run {
        net: Net::new(draw_weather()),
        ghost: Arc::new(Mutex::new(Ghost::default())),
        broken: Arc::new(Mutex::new(None)),
        formed,
        snapshot_entries: 10 + below(90),
        sync_ms: below(8),
    };
    let machines = (1..=formed).map(|id| (id, Machine::new(id))).collect();
    let mut cluster = Cluster {
        run: run.clone(),
        machines,
        directory: Directory::default(),
        next_id: formed,
        lost: None,
        changing: Arc::default(),
    };
    for id in 1..=formed {
        cluster.start(id).await?;
    }
    let history = Arc::new(History::default());
    for _ in 0..3 {
        spawn(Arc::clone(&history).client(Arc::clone(&cluster.directory), run.clone()));
    }
    while now() < FAULTS {
        sleep_ms(5 + below(30)).await;
        cluster.fault(&faults).await?;
        cluster.bury();
        cluster.look()?;
    }
    cluster.heal(&history).await?;
    history.stop.store(true, Ordering::Relaxed);
    // Let the last answers come.
    sleep_ms(6_000).await;
    cluster.look()?;
    let ghost = run.ghost.lock();
    history.check(&ghost)?;
    Ok((ghost.trace(), ghost.marks.clone()))
}

/// One run on a scheduler of its own; a panic is a broken rule as well.
fn run_seed(seed: u64) -> Result<(u64, BTreeMap<&'static str, u64>), Broken> {
    let outcome = std::panic::catch_unwind(|| SimRuntime::with_seed(seed).block_on(run(seed)));
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("without words")))
    })
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse().expect("a number"));
    match number("WEIR_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("WEIR_SEEDS").unwrap_or(SEEDS),
    }
}

/// T-41, T-42, T-43, T-45, T-48, T-49, T-52: votes, logs, snapshots and voters under every fault at once.
#[test]
fn the_quorum_keeps_its_rules() {
    let seeds = seeds();
    let next = AtomicU64::new(seeds.start);
    let (broken, marks) = (Mutex::new(BTreeMap::new()), Mutex::new(BTreeMap::<&str, u64>::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || !broken.lock().is_empty() {
                        return;
                    }
                    match run_seed(seed) {
                        Ok((trace, seen)) => {
                            // One in a hundred shows that the seed decides everything.
                            if seed.is_multiple_of(100) && run_seed(seed).map(|(again, _)| again) != Ok(trace)
                            {
                                broken.lock().insert(seed, "two runs differ".to_owned());
                            }
                            for (mark, count) in seen {
                                *marks.lock().entry(mark).or_default() += count;
                            }
                        }
                        Err(what) => {
                            broken.lock().insert(seed, what);
                        }
                    }
                }
            });
        }
    });
    let broken = broken.into_inner();
    if let Some((seed, what)) = broken.first_key_value() {
        panic!("{what}\nrepeat with: WEIR_SEED={seed} cargo test -p controller the_quorum_keeps_its_rules");
    }
    let marks = marks.into_inner();
    println!("{} seeds: {marks:?}", seeds.end - seeds.start);
    if seeds.end - seeds.start >= SEEDS {
        for mark in MARKS {
            assert!(marks.contains_key(mark), "no seed has seen: {mark}");
        }
    }
}
