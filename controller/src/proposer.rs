//! The single way to change the metadata: one queue, one batch in flight.
//!
//! The proposer takes everything that waits, plans one request after the other on a scratch copy of the newest state,
//! commits all changes as one log entry, and answers when they are applied. Refusals wait for that too: they may rest on
//! what the batch did before them. Nothing is planned on a state that another leader may have moved on from: the first
//! plan of a leadership waits for a read confirmed by the quorum, and each write names the leadership it was planned in.

use crate::metrics::ControllerMetrics;
use crate::quorum::segment::PAYLOAD_MAX;
use crate::quorum::state_machine::StateView;
use crate::quorum::type_config::{Changes, Environment, LeaderId, Raft};
use controller_core::observe::{Election, PartitionEvent, partition_event};
use controller_core::{Chance, ClusterState, Decision, Inputs, Limits};
use openraft::ReadPolicy;
use openraft::async_runtime::Select2;
use openraft::errors::{ClientWriteError, ForwardToLeader, LinearizableReadError, RaftError};
use openraft::type_config::TypeConfigExt;
use proto_types::error::{ControllerError, Reason, Rejection};
use proto_types::feature::LevelRange;
use proto_types::ids::{ControllerId, MetadataIndex};
use proto_types::metadata::MetadataChange;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

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
    /// What this build supports.
    pub(crate) levels: LevelRange,
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
    pub(crate) fn start<C: Environment>(
        raft: Raft<C>,
        view: StateView,
        config: ProposerConfig,
        metrics: ControllerMetrics,
    ) -> (Self, impl Future<Output = ()>) {
        let (queue, jobs) = mpsc::channel(config.queued_max);
        let task = Task { raft, view, config, metrics, queue: jobs, verified: None };
        (Self { queue }, task.run())
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

/// Jobs that share one log entry, and what it is to hold.
#[derive(Default)]
struct Batch {
    jobs: Vec<Box<dyn Job>>,
    changes: Vec<MetadataChange>,
    events: Vec<PartitionEvent>,
}

struct Task<C: Environment> {
    raft: Raft<C>,
    view: StateView,
    config: ProposerConfig,
    metrics: ControllerMetrics,
    queue: mpsc::Receiver<Box<dyn Job>>,
    /// The leadership in which a read was confirmed: since then only this task has changed the state.
    verified: Option<LeaderId>,
}

impl<C: Environment> Task<C> {
    async fn run(mut self) {
        while let Some(first) = self.queue.recv().await {
            let mut jobs = vec![first];
            while jobs.len() < self.config.per_batch_max
                && let Ok(job) = self.queue.try_recv()
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
        let Batch { jobs, changes, events } = self.plan_batch(&state, waiting);
        if changes.is_empty() {
            // Nothing to write, but the answers must rest on a state that was the newest when it was looked at.
            let confirmed = self.confirm().await.map(|()| state.applied());
            return finish_all(jobs, &confirmed);
        }
        if self.commit(leader, changes, jobs, waiting).await {
            self.report(&events);
        }
    }

    /// Counts and logs what a committed batch did to partitions.
    fn report(&self, events: &[PartitionEvent]) {
        self.metrics.partition_events(events);
        let elected = events.iter().filter(|event| event.elected.is_some()).count();
        let lost = events.iter().filter(|event| event.leader_lost).count();
        if elected > 0 || lost > 0 {
            tracing::info!(elected, without_leader = lost, "leaders changed");
        }
        let state = self.view.state();
        for event in events {
            if let Some((leader, epoch, Election::Unclean)) = event.elected {
                let (topic, partition) = (event.partition.topic, event.partition.partition);
                let name = state.topics().name(topic);
                tracing::warn!(
                    target: "audit", topic = name, topic_id = %topic, %partition, %leader, %epoch,
                    "unclean election: committed records may be lost"
                );
            }
        }
    }

    fn plan_batch(&self, state: &ClusterState, waiting: &mut VecDeque<Box<dyn Job>>) -> Batch {
        let mut inputs = Inputs {
            now: C::wall_clock(),
            chance: Chance::new(C::chance()),
            limits: self.config.limits.clone(),
            cluster_id: self.config.cluster_id.clone(),
            levels: self.config.levels,
        };
        let mut scratch = state.clone();
        let mut batch = Batch::default();
        let mut bytes_all = 0;
        while bytes_all < BATCH_BYTES
            && let Some(mut job) = waiting.pop_front()
        {
            let (changes, bytes) = job.plan(&scratch, &mut inputs, self.config.request_bytes_max);
            for change in &changes {
                batch.events.extend(partition_event(&scratch, change));
                scratch.apply(state.applied(), change);
            }
            batch.changes.extend(changes);
            bytes_all += bytes;
            batch.jobs.push(job);
        }
        batch
    }

    /// Our leadership, with the state known to be its newest.
    async fn leadership(&mut self) -> Result<LeaderId, ControllerError> {
        let leader = match self.raft.as_leader() {
            Ok(leader) => leader.to_committed_leader_id(),
            Err(forward) => return Err(not_leader(&forward)),
        };
        if self.verified != Some(leader) {
            if !cfg!(weir_planted_bug = "B30") {
                self.confirm().await?;
            }
            self.verified = Some(leader);
        }
        Ok(leader)
    }

    async fn confirm(&self) -> Result<(), ControllerError> {
        confirm_leadership(&self.raft, self.config.commit_timeout).await
    }

    /// Commits, and plans nothing else before the outcome is known; callers are answered in time all the same, also those
    /// whose requests wait behind. True if it is committed.
    async fn commit(
        &mut self,
        leader: LeaderId,
        changes: Vec<MetadataChange>,
        jobs: Vec<Box<dyn Job>>,
        waiting: &mut VecDeque<Box<dyn Job>>,
    ) -> bool {
        let begun = Instant::now();
        self.metrics.proposed(jobs.len(), changes.len());
        let (responder, outcome) = C::write_answer();
        let write = self.raft.write(Changes(Arc::new(changes))).with_leader(leader).responder(responder);
        if write.await.is_err() {
            finish_all(jobs, &Err(ControllerError::Shutdown));
            return false;
        }
        let (mut outcome, mut jobs) = (pin!(outcome), jobs);
        let deadline = C::sleep(self.config.commit_timeout);
        let written = match C::select2(outcome.as_mut(), deadline).await {
            Select2::First(written) => written,
            Select2::Second(()) => {
                tracing::warn!("a metadata batch is not committed in time; its outcome is unknown");
                finish_all(std::mem::take(&mut jobs), &Err(ControllerError::TimedOut));
                self.refuse_until(outcome.as_mut(), waiting).await
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
        finish_all(jobs, &answer);
        answer.is_ok()
    }

    /// Waits for an outcome that is late. Whoever asks meanwhile is told so at once: of theirs nothing was begun.
    async fn refuse_until<T: Send>(
        &mut self,
        mut outcome: Pin<&mut (impl Future<Output = T> + Send)>,
        waiting: &mut VecDeque<Box<dyn Job>>,
    ) -> T {
        let busy = Err(ControllerError::Busy("the quorum does not answer".to_owned()));
        finish_all(waiting.drain(..).collect(), &busy);
        loop {
            match C::select2(outcome.as_mut(), pin!(self.queue.recv())).await {
                Select2::First(known) => return known,
                Select2::Second(Some(job)) => job.finish(busy.clone()),
                Select2::Second(None) => return outcome.await,
            }
        }
    }
}

fn finish_all(jobs: Vec<Box<dyn Job>>, outcome: &Result<MetadataIndex, ControllerError>) {
    for job in jobs {
        job.finish(outcome.clone());
    }
}

/// Asks the quorum whether we still lead, and waits until everything committed before is applied.
pub(crate) async fn confirm_leadership<C: Environment>(
    raft: &Raft<C>,
    timeout: Duration,
) -> Result<(), ControllerError> {
    match C::timeout(timeout, raft.ensure_linearizable(ReadPolicy::ReadIndex)).await {
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

pub(crate) fn not_leader<C: Environment>(forward: &ForwardToLeader<C>) -> ControllerError {
    ControllerError::NotLeader { leader: forward.leader_id.map(ControllerId) }
}
