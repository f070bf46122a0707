//! The task of one shard under one coordinator epoch: drives the core's [`ShardOwner`], which decides everything.
//!
//! Events come in (requests, deleted topics, deadlines, what became of claims, reads and appends), effects go out. At most
//! one append, or one claim or read, is under way. Replies find their request by token. While the lease does not hold
//! nothing is decided: a coordinator that was paused must not expel members that it could not hear.

use crate::clock::Clock;
use crate::forward::ReplySlot;
use crate::group_log::{GroupLog, decode_batches, encode_batch};
use crate::image::{Image, Topics};
use crate::lease::SharedLease;
use crate::metrics::CoordinatorMetrics;
use arc_swap::ArcSwap;
use coordinator_core::{
    Append, AppendOutcome, Attempt, ClaimOutcome, Completion, Config as CoreConfig, Effect, Epoch,
    GroupRequest, LoadedRecord, Owned, RequestContext, Resignation, ShardOwner, Token, Topic,
};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use kafka_wire_core::Str;
use prometheus_client::metrics::gauge::Gauge;
use proto_types::coordinator_api::{ForwardRefusal, Shard, ShardAppended, ShardLogError};
use proto_types::ids::{CoordinatorEpoch, Offset};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// How long the task waits before it looks at the lease again.
const LEASE_POLL: Duration = Duration::from_millis(50);
/// How often groups and members are counted.
const COUNT_EVERY: Duration = Duration::from_secs(10);

/// A client's request on its way to the shard.
pub(crate) struct ShardRequest {
    pub(crate) api_version: i16,
    pub(crate) client_id: Str,
    pub(crate) client_host: Str,
    pub(crate) request: GroupRequest,
    pub(crate) slot: ReplySlot,
}

/// What can happen to a shard from outside.
pub(crate) enum Event {
    Request(Box<ShardRequest>),
    TopicDeleted(Topic),
}

/// What all tasks share.
pub(crate) struct ShardServices {
    pub(crate) config: Arc<CoreConfig>,
    pub(crate) log: Arc<dyn GroupLog>,
    pub(crate) image: Arc<ArcSwap<Image>>,
    pub(crate) lease: Arc<SharedLease>,
    pub(crate) clock: Clock,
    pub(crate) metrics: Arc<CoordinatorMetrics>,
    /// Shards that read a page at this moment.
    pub(crate) loads: Semaphore,
    pub(crate) batch_output_max: usize,
}

/// What became of an effect.
enum Report {
    Claimed(Attempt, ClaimOutcome),
    Loaded(Attempt, Vec<LoadedRecord>, i64),
    LoadFailed(Attempt),
    Appended(Attempt, i64, AppendOutcome),
}

struct ShardTask {
    shard: Shard,
    epoch: CoordinatorEpoch,
    services: Arc<ShardServices>,
    owner: ShardOwner,
    waiting: HashMap<Token, (i16, ReplySlot)>,
    next_token: u64,
    work: FuturesUnordered<BoxFuture<'static, Report>>,
    /// When this load began; none while serving.
    loading_since: Option<Instant>,
    groups: Counted,
    members: Counted,
    ended: bool,
}

/// What this task added to a gauge that others add to as well.
struct Counted {
    gauge: Gauge,
    ours: i64,
}

impl Counted {
    fn new(gauge: &Gauge) -> Self {
        Self { gauge: gauge.clone(), ours: 0 }
    }

    fn set(&mut self, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.gauge.inc_by(count - self.ours);
        self.ours = count;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Owns `shard` under `epoch` until `stop`, or until the log says that another owner has claimed it.
pub(crate) async fn own(
    shard: Shard,
    epoch: CoordinatorEpoch,
    services: Arc<ShardServices>,
    mut events: mpsc::Receiver<Event>,
    stop: CancellationToken,
) {
    let (owner, effects) = ShardOwner::take_over(Arc::clone(&services.config), Epoch(i64::from(epoch.0)));
    let (groups, members) = (Counted::new(&services.metrics.groups), Counted::new(&services.metrics.members));
    let mut task = ShardTask {
        shard,
        epoch,
        services,
        owner,
        waiting: HashMap::new(),
        next_token: 0,
        work: FuturesUnordered::new(),
        loading_since: None,
        groups,
        members,
        ended: false,
    };
    task.mark_loading(true);
    task.carry_out(effects);
    task.run(&mut events, &stop).await;
    task.mark_loading(false);
    events.close();
    while let Ok(event) = events.try_recv() {
        if let Event::Request(request) = event {
            request.slot.refuse(ForwardRefusal::NotOwner);
        }
    }
}

impl ShardTask {
    async fn run(&mut self, events: &mut mpsc::Receiver<Event>, stop: &CancellationToken) {
        let mut count = tokio::time::interval(COUNT_EVERY);
        while !self.ended {
            let wake = self.next_wake();
            let effects = tokio::select! {
                biased;
                () = stop.cancelled() => self.owner.resign(),
                Some(report) = self.work.next(), if !self.work.is_empty() => self.on_report(report),
                Some(event) = events.recv() => self.on_event(event),
                () = sleep_until(wake) => self.on_deadline(),
                _ = count.tick() => {
                    self.count();
                    Vec::new()
                }
            };
            self.carry_out(effects);
            self.note_status();
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let due = self.services.clock.instant(self.owner.next_deadline()?);
        let may_decide = self.owner.status() != Owned::Serving || self.services.lease.holds();
        Some(if may_decide { due } else { due.max(Instant::now() + LEASE_POLL) })
    }

    fn on_deadline(&mut self) -> Vec<Effect> {
        if self.owner.status() == Owned::Serving && !self.services.lease.holds() {
            return Vec::new();
        }
        self.owner.tick(self.services.clock.now())
    }

    fn on_event(&mut self, event: Event) -> Vec<Effect> {
        let now = self.services.clock.now();
        match event {
            Event::TopicDeleted(topic) => self.owner.topic_deleted(now, &topic.name, topic.id),
            Event::Request(request) => {
                if !self.services.lease.holds() {
                    request.slot.refuse(ForwardRefusal::NotOwner);
                    return Vec::new();
                }
                let ShardRequest { api_version, client_id, client_host, request, slot } = *request;
                let token = Token(self.next_token);
                self.next_token += 1;
                let fresh_id = Uuid::new_v4();
                let context = RequestContext { token, api_version, client_id, client_host, fresh_id };
                self.waiting.insert(token, (api_version, slot));
                let image = self.services.image.load();
                self.owner.request(now, &context, &request, &Topics(&image))
            }
        }
    }

    fn on_report(&mut self, report: Report) -> Vec<Effect> {
        let now = self.services.clock.now();
        match report {
            Report::Claimed(attempt, outcome) => self.owner.claimed(now, attempt, outcome),
            Report::Loaded(attempt, records, next) => self.owner.loaded(now, attempt, &records, next),
            Report::LoadFailed(attempt) => {
                self.owner.load_failed(now, attempt);
                Vec::new()
            }
            Report::Appended(attempt, expected_end, outcome) => {
                self.owner.appended(now, attempt, expected_end, outcome)
            }
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        // Whether what waited took effect is not known, and another coordinator answers from now on.
        let resigned = effects.iter().any(|effect| matches!(effect, Effect::Resigned(_)));
        for effect in effects {
            match effect {
                Effect::Claim { attempt, epoch: _ } => self.claim(attempt),
                Effect::Load { attempt, from, until } => self.load(attempt, from, until),
                Effect::Append { attempt, append } => self.append(attempt, append),
                Effect::Reply(completion) if resigned => {
                    if let Some((_, slot)) = self.waiting.remove(&completion.token) {
                        slot.refuse(ForwardRefusal::LogUnavailable);
                    }
                }
                Effect::Reply(completion) => self.reply(&completion),
                Effect::Resigned(why) => self.resigned(&why),
            }
        }
    }

    fn reply(&mut self, completion: &Completion) {
        let Some((version, slot)) = self.waiting.remove(&completion.token) else { return };
        match completion.reply.encode(version) {
            Ok(body) => slot.answer(self.epoch, body.to_vec()),
            Err(error) => {
                tracing::error!(shard = %self.shard, version, %error, "an answer cannot be written");
                slot.refuse(ForwardRefusal::LogUnavailable);
            }
        }
    }

    fn resigned(&mut self, why: &Resignation) {
        self.ended = true;
        match why {
            Resignation::Fenced => {
                tracing::info!(shard = %self.shard, epoch = %self.epoch, "another coordinator has the shard");
            }
            Resignation::Asked => tracing::debug!(shard = %self.shard, epoch = %self.epoch, "shard given up"),
            Resignation::Damaged(offset) => tracing::error!(
                shard = %self.shard, offset,
                "the shard's log holds a record that no release writes; its groups are not served"
            ),
        }
    }

    /// Notices that serving began, or that the core has dropped the shard to load it again.
    fn note_status(&mut self) {
        match (self.owner.status(), self.loading_since) {
            (Owned::Serving, Some(since)) => {
                let skipped = self.owner.shard().map_or(0, |shard| shard.skipped_records());
                self.services.metrics.on_loaded(since.elapsed(), skipped);
                self.mark_loading(false);
                self.count();
                tracing::debug!(shard = %self.shard, epoch = %self.epoch, took = ?since.elapsed(), "shard served");
            }
            (Owned::Claiming | Owned::Loading(..), None) => {
                self.services.metrics.on_reload();
                self.mark_loading(true);
                tracing::warn!(shard = %self.shard, epoch = %self.epoch, "shard dropped, to be loaded again");
            }
            (Owned::Claiming | Owned::Loading(..), Some(_))
            | (Owned::Serving, None)
            | (Owned::Resigned, _) => {}
        }
    }

    fn mark_loading(&mut self, loading: bool) {
        let gauge = &self.services.metrics.shards_loading;
        match (loading, self.loading_since) {
            (true, None) => {
                gauge.inc();
                self.loading_since = Some(Instant::now());
            }
            (false, Some(_)) => {
                gauge.dec();
                self.loading_since = None;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    fn count(&mut self) {
        let state = self.owner.shard().map(|shard| shard.state());
        let (groups, members) = state.map_or((0, 0), |state| {
            let members = state.groups().map(|(_, group)| group.members.len()).sum();
            (state.groups().count(), members)
        });
        self.groups.set(groups);
        self.members.set(members);
    }

    fn claim(&mut self, attempt: Attempt) {
        let (services, shard, epoch) = (Arc::clone(&self.services), self.shard, self.epoch);
        self.work.push(Box::pin(async move {
            let outcome = match services.log.claim(shard, epoch).await {
                Ok(ShardAppended { base_offset, .. }) => ClaimOutcome::Claimed { offset: base_offset.0 },
                Err(ShardLogError::Fenced { .. }) => ClaimOutcome::Fenced,
                Err(error) => {
                    tracing::debug!(%shard, %epoch, %error, "claim a shard");
                    ClaimOutcome::Unknown
                }
            };
            Report::Claimed(attempt, outcome)
        }));
    }

    fn load(&mut self, attempt: Attempt, from: i64, until: i64) {
        let (services, shard, epoch) = (Arc::clone(&self.services), self.shard, self.epoch);
        self.work.push(Box::pin(async move {
            let _turn = services.loads.acquire().await;
            let page = match services.log.read(shard, epoch, Offset(from), Offset(until)).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::debug!(%shard, %epoch, from, %error, "load a shard");
                    return Report::LoadFailed(attempt);
                }
            };
            let mut records = Vec::new();
            for batches in &page.batches {
                match decode_batches(batches, services.batch_output_max) {
                    Ok(loaded) => records.extend(loaded),
                    Err(error) => {
                        tracing::error!(%shard, from, error, "load a shard: unreadable batches");
                        return Report::LoadFailed(attempt);
                    }
                }
            }
            Report::Loaded(attempt, records, page.next.0)
        }));
    }

    fn append(&mut self, attempt: Attempt, append: Append) {
        let (services, shard, epoch) = (Arc::clone(&self.services), self.shard, self.epoch);
        self.work.push(Box::pin(async move {
            let (expected_end, begun) = (append.expected_end, Instant::now());
            let batch = match encode_batch(&append.records) {
                Ok(batch) => batch,
                Err(error) => {
                    tracing::error!(%shard, error, "append to a shard: the records do not fit a batch");
                    return Report::Appended(attempt, expected_end, AppendOutcome::Mismatch);
                }
            };
            let outcome = match services.log.append(shard, epoch, Offset(expected_end), batch).await {
                Ok(ShardAppended { base_offset, .. }) if base_offset.0 == expected_end => {
                    services.metrics.on_append(begun.elapsed());
                    AppendOutcome::Committed
                }
                Err(ShardLogError::Fenced { .. }) => AppendOutcome::Fenced,
                Ok(ShardAppended { .. })
                | Err(ShardLogError::UnexpectedEnd { .. } | ShardLogError::Invalid(_)) => {
                    tracing::warn!(%shard, %epoch, expected_end, "append to a shard: the log is not as expected");
                    AppendOutcome::Mismatch
                }
                Err(
                    error @ (ShardLogError::NotLeader
                    | ShardLogError::Unavailable(_)
                    | ShardLogError::Unknown(_)),
                ) => {
                    tracing::debug!(%shard, %epoch, %error, "append to a shard");
                    AppendOutcome::Unknown
                }
            };
            Report::Appended(attempt, expected_end, outcome)
        }));
    }
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(wake) => tokio::time::sleep_until(wake).await,
        None => std::future::pending().await,
    }
}
