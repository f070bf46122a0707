//! The writing side of a lane at the leader: answers, and the log of every session that has credit, in turns.
//!
//! A session is looked at when it was woken, sends at most one push, and goes to the end of the queue if there is more. A
//! read that would wait for a disk goes to the read threads, and the session pauses until it comes back; everybody else
//! goes on.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use log_engine::{LogReader, LogSlice, ReadError};
use proto_types::ids::{NodeId, Offset};
use proto_types::replication_api::{Batches, LeaderFrame, Marks, SessionAnswer, SessionId};
use quic_transport::FrameSender;
use storage_node_core::{Pump, PumpStep, Push};
use tokio::time::{Instant, sleep_until};

use super::leader_session::{LeaderLane, LeaderSession, LeaderWord};
use super::{ReplicationLimits, ReplicationMetrics, Throttles};
use crate::disk::event::Event;
use crate::disk::read_pool::ReadPool;
use crate::partition::PartitionHandle;
use crate::published_image::PublishedImage;

/// Bytes after which what was gathered is written.
const WRITE_BYTES: usize = 1 << 20;
/// How long marks that have moved wait for records to go with: a busy partition needs no frames for marks alone.
const MARKS_PAUSE: Duration = Duration::from_millis(5);
/// Frames after which what was gathered is written.
const WRITE_FRAMES: usize = 512;

/// See the module.
pub(crate) struct LanePump {
    lane: Arc<LeaderLane>,
    limits: ReplicationLimits,
    metrics: ReplicationMetrics,
    read_pool: ReadPool,
    sessions: HashMap<SessionId, Pumping>,
    reads: FuturesUnordered<BoxFuture<'static, ColdRead>>,
    /// Marks that wait for records to go with, and until when.
    marks: HashMap<SessionId, Marks>,
    marks_until: Instant,
    throttle: LeaderThrottle,
    /// Sessions that wait until the rate allows more, each once however often it is woken, and until when.
    held_back: HashSet<SessionId>,
    held_back_until: Instant,
    /// Pushes that wait until fewer reads are under way: of each session one.
    waiting: ColdQueue,
    frames: Vec<Bytes>,
    frames_bytes: usize,
}

struct Pumping {
    session: Arc<LeaderSession>,
    pump: Pump,
    /// A read for it waits for a disk.
    reading: bool,
}

/// Pushes in the order in which they came, one for each session, none for one that is over.
#[derive(Debug, Default)]
struct ColdQueue {
    by_turn: BTreeMap<u64, (SessionId, Push)>,
    turns: HashMap<SessionId, u64>,
    next_turn: u64,
}

/// What a read thread brought.
struct ColdRead {
    session: SessionId,
    push: Push,
    outcome: Result<Option<Chunk>, FailedRead>,
}

/// Why there is nothing to send.
struct FailedRead {
    reason: String,
    /// Perhaps for what lies on the disk.
    is_suspicious: bool,
}

/// Whole batches that were checked, and the offset after them.
struct Chunk {
    bytes: Bytes,
    next: Offset,
}

impl LanePump {
    pub(crate) fn new(
        lane: Arc<LeaderLane>,
        limits: ReplicationLimits,
        metrics: ReplicationMetrics,
        read_pool: ReadPool,
        throttle: LeaderThrottle,
    ) -> Self {
        Self {
            lane,
            limits,
            metrics,
            read_pool,
            sessions: HashMap::new(),
            reads: FuturesUnordered::new(),
            marks: HashMap::new(),
            marks_until: Instant::now(),
            throttle,
            held_back: HashSet::new(),
            held_back_until: Instant::now(),
            waiting: ColdQueue::default(),
            frames: Vec::new(),
            frames_bytes: 0,
        }
    }

    /// Sends until the lane is lost; says why.
    pub(crate) async fn run(mut self, mut sender: FrameSender) -> String {
        loop {
            self.do_what_is_due();
            while self.frames.len() < WRITE_FRAMES && self.frames_bytes < WRITE_BYTES {
                if let Some(Some(read)) = self.reads.next().now_or_never() {
                    self.on_read(read);
                } else if let Some(word) = self.lane.take() {
                    self.on_word(word);
                } else {
                    break;
                }
            }
            if !self.frames.is_empty() {
                self.frames_bytes = 0;
                if let Err(error) = sender.send_all(std::mem::take(&mut self.frames)).await {
                    return error.to_string();
                }
                continue;
            }
            tokio::select! {
                () = self.lane.wait() => {}
                Some(read) = self.reads.next(), if !self.reads.is_empty() => self.on_read(read),
                () = sleep_until(self.marks_until), if !self.marks.is_empty() => {}
                () = sleep_until(self.held_back_until), if !self.held_back.is_empty() => {}
                () = sender.closed() => return "the follower's node does not listen any more".to_owned(),
            }
        }
    }

    fn on_word(&mut self, word: LeaderWord) {
        match word {
            LeaderWord::Answer { session, answer, pump } => self.answer(session, answer, pump),
            LeaderWord::Refuse { session, answer } => self.push(&LeaderFrame::Answer { session, answer }),
            LeaderWord::Close { session } => self.close(&session),
            LeaderWord::Ready { session } => {
                session.take_up();
                self.turn(session.open.session);
            }
        }
    }

    fn answer(&mut self, session: Arc<LeaderSession>, answer: SessionAnswer, pump: Option<Box<Pump>>) {
        let id = session.open.session;
        self.push(&LeaderFrame::Answer { session: id, answer });
        match pump {
            Some(pump) => {
                self.sessions.insert(id, Pumping { session, pump: *pump, reading: false });
                self.turn(id);
            }
            None => drop(self.lane.remove(id)),
        }
    }

    /// The leader's side is over.
    fn close(&mut self, session: &LeaderSession) {
        let id = session.open.session;
        self.forget(id);
        // A session that the follower has closed is not told of.
        if self.lane.remove(id).is_some() {
            self.push(&LeaderFrame::Closed { session: id });
        }
    }

    /// Nothing of the session stays behind.
    fn forget(&mut self, id: SessionId) -> Option<Pumping> {
        self.marks.remove(&id);
        self.held_back.remove(&id);
        self.waiting.remove(id);
        self.sessions.remove(&id)
    }

    /// Sends what the session may send now.
    fn turn(&mut self, id: SessionId) {
        let Some(pumping) = self.sessions.get_mut(&id) else { return };
        // The follower has closed it.
        if self.lane.get(id).is_none() {
            self.forget(id);
            return;
        }
        pumping.pump.add_credit(pumping.session.take_credit());
        if pumping.reading {
            return;
        }
        if let Some(pause) = self.throttle.pause(&pumping.session) {
            self.held_back.insert(id);
            self.held_back_until = Instant::now() + pause;
            return;
        }
        let view = pumping.session.partition.view();
        match pumping.pump.next(&view, u64::MAX) {
            PumpStep::Idle => {}
            PumpStep::Marks(marks) => {
                if self.marks.is_empty() {
                    self.marks_until = Instant::now() + MARKS_PAUSE;
                }
                self.marks.insert(id, marks);
            }
            PumpStep::Push(push) => self.read(id, push),
            PumpStep::Over => self.end(id),
        }
    }

    /// The session cannot be served any more. The replica knows already if its leadership is over.
    fn end(&mut self, id: SessionId) {
        let Some(pumping) = self.forget(id) else { return };
        let session = pumping.session;
        session.partition.tell(Event::SessionEnded { session: Arc::clone(&session) });
        self.close(&session);
    }

    fn read(&mut self, id: SessionId, push: Push) {
        let Some(pumping) = self.sessions.get_mut(&id) else { return };
        let bytes_max = self.limits.push_bytes_max;
        let partition = &pumping.session.partition;
        let warm = match read_tail(partition, &push, bytes_max) {
            Some(chunk) => Some(Ok(chunk)),
            None => read_warm(partition.reader(), &push, bytes_max),
        };
        match warm {
            Some(outcome) => self.on_chunk(id, &push, outcome),
            None => {
                pumping.reading = true;
                self.metrics.on_cold_read();
                self.waiting.push(id, push);
                self.start_reads();
            }
        }
    }

    /// Begins reads on the read threads, a few at a time.
    fn start_reads(&mut self) {
        while self.reads.len() < self.limits.catch_up_reads_max
            && let Some((id, push)) = self.waiting.pop()
        {
            let Some(pumping) = self.sessions.get(&id) else { continue };
            let (reader, pool) = (pumping.session.partition.reader().clone(), self.read_pool.clone());
            let bytes_max = self.limits.push_bytes_max;
            let read = async move {
                let outcome = pool.run(move || read_cold(&reader, &push, bytes_max)).await;
                let outcome = outcome.unwrap_or_else(|failed| {
                    Err(FailedRead { reason: failed.to_string(), is_suspicious: false })
                });
                ColdRead { session: id, push, outcome }
            };
            self.reads.push(read.boxed());
        }
    }

    fn on_read(&mut self, read: ColdRead) {
        if let Some(pumping) = self.sessions.get_mut(&read.session) {
            pumping.reading = false;
            self.on_chunk(read.session, &read.push, read.outcome);
        }
        self.start_reads();
    }

    fn on_chunk(&mut self, id: SessionId, push: &Push, outcome: Result<Option<Chunk>, FailedRead>) {
        let Some(pumping) = self.sessions.get_mut(&id) else { return };
        let session = Arc::clone(&pumping.session);
        // What was read belongs to the leadership only while that lasts.
        if session.partition.view().leader_epoch != session.open.leader_epoch {
            return self.end(id);
        }
        let chunk = match outcome {
            Ok(Some(chunk)) => chunk,
            Ok(None) => {
                pumping.pump.on_nothing_fits();
                // Credit or marks may have come while it was read; else an acknowledgement wakes it.
                return session.wake();
            }
            Err(FailedRead { reason, is_suspicious }) => {
                let (partition, follower) = (session.open.partition, session.from);
                tracing::warn!(%partition, %follower, reason, "a follower's read failed");
                if is_suspicious {
                    session.partition.suspect();
                }
                self.metrics.on_failed_read();
                return self.end(id);
            }
        };
        let sent = chunk.bytes.len();
        // These are newer.
        self.marks.remove(&id);
        pumping.pump.pushed(chunk.next, sent as u64, push.marks);
        self.push(&LeaderFrame::Batches(Batches { session: id, from: push.from, marks: push.marks }));
        self.frames_bytes += sent;
        self.frames.push(chunk.bytes);
        self.metrics.on_sent(sent);
        self.throttle.on_sent(&session, sent);
        // There may be more; it is the turn of the others first.
        session.wake();
    }

    fn do_what_is_due(&mut self) {
        if self.marks.is_empty() && self.held_back.is_empty() {
            return;
        }
        let now = Instant::now();
        if now >= self.marks_until {
            // No records came for them to go with.
            for (session, marks) in std::mem::take(&mut self.marks) {
                self.push(&LeaderFrame::Marks { session, marks });
            }
        }
        if now >= self.held_back_until {
            for id in self.held_back.drain() {
                if let Some(pumping) = self.sessions.get(&id) {
                    pumping.session.wake();
                }
            }
        }
    }

    fn push(&mut self, frame: &LeaderFrame) {
        let bytes = Bytes::from(proto_types::encode(frame));
        self.frames_bytes += bytes.len();
        self.frames.push(bytes);
    }
}

impl ColdQueue {
    /// A session that waits already keeps its turn.
    fn push(&mut self, id: SessionId, push: Push) {
        let turn = *self.turns.entry(id).or_insert(self.next_turn);
        self.by_turn.insert(turn, (id, push));
        self.next_turn += 1;
    }

    fn pop(&mut self) -> Option<(SessionId, Push)> {
        let (_, (id, push)) = self.by_turn.pop_first()?;
        self.turns.remove(&id);
        Some((id, push))
    }

    fn remove(&mut self, id: SessionId) {
        if let Some(turn) = self.turns.remove(&id) {
            self.by_turn.remove(&turn);
        }
    }
}

/// Holds followers back that are not in sync (KIP-73).
#[derive(Clone)]
pub(crate) struct LeaderThrottle {
    pub(crate) me: NodeId,
    pub(crate) throttles: Arc<Throttles>,
    pub(crate) published: Arc<PublishedImage>,
}

impl LeaderThrottle {
    /// How long the session must pause, if it is held back.
    fn pause(&self, session: &LeaderSession) -> Option<Duration> {
        self.throttles.leader.wait().filter(|_| self.concerns(session))
    }

    fn on_sent(&self, session: &LeaderSession, bytes: usize) {
        if self.throttles.leader.is_set() && self.concerns(session) {
            self.throttles.leader.take(bytes as u64);
        }
    }

    fn concerns(&self, session: &LeaderSession) -> bool {
        let id = session.open.partition;
        let in_sync = || {
            let image = self.published.load();
            image.partition(id).is_some_and(|state| state.isr.contains(&session.from))
        };
        session.partition.settings().leader_throttled.has(id.partition, self.me) && !in_sync()
    }
}

/// What a follower that keeps pace needs is still in memory; `None` if not.
fn read_tail(partition: &PartitionHandle, push: &Push, bytes_max: usize) -> Option<Option<Chunk>> {
    let (bytes, next) = partition.tail().read(push.from, within(push, bytes_max))?;
    // It may be more than the view shows yet: it is in the log all the same.
    let fits = bytes.len() as u64 <= push.bytes_max || push.at_least_one;
    Some(fits.then_some(Chunk { bytes, next }))
}

/// Reads without waiting; `None` if something is not in memory.
fn read_warm(reader: &LogReader, push: &Push, bytes_max: usize) -> Option<Result<Option<Chunk>, FailedRead>> {
    let read = reader.try_read_warm(push.from.0, within(push, bytes_max), push.to.0, true)?;
    Some(chunk(push, read).inspect_err(|failed| {
        // Whoever reads the same bytes without a check would find them in memory.
        if failed.is_suspicious {
            reader.distrust();
        }
    }))
}

fn read_cold(reader: &LogReader, push: &Push, bytes_max: usize) -> Result<Option<Chunk>, FailedRead> {
    chunk(push, reader.read_checked(push.from.0, within(push, bytes_max), push.to.0, true))
}

fn within(push: &Push, bytes_max: usize) -> usize {
    usize::try_from(push.bytes_max).unwrap_or(usize::MAX).min(bytes_max)
}

/// What was read, if it may be sent: a single batch may be more than the credit. What has rotted must not travel: the
/// follower would refuse it again and again, and only here can something be done about it.
fn chunk(push: &Push, read: Result<LogSlice, ReadError>) -> Result<Option<Chunk>, FailedRead> {
    let suspicious = |reason: String| FailedRead { reason, is_suspicious: true };
    let slice = read.map_err(|error| FailedRead {
        is_suspicious: !matches!(error, ReadError::OffsetOutOfRange { .. }),
        reason: error.to_string(),
    })?;
    if slice.is_empty() {
        return Err(suspicious(format!("there is nothing at offset {} below {}", push.from, push.to)));
    }
    if slice.len() as u64 > push.bytes_max && !push.at_least_one {
        return Ok(None);
    }
    let bytes = slice.to_bytes().map_err(|error| suspicious(error.to_string()))?;
    // Not where the segment ends: of one that was compacted the last offsets may be gone, and the follower counts from what
    // it gets.
    let mut next = push.from;
    for batch in records::batches(&bytes) {
        let checked = batch.and_then(|batch| batch.check_crc().map(|()| batch));
        let batch = checked.map_err(|error| suspicious(format!("behind offset {}: {error}", push.from)))?;
        next = Offset(batch.header().last_offset() + 1);
    }
    Ok(Some(Chunk { bytes: Bytes::from(bytes), next }))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use log_engine::{DataDir, DataDirOptions, Disk, Log, LogConfig, LogName, SimDisk};
    use records::{BatchBuilder, BatchHeader};
    use uuid::Uuid;

    use super::*;

    fn push(from: i64) -> Push {
        let marks = Marks { log_start: Offset(0), high_watermark: Offset(0) };
        Push { from: Offset(from), to: Offset(100), bytes_max: 10, at_least_one: true, marks }
    }

    #[test]
    fn a_session_waits_once_for_a_read_and_not_after_its_end() {
        let mut queue = ColdQueue::default();
        for from in 0..1_000 {
            queue.push(SessionId(1), push(from));
            queue.push(SessionId(2), push(from));
        }
        queue.push(SessionId(3), push(7));
        assert_eq!((queue.by_turn.len(), queue.turns.len()), (3, 3));
        queue.remove(SessionId(2));
        queue.remove(SessionId(9));
        queue.push(SessionId(2), push(5));
        let popped: Vec<_> =
            std::iter::from_fn(|| queue.pop()).map(|(id, push)| (id.0, push.from.0)).collect();
        assert_eq!(popped, [(1, 999), (3, 7), (2, 5)]);
        assert_eq!((queue.by_turn.len(), queue.turns.len()), (0, 0));
    }

    /// Every other batch is gone, as compaction leaves it: the follower expects the next push where the last batch ended.
    #[test]
    fn a_chunk_of_a_compacted_log_ends_where_its_last_batch_does() {
        let disk: Arc<dyn Disk> = SimDisk::new(1);
        let options = DataDirOptions {
            cluster_id: "c".into(),
            node_id: 1,
            new_directory_id: Uuid::from_u128(1),
            descriptors_max: 10,
        };
        let data = DataDir::open(disk, Path::new("data"), &options).unwrap();
        let name = LogName { topic_id: Uuid::from_u128(7), partition: 0 };
        let config = LogConfig { index_interval_bytes: 1, ..LogConfig::default() };
        let (mut log, _) = Log::open(&data, name, config, 0).unwrap();
        let mut batch_bytes = 0;
        for base in (0..40).step_by(2) {
            let mut batch = BatchBuilder::new().base_offset(base);
            batch.push(0, Some(b"key"), Some(b"value"), &[]).unwrap();
            let bytes = batch.build();
            batch_bytes = bytes.len();
            log.append(&bytes, &[BatchHeader::parse(&bytes).unwrap()], 0).unwrap();
        }
        let (reader, end) = (log.reader(), log.end());
        for bytes_max in (1..30).map(|count| count * batch_bytes + 1) {
            let mut at = 0;
            while at < end {
                let push = Push { to: Offset(end), bytes_max: bytes_max as u64, ..push(at) };
                let Ok(Some(chunk)) = read_cold(&reader, &push, bytes_max) else { panic!("{push:?}") };
                let last = records::batches(&chunk.bytes).map(|batch| batch.unwrap().header().last_offset());
                assert_eq!(Some(chunk.next.0 - 1), last.last(), "from {at}, {bytes_max} bytes");
                at = chunk.next.0;
            }
        }
    }
}
