//! How the rest of the node speaks to one partition copy. Cheap to clone; stays usable (and answers "not the leader")
//! after the copy was dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use log_engine::{LogReader, ReadError};
use log_engine_core::EpochHistory;
use parking_lot::RwLock;
use proto_types::coordinator_api::{ShardAppended, ShardLogError};
use proto_types::ids::{CoordinatorEpoch, LeaderEpoch, Millis, Offset, TopicPartition};
use records::BatchHeader;
use storage_node_core::{Acks, DeleteRecordsError, ProduceError, Standing, View};
use tokio::sync::oneshot;

use super::batch_times::BatchTimes;
use super::fetch_wait::FetchWaiters;
use super::settings::TopicSettings;
use super::tail::Tail;
use crate::clock::Clock;
use crate::disk::event::{
    AppendToShard, DeleteRecords, DescribeFollowers, Event, FollowersOf, LedPartition, MarkerToWrite,
    Produce, WriteMarker,
};
use crate::disk::event_queue::EventQueue;
use crate::disk::housekeeping::AppendClock;
use crate::disk::scrub::ScrubRequests;
use crate::disk::space::SpaceGate;

/// A batch that passed [`validate`](super::validation::validate).
#[derive(Debug, Clone)]
pub(crate) struct ValidBatch {
    /// Exactly the batch.
    pub(crate) bytes: Bytes,
    pub(crate) header: BatchHeader,
}

/// What a producer is told of its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProduceOutcome {
    pub(crate) base_offset: Offset,
    /// Milliseconds of the append where the topic has `LogAppendTime`, else −1.
    pub(crate) log_append_time: i64,
    pub(crate) log_start: Offset,
    /// Of a batch with `acks=all` that is committed, unless it is a repetition.
    pub(crate) times: Option<BatchTimes>,
}

/// The answer to a batch, in time. Dropping it forgets the answer, not the batch.
#[derive(Debug)]
pub(crate) struct PendingProduce(oneshot::Receiver<Result<ProduceOutcome, ProduceError>>);

impl PendingProduce {
    /// Waits for the answer.
    pub(crate) async fn outcome(self) -> Result<ProduceOutcome, ProduceError> {
        // The owner answers everything; if it is gone all the same, so is the leadership.
        self.0.await.unwrap_or(Err(ProduceError::NotLeader))
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct PartitionHandle {
    shared: Arc<Shared>,
}

/// What the owner shares with everybody else.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) id: TopicPartition,
    /// The data directory that holds the copy, by its place in the configuration.
    pub(crate) directory: usize,
    pub(crate) queue: Arc<EventQueue<Event>>,
    pub(crate) reader: ReaderHandle,
    pub(crate) settings: ArcSwap<TopicSettings>,
    pub(crate) view: RwLock<View>,
    pub(crate) epochs: RwLock<EpochHistory>,
    pub(crate) fetch_waiters: FetchWaiters,
    pub(crate) tail: Tail,
    pub(crate) fence: Fence,
    /// The clock and the room of the data directory.
    pub(crate) clock: AppendClock,
    pub(crate) space: Arc<SpaceGate>,
    /// By which the way of a batch is timed.
    pub(crate) stations_clock: Clock,
    /// Of the thread that looks for damage in the directory.
    pub(crate) scrub: Arc<ScrubRequests>,
    /// See [`PartitionHandle::is_closed_for_space`].
    pub(crate) closed_for_space: AtomicBool,
}

/// The newest coordinator epoch that has claimed a partition of an internal topic. Written by the partition's owner alone.
#[derive(Debug)]
pub(crate) struct Fence(AtomicI32);

impl Default for Fence {
    /// Nobody has claimed it.
    fn default() -> Self {
        Self(AtomicI32::new(i32::MIN))
    }
}

impl Fence {
    /// A claim is in the log.
    pub(crate) fn raise(&self, epoch: Option<CoordinatorEpoch>) {
        if let Some(epoch) = epoch {
            self.0.fetch_max(epoch.0, Ordering::AcqRel);
        }
    }

    /// Refuses epochs that are older than the newest claim.
    pub(crate) fn check(&self, epoch: CoordinatorEpoch) -> Result<(), ShardLogError> {
        let current = CoordinatorEpoch(self.0.load(Ordering::Acquire));
        if epoch < current { Err(ShardLogError::Fenced { current }) } else { Ok(()) }
    }
}

/// The log's reader, with a `Debug` that does not walk the log.
#[derive(Clone)]
pub(crate) struct ReaderHandle(pub(crate) LogReader);

impl std::fmt::Debug for ReaderHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogReader({})", self.0.name())
    }
}

impl PartitionHandle {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// The partition.
    pub(crate) fn id(&self) -> TopicPartition {
        self.shared.id
    }

    /// The data directory that holds the copy, by its place in the configuration.
    pub(crate) fn directory(&self) -> usize {
        self.shared.directory
    }

    /// The copy as of now.
    pub(crate) fn view(&self) -> View {
        *self.shared.view.read()
    }

    /// The topic's settings as of now.
    pub(crate) fn settings(&self) -> Arc<TopicSettings> {
        self.shared.settings.load_full()
    }

    /// The wall clock, if the data directory's owner believes it.
    pub(crate) fn believed_ms(&self) -> Option<i64> {
        self.shared.clock.believed_ms()
    }

    /// The room of the data directory.
    pub(crate) fn space(&self) -> &SpaceGate {
        &self.shared.space
    }

    /// Reads the log's files.
    pub(crate) fn reader(&self) -> &LogReader {
        &self.shared.reader.0
    }

    /// Whether the log takes no more appends for lack of space, so that it must be opened anew.
    pub(crate) fn is_closed_for_space(&self) -> bool {
        self.shared.closed_for_space.load(Ordering::Acquire)
    }

    /// A read has failed: if that may be for what lies on the disk, all of the copy is looked at soon, and if it is
    /// damaged it goes offline.
    pub(crate) fn on_read_error(&self, error: &ReadError) {
        match error {
            ReadError::OffsetOutOfRange { .. } => {}
            ReadError::Damaged { .. } => self.on_damage(),
            ReadError::Io(_) => self.suspect(),
        }
    }

    /// Somebody has met damage in the copy: nothing is read unchecked any more, and all of it is looked at soon.
    pub(crate) fn on_damage(&self) {
        self.reader().distrust();
        self.suspect();
    }

    /// What lies on the disk may be the reason for trouble: all of it is looked at soon.
    pub(crate) fn suspect(&self) {
        self.shared.scrub.suspect(self.shared.id);
    }

    /// What this copy appended as a leader and is not committed yet.
    pub(crate) fn tail(&self) -> &Tail {
        &self.shared.tail
    }

    /// Those who wait for more to read.
    pub(crate) fn fetch_waiters(&self) -> &FetchWaiters {
        &self.shared.fetch_waiters
    }

    /// Where the largest leader epoch that is not above `epoch` ends: that epoch and the first offset after it.
    pub(crate) fn epoch_end(&self, epoch: i32) -> Option<(LeaderEpoch, Offset)> {
        let end = self.view().end;
        let found = self.shared.epochs.read().end_offset_for(epoch, end.0);
        found.map(|(epoch, offset)| (LeaderEpoch(epoch), Offset(offset)))
    }

    /// The leader epoch under which the record at `offset` was appended.
    pub(crate) fn epoch_of(&self, offset: Offset) -> Option<LeaderEpoch> {
        self.shared.epochs.read().epoch_of(offset.0).map(LeaderEpoch)
    }

    /// Queues a batch behind those that were queued before. Waits while too much is queued already. `deadline` is when a
    /// producer with `acks=all` is told that it took too long, in monotonic milliseconds.
    pub(crate) async fn produce(
        &self,
        batch: ValidBatch,
        acks: Acks,
        deadline: Millis,
    ) -> Result<PendingProduce, ProduceError> {
        if self.view().standing == Standing::Failed {
            return Err(ProduceError::LogFailed);
        }
        let offered = self.shared.stations_clock.now();
        let (reply, answer) = oneshot::channel();
        let permit =
            self.shared.queue.permit(batch.bytes.len()).await.map_err(|_| ProduceError::NotLeader)?;
        let produce = Produce {
            id: self.shared.id,
            bytes: batch.bytes,
            header: batch.header,
            acks,
            deadline,
            offered,
            reply,
            permit,
        };
        self.shared.queue.push(Event::Produce(produce)).map_err(|_| ProduceError::NotLeader)?;
        Ok(PendingProduce(answer))
    }

    /// Appends the marker that ends a transaction. Answers once it is committed.
    #[cfg_attr(not(test), expect(dead_code, reason = "transaction coordinators will call it"))]
    pub(crate) async fn write_marker(
        &self,
        marker: MarkerToWrite,
        deadline: Millis,
    ) -> Result<ProduceOutcome, ProduceError> {
        let gone = ProduceError::NotLeader;
        let (reply, answer) = oneshot::channel();
        let permit = self.shared.queue.permit(0).await.map_err(|_| gone)?;
        let event = WriteMarker { id: self.shared.id, marker, deadline, reply, permit };
        self.shared.queue.push(Event::WriteMarker(event)).map_err(|_| gone)?;
        answer.await.unwrap_or(Err(gone))
    }

    /// Tells the log thread something that is bounded by what it is about. A queue that is closed belongs to a node that
    /// is stopping.
    pub(crate) fn tell(&self, event: Event) {
        drop(self.shared.queue.push(event));
    }

    /// Refuses coordinators that are older than the newest claim.
    pub(crate) fn check_fence(&self, epoch: CoordinatorEpoch) -> Result<(), ShardLogError> {
        self.shared.fence.check(epoch)
    }

    /// Appends a coordinator's claim (no batch), or a batch at `expected_end`. Answers once it is committed.
    pub(crate) async fn append_to_shard(
        &self,
        epoch: CoordinatorEpoch,
        expected_end: Option<Offset>,
        batch: Option<(Bytes, BatchHeader)>,
        deadline: Millis,
    ) -> Result<ShardAppended, ShardLogError> {
        let size = batch.as_ref().map_or(0, |(bytes, _)| bytes.len());
        let (reply, answer) = oneshot::channel();
        let permit = self.shared.queue.permit(size).await.map_err(|_| ShardLogError::NotLeader)?;
        let id = self.shared.id;
        let event = AppendToShard { id, epoch, expected_end, batch, deadline, reply, permit };
        let queued = self.shared.queue.push(Event::AppendToShard(event));
        queued.map_err(|_| ShardLogError::NotLeader)?;
        let gone = |_| Err(ShardLogError::Unknown("the partition was closed".to_owned()));
        answer.await.unwrap_or_else(gone)
    }

    /// The partition with all its followers, if this copy leads it.
    pub(crate) async fn followers(&self) -> Option<LedPartition> {
        let of = FollowersOf::Partition(self.shared.id);
        describe_followers(&self.shared.queue, of).await.pop()
    }

    /// Moves the log's start to `before`, or to the high watermark, and waits until `deadline`, in monotonic milliseconds, for
    /// the replicas to follow. The least of their starts.
    pub(crate) async fn delete_records(
        &self,
        before: Option<Offset>,
        deadline: Millis,
    ) -> Result<Offset, DeleteRecordsError> {
        let gone = DeleteRecordsError::NotLeader;
        let (reply, answer) = oneshot::channel();
        let permit = self.shared.queue.permit(0).await.map_err(|_| gone)?;
        let event = DeleteRecords { id: self.shared.id, before, deadline, reply, permit };
        self.shared.queue.push(Event::DeleteRecords(event)).map_err(|_| gone)?;
        answer.await.unwrap_or(Err(gone))
    }
}

/// Asks a log thread for followers; it tells of none when it is stopping.
pub(super) async fn describe_followers(queue: &EventQueue<Event>, of: FollowersOf) -> Vec<LedPartition> {
    let (reply, answer) = oneshot::channel();
    let Ok(permit) = queue.permit(0).await else { return Vec::new() };
    let event = Event::DescribeFollowers(DescribeFollowers { of, reply, permit });
    match queue.push(event) {
        Ok(()) => answer.await.unwrap_or_default(),
        Err(_) => Vec::new(),
    }
}
