//! Who votes: the quorum described, and changed while it runs (KIP-853).
//!
//! A new controller starts with an empty directory and waits to be added. It first follows as a learner, without a vote,
//! and gets its vote only when it has caught up *and* every voter has it in its log: so a voter never meets a voter that
//! it does not know. Raft's membership decides who votes; the leader copies it into the metadata, where everybody can read
//! it and where the ids of removed voters are remembered for ever.

use super::peers::Peers;
use super::state_machine::StateView;
use super::type_config::{Environment, Member, Raft};
use crate::proposer::{Proposer, confirm_leadership, not_leader};
use controller_core::{CaughtUp, Decision, plan};
use openraft::ChangeMembers;
use openraft::RaftMetrics;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ChangeMembershipError, ClientWriteError, RaftError};
use openraft::type_config::TypeConfigExt;
use parking_lot::Mutex;
use proto_types::controller_api::{AlterVoters, QuorumDescription, VoterProgress};
use proto_types::error::{ControllerError, Reason, Rejection};
use proto_types::ids::{ControllerId, DirectoryId, MetadataIndex};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Pause before the membership is written down again after that failed.
const AGAIN: Duration = Duration::from_millis(500);

/// Bounds and times; see the controller's config.
#[derive(Debug, Clone)]
pub(crate) struct VotersConfig {
    pub(crate) voters_max: usize,
    /// Confirming the leadership before an answer.
    pub(crate) confirm: Duration,
    /// A voter that was not heard for so long does not count as alive.
    pub(crate) alive: Duration,
}

/// A handle to the quorum's membership. Cheap to clone.
pub(crate) struct Voters<C: Environment> {
    shared: Arc<Shared<C>>,
}

struct Shared<C: Environment> {
    me: u64,
    raft: Raft<C>,
    view: StateView,
    proposer: Proposer,
    peers: Peers,
    config: VotersConfig,
    /// One change at a time.
    changing: tokio::sync::Mutex<()>,
    /// When each member last had everything that the leader had.
    clocks: Mutex<BTreeMap<u64, CaughtUp>>,
}

impl<C: Environment> Clone for Voters<C> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<C: Environment> Voters<C> {
    pub(crate) fn new(
        me: u64,
        raft: Raft<C>,
        view: StateView,
        proposer: Proposer,
        peers: Peers,
        config: VotersConfig,
    ) -> Self {
        let (changing, clocks) = (tokio::sync::Mutex::new(()), Mutex::default());
        Self { shared: Arc::new(Shared { me, raft, view, proposer, peers, config, changing, clocks }) }
    }

    /// The quorum as its leader sees it.
    pub(crate) async fn describe(&self) -> Result<QuorumDescription, ControllerError> {
        let shared = &self.shared;
        confirm_leadership(&shared.raft, shared.config.confirm).await?;
        let metrics = shared.metrics();
        let membership = Arc::clone(&metrics.membership_config);
        let voters: BTreeSet<u64> = membership.voter_ids().collect();
        let (mut voting, mut learning) = (Vec::new(), Vec::new());
        for (id, member) in membership.nodes() {
            let progress = shared.progress(&metrics, *id, member);
            if voters.contains(id) { voting.push(progress) } else { learning.push(progress) }
        }
        let committed = metrics.local_committed.map_or(0, |id| id.index);
        Ok(QuorumDescription {
            leader: ControllerId(shared.me),
            epoch: metrics.vote.leader_id.term,
            committed: MetadataIndex(committed),
            voters: voting,
            learners: learning,
        })
    }

    /// Confirms with the quorum that this controller leads it.
    pub(crate) async fn confirm(&self) -> Result<(), ControllerError> {
        confirm_leadership(&self.shared.raft, self.shared.config.confirm).await
    }

    /// Makes a change, which takes `patience` at most. Asking again for what was done is fine; of a removal it is then said that
    /// the controller is in the quorum no more. [`ControllerError::NotLeader`] may come after it was done, too: the next leader
    /// tells.
    pub(crate) async fn alter(&self, change: AlterVoters, patience: Duration) -> Result<(), ControllerError> {
        let (shared, begun) = (&self.shared, C::now());
        let Ok(_turn) = shared.changing.try_lock() else {
            return Err(rejected(
                Reason::ChangeInProgress,
                "Another change of the quorum is under way. Ask again when it is done.".to_owned(),
            ));
        };
        confirm_leadership(&shared.raft, shared.config.confirm).await?;
        // What earlier changes left: removed ids must be known before an id is judged.
        shared.settle().await?;
        let patience = patience.saturating_sub(C::now() - begun);
        let change = async {
            match change {
                AlterVoters::Add { id, address } => shared.add(id, address, patience).await,
                AlterVoters::Remove { id } => shared.remove(id).await,
            }
        };
        match C::timeout(patience, change).await {
            Ok(outcome) => outcome,
            Err(_elapsed) => Err(ControllerError::TimedOut),
        }
    }

    /// Keeps the list in the metadata equal to the membership and the clocks of the members going, as long as it leads.
    pub(crate) async fn watch(self) {
        let shared = self.shared;
        let mut metrics = shared.raft.metrics();
        loop {
            match shared.look().await {
                Ok(()) => {
                    if metrics.changed().await.is_err() {
                        return;
                    }
                }
                Err(ControllerError::Shutdown) => return,
                // What does not work now is not tried again at every change.
                Err(error) => {
                    tracing::debug!(%error, "the voters are not written down yet");
                    C::sleep(AGAIN).await;
                }
            }
        }
    }
}

impl<C: Environment> Shared<C> {
    fn metrics(&self) -> RaftMetrics<C> {
        self.raft.metrics().borrow_watched().clone()
    }

    fn progress(&self, metrics: &RaftMetrics<C>, id: u64, member: &Member) -> VoterProgress {
        let now = C::wall_clock().0;
        let (matched, last_contact_ms, caught_up_ms) = if id == self.me {
            (metrics.last_log_index, Some(now), Some(now))
        } else {
            let silence = silence::<C>(metrics, id).map(|silence| silence.as_millis());
            let contact = silence.map(|ms| now - i64::try_from(ms).unwrap_or(now));
            let caught_up = self.clocks.lock().get(&id).and_then(CaughtUp::at);
            (matched::<C>(metrics, id), contact, caught_up.map(|at| at.0))
        };
        VoterProgress {
            id: ControllerId(id),
            address: member.address.clone(),
            matched: matched.map(MetadataIndex),
            last_contact_ms,
            caught_up_ms,
        }
    }

    /// One look of the watch; an error if something is left to do.
    async fn look(&self) -> Result<(), ControllerError> {
        let metrics = self.metrics();
        if metrics.current_leader != Some(self.me) {
            self.clocks.lock().clear();
            return Ok(());
        }
        self.look_at_clocks(&metrics);
        if self.is_settled(&metrics) {
            return Ok(());
        }
        // Whoever makes a change settles it.
        match self.changing.try_lock() {
            Ok(_turn) => self.settle().await,
            Err(_taken) => Err(ControllerError::Busy("a change is under way".to_owned())),
        }
    }

    fn look_at_clocks(&self, metrics: &RaftMetrics<C>) {
        let (now, last) = (C::wall_clock(), metrics.last_log_index.unwrap_or(0));
        let mut clocks = self.clocks.lock();
        for (id, _) in metrics.membership_config.nodes().filter(|(id, _)| **id != self.me) {
            clocks.entry(*id).or_default().look(matched::<C>(metrics, *id).unwrap_or(0), last, now);
        }
    }

    fn is_settled(&self, metrics: &RaftMetrics<C>) -> bool {
        let joint = metrics.membership_config.membership().get_joint_config().len() > 1;
        !joint && self.view.state().controllers().become_voters(self.voters(metrics)).is_none()
    }

    /// Finishes a change that a former leader left half-done, and writes the voters down.
    async fn settle(&self) -> Result<(), ControllerError> {
        self.check_committed()?;
        let configs = self.metrics().membership_config.membership().get_joint_config().clone();
        if configs.len() > 1 {
            let last = configs.last().cloned().unwrap_or_default();
            self.change(ChangeMembers::ReplaceAllVoters(last), false).await?;
            self.check_committed()?;
        }
        let metrics = self.metrics();
        let voters = self.voters(&metrics);
        // The first leader of a new cluster says the level with the voters.
        let written = self.proposer.propose_own(move |state, inputs| {
            let founded = plan::found(state, inputs).into_iter();
            let changes = founded.chain(state.controllers().become_voters(voters)).collect();
            Ok(Decision { changes, reply: () })
        });
        written.await.map(|_| ())
    }

    fn check_committed(&self) -> Result<(), ControllerError> {
        let metrics = self.metrics();
        if metrics.committed_membership_config == metrics.membership_config {
            return Ok(());
        }
        Err(ControllerError::Busy("a change of the quorum is not committed yet".to_owned()))
    }

    async fn add(
        &self,
        id: ControllerId,
        address: String,
        patience: Duration,
    ) -> Result<(), ControllerError> {
        let begun = C::now();
        let metrics = self.metrics();
        let membership = Arc::clone(&metrics.membership_config);
        let voters: BTreeSet<u64> = membership.voter_ids().collect();
        self.check_new(id, &address, &membership.nodes().collect(), &voters)?;
        if voters.contains(&id.0) {
            return Ok(());
        }
        let learner_from = if membership.nodes().any(|(known, _)| *known == id.0) {
            membership.log_id().map_or(0, |id| id.index)
        } else {
            let added = self.raft.add_learner(id.0, Member { address: address.clone() }, false).await;
            tracing::info!(%id, address, "a controller follows as a learner");
            added.map_err(change_failed)?.log_id.index
        };
        // Known to every voter, and caught up.
        let must = metrics.last_log_index.unwrap_or(0).max(learner_from);
        let mut watched = self.raft.metrics();
        loop {
            let metrics = watched.borrow_watched().clone();
            let waits_for = voters
                .iter()
                .chain([&id.0])
                .find(|member| **member != self.me && matched::<C>(&metrics, **member).unwrap_or(0) < must);
            let Some(waits_for) = waits_for else { break };
            // Leaves time to say so.
            let left = (patience * 9 / 10).saturating_sub(C::now() - begun);
            if left.is_zero() {
                return Err(ControllerError::Busy(not_yet(id, *waits_for, &address)));
            }
            if let Ok(Err(_ended)) = C::timeout(left, watched.changed()).await {
                return Err(ControllerError::Shutdown);
            }
            if watched.borrow_watched().current_leader != Some(self.me) {
                return Err(ControllerError::NotLeader { leader: None });
            }
        }
        self.change(ChangeMembers::AddVoterIds(BTreeSet::from([id.0])), true).await?;
        tracing::warn!(target: "audit", %id, address, "a controller has become a voter");
        self.settle().await
    }

    fn check_new(
        &self,
        id: ControllerId,
        address: &str,
        members: &BTreeMap<&u64, &Member>,
        voters: &BTreeSet<u64>,
    ) -> Result<(), ControllerError> {
        if self.view.state().controllers().removed().contains(&id) {
            let message = format!(
                "Controller {id} was removed from the quorum, and ids of controllers are never used again. Give the new \
                 controller another id."
            );
            return Err(rejected(Reason::DuplicateVoter, message));
        }
        if let Some(known) = members.get(&id.0).filter(|known| known.address != address) {
            let message = format!(
                "Controller {id} is a member of the quorum already, at {}. Its address is changed in the config of each \
                 controller; a new controller needs another id.",
                known.address
            );
            return Err(rejected(Reason::DuplicateVoter, message));
        }
        let host_and_port =
            address.rsplit_once(':').filter(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        if host_and_port.is_none() {
            let message = format!("The address {address:?} is not host:port.");
            return Err(rejected(Reason::InvalidRequest, message));
        }
        let max = self.config.voters_max;
        if !voters.contains(&id.0) && voters.len() >= max {
            let message = format!(
                "The quorum has {} voters, at most {max} are allowed. Remove one first.",
                voters.len()
            );
            return Err(rejected(Reason::PolicyViolation, message));
        }
        Ok(())
    }

    async fn remove(&self, id: ControllerId) -> Result<(), ControllerError> {
        let metrics = self.metrics();
        let membership = Arc::clone(&metrics.membership_config);
        let voters: BTreeSet<u64> = membership.voter_ids().collect();
        if membership.nodes().all(|(known, _)| *known != id.0) {
            let message = match self.view.state().controllers().removed().contains(&id) {
                true => format!("Controller {id} is not in the quorum any more: it was removed."),
                false => format!("Controller {id} is not in the quorum."),
            };
            return Err(rejected(Reason::VoterNotFound, message));
        }
        let ids = BTreeSet::from([id.0]);
        if !voters.contains(&id.0) {
            return self.change(ChangeMembers::RemoveNodes(ids), false).await;
        }
        let rest: BTreeSet<u64> = voters.difference(&ids).copied().collect();
        if rest.is_empty() {
            let message =
                format!("Controller {id} is the only voter and cannot be removed. Add another first.");
            return Err(rejected(Reason::InvalidRequest, message));
        }
        let silent: Vec<u64> =
            rest.iter().copied().filter(|other| !self.is_alive(&metrics, *other)).collect();
        if rest.len() - silent.len() <= rest.len() / 2 {
            let message = format!(
                "Without controller {id} the voters would be {rest:?}, of which {silent:?} do not answer: they could \
                 decide nothing. Bring those back, or add another voter first."
            );
            return Err(rejected(Reason::InvalidRequest, message));
        }
        if id.0 == self.me {
            return Err(self.leave(&metrics, &rest).await);
        }
        self.change(ChangeMembers::RemoveVoters(ids), false).await?;
        tracing::warn!(target: "audit", %id, "a controller is no voter any more");
        self.settle().await
    }

    /// A leader does not remove itself: it hands over, and the next one removes it.
    async fn leave(&self, metrics: &RaftMetrics<C>, rest: &BTreeSet<u64>) -> ControllerError {
        let alive = rest.iter().copied().filter(|other| self.is_alive(metrics, *other));
        let heir = alive.max_by_key(|other| matched::<C>(metrics, *other));
        let Some(heir) = heir else {
            return ControllerError::Busy("no other controller answers".to_owned());
        };
        if self.raft.trigger().transfer_leader(heir).await.is_err() {
            return ControllerError::Shutdown;
        }
        let mut server = self.raft.server_metrics();
        while server.borrow_watched().current_leader == Some(self.me) {
            if server.changed().await.is_err() {
                return ControllerError::Shutdown;
            }
        }
        ControllerError::NotLeader { leader: Some(ControllerId(heir)) }
    }

    /// The voters with their addresses, and with their directories as far as we have met them.
    fn voters(&self, metrics: &RaftMetrics<C>) -> BTreeMap<ControllerId, (String, Option<DirectoryId>)> {
        let membership = &metrics.membership_config;
        let voters: BTreeSet<u64> = membership.voter_ids().collect();
        let nodes = membership.nodes().filter(|(id, _)| voters.contains(id));
        nodes
            .map(|(id, member)| {
                let directory = self.peers.directory(*id).map(DirectoryId);
                (ControllerId(*id), (member.address.clone(), directory))
            })
            .collect()
    }

    fn is_alive(&self, metrics: &RaftMetrics<C>, id: u64) -> bool {
        id == self.me || silence::<C>(metrics, id).is_some_and(|silence| silence <= self.config.alive)
    }

    async fn change(&self, change: ChangeMembers<u64, Member>, retain: bool) -> Result<(), ControllerError> {
        self.raft.change_membership(change, retain).await.map(|_| ()).map_err(change_failed)
    }
}

/// Index of the last entry that a member has on disk, as far as we know.
fn matched<C: Environment>(metrics: &RaftMetrics<C>, id: u64) -> Option<u64> {
    metrics.replication.as_ref()?.get(&id)?.as_ref().map(|matched| matched.index)
}

/// How long ago a member answered.
fn silence<C: Environment>(metrics: &RaftMetrics<C>, id: u64) -> Option<Duration> {
    let heard = metrics.heartbeat.as_ref()?.get(&id)?.as_ref()?;
    Some(C::now() - **heard)
}

fn not_yet(id: ControllerId, waits_for: u64, address: &str) -> String {
    if waits_for == id.0 {
        format!(
            "controller {id} at {address} has not caught up. See that it runs there, with join = true and a certificate of \
             this cluster, and ask again"
        )
    } else {
        format!(
            "controller {waits_for} is a voter and does not know controller {id} yet. Bring it back, or remove it"
        )
    }
}

fn rejected(reason: Reason, message: String) -> ControllerError {
    ControllerError::Rejected(Rejection { reason, message })
}

fn change_failed<C: Environment>(error: RaftError<C, ClientWriteError<C>>) -> ControllerError {
    match error {
        RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => not_leader(&forward),
        RaftError::APIError(ClientWriteError::LogEntryDiscarded(_)) => ControllerError::TimedOut,
        RaftError::APIError(ClientWriteError::ChangeMembershipError(
            error @ (ChangeMembershipError::InProgress(_) | ChangeMembershipError::UncommittedLeaderLog(_)),
        )) => ControllerError::Busy(error.to_string()),
        RaftError::APIError(ClientWriteError::ChangeMembershipError(error)) => {
            rejected(Reason::InvalidRequest, format!("The quorum cannot be changed so: {error}."))
        }
        RaftError::APIError(ClientWriteError::PreconditionFailed(error)) => {
            ControllerError::Busy(error.to_string())
        }
        RaftError::Fatal(_) => ControllerError::Shutdown,
    }
}
