//! The single way to change the metadata: one queue, one batch in flight.
//!
//! The proposer takes everything that waits, plans one request after the other on a scratch copy of the newest state,
//! commits all changes as one log entry, and answers when they are applied. Refusals wait for that too: they may rest on
//! what the batch did before them. Nothing is planned on a state that another leader may have moved on from: the first
//! plan of a leadership waits for a read confirmed by the quorum, and each write names the leadership it was planned in.

use crate::clock::wall_clock;
use crate::metrics::ControllerMetrics;
use crate::quorum::segment::PAYLOAD_MAX;
use crate::quorum::state_machine::StateView;
use crate::quorum::type_config::{Changes, Raft, TypeConfig};
use controller_core::{Chance, ClusterState, Decision, Inputs, Limits};
use openraft::ReadPolicy;
use openraft::alias::CommittedLeaderIdOf;
use openraft::errors::{ClientWriteError, ForwardToLeader, LinearizableReadError, RaftError};
use openraft::impls::ProgressResponder;
use proto_types::error::{ControllerError, Reason, Rejection};
use proto_types::ids::{ControllerId, MetadataIndex};
use proto_types::metadata::MetadataChange;
use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use uuid::Uuid;

type LeaderId = CommittedLeaderIdOf<TypeConfig>;

/// Bytes of changes after which a batch takes no more requests; the rest makes the next one. A log entry has a largest
/// size, and one that exceeds it would stop this leader and, when the callers repeat themselves, the next one too.
const BATCH_BYTES: usize = 4 << 20;
/// Largest changes of a single request, whoever makes it: an entry holds them behind a batch that is almost full.
const REQUEST_BYTES_MAX: usize = PAYLOAD_MAX - BATCH_BYTES - (64 << 10);

/// Bounds of the proposer; see the controller's config.
#[derive(Debug, Clone)]
pub(crate) struct ProposerConfig {
    pub(crate) limits: Limits,
    pub(crate) cluster_id: String,
    pub(crate) queued_max: usize,
    pub(crate) per_batch_max: usize,
    pub(crate) request_bytes_max: usize,
    pub(crate) commit_timeout: Duration,
}

/// A request in the queue, whatever its type.
trait Job: Send {
    /// Plans on the newest state; returns the changes and how many bytes they take.
    fn plan(
        &mut self,
        state: &ClusterState,
        inputs: &mut Inputs,
        bytes_max: usize,
    ) -> (Vec<MetadataChange>, usize);
    /// Gives the answer.
    fn finish(self: Box<Self>, outcome: Result<MetadataIndex, ControllerError>);
    /// Whether nobody waits for the answer any more.
    fn is_abandoned(&self) -> bool;
}

struct TypedJob<R, F> {
    plan: Option<F>,
    planned: Option<Result<R, Rejection>>,
    /// Requests of clients are bounded in what they may add to the log; the cluster's own (elections) only by what the
    /// log can hold.
    bounded: bool,
    reply: oneshot::Sender<Result<(R, MetadataIndex), ControllerError>>,
}

impl<R, F> Job for TypedJob<R, F>
where
    R: Send,
    F: FnOnce(&ClusterState, &mut Inputs) -> Result<Decision<R>, Rejection> + Send,
{
    fn plan(
        &mut self,
        state: &ClusterState,
        inputs: &mut Inputs,
        bytes_max: usize,
    ) -> (Vec<MetadataChange>, usize) {
        let plan = self.plan.take().expect("a job is planned once");
        let bytes_max = if self.bounded { bytes_max.min(REQUEST_BYTES_MAX) } else { REQUEST_BYTES_MAX };
        let decided = plan(state, inputs).and_then(|decision| {
            let bytes = proto_types::encode(&decision.changes).len();
            if bytes > bytes_max {
                let message = format!(
                    "The request makes {bytes} bytes of metadata, at most {bytes_max} are allowed in one request. \
                     Split it."
                );
                return Err(Rejection { reason: Reason::PolicyViolation, message });
            }
            Ok((decision, bytes))
        });
        match decided {
            Ok((decision, bytes)) => {
                self.planned = Some(Ok(decision.reply));
                (decision.changes, bytes)
            }
            Err(rejection) => {
                self.planned = Some(Err(rejection));
                (Vec::new(), 0)
            }
        }
    }

    fn finish(self: Box<Self>, outcome: Result<MetadataIndex, ControllerError>) {
        let answer = match (outcome, self.planned) {
            (Err(error), _) => Err(error),
            (Ok(index), Some(Ok(reply))) => Ok((reply, index)),
            (Ok(_), Some(Err(rejection))) => Err(ControllerError::Rejected(rejection)),
            (Ok(_), None) => Err(ControllerError::Shutdown),
        };
        // The caller may have gone away.
        let _gone = self.reply.send(answer);
    }

    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }
}

/// A handle to the proposer. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Proposer {
    queue: mpsc::Sender<Box<dyn Job>>,
}

impl Proposer {
    /// Starts the proposer's task; it ends when all handles are dropped.
    pub(crate) fn start(
        raft: Raft,
        view: StateView,
        config: ProposerConfig,
        metrics: ControllerMetrics,
    ) -> (Self, impl Future<Output = ()>) {
        let (queue, jobs) = mpsc::channel(config.queued_max);
        let task = Task { raft, view, config, metrics, verified: None };
        (Self { queue }, task.run(jobs))
    }

    /// Plans a client's request in its turn and commits what it decides. The answer comes with the index at which it holds.
    pub(crate) async fn propose<R, F>(&self, plan: F) -> Result<(R, MetadataIndex), ControllerError>
    where
        R: Send + 'static,
        F: FnOnce(&ClusterState, &mut Inputs) -> Result<Decision<R>, Rejection> + Send + 'static,
    {
        self.submit(plan, true).await
    }

    /// The same for what the cluster itself must do, without a bound on the size of its changes.
    pub(crate) async fn propose_own<R, F>(&self, plan: F) -> Result<(R, MetadataIndex), ControllerError>
    where
        R: Send + 'static,
        F: FnOnce(&ClusterState, &mut Inputs) -> Result<Decision<R>, Rejection> + Send + 'static,
    {
        self.submit(plan, false).await
    }

    async fn submit<R, F>(&self, plan: F, bounded: bool) -> Result<(R, MetadataIndex), ControllerError>
    where
        R: Send + 'static,
        F: FnOnce(&ClusterState, &mut Inputs) -> Result<Decision<R>, Rejection> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = TypedJob { plan: Some(plan), planned: None, bounded, reply };
        self.queue.try_send(Box::new(job)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                ControllerError::Busy("too many requests wait for the metadata".to_owned())
            }
            mpsc::error::TrySendError::Closed(_) => ControllerError::Shutdown,
        })?;
        answer.await.unwrap_or(Err(ControllerError::Shutdown))
    }
}

struct Task {
    raft: Raft,
    view: StateView,
    config: ProposerConfig,
    metrics: ControllerMetrics,
    /// The leadership in which a read was confirmed: since then only this task has changed the state.
    verified: Option<LeaderId>,
}

impl Task {
    async fn run(mut self, mut queue: mpsc::Receiver<Box<dyn Job>>) {
        while let Some(first) = queue.recv().await {
            let mut jobs = vec![first];
            while jobs.len() < self.config.per_batch_max
                && let Ok(job) = queue.try_recv()
            {
                jobs.push(job);
            }
            let mut jobs = VecDeque::from(jobs);
            loop {
                jobs.retain(|job| !job.is_abandoned());
                if jobs.is_empty() {
                    break;
                }
                self.carry_out(&mut jobs).await;
            }
        }
    }

    /// Takes as many jobs off the front as one batch has room for, and answers them.
    async fn carry_out(&mut self, waiting: &mut VecDeque<Box<dyn Job>>) {
        let leader = match self.leadership().await {
            Ok(leader) => leader,
            Err(error) => return finish_all(waiting.drain(..).collect(), &Err(error)),
        };
        let state = self.view.state();
        let (jobs, changes) = self.plan_batch(&state, waiting);
        if changes.is_empty() {
            // Nothing to write, but the answers must rest on a state that was the newest when it was looked at.
            let confirmed = self.confirm().await.map(|()| state.applied());
            return finish_all(jobs, &confirmed);
        }
        self.commit(leader, changes, jobs).await;
    }

    fn plan_batch(
        &self,
        state: &ClusterState,
        waiting: &mut VecDeque<Box<dyn Job>>,
    ) -> (Vec<Box<dyn Job>>, Vec<MetadataChange>) {
        let mut inputs = Inputs {
            now: wall_clock(),
            chance: Chance::new(Uuid::new_v4().as_u128()),
            limits: self.config.limits.clone(),
            cluster_id: self.config.cluster_id.clone(),
        };
        let mut scratch = state.clone();
        let (mut jobs, mut all, mut bytes_all) = (Vec::new(), Vec::new(), 0);
        while bytes_all < BATCH_BYTES
            && let Some(mut job) = waiting.pop_front()
        {
            let (changes, bytes) = job.plan(&scratch, &mut inputs, self.config.request_bytes_max);
            for change in &changes {
                scratch.apply(state.applied(), change);
            }
            all.extend(changes);
            bytes_all += bytes;
            jobs.push(job);
        }
        (jobs, all)
    }

    /// Our leadership, with the state known to be its newest.
    async fn leadership(&mut self) -> Result<LeaderId, ControllerError> {
        let leader = match self.raft.as_leader() {
            Ok(leader) => leader.to_committed_leader_id(),
            Err(forward) => return Err(not_leader(&forward)),
        };
        if self.verified != Some(leader) {
            self.confirm().await?;
            self.verified = Some(leader);
        }
        Ok(leader)
    }

    async fn confirm(&self) -> Result<(), ControllerError> {
        confirm_leadership(&self.raft, self.config.commit_timeout).await
    }

    /// Commits, and does not look at anything else before the outcome is known; callers are answered in time all the same.
    async fn commit(&mut self, leader: LeaderId, changes: Vec<MetadataChange>, jobs: Vec<Box<dyn Job>>) {
        let begun = Instant::now();
        self.metrics.proposed(jobs.len(), changes.len());
        let (responder, outcome) = ProgressResponder::complete_only();
        let write = self.raft.write(Changes(Arc::new(changes))).with_leader(leader).responder(responder);
        if write.await.is_err() {
            return finish_all(jobs, &Err(ControllerError::Shutdown));
        }
        let mut jobs = Some(jobs);
        let deadline = tokio::time::sleep(self.config.commit_timeout);
        tokio::pin!(outcome, deadline);
        let written = loop {
            tokio::select! {
                written = &mut outcome => break written,
                () = &mut deadline, if jobs.is_some() => {
                    tracing::warn!("a metadata batch is not committed in time; its outcome is unknown");
                    finish_all(jobs.take().unwrap_or_default(), &Err(ControllerError::TimedOut));
                }
            }
        };
        let answer = match written {
            Ok(Ok(response)) => Ok(MetadataIndex(response.log_id.index)),
            Ok(Err(ClientWriteError::ForwardToLeader(forward))) => Err(not_leader(&forward)),
            // Another leader may yet commit it.
            Ok(Err(ClientWriteError::LogEntryDiscarded(_))) => Err(ControllerError::TimedOut),
            Ok(Err(ClientWriteError::ChangeMembershipError(_) | ClientWriteError::PreconditionFailed(_))) => {
                Err(ControllerError::NotLeader { leader: None })
            }
            Err(_gone) => Err(ControllerError::Shutdown),
        };
        if answer.is_err() {
            self.verified = None;
        }
        self.metrics.committed(begun.elapsed(), answer.is_ok());
        finish_all(jobs.unwrap_or_default(), &answer);
    }
}

fn finish_all(jobs: Vec<Box<dyn Job>>, outcome: &Result<MetadataIndex, ControllerError>) {
    for job in jobs {
        job.finish(outcome.clone());
    }
}

/// Asks the quorum whether we still lead, and waits until everything committed before is applied.
pub(crate) async fn confirm_leadership(raft: &Raft, timeout: Duration) -> Result<(), ControllerError> {
    match tokio::time::timeout(timeout, raft.ensure_linearizable(ReadPolicy::ReadIndex)).await {
        Ok(Ok(_read)) => Ok(()),
        Ok(Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward)))) => {
            Err(not_leader(&forward))
        }
        Ok(Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_)))) | Err(_) => {
            Err(ControllerError::Busy("the quorum does not answer".to_owned()))
        }
        Ok(Err(RaftError::Fatal(_))) => Err(ControllerError::Shutdown),
    }
}

pub(crate) fn not_leader(forward: &ForwardToLeader<TypeConfig>) -> ControllerError {
    ControllerError::NotLeader { leader: forward.leader_id.map(ControllerId) }
}
