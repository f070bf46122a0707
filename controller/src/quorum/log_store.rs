//! Raft's log storage over [`LogFiles`], which live on a thread of their own: no async task ever waits inside a system
//! call, and what is queued together is synced together.
//!
//! Commands go through one bounded queue and are carried out in order, so a vote is on disk before the entries that came
//! after it. Entries are readable as soon as they are queued: the newest ones are kept in memory, older ones are read by
//! the thread.

use super::log_files::{LogFiles, Progress};
use super::store_error::StoreError;
use super::stored::{BorrowedEntry, DiskKind, StoredEntry, StoredLogId, seal};
use super::type_config::{Entry, Environment, LogId, TypeConfig, Vote};
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};

/// Commands in the queue; raft itself has few in flight.
const QUEUE: usize = 256;
/// Commands carried out before the thread syncs.
const COMMANDS_PER_SYNC: usize = 64;
/// Newest entries kept in memory, bytes as encoded.
const TAIL_BYTES_MAX: usize = 8 << 20;
/// Entries that one read returns at most, bytes as encoded; raft asks again for the rest.
const READ_BYTES_MAX: usize = 4 << 20;

pub(crate) enum Command<C: Environment> {
    SaveVote(Vote, oneshot::Sender<io::Result<()>>),
    /// Nobody waits for it: raft would stand still for the disk meanwhile, and all that it tells a start is where to begin.
    SaveCommitted(Option<LogId>),
    Append(Vec<StoredLogId>, Vec<Vec<u8>>, IOFlushed<C>),
    Truncate(u64, oneshot::Sender<io::Result<()>>),
    Purge(LogId, oneshot::Sender<io::Result<()>>),
    Read(std::ops::Range<u64>, usize, oneshot::Sender<io::Result<Vec<StoredEntry>>>),
}

/// The log as raft sees it.
pub(crate) struct LogStore<C: Environment = TypeConfig> {
    reader: LogReader<C>,
}

/// A reader of the log; any number of them.
pub(crate) struct LogReader<C: Environment = TypeConfig> {
    commands: mpsc::Sender<Command<C>>,
    shared: Arc<Mutex<Shared>>,
}

impl<C: Environment> Clone for LogReader<C> {
    fn clone(&self) -> Self {
        Self { commands: self.commands.clone(), shared: Arc::clone(&self.shared) }
    }
}

struct Shared {
    vote: Option<Vote>,
    committed: Option<LogId>,
    purged: Option<LogId>,
    last: Option<LogId>,
    tail: Tail,
}

impl<C: Environment> LogStore<C> {
    /// Starts the thread. It ends, and closes the files, when the store and all readers are dropped.
    pub(crate) fn start(files: LogFiles) -> (Self, JoinHandle<()>) {
        let (store, worker, queue) = Self::new(files);
        let thread = std::thread::Builder::new()
            .name("raft-log".to_owned())
            .spawn(move || worker.run(queue))
            .expect("the system starts a thread at the start of the process");
        (store, thread)
    }

    /// The store, and what is to carry out its commands.
    pub(crate) fn new(files: LogFiles) -> (Self, Worker<C>, mpsc::Receiver<Command<C>>) {
        let (commands, queue) = mpsc::channel(QUEUE);
        let Progress { purged, committed, .. } = files.progress();
        let shared = Shared {
            vote: files.vote().map(Into::into),
            committed: committed.map(Into::into),
            purged: purged.map(Into::into),
            last: files.last().map(Into::into),
            tail: Tail::default(),
        };
        let reader = LogReader { commands, shared: Arc::new(Mutex::new(shared)) };
        (Self { reader }, Worker { files, unsynced: Vec::new() }, queue)
    }

    async fn ask(
        &self,
        command: impl FnOnce(oneshot::Sender<io::Result<()>>) -> Command<C>,
    ) -> io::Result<()> {
        let (tx, rx) = oneshot::channel();
        self.reader.send(command(tx)).await?;
        rx.await.map_err(|_| closed())?
    }
}

impl<C: Environment> LogReader<C> {
    async fn send(&self, command: Command<C>) -> io::Result<()> {
        self.commands.send(command).await.map_err(|_| closed())
    }

    /// Entries of the range, in order, as many as fit into `bytes_max` but at least one if there is one.
    async fn read(&self, range: std::ops::Range<u64>, bytes_max: usize) -> io::Result<Vec<Entry>> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(entries) = self.shared.lock().tail.read(&range, bytes_max) {
            return Ok(entries);
        }
        let (tx, rx) = oneshot::channel();
        self.send(Command::Read(range, bytes_max, tx)).await?;
        let stored = rx.await.map_err(|_| closed())??;
        stored.into_iter().map(|entry| entry.into_entry().map_err(io::Error::other)).collect()
    }
}

fn closed() -> io::Error {
    io::Error::other("the raft log's thread has ended")
}

impl<C: Environment> RaftLogReader<C> for LogReader<C> {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, io::Error> {
        let range = self.clip(&range);
        self.read(range, usize::MAX).await
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.shared.lock().vote)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, io::Error> {
        let range = self.clip(&(start..end));
        self.read(range, READ_BYTES_MAX).await
    }
}

impl<C: Environment> LogReader<C> {
    /// The part of the range that exists.
    fn clip(&self, range: &impl RangeBounds<u64>) -> std::ops::Range<u64> {
        let start = match range.start_bound() {
            Bound::Included(at) => *at,
            Bound::Excluded(at) => at.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(at) => at.saturating_add(1),
            Bound::Excluded(at) => *at,
            Bound::Unbounded => u64::MAX,
        };
        let shared = self.shared.lock();
        let first = shared.purged.map_or(0, |id| id.index + 1);
        let next = shared.last.map_or(0, |id| id.index + 1);
        start.max(first)..end.min(next)
    }
}

impl<C: Environment> RaftLogStorage<C> for LogStore<C> {
    type LogReader = LogReader<C>;

    async fn get_log_state(&mut self) -> Result<LogState<C>, io::Error> {
        let shared = self.reader.shared.lock();
        Ok(LogState { last_purged_log_id: shared.purged, last_log_id: shared.last })
    }

    async fn get_log_reader(&mut self) -> LogReader<C> {
        self.reader.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let vote = *vote;
        self.ask(|tx| Command::SaveVote(vote, tx)).await?;
        self.reader.shared.lock().vote = Some(vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        self.reader.send(Command::SaveCommitted(committed)).await?;
        self.reader.shared.lock().committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(self.reader.shared.lock().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<C>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut ids = Vec::new();
        let mut payloads = Vec::new();
        {
            let mut shared = self.reader.shared.lock();
            for entry in entries {
                let payload = seal(DiskKind::Entry, &BorrowedEntry::from(&entry));
                ids.push(StoredLogId::from(&entry.log_id));
                shared.last = Some(entry.log_id);
                shared.tail.push(entry, payload.len());
                payloads.push(payload);
            }
        }
        self.reader.send(Command::Append(ids, payloads, callback)).await
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        let next = last_log_id.map_or(0, |id| id.index + 1);
        self.ask(|tx| Command::Truncate(next, tx)).await?;
        let mut shared = self.reader.shared.lock();
        if shared.last.is_some_and(|last| last.index >= next) {
            shared.last = last_log_id.max(shared.purged);
        }
        shared.tail.truncate(next);
        Ok(())
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        self.ask(|tx| Command::Purge(log_id, tx)).await?;
        let mut shared = self.reader.shared.lock();
        shared.purged = shared.purged.max(Some(log_id));
        shared.last = shared.last.max(shared.purged);
        shared.tail.purge(log_id.index + 1);
        Ok(())
    }
}

/// The newest entries, without gaps.
#[derive(Default)]
struct Tail {
    entries: VecDeque<(Entry, usize)>,
    bytes: usize,
}

impl Tail {
    fn push(&mut self, entry: Entry, bytes: usize) {
        let next = self.entries.back().map(|(last, _)| last.log_id.index + 1);
        if next.is_some_and(|next| next != entry.log_id.index) {
            self.entries.clear();
            self.bytes = 0;
        }
        self.entries.push_back((entry, bytes));
        self.bytes += bytes;
        while self.bytes > TAIL_BYTES_MAX && self.entries.len() > 1 {
            self.drop_front();
        }
    }

    fn drop_front(&mut self) {
        if let Some((_, bytes)) = self.entries.pop_front() {
            self.bytes -= bytes;
        }
    }

    fn truncate(&mut self, next: u64) {
        while self.entries.back().is_some_and(|(entry, _)| entry.log_id.index >= next) {
            let (_, bytes) = self.entries.pop_back().expect("just seen");
            self.bytes -= bytes;
        }
    }

    fn purge(&mut self, next: u64) {
        while self.entries.front().is_some_and(|(entry, _)| entry.log_id.index < next) {
            self.drop_front();
        }
    }

    /// The range, if all of it is here.
    fn read(&self, range: &std::ops::Range<u64>, bytes_max: usize) -> Option<Vec<Entry>> {
        let first = self.entries.front()?.0.log_id.index;
        let skip = usize::try_from(range.start.checked_sub(first)?).ok()?;
        let count = usize::try_from(range.end - range.start).ok()?;
        if skip + count > self.entries.len() {
            return None;
        }
        let mut bytes = 0_usize;
        let within = self.entries.iter().skip(skip).take(count).take_while(|(_, size)| {
            let fits = bytes == 0 || bytes + size <= bytes_max;
            bytes += size;
            fits
        });
        Some(within.map(|(entry, _)| entry.clone()).collect())
    }
}

/// Carries the commands out.
pub(crate) struct Worker<C: Environment> {
    files: LogFiles,
    /// What waits for the next sync.
    unsynced: Vec<IOFlushed<C>>,
}

impl<C: Environment> Worker<C> {
    /// The thread.
    fn run(mut self, mut queue: mpsc::Receiver<Command<C>>) {
        while let Some(command) = queue.blocking_recv() {
            self.carry_out(command);
            for _ in 1..COMMANDS_PER_SYNC {
                let Ok(command) = queue.try_recv() else { break };
                self.carry_out(command);
            }
            self.sync();
        }
    }

    /// Carries one command out. What it appends is on disk after the next [`Worker::sync`].
    pub(crate) fn carry_out(&mut self, command: Command<C>) {
        // What waits for the disk goes first, so that completions come in the order of the commands.
        if !matches!(command, Command::Append(..) | Command::Read(..) | Command::SaveCommitted(..)) {
            self.sync();
        }
        let files = &mut self.files;
        match command {
            Command::SaveVote(vote, reply) => answer(reply, files.save_vote((&vote).into())),
            Command::SaveCommitted(committed) => {
                // Where it fails, everything fails that comes after it.
                let _logged = files.save_committed(committed.as_ref().map(Into::into)).map_err(logged);
            }
            Command::Append(ids, payloads, callback) => match files.append(&ids, &payloads) {
                Ok(()) => self.unsynced.push(callback),
                Err(error) => callback.io_completed(Err(logged(error))),
            },
            Command::Truncate(next, reply) => answer(reply, files.truncate(next)),
            Command::Purge(log_id, reply) => answer(reply, files.purge((&log_id).into())),
            Command::Read(range, bytes_max, reply) => {
                // A reader that gave up needs no answer.
                let _gone = reply.send(read(files, range, bytes_max).map_err(logged));
            }
        }
    }

    /// Waits for the disk, and says so to those that wait for it.
    pub(crate) fn sync(&mut self) {
        if self.unsynced.is_empty() {
            return;
        }
        let outcome = self.files.sync();
        let error = outcome.err().map(|error| logged(error).to_string());
        for callback in self.unsynced.drain(..) {
            callback.io_completed(match &error {
                None => Ok(()),
                Some(error) => Err(io::Error::other(error.clone())),
            });
        }
    }
}

fn answer(reply: oneshot::Sender<io::Result<()>>, outcome: Result<(), StoreError>) {
    // Raft waits for the answer; if it is being shut down nobody does.
    let _gone = reply.send(outcome.map_err(logged));
}

fn logged(error: StoreError) -> io::Error {
    tracing::error!(%error, "raft log failed");
    error.into()
}

fn read(
    files: &LogFiles,
    range: std::ops::Range<u64>,
    bytes_max: usize,
) -> Result<Vec<StoredEntry>, StoreError> {
    let mut entries = Vec::new();
    let mut bytes = 0_usize;
    for index in range {
        let Some((entry, size)) = files.read(index)? else {
            // Purged meanwhile; raft notices by the first index that it gets.
            continue;
        };
        bytes += size;
        if !entries.is_empty() && bytes > bytes_max {
            break;
        }
        entries.push(entry);
    }
    Ok(entries)
}
