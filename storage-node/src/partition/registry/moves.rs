//! Moves of copies to other data directories of this node (KIP-113): what was asked for, and the step that takes a copy from
//! one directory to the other. The copying is the [`Mover`]'s.
//!
//! That step is made by the task that opens and drops copies: it closes the log, has what is left of it copied (which is little,
//! as the copying went on until then), and opens it where it is now. While it is closed clients hear that this node does not
//! lead, and ask again. Only a replica that does not lead is closed, or one that is the only one: that goes on in its epoch, as
//! nobody else can have anything that it has not. A log that could not be moved is opened where it was.
//!
//! [`Mover`]: crate::mover::Mover

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use log_engine::{DataDir, LogMove, MoveError};
use parking_lot::Mutex;
use proto_types::ids::{Millis, Offset, TopicPartition};
use storage_node_core::Standing;
use storage_node_core::image::{ClusterImage, LocalPartition};
use storage_node_core::space::{Space, SpaceWatch};
use tokio::sync::{Notify, oneshot};

use super::{Copy, Lookup, Partitions};
use crate::disk::event::{ClosedLog, DropCopy, Event};
use crate::partition::PartitionHandle;

/// Most bytes that are copied while a log is closed, and changes of the metadata wait: a fraction of a second of a disk.
const CLOSED_BYTES_MAX: u64 = 16 << 20;

/// Moves that were asked for and are not over; never more than there are copies.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    asked: Mutex<BTreeMap<TopicPartition, Arc<AskedMove>>>,
    next_number: AtomicU64,
    came: Notify,
    /// One at a time.
    copied: Mutex<Option<CopiedMove>>,
    copied_came: Notify,
    stopping: AtomicBool,
}

/// A move that somebody has asked for.
#[derive(Debug)]
pub(crate) struct AskedMove {
    pub(crate) id: TopicPartition,
    /// The data directory, by its place in the configuration.
    pub(crate) target: usize,
    /// Of two the smaller was asked for first.
    number: u64,
    cancelled: AtomicBool,
    copied_to: AtomicI64,
    copied_bytes: AtomicU64,
}

/// A move of which nearly everything was copied.
pub(crate) struct CopiedMove {
    asked: Arc<AskedMove>,
    moving: LogMove,
    reply: oneshot::Sender<Closing>,
}

impl std::fmt::Debug for CopiedMove {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CopiedMove({})", self.asked.id)
    }
}

/// What came of the last step of a move.
pub(crate) enum Closing {
    /// The copy is in its new place, open if it can be opened.
    Moved,
    /// It cannot be closed as yet, or too much is left.
    NotYet(LogMove),
    /// The copy is where it was.
    Failed(LogMove, MoveError),
    /// The copy is offline until the node starts again.
    Lost(String),
}

/// Why a copy is not moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MoveRefusal {
    /// The node has no such data directory.
    NoSuchDirectory,
    DirectoryOffline,
    CopyOffline,
    /// There is no copy here.
    NotHere,
}

impl AskedMove {
    /// Whether nobody wants it any more.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// How far the copy is: bytes, and the offset up to which it goes.
    pub(crate) fn progress(&self) -> (u64, Offset) {
        (self.copied_bytes.load(Ordering::Relaxed), Offset(self.copied_to.load(Ordering::Relaxed)))
    }

    pub(crate) fn note_copied_to(&self, offset: i64) {
        self.copied_to.store(offset, Ordering::Relaxed);
    }

    pub(crate) fn note_copied(&self, bytes: u64) {
        self.copied_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Moves {
    /// Another move of the same copy ends; the same one goes on.
    fn ask(&self, id: TopicPartition, target: usize) {
        self.put(id, target, |before| before.is_none_or(|before| before.target != target));
    }

    /// The same, unless another move of the copy was asked for, or the node is stopping.
    fn ask_back(&self, id: TopicPartition, target: usize) {
        self.put(id, target, |before| before.is_none() && !self.stopping.load(Ordering::Acquire));
    }

    fn put(&self, id: TopicPartition, target: usize, may: impl FnOnce(Option<&Arc<AskedMove>>) -> bool) {
        let mut asked = self.asked.lock();
        if !may(asked.get(&id)) {
            return;
        }
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let (cancelled, copied_to, copied_bytes) = Default::default();
        let new = AskedMove { id, target, number, cancelled, copied_to, copied_bytes };
        let before = asked.insert(id, Arc::new(new));
        drop(asked);
        if let Some(before) = before {
            before.cancelled.store(true, Ordering::Release);
        }
        self.came.notify_one();
    }

    pub(super) fn cancel(&self, id: TopicPartition) {
        if let Some(before) = self.asked.lock().remove(&id) {
            before.cancelled.store(true, Ordering::Release);
        }
    }

    /// The node is stopping.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// All that are not over, in any order.
    pub(crate) fn all(&self) -> Vec<Arc<AskedMove>> {
        self.asked.lock().values().cloned().collect()
    }

    /// The oldest that is not over; waits for one.
    pub(crate) async fn next(&self) -> Arc<AskedMove> {
        loop {
            let came = self.came.notified();
            let oldest = self.asked.lock().values().min_by_key(|asked| asked.number).cloned();
            match oldest {
                Some(oldest) => return oldest,
                None => came.await,
            }
        }
    }

    /// It is over, however it ended.
    pub(crate) fn over(&self, ended: &Arc<AskedMove>) {
        let mut asked = self.asked.lock();
        if asked.get(&ended.id).is_some_and(|asked| Arc::ptr_eq(asked, ended)) {
            asked.remove(&ended.id);
        }
    }

    /// Whether a move is to end.
    pub(crate) fn is_ended(&self, asked: &AskedMove) -> bool {
        asked.is_cancelled() || self.stopping.load(Ordering::Acquire)
    }

    /// Has the last step made, and waits for it. `None` if the node is stopping.
    pub(crate) async fn close(&self, asked: &Arc<AskedMove>, moving: LogMove) -> Option<Closing> {
        let (reply, closing) = oneshot::channel();
        *self.copied.lock() = Some(CopiedMove { asked: Arc::clone(asked), moving, reply });
        self.copied_came.notify_one();
        closing.await.ok()
    }

    /// The move that waits for its last step; waits for one. Nothing is lost if the wait is given up.
    pub(crate) async fn copied(&self) -> CopiedMove {
        loop {
            let came = self.copied_came.notified();
            let copied = self.copied.lock().take();
            match copied {
                Some(copied) => return copied,
                None => came.await,
            }
        }
    }
}

impl Partitions {
    /// Moves between data directories.
    pub(crate) fn moves(&self) -> &Arc<Moves> {
        &self.moves
    }

    /// Has a copy moved to the data directory at `path`, in the background. If it is there already, another move of it ends.
    pub(crate) fn move_copy(&self, id: TopicPartition, path: &str) -> Result<(), MoveRefusal> {
        let target = self.directory_at(path)?;
        match self.get(id) {
            Lookup::Open(handle) if handle.view().standing == Standing::Failed => {
                Err(MoveRefusal::CopyOffline)
            }
            Lookup::Open(handle) if handle.directory() == target => {
                self.moves.cancel(id);
                // The last step of a move may have come to its end meanwhile.
                match self.get(id) {
                    Lookup::Open(handle) if handle.directory() != target => self.moves.ask(id, target),
                    Lookup::Open(_) | Lookup::Failed | Lookup::Absent => {}
                }
                Ok(())
            }
            Lookup::Open(_) => {
                self.moves.ask(id, target);
                Ok(())
            }
            Lookup::Failed => Err(MoveRefusal::CopyOffline),
            Lookup::Absent => Err(MoveRefusal::NotHere),
        }
    }

    /// Which data directory lies at `path`, by its place; it must be one that works.
    pub(crate) fn directory_at(&self, path: &str) -> Result<usize, MoveRefusal> {
        let is_at = |known: &std::path::Path| known.as_os_str() == path;
        let found = self.directories.iter().position(|directory| is_at(directory.data.path()));
        match found {
            Some(place) if self.failure_of(place).is_none() => Ok(place),
            Some(_) => Err(MoveRefusal::DirectoryOffline),
            None if self.config.offline.iter().any(|offline| is_at(&offline.path)) => {
                Err(MoveRefusal::DirectoryOffline)
            }
            None => Err(MoveRefusal::NoSuchDirectory),
        }
    }

    /// Begins to copy. Reads and writes files.
    pub(crate) fn begin_move(&self, asked: &AskedMove) -> Result<LogMove, MoveError> {
        let Lookup::Open(handle) = self.get(asked.id) else { return Err(MoveError::Stopped) };
        let (source, target) =
            (&self.directories[handle.directory()].data, &self.directories[asked.target].data);
        works(self.failure_of(asked.target))?;
        if !has_room(target, self.config.limits.housekeeping.reserve_bytes, handle.reader().size_bytes()) {
            return Err(MoveError::NoRoom);
        }
        LogMove::begin(source, target, crate::disk::log_thread::log_name(asked.id))
    }

    /// Waits until so many bytes may be copied, for whoever may wait.
    pub(crate) fn keep_pace(&self, asked: &AskedMove, bytes: u64) -> Result<(), MoveError> {
        let throttle = &self.config.replication.throttles.moves;
        loop {
            if self.moves.is_ended(asked) {
                return Err(MoveError::Stopped);
            }
            works(self.failure_of(asked.target))?;
            let Some(wait) = throttle.wait() else { break };
            std::thread::sleep(wait.min(PACE_WAIT));
        }
        let target = &self.directories[asked.target].data;
        if !has_room(target, self.config.limits.housekeeping.reserve_bytes, bytes) {
            return Err(MoveError::NoRoom);
        }
        throttle.take(bytes);
        asked.note_copied(bytes);
        Ok(())
    }

    /// Makes the last step of a move. Called as [`apply`](Self::apply) is, never beside it, with the image that was applied last.
    pub(crate) async fn finish_move(&self, image: Option<&ClusterImage>, copied: CopiedMove) {
        let CopiedMove { asked, mut moving, reply } = copied;
        let (local, handle) = match self.closable(image, &asked) {
            Ok(Some(closable)) => closable,
            Ok(None) => return drop(reply.send(Closing::NotYet(moving))),
            Err(error) => return drop(reply.send(Closing::Failed(moving, error))),
        };
        let Some(image) = image else { return };
        self.close_for_move(&handle).await;
        let (target, moves) = (moving.target().clone(), Arc::clone(&self.moves));
        let reserve_bytes = self.config.limits.housekeeping.reserve_bytes;
        let counted = Arc::clone(&asked);
        let health = Arc::clone(&self.directories[asked.target].health);
        let mut pace = move |bytes| match has_room(&target, reserve_bytes, bytes) {
            _ if moves.is_ended(&counted) => Err(MoveError::Stopped),
            false => works(health.failure()).and(Err(MoveError::NoRoom)),
            true => works(health.failure()).map(|()| counted.note_copied(bytes)),
        };
        let reader = handle.reader().clone();
        let finish = move || (moving.finish(&reader, CLOSED_BYTES_MAX, &mut pace), moving);
        let closing = match tokio::task::spawn_blocking(finish).await {
            Ok((Ok(left), _)) => {
                self.placed.lock().insert(asked.id, asked.target);
                self.retries.on_moved(asked.id, Offset(handle.reader().end()));
                self.left.keep(asked.id, left);
                Closing::Moved
            }
            Ok((Err(MoveError::TooMuchLeft { .. }), moving)) => Closing::NotYet(moving),
            Ok((Err(error @ MoveError::InDoubt(_)), _)) => {
                self.left.doubt(asked.id, asked.target);
                Closing::Lost(error.to_string())
            }
            Ok((Err(error), moving)) => Closing::Failed(moving, error),
            Err(error) => Closing::Lost(error.to_string()),
        };
        match closing {
            Closing::Lost(_) => {
                self.retries.forget(asked.id);
                self.copies.write().insert(asked.id, Copy::Failed);
            }
            Closing::Moved | Closing::NotYet(_) | Closing::Failed(..) => {
                let opening = self.begin_open(image, &local).await;
                self.take_opened(std::iter::once(opening).collect()).await;
            }
        }
        if matches!(closing, Closing::Moved) && asked.is_cancelled() {
            // It could not be stopped any more: who has asked for the old place meanwhile gets the copy back.
            self.moves.ask_back(asked.id, handle.directory());
        }
        // The mover may have been ended.
        drop(reply.send(closing));
    }

    /// The copy, if it may be closed now.
    fn closable(
        &self,
        image: Option<&ClusterImage>,
        asked: &AskedMove,
    ) -> Result<Option<(LocalPartition, PartitionHandle)>, MoveError> {
        if self.moves.is_ended(asked) {
            return Err(MoveError::Stopped);
        }
        works(self.failure_of(asked.target))?;
        let Some(image) = image else { return Ok(None) };
        let local = image.partition_on(self.config.node, asked.id).ok_or(MoveError::Stopped)?;
        let is_led = local.state.leader == Some(self.config.node) && local.state.replicas.len() > 1;
        match self.get(asked.id) {
            Lookup::Open(handle) if handle.view().standing == Standing::Failed => Err(MoveError::Stopped),
            Lookup::Open(_) if is_led => Ok(None),
            Lookup::Open(handle) => Ok(Some((local, handle))),
            Lookup::Failed | Lookup::Absent => Err(MoveError::Stopped),
        }
    }

    /// Closes the log, and remembers what it held: it must not be opened with less.
    async fn close_for_move(&self, handle: &PartitionHandle) {
        let id = handle.id();
        let (done, dropped) = oneshot::channel();
        self.send(handle.directory(), Event::Drop(DropCopy { id, delete: false, done })).await;
        // A thread that ended has closed it too.
        drop(dropped.await);
        let closed = ClosedLog {
            end: Offset(handle.reader().end()),
            high_watermark: handle.view().high_watermark,
            flush: handle.settings().replica.flush,
            is_whole: false,
        };
        self.retries.remember(id, closed);
    }
}

/// Longest sleep between two looks whether a move is to end.
const PACE_WAIT: std::time::Duration = std::time::Duration::from_millis(100);

/// An error if the directory that is moved to has failed.
fn works(failure: Option<String>) -> Result<(), MoveError> {
    failure.map_or(Ok(()), |reason| Err(MoveError::TargetOffline { reason }))
}

/// Whether so many bytes find room in a directory beside what is kept free. One that does not say how much it has takes them.
fn has_room(target: &DataDir, reserve_bytes: u64, bytes: u64) -> bool {
    let Ok(Some(space)) = target.disk().space(target.path()) else { return true };
    let space = Space { total_bytes: space.total_bytes, available_bytes: space.available_bytes };
    SpaceWatch::new(reserve_bytes, Millis(0), space).room_bytes() >= bytes
}
