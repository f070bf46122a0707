//! One partition copy in the hands of its log thread: replica, log and those who wait for answers.
//!
//! [`Slot::step`] is the loop of the state machine: ask the replica what to do, do it in order, feed back what came of it.

mod compact;
mod marker;
mod replicate;
mod retain;
mod shard;
mod stations;
mod unread;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use log_engine::{AppendError, DetachedLog, FlushDone, FlushHandle, Log, LogError};
use proto_types::ids::{CoordinatorEpoch, LeaderEpoch, Millis, NodeId, Offset};
use records::{BatchHeader, TimestampType};
use storage_node_core::{
    Acks, Action, DeleteRecordsError, Input, Isolation, LogFacts, ProduceError, Produced, ProducerStamp,
    Proposal, Replica, Standing, Ticket, View,
};
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::disk::event::{DeleteRecords, Produce};
use crate::disk::event_queue::Permit;
use crate::disk::housekeeping::AppendClock;
use crate::disk::space::SpaceGate;
use crate::partition::PartitionMetrics;
use crate::partition::handle::Shared;
use crate::partition::{ProduceOutcome, TopicSettings};
use crate::replication::Replication;
use crate::replication::follower_session::LogEnds;
use replicate::Replicating;
use shard::{ShardState, WaitingShard};
use stations::{AwaitedFlushes, Stations};
use unread::Unread;

/// Somebody who waits for an answer.
enum Waiting {
    Produce(WaitingProduce),
    Delete(oneshot::Sender<Result<Offset, DeleteRecordsError>>),
    Shard(WaitingShard),
}

struct WaitingProduce {
    reply: oneshot::Sender<Result<ProduceOutcome, ProduceError>>,
    /// The append time that the batch was stamped with, −1 without.
    log_append_time: i64,
    /// With `acks=all`: where it has been so far.
    stations: Option<Stations>,
}

/// The batch that is being decided about.
pub(crate) struct Batch {
    bytes: Bytes,
    header: BatchHeader,
    /// Held until the batch is appended or refused.
    _permit: Permit,
}

/// See the module.
pub(crate) struct Slot {
    replica: Replica,
    log: Log,
    shared: Arc<Shared>,
    settings: Arc<TopicSettings>,
    waiting: HashMap<Ticket, Waiting>,
    /// What is known of it as a shard of a coordinator; nothing for ordinary topics.
    shard: ShardState,
    /// Its sessions with other nodes.
    replicating: Replicating,
    /// Files of logs that were dropped, for somebody who has time to remove them.
    pub(crate) dropped_logs: Vec<DetachedLog>,
    next_ticket: u64,
    /// Whose time of reaching the disk is to be noted.
    awaited_flushes: AwaitedFlushes,
    /// Appends that are not committed.
    uncommitted: Unread,
    /// Appends that are not decided: not committed, or behind an open transaction.
    undecided: Unread,
    /// A flush has to be handed to the flushers.
    pub(crate) flush_wanted: bool,
    /// The same, after a pause.
    pub(crate) flush_again: bool,
    /// Since when a flush is under way.
    pub(crate) flushing_since: Option<Millis>,
    /// The deadline under which the thread has noted this slot.
    pub(crate) noted_deadline: Option<Millis>,
    clock: Clock,
    append_clock: AppendClock,
    space: Arc<SpaceGate>,
    metrics: PartitionMetrics,
}

impl Slot {
    /// Takes over an open log, and the newest claim of a coordinator in it if it is of an internal topic.
    pub(crate) fn new(
        me: NodeId,
        (mut log, claim): (Log, Result<Option<CoordinatorEpoch>, String>),
        shared: Arc<Shared>,
        (clock, append_clock, space): (Clock, AppendClock, Arc<SpaceGate>),
        metrics: PartitionMetrics,
        replication: Arc<Replication>,
    ) -> Self {
        let settings = shared.settings.load_full();
        log.settle_dropped(settings.compacted);
        let (start, flushed, end) = (Offset(log.start()), Offset(log.flushed()), Offset(log.end()));
        let shard = ShardState::begin(claim, &shared);
        Self {
            replica: Replica::new(me, settings.replica, start, flushed, end),
            log,
            shared,
            settings,
            waiting: HashMap::new(),
            shard,
            replicating: Replicating::new(replication),
            dropped_logs: Vec::new(),
            next_ticket: 0,
            awaited_flushes: AwaitedFlushes::default(),
            uncommitted: Unread::default(),
            undecided: Unread::default(),
            flush_wanted: false,
            flush_again: false,
            flushing_since: None,
            noted_deadline: None,
            clock,
            append_clock,
            space,
            metrics,
        }
    }

    /// The view before any leadership, for a copy that is just being opened.
    pub(crate) fn first_view(log: &Log) -> View {
        View {
            standing: Standing::NotLeader,
            leader_epoch: LeaderEpoch(-1),
            start: Offset(log.start()),
            high_watermark: Offset(log.start()),
            last_stable: Offset(log.start()),
            end: Offset(log.end()),
            committed_to_epoch_start: false,
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Millis> {
        self.replica.next_deadline()
    }

    /// A client's batch.
    pub(crate) fn produce(&mut self, produce: Produce) {
        let leads = self.replica.view().standing == Standing::Leader;
        let has_room = !leads || self.has_room_for(produce.bytes.len());
        if self.settings.compacted {
            self.log.doubt_unknown_producers();
        }
        let ticket = self.new_ticket();
        let header = produce.header;
        let proposal = Proposal {
            ticket,
            acks: produce.acks,
            offsets: header.record_count,
            max_timestamp: header.max_timestamp,
            producer: header.has_producer_id().then_some(ProducerStamp {
                producer_id: header.producer_id,
                producer_epoch: header.producer_epoch,
                base_sequence: header.base_sequence,
                is_transactional: header.is_transactional(),
            }),
            has_room,
            deadline: produce.deadline,
        };
        let stations = match produce.acks {
            Acks::All => Some(Stations::new(produce.offered, self.clock.now())),
            Acks::None | Acks::Leader => None,
        };
        let waiting = WaitingProduce { reply: produce.reply, log_append_time: -1, stations };
        self.waiting.insert(ticket, Waiting::Produce(waiting));
        let mut batch = Some(Batch { bytes: produce.bytes, header, _permit: produce.permit });
        self.run(Input::Propose(proposal), &mut batch);
    }

    /// A client's wish to shorten the log.
    pub(crate) fn delete_records(&mut self, request: DeleteRecords) {
        let ticket = self.new_ticket();
        self.waiting.insert(ticket, Waiting::Delete(request.reply));
        let DeleteRecords { before, deadline, .. } = request;
        self.step(Input::DeleteRecords { ticket, before, deadline });
        drop(request.permit);
    }

    /// New configs.
    pub(crate) fn change_settings(&mut self, settings: Arc<TopicSettings>) {
        self.log.update_config(settings.log.clone());
        self.shared.settings.store(Arc::clone(&settings));
        let replica = settings.replica;
        self.settings = settings;
        self.step(Input::ConfigChanged(replica));
    }

    /// What the flushers are to do, once per wish; the input if there is nothing to do. A wish that comes while a flush
    /// is under way stays until that is over.
    pub(crate) fn take_flush(&mut self) -> Option<FlushHandle> {
        if self.flushing_since.is_some() {
            return None;
        }
        if !std::mem::take(&mut self.flush_wanted) {
            return None;
        }
        match self.log.begin_flush() {
            Some(handle) => {
                self.flushing_since = Some(self.clock.monotonic());
                Some(handle)
            }
            None => {
                self.on_disk(Offset(self.log.flushed()));
                None
            }
        }
    }

    /// The flushers are overloaded: the handle goes back and the wish stays.
    pub(crate) fn return_flush(&mut self, handle: FlushHandle) {
        self.log.return_flush(handle);
        self.flushing_since = None;
        self.flush_wanted = true;
    }

    /// A flush is over. If it reached the disk only in part (a full disk), it is wished for again after a pause.
    pub(crate) fn on_flushed(&mut self, done: FlushDone) {
        self.flushing_since = None;
        let wanted = done.end;
        let end = self.log.on_flushed(done);
        if let Some(reason) = self.log.poisoned().map(str::to_owned) {
            self.fail(&reason);
        } else if wanted > self.log.end() {
            // The log was cut meanwhile.
            self.flush_wanted = true;
        } else if end < wanted {
            self.flush_again = true;
        } else {
            self.metrics.on_flush();
            self.on_disk(Offset(end));
        }
    }

    /// Everything below `end` is on the disk.
    fn on_disk(&mut self, end: Offset) {
        self.note_flushed(end);
        self.step(Input::Flushed { end });
    }

    /// Forgets idempotent producers that were idle too long.
    pub(crate) fn expire_producers(&mut self) {
        let expiration_ms = self.settings.producer_expiration_ms;
        self.log.expire_producers(self.clock.wall().0, expiration_ms);
    }

    /// Something happened that needs no batch.
    pub(crate) fn step(&mut self, input: Input) {
        self.run(input, &mut None);
    }

    /// Closes the log after a last flush, or deletes it, which leaves files to remove. Whoever waits is told that this node
    /// does not lead any more.
    pub(crate) fn close(mut self, delete: bool) -> Result<Option<DetachedLog>, String> {
        for (_, waiting) in self.waiting.drain() {
            waiting.refuse(ProduceError::NotLeader, DeleteRecordsError::NotLeader);
        }
        self.replicating.close();
        {
            let mut view = self.shared.view.write();
            view.standing = Standing::NotLeader;
        }
        self.shared.fetch_waiters.disturb();
        match delete {
            true => self.log.detach().map(Some).map_err(|error| error.to_string()),
            false => self.log.close().map(|()| None).map_err(|error| error.to_string()),
        }
    }

    fn run(&mut self, input: Input, batch: &mut Option<Batch>) {
        let now = self.clock.monotonic();
        let log = LogFacts {
            producers: self.log.producers(),
            epochs: self.log.epochs(),
            dropped_to: Offset(self.log.dropped_to()),
        };
        let mut useless = None;
        for action in self.replica.step(now, log, input) {
            match action {
                Action::Append { ticket, base_offset, leader_epoch } => {
                    let batch =
                        batch.take().expect("only a proposal leads to an append, and it brings its batch");
                    let came_of_it = self.append(ticket, base_offset, leader_epoch, batch);
                    self.step(came_of_it);
                }
                Action::AssignEpoch { epoch, start } => self.assign_epoch(epoch, start),
                Action::Flush => self.flush_wanted = true,
                Action::MoveStart { start } => {
                    let came_of_it = self.move_start(start);
                    self.step(came_of_it);
                }
                Action::Reply { ticket, result } => self.reply(ticket, result),
                Action::RecordsDeleted { ticket, result } => {
                    if let Some(Waiting::Delete(reply)) = self.waiting.remove(&ticket) {
                        // Whoever asked may have gone.
                        _ = reply.send(result);
                    }
                }
                Action::Publish(view) => self.publish(view),
                Action::AppendBatches { ticket } => {
                    let came_of_it = self.append_batches(ticket);
                    self.step(came_of_it);
                }
                Action::Truncate { to, below_high_watermark } => {
                    let came_of_it = self.truncate(to, below_high_watermark);
                    self.step(came_of_it);
                }
                Action::RestartAt { start, below_high_watermark } => {
                    let came_of_it = self.restart_at(start, below_high_watermark);
                    self.step(came_of_it);
                }
                Action::StartOver { start } => {
                    let came_of_it = self.start_over(start);
                    self.step(came_of_it);
                }
                Action::NoteDropped { session, to } => {
                    useless = (!self.note_dropped(to)).then_some(session);
                }
                Action::OpenSession { leader, session, leader_epoch, log_start, log_end, last_epoch } => {
                    let ends = LogEnds { log_start, log_end, last_epoch };
                    self.open_session(leader, session, leader_epoch, ends);
                }
                Action::CloseSession { session } => self.replicating.close_session(session),
                Action::Ack { session, appended, flushed } => {
                    self.replicating.ack(session, appended, flushed, self.settings.replica.flush);
                }
                Action::TellStart { session, log_start } => self.replicating.tell_start(session, log_start),
                Action::AnswerSession { session, answer } => self.answer_session(session, answer),
                Action::EndSession { session } => self.replicating.end_session(session),
                Action::ProposeIsr { leader_epoch, partition_epoch, isr } => {
                    self.propose_isr(leader_epoch, partition_epoch, isr);
                }
            }
        }
        if let Some(session) = useless {
            self.replicating.close_session(session);
            self.step(Input::SessionLost { session });
        }
    }

    /// Patches the batch and writes it. Base offset and leader epoch lie outside of the checksum.
    fn append(
        &mut self,
        ticket: Ticket,
        base_offset: Offset,
        leader_epoch: LeaderEpoch,
        batch: Batch,
    ) -> Input {
        let now_ms = self.clock.wall().0;
        let mut bytes = batch.bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        let mut header = batch.header;
        records::set_base_offset(&mut bytes, base_offset.0);
        records::set_leader_epoch(&mut bytes, leader_epoch.0);
        if self.settings.timestamp_type == TimestampType::LogAppendTime {
            records::set_log_append_time(&mut bytes, now_ms);
            if let Some(Waiting::Produce(waiting)) = self.waiting.get_mut(&ticket) {
                waiting.log_append_time = now_ms;
            }
            header = BatchHeader::parse(&bytes).expect("a valid batch stays one");
        }
        header.base_offset = base_offset.0;
        header.partition_leader_epoch = leader_epoch.0;
        self.log.limit_space_ahead(self.space.ahead_bytes_max());
        match self.log.append(&bytes, &[header], self.append_clock.now_ms()) {
            Ok(appended) => {
                self.metrics.on_append(bytes.len());
                self.space.on_written(bytes.len());
                let size = bytes.len();
                if self.replicating.has_followers() {
                    self.shared.tail.push(base_offset, Offset(appended.end), bytes);
                }
                // Also where nobody waits for the disk: the descriptors of a finished segment stay open until it is
                // there, and what no flush has confirmed is read again after a crash.
                self.flush_wanted |= appended.rolled;
                self.note_uncommitted(Offset(appended.end), size);
                self.note_appended(ticket, Offset(appended.end));
                if let Some(Waiting::Shard(waiting)) = self.waiting.get_mut(&ticket) {
                    let facts = waiting.appended_at(base_offset, Offset(appended.end));
                    self.note_shard_append(facts);
                }
                Input::Appended { end: Offset(appended.end) }
            }
            Err(error @ (AppendError::DiskFull(_) | AppendError::TooLarge { .. })) => {
                tracing::warn!(partition = %self.shared.id, %error, "refuse an append");
                Input::AppendRefused
            }
            Err(
                error @ (AppendError::Poisoned { .. }
                | AppendError::OutOfOrder { .. }
                | AppendError::Mismatch { .. }),
            ) => {
                self.note_failure(&error);
                Input::LogFailed
            }
        }
    }

    fn assign_epoch(&mut self, epoch: LeaderEpoch, start: Offset) {
        assert_eq!(start.0, self.log.end(), "an epoch begins where the log ends");
        self.log.begin_epoch(epoch.0);
        self.shared.epochs.write().assign(epoch.0, start.0);
    }

    fn move_start(&mut self, start: Offset) -> Input {
        match self.log.set_start(start.0) {
            Ok(()) => {
                self.shared.epochs.write().truncate_from_start(start.0);
                Input::StartMoved { start }
            }
            // The log lives on. It may have moved its start all the same, and only the old files are still there.
            Err(error) if self.log.poisoned().is_none() => {
                tracing::warn!(partition = %self.shared.id, %error, "the start of the log could not be moved");
                match self.log.start() == start.0 {
                    true => Input::StartMoved { start },
                    false => Input::StartRefused,
                }
            }
            Err(error) => self.log_failed(&error),
        }
    }

    /// A change of the log failed and closed it. Damage is made sure of by whoever looks at all of the copy, and then repaired.
    fn log_failed(&mut self, error: &LogError) -> Input {
        self.note_failure(error);
        if error.is_damage() {
            self.shared.scrub.suspect(self.shared.id);
        }
        Input::LogFailed
    }

    fn reply(&mut self, ticket: Ticket, result: Result<Produced, ProduceError>) {
        let waiting = match self.waiting.remove(&ticket) {
            Some(Waiting::Produce(waiting)) => waiting,
            Some(Waiting::Shard(waiting)) => return waiting.answer(result),
            Some(Waiting::Delete(_)) | None => return,
        };
        let stamped = self.settings.timestamp_type == TimestampType::LogAppendTime;
        let outcome = result.map(|produced| ProduceOutcome {
            base_offset: produced.base_offset,
            log_append_time: match produced.duplicate_of {
                Some(original) if stamped => original.timestamp,
                Some(_) => -1,
                None => waiting.log_append_time,
            },
            log_start: produced.log_start,
            times: waiting.stations.and_then(|stations| stations.committed_at(self.clock.now())),
        });
        if outcome.is_err() {
            self.metrics.on_refusal();
        }
        // Whoever asked may have gone.
        _ = waiting.reply.send(outcome);
    }

    fn publish(&mut self, view: View) {
        let before = std::mem::replace(&mut *self.shared.view.write(), view);
        let committed = self.uncommitted.take_below(view.high_watermark);
        self.shared.fetch_waiters.on_readable(Isolation::ReadUncommitted, committed);
        let decided = self.undecided.take_below(view.last_stable);
        self.shared.fetch_waiters.on_readable(Isolation::ReadCommitted, decided);
        if before.high_watermark != view.high_watermark {
            self.log.on_high_watermark(view.high_watermark.0);
        }
        let leadership = |view: &View| (view.standing, view.leader_epoch);
        if leadership(&before) != leadership(&view) || before.start != view.start {
            self.shared.fetch_waiters.disturb();
        }
        match view.standing {
            Standing::Leader => self.shared.tail.drop_below(view.high_watermark),
            Standing::Follower | Standing::NotLeader | Standing::Failed => self.shared.tail.clear(),
        }
        self.replicating.wake_followers();
        self.answer_repeated(&view);
    }

    fn note_uncommitted(&mut self, end: Offset, bytes: usize) {
        self.uncommitted.push(end, bytes);
        self.undecided.push(end, bytes);
    }

    /// The log is of no use any more: the copy answers nobody.
    pub(crate) fn fail(&mut self, error: &dyn std::fmt::Display) {
        self.note_failure(error);
        self.step(Input::LogFailed);
    }

    fn note_failure(&self, error: &dyn std::fmt::Display) {
        self.metrics.on_log_failed();
        tracing::error!(
            partition = %self.shared.id, topic = %self.settings.topic_name, %error,
            "the partition is offline on this node: its log failed"
        );
    }

    fn new_ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }
}

impl Waiting {
    fn refuse(self, produce: ProduceError, delete: DeleteRecordsError) {
        // Whoever asked may have gone.
        match self {
            Waiting::Produce(waiting) => drop(waiting.reply.send(Err(produce))),
            Waiting::Delete(reply) => drop(reply.send(Err(delete))),
            Waiting::Shard(waiting) => waiting.answer(Err(produce)),
        }
    }
}
