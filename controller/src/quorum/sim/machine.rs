//! One controller of the simulated quorum: its disk, and what runs on it while it is up.
//!
//! Everything but the system's disk and the transport is the real thing: log store, snapshots, state machine, raft, the
//! proposer, the changes of voters.

use super::disk::Device;
use super::ghost::{Broken, Ghost};
use super::world::{Net, SimCarrier, SimConfig, below, one_in_thousand, sleep_ms, spawn};
use crate::change_feed::ChangeRing;
use crate::config::Config;
use crate::data_dir::DataFiles;
use crate::metrics::ControllerMetrics;
use crate::node::openraft_config;
use crate::proposer::{Proposer, ProposerConfig};
use crate::quorum::disk::SharedDisk;
use crate::quorum::log_store::{Command, LogStore, Worker};
use crate::quorum::network::Network;
use crate::quorum::peers::Peers;
use crate::quorum::rpc::RaftSlot;
use crate::quorum::state_machine::{StateMachine, StateView};
use crate::quorum::stored::StoredVote;
use crate::quorum::type_config::{Environment, Member, Raft};
use crate::quorum::voters::{Voters, VotersConfig};
use openraft::async_runtime::WatchReceiver;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use uuid::Uuid;

const ROOT: &str = "/controller";
/// Small, so that runs go through many files.
const SEGMENT_BYTES: u64 = 3_000;

/// What all machines of a run share.
#[derive(Clone)]
pub(super) struct Run {
    pub(super) net: Net,
    pub(super) ghost: Arc<Mutex<Ghost>>,
    pub(super) broken: Arc<Mutex<Option<Broken>>>,
    /// Those that form the quorum.
    pub(super) formed: u64,
    pub(super) snapshot_entries: u64,
    /// Longest time that a sync takes, milliseconds.
    pub(super) sync_ms: u64,
}

impl Run {
    /// Ends the run if a rule is broken.
    pub(super) fn expect(&self, outcome: Result<(), Broken>) {
        if let Err(broken) = outcome {
            self.broken.lock().get_or_insert(broken);
        }
    }

    fn config(&self, id: u64) -> Config {
        let mut config = Config { id, cluster_id: "sim".to_owned(), ..Config::default() };
        config.raft.snapshot_entries = self.snapshot_entries;
        config.raft.keep_entries = self.snapshot_entries / 4;
        config.raft.snapshot_timeout_ms = 2_000;
        config
    }

    fn initial_voters(&self) -> BTreeMap<u64, String> {
        (1..=self.formed).map(|id| (id, format!("c{id}:1"))).collect()
    }
}

pub(super) struct Machine {
    pub(super) id: u64,
    device: Device,
    life: u64,
    /// Its directory is not the one that it began with.
    pub(super) wiped: bool,
    pub(super) up: Option<Up>,
}

/// One life.
#[derive(Clone)]
pub(super) struct Up {
    pub(super) raft: Raft<SimConfig>,
    pub(super) proposer: Proposer,
    pub(super) voters: Voters<SimConfig>,
    pub(super) view: StateView,
    pub(super) peers: Peers,
    dead: Arc<AtomicBool>,
}

impl Machine {
    pub(super) fn new(id: u64) -> Self {
        Self { id, device: Device::default(), life: 0, wiped: false, up: None }
    }

    /// Starts on what the disk holds.
    pub(super) async fn start(&mut self, run: &Run) -> Result<(), Broken> {
        self.life += 1;
        let disk: SharedDisk = self.device.boot();
        let new = Uuid::from_u128(SimConfig::chance());
        let files = DataFiles::open(&disk, Path::new(ROOT), "sim", self.id, SEGMENT_BYTES, new)
            .map_err(|error| format!("L5: machine {} does not start after a crash: {error}", self.id))?;
        let DataFiles { log, snapshots, peers } = files;
        run.ghost.lock().started(self.id, &log)?;
        let dead = Arc::new(AtomicBool::new(false));
        let (store, worker, queue) = LogStore::new(log);
        spawn(work(self.id, run.clone(), Arc::clone(&dead), worker, queue));
        let config = run.config(self.id);
        let (machine, view) = StateMachine::new(snapshots, ChangeRing::new(1_000), config.levels);
        let configured = run.initial_voters();
        let slot = Arc::new(RaftSlot::new(configured.keys().copied().collect(), peers.clone()));
        let carrier = SimCarrier { net: run.net.clone(), me: self.id, life: self.life };
        let network = Network::new(carrier, self.id, BTreeMap::new(), peers.clone());
        let raft_config = Arc::new(openraft_config(&config)?);
        let raft = Raft::new(self.id, raft_config, network, store, machine)
            .await
            .map_err(|error| format!("machine {}: raft does not start: {error}", self.id))?;
        peers.believe(view.clone());
        slot.fill(raft.clone(), view.clone());
        run.net.up(self.id, self.life, slot);
        let up = Self::serve(&config, raft, view, peers, dead);
        if self.id <= run.formed && !up.raft.is_initialized().await.map_err(|e| e.to_string())? {
            let members: BTreeMap<u64, Member> =
                configured.into_iter().map(|(id, address)| (id, Member { address })).collect();
            // Another one's entries may have come first.
            let _formed = up.raft.initialize(members).await;
        }
        self.up = Some(up);
        Ok(())
    }

    fn serve(
        config: &Config,
        raft: Raft<SimConfig>,
        view: StateView,
        peers: Peers,
        dead: Arc<AtomicBool>,
    ) -> Up {
        let proposer_config = ProposerConfig {
            limits: config.plan_limits(),
            cluster_id: config.cluster_id.clone(),
            levels: config.levels,
            queued_max: 100,
            per_batch_max: 4,
            request_bytes_max: 1 << 20,
            commit_timeout: Duration::from_secs(2),
        };
        let metrics = ControllerMetrics::register(&mut Registry::default());
        let (proposer, proposing) = Proposer::start(raft.clone(), view.clone(), proposer_config, metrics);
        spawn(proposing);
        let voters_config = VotersConfig {
            voters_max: 7,
            confirm: Duration::from_secs(1),
            alive: Duration::from_millis(900),
        };
        let voters = Voters::new(
            config.id,
            raft.clone(),
            view.clone(),
            proposer.clone(),
            peers.clone(),
            voters_config,
        );
        spawn(voters.clone().watch());
        Up { raft, proposer, voters, view, peers, dead }
    }

    /// It is gone from one moment to the next.
    pub(super) fn crash(&mut self, run: &Run, power_cut: bool) {
        let Some(up) = self.up.take() else { return };
        up.dead.store(true, Ordering::Relaxed);
        run.net.down(self.id);
        self.device.crash(power_cut);
        spawn(async move {
            // Only what is left in memory; nobody hears of it any more.
            let _ended = up.raft.shutdown().await;
        });
    }

    /// Puts an empty disk in the place of its own.
    pub(super) fn wipe(&mut self, run: &Run) {
        assert!(self.up.is_none(), "only while it is down");
        self.device.wipe();
        self.wiped = true;
        run.ghost.lock().wiped(self.id);
    }

    /// Looks at it, if it is up.
    pub(super) fn look(&self, run: &Run) -> Result<(), Broken> {
        let Some(up) = &self.up else { return Ok(()) };
        let metrics = up.raft.metrics().borrow_watched().clone();
        if let Err(error) = &metrics.running_state {
            return Err(format!("machine {}: raft has stopped: {error}", self.id));
        }
        if self.wiped && metrics.state.is_leader() {
            return Err(format!("C4: machine {} leads, and has lost its directory", self.id));
        }
        run.ghost.lock().look(self.id, &metrics, &up.view.state())
    }
}

/// The log's thread, in virtual time.
async fn work(
    id: u64,
    run: Run,
    dead: Arc<AtomicBool>,
    mut worker: Worker<SimConfig>,
    mut queue: mpsc::Receiver<Command<SimConfig>>,
) {
    while let Some(command) = queue.recv().await {
        if dead.load(Ordering::Relaxed) {
            return;
        }
        carry_out(id, &run, &mut worker, command);
        // What comes meanwhile shares the sync.
        let stalled = if one_in_thousand(5) { 100 } else { 1 };
        sleep_ms(below(run.sync_ms * stalled + 1)).await;
        while let Ok(command) = queue.try_recv()
            && !dead.load(Ordering::Relaxed)
        {
            carry_out(id, &run, &mut worker, command);
        }
        if dead.load(Ordering::Relaxed) {
            return;
        }
        worker.sync();
        run.ghost.lock().synced(id);
    }
}

fn carry_out(id: u64, run: &Run, worker: &mut Worker<SimConfig>, command: Command<SimConfig>) {
    let mut ghost = run.ghost.lock();
    match &command {
        Command::Append(ids, payloads, _) => {
            let outcome = ghost.appended(id, ids, payloads);
            drop(ghost);
            run.expect(outcome);
            worker.carry_out(command);
        }
        Command::SaveVote(vote, _) => {
            let vote = StoredVote::from(vote);
            worker.carry_out(command);
            let outcome = ghost.voted(id, vote);
            ghost.synced(id);
            drop(ghost);
            run.expect(outcome);
        }
        Command::Truncate(next, _) => {
            let outcome = ghost.truncated(id, *next);
            drop(ghost);
            run.expect(outcome);
            worker.carry_out(command);
        }
        Command::Purge(upto, _) => {
            ghost.purged(id, upto.into());
            drop(ghost);
            worker.carry_out(command);
        }
        Command::SaveCommitted(..) | Command::Read(..) => {
            drop(ghost);
            worker.carry_out(command);
        }
    }
}
