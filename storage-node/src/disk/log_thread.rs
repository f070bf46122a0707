//! The log thread of a data directory: the one owner of all logs in it.
//!
//! It takes whatever waits in its queue as one round, lets each partition's replica decide, appends, and hands what must
//! reach the disk to the flushers; their outcome comes back through the same queue. So one flush serves all appends of a
//! round, and a slow sync never stops appends.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use log_engine::{DataDir, FlushDone, Flusher, FlusherConfig, LogName};
use parking_lot::{Mutex, RwLock};
use proto_types::coordinator_api::ShardLogError;
use proto_types::ids::{Millis, NodeId, PartitionIndex, TopicId, TopicPartition};
use proto_types::replication_api::SessionAnswer;
use storage_node_core::{DeleteRecordsError, Input, ProduceError};
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::disk::event::{DescribeFollowers, DropCopy, Event, FollowersOf, Open, Opened, OpenedLog};
use crate::disk::event_queue::EventQueue;
use crate::disk::health::DiskHealth;
use crate::disk::housekeeping::{Housekeeping, HousekeepingLimits};
use crate::disk::metrics::DirectoryMetrics;
use crate::disk::opener::{Opener, OpenerParts};
use crate::disk::remover::{Doomed, Remover};
use crate::disk::scrub::ScrubRequests;
use crate::disk::slot::Slot;
use crate::disk::space::SpaceKeeper;
use crate::partition::handle::{Fence, PartitionHandle, ReaderHandle, Shared};
use crate::partition::{PartitionMetrics, fetch_wait::FetchWaiters, tail::Tail};
use crate::replication::Replication;
use crate::replication::metrics::ReplicationState;

/// Events after which flushes are handed over though more events wait.
const EVENTS_BETWEEN_FLUSHES: usize = 64;
/// The thread looks around at least so often.
const IDLE_WAIT: Duration = Duration::from_millis(500);

/// How often the thread looks for the oldest flush and for flushes to repeat.
const LOOK_AROUND_MS: i64 = 250;
/// How often idle producers are looked for, as in Kafka.
const PRODUCER_EXPIRATION_CHECK_MS: i64 = 600_000;

/// Logs that are closed at once. It is waiting for the disk that overlaps.
const PARALLEL_MAX: usize = 16;

/// What a log thread is made of.
pub(crate) struct LogThread {
    pub(crate) me: NodeId,
    pub(crate) data: DataDir,
    /// The directory's place in the configuration.
    pub(crate) directory: usize,
    pub(crate) queue: Arc<EventQueue<Event>>,
    pub(crate) health: Arc<DiskHealth>,
    pub(crate) clock: Clock,
    pub(crate) metrics: PartitionMetrics,
    pub(crate) replication: Arc<Replication>,
    /// Of the thread that looks for damage.
    pub(crate) scrub: Arc<ScrubRequests>,
    pub(crate) housekeeping: HousekeepingLimits,
}

/// The thread while it runs.
struct Running {
    thread: LogThread,
    flusher: Flusher,
    opener: Opener,
    remover: Remover,
    slots: HashMap<TopicPartition, Slot>,
    /// Slots that may want a flush.
    dirty: BTreeSet<TopicPartition>,
    deadlines: BTreeSet<(Millis, TopicPartition)>,
    looked_around: Millis,
    producers_expired: Millis,
    housekeeping: Housekeeping,
    space: SpaceKeeper,
    directory_metrics: DirectoryMetrics,
}

/// The log's name of a partition.
pub(crate) fn log_name(id: TopicPartition) -> LogName {
    LogName::new(id.topic.0, id.partition.0)
}

/// The partition of a log's name.
pub(crate) fn partition_of(name: LogName) -> TopicPartition {
    TopicPartition { topic: TopicId(name.topic_id), partition: PartitionIndex(name.partition) }
}

impl LogThread {
    /// Starts the thread and its flushers.
    pub(crate) fn start(self, flusher: FlusherConfig) -> io::Result<JoinHandle<()>> {
        let completions = Arc::clone(&self.queue);
        let on_done = move |done: FlushDone| {
            // Only a thread that has ended takes no more; then nobody waits for it either.
            drop(completions.push(Event::Flushed(done)));
        };
        let flusher = Flusher::start(self.data.clone(), flusher, on_done).map_err(io::Error::other)?;
        let remover = Remover::start(self.directory, self.clock)?;
        let directory_metrics = self.metrics.disks().of(self.data.path());
        let last_written_ms = self.data.last_written_ms();
        let housekeeping = Housekeeping::new(
            self.housekeeping,
            self.clock,
            self.data.path(),
            last_written_ms,
            directory_metrics.clone(),
        );
        let opener = self.opener(&housekeeping);
        let now = self.clock.monotonic();
        let reserve_bytes = self.housekeeping.reserve_bytes;
        let space = SpaceKeeper::new(self.data.clone(), reserve_bytes, now, directory_metrics.clone());
        let name = format!("weir-log-{}", self.directory);
        std::thread::Builder::new().name(name).spawn(move || {
            let _guard = EndWithProcess("a log thread");
            let running = Running {
                thread: self,
                flusher,
                opener,
                remover,
                slots: HashMap::new(),
                dirty: BTreeSet::new(),
                deadlines: BTreeSet::new(),
                looked_around: Millis(0),
                producers_expired: Millis(0),
                housekeeping,
                space,
                directory_metrics,
            };
            running.run();
        })
    }

    fn opener(&self, housekeeping: &Housekeeping) -> Opener {
        Opener::new(OpenerParts {
            data: self.data.clone(),
            directory: self.directory,
            queue: Arc::clone(&self.queue),
            health: Arc::clone(&self.health),
            clock: self.clock,
            append_clock: housekeeping.append_clock(),
            metrics: self.metrics.clone(),
        })
    }
}

impl Running {
    fn run(mut self) {
        let mut events = Vec::new();
        loop {
            self.thread.queue.drain(self.wait(), &mut events);
            let mut stop = false;
            let mut since_flush = 0;
            let mut round = events.drain(..).peekable();
            while let Some(event) = round.next() {
                self.thread.health.on_work(self.thread.clock.monotonic());
                match event {
                    Event::Stop => stop = true,
                    Event::Drop(drop_copy) => {
                        let mut drops = vec![drop_copy];
                        while let Some(Event::Drop(next)) = round.next_if(|e| matches!(e, Event::Drop(_))) {
                            drops.push(next);
                        }
                        self.drop_all(drops);
                    }
                    other => self.on_event(other),
                }
                since_flush += 1;
                if since_flush >= EVENTS_BETWEEN_FLUSHES {
                    self.submit_flushes();
                    since_flush = 0;
                }
            }
            self.expire();
            self.submit_flushes();
            self.look_around();
            if stop {
                self.close_all();
                return;
            }
        }
    }

    /// How long the thread may sleep.
    fn wait(&self) -> Duration {
        let now = self.thread.clock.monotonic();
        match self.deadlines.first() {
            Some((deadline, _)) => {
                let left = u64::try_from(deadline.0.saturating_sub(now.0)).unwrap_or(0);
                IDLE_WAIT.min(Duration::from_millis(left))
            }
            None => IDLE_WAIT,
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Open(open) => self.opener.begin(open),
            Event::Opened(opened) => self.on_opened(*opened),
            Event::Drop(drop_copy) => self.drop_all(vec![drop_copy]),
            Event::NewEpoch { id, epoch, done } => {
                self.with_slot(id, |slot| slot.step(Input::NewEpoch(epoch)));
                _ = done.send(());
            }
            Event::Settings { id, settings, done } => {
                self.with_slot(id, |slot| slot.change_settings(settings));
                _ = done.send(());
            }
            Event::Produce(produce) => match self.slots.contains_key(&produce.id) {
                true => self.with_slot(produce.id, |slot| slot.produce(produce)),
                false => drop(produce.reply.send(Err(ProduceError::NotLeader))),
            },
            Event::WriteMarker(request) => match self.slots.contains_key(&request.id) {
                true => self.with_slot(request.id, |slot| slot.write_marker(request)),
                false => drop(request.reply.send(Err(ProduceError::NotLeader))),
            },
            Event::DeleteRecords(request) => match self.slots.contains_key(&request.id) {
                true => self.with_slot(request.id, |slot| slot.delete_records(request)),
                false => drop(request.reply.send(Err(DeleteRecordsError::NotLeader))),
            },
            Event::DescribeFollowers(request) => self.describe_followers(request),
            Event::AppendToShard(request) => match self.slots.contains_key(&request.id) {
                true => self.with_slot(request.id, |slot| slot.append_to_shard(request)),
                false => drop(request.reply.send(Err(ShardLogError::NotLeader))),
            },
            Event::OpenSession { session } => match self.slots.contains_key(&session.partition.id()) {
                true => self.with_slot(session.partition.id(), |slot| slot.on_open_session(session)),
                false => session.answer(SessionAnswer::NotServed, None),
            },
            Event::FollowerAck { session } => {
                self.with_slot(session.partition.id(), |slot| slot.on_follower_ack(&session));
            }
            Event::FollowerStart { session } => {
                self.with_slot(session.partition.id(), |slot| slot.on_follower_start(&session));
            }
            Event::SessionEnded { session } => {
                self.with_slot(session.partition.id(), |slot| slot.on_session_ended(&session));
            }
            Event::FromLeader(from) => {
                self.with_slot(from.session().id, |slot| slot.on_from_leader(from));
            }
            Event::SessionLost { session } => {
                self.with_slot(session.id, |slot| slot.on_session_lost(&session));
            }
            Event::IsrAnswered { id, answered } => {
                self.with_slot(id, |slot| slot.on_isr_answered(answered));
            }
            Event::Compaction { id, step } => self.with_slot(id, |slot| slot.on_compaction(step)),
            Event::Flushed(done) => {
                self.with_slot(partition_of(done.log), |slot| slot.on_flushed(done));
            }
            Event::Damaged { id, reason } => self.with_slot(id, |slot| slot.fail(&reason)),
            Event::Stop => {}
        }
    }

    fn describe_followers(&self, request: DescribeFollowers) {
        let DescribeFollowers { of, reply, permit } = request;
        let described = match of {
            FollowersOf::Partition(id) => {
                self.slots.get(&id).and_then(|slot| slot.led(i64::MIN)).into_iter().collect()
            }
            FollowersOf::Lagging { lag_ms_min, partitions_max } => {
                let led = self.slots.values().filter_map(|slot| slot.led(lag_ms_min));
                led.filter(|led| !led.followers.is_empty()).take(partitions_max).collect()
            }
        };
        _ = reply.send(described);
        drop(permit);
    }

    /// Lets something happen to a copy, then notes what it wants from the thread.
    fn with_slot(&mut self, id: TopicPartition, happen: impl FnOnce(&mut Slot)) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        happen(slot);
        slot.dropped_logs.drain(..).for_each(|log| self.remover.remove(Doomed::Log(log), 0));
        if let Some((segments, delay_ms)) = slot.take_detached() {
            self.remover.remove(Doomed::Segments(segments), delay_ms);
        }
        if slot.flush_wanted {
            self.dirty.insert(id);
        }
        slot.note_closed_for_space();
        let failure = slot.device_failure().map(str::to_owned);
        let deadline = slot.next_deadline();
        if deadline != slot.noted_deadline {
            if let Some(noted) = slot.noted_deadline {
                self.deadlines.remove(&(noted, id));
            }
            if let Some(deadline) = deadline {
                self.deadlines.insert((deadline, id));
            }
            slot.noted_deadline = deadline;
        }
        if let Some(reason) = failure {
            self.fail_directory(&reason);
        }
    }

    /// A write or sync has failed: what else is in the directory cannot be trusted to its disk either. Other nodes take over
    /// what they have; nothing is made anew in another directory, since this one may come back with everything.
    fn fail_directory(&mut self, reason: &str) {
        if !self.thread.health.fail(reason) {
            return;
        }
        self.opener.refuse_waiting(reason);
        self.directory_metrics.set_offline(reason);
        tracing::error!(
            path = %self.thread.data.path().display(), reason, partitions = self.slots.len(),
            "the data directory is offline; when its disk is repaired or replaced (docs/damage.md), start the node again"
        );
        let ids: Vec<_> = self.slots.keys().copied().collect();
        for id in ids {
            self.with_slot(id, Slot::go_offline);
        }
    }

    /// Says that the disk does its work, from among many pieces of it that are taken up at once: all of them together may take
    /// longer than a disk may that does not answer.
    fn progress(&self) -> impl Fn() + Sync + use<> {
        let (health, clock) = (Arc::clone(&self.thread.health), self.thread.clock);
        move || health.on_work(clock.monotonic())
    }

    /// A log is ready, or has failed.
    fn on_opened(&mut self, opened: Opened) {
        let Some(Opened { open, result }) = self.opener.take(opened) else { return };
        let Open { id, settings, epoch, closed, done, is_short: _ } = open;
        let OpenedLog { log, report, claim } = match result {
            Ok(opened) => opened,
            Err(failure) => {
                self.thread.metrics.on_log_failed();
                let reason = &failure.reason;
                tracing::error!(partition = %id, topic = %settings.topic_name, reason, "cannot open the log");
                drop(done.send(Err(failure)));
                return;
            }
        };
        // A copy that was moved is what it was. Of one that is the only one nobody else has anything, nor can anybody be in
        // sync with it.
        let goes_on = closed.is_some_and(|closed| closed.is_whole || epoch.replicas == [self.thread.me]);
        if report.bytes_cut > 0 || report.was_poisoned || report.flushed_end_lost {
            tracing::warn!(partition = %id, topic = %settings.topic_name, ?report, "recovered a log");
        }
        let shared = Arc::new(Shared {
            id,
            directory: self.thread.directory,
            queue: Arc::clone(&self.thread.queue),
            reader: ReaderHandle(log.reader()),
            settings: ArcSwap::new(settings),
            view: RwLock::new(Slot::first_view(&log)),
            epochs: RwLock::new(log.epochs().clone()),
            fetch_waiters: FetchWaiters::default(),
            tail: Tail::new(Arc::clone(&self.thread.replication.tails)),
            fence: Fence::default(),
            clock: self.housekeeping.append_clock(),
            space: self.space.gate(),
            stations_clock: self.thread.clock,
            scrub: Arc::clone(&self.thread.scrub),
            closed_for_space: AtomicBool::new(false),
        });
        let thread = &self.thread;
        let mut slot = Slot::new(
            thread.me,
            (log, claim),
            Arc::clone(&shared),
            (thread.clock, self.housekeeping.append_clock(), self.space.gate()),
            thread.metrics.clone(),
            Arc::clone(&thread.replication),
        );
        if goes_on {
            slot.let_epoch_go_on();
        }
        let before = self.slots.insert(id, slot);
        assert!(before.is_none(), "the registry opens a copy once");
        self.with_slot(id, |slot| slot.step(Input::NewEpoch(epoch)));
        self.thread.metrics.set_open(self.slots.len());
        drop(done.send(Ok(PartitionHandle::new(shared))));
    }

    /// Closes logs, or deletes them, many at once.
    fn drop_all(&mut self, drops: Vec<DropCopy>) {
        let mut closing = Vec::with_capacity(drops.len());
        for drop_copy in drops {
            let id = drop_copy.id;
            assert!(!self.opener.is_opening(id), "the registry waits for the open before it drops the copy");
            let Some(slot) = self.slots.remove(&id) else {
                self.drop_unopened(drop_copy);
                continue;
            };
            if let Some(noted) = slot.noted_deadline {
                self.deadlines.remove(&(noted, id));
            }
            self.dirty.remove(&id);
            closing.push((drop_copy, slot));
        }
        self.thread.metrics.set_open(self.slots.len());
        let progress = self.progress();
        let detached = in_parallel(closing, |(drop_copy, slot): (DropCopy, Slot)| {
            let DropCopy { id, delete, done } = drop_copy;
            let closed = slot.close(delete);
            progress();
            if let Err(error) = &closed {
                tracing::error!(partition = %id, %error, delete, "cannot close the log cleanly");
            }
            _ = done.send(closed.is_ok());
            closed.ok().flatten()
        });
        detached.into_iter().flatten().for_each(|log| self.remover.remove(Doomed::Log(log), 0));
    }

    /// A copy whose log could not be opened goes with its topic all the same.
    fn drop_unopened(&self, drop_copy: DropCopy) {
        let DropCopy { id, delete, done } = drop_copy;
        let detached = delete.then(|| self.thread.data.detach(log_name(id))).transpose();
        if let Err(error) = &detached {
            tracing::error!(
                partition = %id, path = %self.thread.data.path().join(id.to_string()).display(), %error,
                "cannot remove a log that could not be opened; remove it when the disk works again"
            );
        }
        _ = done.send(detached.is_ok());
        detached.into_iter().flatten().for_each(|log| self.remover.remove(Doomed::Log(log), 0));
    }

    /// Tells every copy whose waiters' time is up.
    fn expire(&mut self) {
        let now = self.thread.clock.monotonic();
        while let Some(&(deadline, id)) = self.deadlines.first()
            && deadline <= now
        {
            self.with_slot(id, |slot| slot.step(Input::Tick));
            // A copy that has answered its waiters has noted another deadline, or none.
            self.deadlines.remove(&(deadline, id));
        }
    }

    fn submit_flushes(&mut self) {
        for id in std::mem::take(&mut self.dirty) {
            let mut handle = None;
            self.with_slot(id, |slot| handle = slot.take_flush());
            let Some(handle) = handle else { continue };
            if let Err(handle) = self.flusher.submit(handle) {
                self.with_slot(id, |slot| slot.return_flush(handle));
            }
        }
    }

    /// What is due now and then, and takes a walk over all copies.
    fn look_around(&mut self) {
        let now = self.thread.clock.monotonic();
        if now.0 - self.looked_around.0 >= LOOK_AROUND_MS {
            self.looked_around = now;
            let oldest = self.slots.values().filter_map(|slot| slot.flushing_since).min();
            self.thread.health.set_oldest_flush(oldest);
            let state = self.slots.values_mut().map(Slot::replication_state);
            let state = state.fold(ReplicationState::default(), ReplicationState::and);
            self.thread.replication.metrics.set_state(self.thread.directory, state);
            for (&id, slot) in &mut self.slots {
                if std::mem::take(&mut slot.flush_again) {
                    slot.flush_wanted = true;
                    self.dirty.insert(id);
                }
            }
            self.keep_house();
        }
        if now.0 - self.producers_expired.0 >= PRODUCER_EXPIRATION_CHECK_MS {
            self.producers_expired = now;
            // A clock that jumped ahead would make all of them look idle, and what they send again then is new.
            if self.housekeeping.clock_is_believed() {
                self.slots.values_mut().for_each(Slot::expire_producers);
            }
        }
        self.thread.health.on_idle();
    }

    /// Looks after copies that are due.
    fn keep_house(&mut self) {
        self.space.look(self.thread.clock.monotonic());
        let is_low = self.space.is_low();
        self.thread.health.set_space_low(is_low);
        self.remover.set_hurry(is_low);
        if is_low {
            self.housekeeping.hurry();
        }
        let look = self.housekeeping.begin_look(self.slots.keys().copied());
        while let Some((id, time)) = self.housekeeping.next_visit(&look) {
            let mut expired = 0;
            self.with_slot(id, |slot| expired = slot.keep_house(time));
            self.directory_metrics.on_expired(expired);
        }
    }

    /// Closes every log after a last flush, and notes that this was a clean stop.
    fn close_all(mut self) {
        self.opener.request_stop();
        self.thread.queue.close().into_iter().for_each(|event| self.on_event(event));
        let drop_copy = |&id| DropCopy { id, delete: false, done: oneshot::channel().0 };
        let drops = self.slots.keys().map(drop_copy).collect();
        self.drop_all(drops);
        self.opener.join();
        match self.thread.data.close_clean() {
            Ok(true) => {
                tracing::info!(path = %self.thread.data.path().display(), "closed the data directory")
            }
            Ok(false) => tracing::warn!(
                path = %self.thread.data.path().display(),
                "closed the data directory; a log failed, so the next start looks closer"
            ),
            Err(error) => tracing::error!(%error, "cannot note the clean stop"),
        }
    }
}

/// Ends the process if the thread panics: an invariant of a log or replica is broken, so going on could lose records, and
/// everybody who waits for the thread would wait for ever.
pub(crate) struct EndWithProcess(pub(crate) &'static str);

impl Drop for EndWithProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(thread = self.0, "a thread has panicked; ending the process");
            std::process::abort();
        }
    }
}

/// Does the same to every item, on a few threads at once if there are several. The results come in any order.
fn in_parallel<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let threads = PARALLEL_MAX.min(items.len());
    if threads <= 1 {
        return items.into_iter().map(work).collect();
    }
    let results = Mutex::new(Vec::with_capacity(items.len()));
    let items = Mutex::new(items.into_iter());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let Some(item) = items.lock().next() else { return };
                    let result = work(item);
                    results.lock().push(result);
                }
            });
        }
    });
    results.into_inner()
}
