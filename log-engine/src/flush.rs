//! Making appends durable, away from the thread that appends.
//!
//! The owner takes a [`FlushHandle`] from its log, some flusher thread executes it, and the owner hands the outcome
//! back ([`Log::on_flushed`](crate::Log::on_flushed)). A log has at most one handle at a time, hence a file at most
//! one sync in flight. [`Flusher`] is the pool of threads: it takes all that waits as one round, syncs file by file
//! or, where that is cheaper and harms nobody, the whole file system at once.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use log_engine_core::EpochHistory;
use parking_lot::{Condvar, Mutex};

use crate::config::FlusherConfig;
use crate::data_dir::DataDir;
use crate::descriptors::Pin;
use crate::disk::{Disk, FileSystem};
use crate::error::{FileError, FlushError};
use crate::log::is_disk_full;
use crate::{LogName, epoch_file};

/// What must be durable for the log's flushed end to move.
pub(crate) struct FlushWork {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) files: Vec<Arc<Pin>>,
    /// Names in the log's directory have changed.
    pub(crate) dir_changed: bool,
    /// The log's directory itself is new.
    pub(crate) dir_is_new: bool,
    /// New content of the epoch file.
    pub(crate) epochs: Option<EpochFile>,
    /// What came of syncing the files; held meanwhile. An error is reported once per descriptor, and both a flusher and
    /// the owner may want this work done: whoever comes second must learn what the first was told.
    pub(crate) files_synced: Mutex<Option<Result<(), Arc<FileError>>>>,
}

/// A version of the epoch file, to be written unless a newer one already was.
pub(crate) struct EpochFile {
    pub(crate) version: u64,
    pub(crate) history: EpochHistory,
    /// Records that count as flushed with it.
    pub(crate) records: Range<i64>,
    /// Held while writing.
    pub(crate) written: Arc<Mutex<EpochsWritten>>,
}

/// What was written of the epochs.
pub(crate) struct EpochsWritten {
    /// Highest version so far.
    pub(crate) version: u64,
    /// What the file says, if there is one.
    in_file: Option<EpochHistory>,
}

impl EpochsWritten {
    /// Nothing yet; an earlier process may have left a file.
    pub(crate) fn of_file(in_file: Option<EpochHistory>) -> EpochsWritten {
        EpochsWritten { version: 0, in_file }
    }
}

/// One flush of one log, to be executed on a thread that may wait for the device.
pub struct FlushHandle {
    pub(crate) log: LogName,
    pub(crate) ticket: u64,
    pub(crate) end: i64,
    pub(crate) work: Arc<FlushWork>,
}

/// The outcome of a flush, for the owner of the log.
#[derive(Debug)]
pub struct FlushDone {
    pub log: LogName,
    /// End of the log when the flush began; what is durable if it succeeded.
    pub end: i64,
    pub result: Result<(), FlushError>,
    pub(crate) ticket: u64,
    /// Nothing failed, but nothing counts as durable either: the log will want to be flushed again.
    pub(crate) again: bool,
}

impl FlushHandle {
    pub fn log(&self) -> LogName {
        self.log
    }

    /// End of the log when the flush began.
    pub fn end(&self) -> i64 {
        self.end
    }

    /// Syncs, file by file.
    pub fn sync(&self) -> Result<(), FlushError> {
        self.work.sync_files().map_err(FlushError::Failed)?;
        self.work.sync_names(false).map_err(names_failed)
    }

    /// The outcome to hand back to the log.
    pub fn done(self, result: Result<(), FlushError>) -> FlushDone {
        FlushDone { log: self.log, end: self.end, result, ticket: self.ticket, again: false }
    }
}

impl FlushWork {
    /// Syncs the files, once: a second caller gets the outcome of the first.
    pub(crate) fn sync_files(&self) -> Result<(), FileError> {
        let mut outcome = self.files_synced.lock();
        let outcome = outcome.get_or_insert_with(|| {
            // Planted: it is said to be on disk without being brought there.
            if cfg!(weir_planted_bug = "B11") {
                return Ok(());
            }
            let sync = |pin: &Arc<Pin>| pin.file().sync().map_err(|e| FileError::new("sync", pin.path(), e));
            self.files.iter().try_for_each(sync).map_err(Arc::new)
        });
        outcome.clone().map_err(|e| {
            let source = match e.source.raw_os_error() {
                Some(code) => std::io::Error::from_raw_os_error(code),
                None => std::io::Error::new(e.source.kind(), e.source.to_string()),
            };
            FileError::new(e.action, &e.path, source)
        })
    }

    /// `synced` says that the whole file system was synced just now.
    pub(crate) fn sync_names(&self, synced: bool) -> Result<(), FileError> {
        // Planted: new names are not brought to the disk.
        let mut dir_changed = self.dir_changed && !synced && !cfg!(weir_planted_bug = "B12");
        if let Some(epochs) = &self.epochs {
            epochs.write(&*self.disk, &self.dir)?;
            dir_changed = false;
        }
        if dir_changed {
            self.disk.sync_dir(&self.dir).map_err(|e| FileError::new("sync", &self.dir, e))?;
        }
        if let Some(above) = self.dir.parent().filter(|_| self.dir_is_new && !synced) {
            self.disk.sync_dir(above).map_err(|e| FileError::new("sync", above, e))?;
        }
        Ok(())
    }
}

fn names_failed(error: FileError) -> FlushError {
    match is_disk_full(&error.source) {
        true => FlushError::DiskFull(error),
        false => FlushError::Failed(error),
    }
}

impl EpochFile {
    /// Also done on a full disk, where another version has to be written later.
    pub(crate) fn write(&self, disk: &dyn Disk, dir: &std::path::Path) -> Result<(), FileError> {
        let mut written = self.written.lock();
        if written.version >= self.version {
            return disk.sync_dir(dir).map_err(|e| FileError::new("sync", dir, e));
        }
        if epoch_file::write(disk, dir, &self.history, self.records.clone(), &mut written.in_file)? {
            written.version = self.version;
        }
        Ok(())
    }
}

/// A pool of threads that execute flushes of the logs of one data directory.
pub struct Flusher {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

struct Queue {
    config: FlusherConfig,
    data: DataDir,
    file_system: Option<Box<dyn FileSystem>>,
    /// Whether a sync of the file system has ever failed; held while one is under way. It tells its error to one caller
    /// only, whosever pages were lost, so that afterwards no later sync of it means anything.
    file_system_failed: Mutex<bool>,
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<FlushHandle>,
    /// There was a round since the ends were last synced for idleness.
    busy: bool,
    closed: bool,
}

impl Flusher {
    /// Starts the threads. `on_done` is called on them for every flush that was submitted; it should not block for
    /// long, since it delays the next round.
    pub fn start(
        data: DataDir,
        config: FlusherConfig,
        on_done: impl Fn(FlushDone) + Send + Sync + 'static,
    ) -> Result<Flusher, FileError> {
        let path = data.path().to_owned();
        let file_system =
            data.disk().file_system(&path).map_err(|e| FileError::new("open file system of", &path, e))?;
        let file_system = file_system.is_own_mount().then_some(file_system);
        let threads = config.threads.max(1);
        let queue = Arc::new(Queue {
            config,
            data,
            file_system,
            file_system_failed: Mutex::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let on_done = Arc::new(on_done);
        let threads = (0..threads)
            .map(|n| {
                let (queue, on_done) = (queue.clone(), on_done.clone());
                std::thread::Builder::new()
                    .name(format!("flusher-{n}"))
                    .spawn(move || queue.run(&*on_done))
                    .map_err(|e| FileError::new("start flusher thread of", &path, e))
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Flusher { queue, threads })
    }

    /// Queues a flush. When the queue is full (or closing) the handle comes back: give it to
    /// [`Log::return_flush`](crate::Log::return_flush) and try again later.
    pub fn submit(&self, handle: FlushHandle) -> Result<(), FlushHandle> {
        let mut state = self.queue.state.lock();
        if state.closed || state.waiting.len() >= self.queue.config.queue_max {
            return Err(handle);
        }
        state.waiting.push_back(handle);
        state.busy = true;
        drop(state);
        self.queue.changed.notify_one();
        Ok(())
    }
}

impl Drop for Flusher {
    /// Executes what waits and ends the threads.
    fn drop(&mut self) {
        self.queue.state.lock().closed = true;
        self.queue.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so; the others still end.
            let _ = thread.join();
        }
    }
}

impl Queue {
    fn run(&self, on_done: &(impl Fn(FlushDone) + ?Sized)) {
        let mut rounds_unsynced = 0;
        while let Some(round) = self.next_round() {
            // The ends of earlier rounds are written beside this one. A sync of their own they get now and then, as a
            // power cut that finds an older bound is no harm, and a sync each time would slow every flush.
            self.log_failure(self.data.ends().write());
            let idle = round.is_empty();
            self.sync_round(round, on_done);
            rounds_unsynced += 1;
            if idle || rounds_unsynced >= self.config.record_sync_rounds {
                rounds_unsynced = 0;
                self.log_failure(self.data.ends().sync_unless_busy());
            }
        }
        self.log_failure(self.data.checkpoint());
    }

    fn log_failure(&self, result: Result<(), FileError>) {
        if let Err(error) = result {
            tracing::error!(%error, "flushed ends are not recorded");
        }
    }

    /// One flush, or all that wait if they are many and one sync of the file system serves them; an empty round if
    /// nothing came for a while after the last; `None` at the end.
    fn next_round(&self) -> Option<Vec<FlushHandle>> {
        let mut state = self.state.lock();
        loop {
            let files: usize = match &self.file_system {
                Some(_) => state.waiting.iter().map(|h| h.work.files.len()).sum(),
                None => 0,
            };
            if files > self.config.syncfs_above_files {
                return Some(state.waiting.drain(..).collect());
            }
            if let Some(handle) = state.waiting.pop_front() {
                return Some(vec![handle]);
            }
            if state.closed {
                return None;
            }
            if std::mem::replace(&mut state.busy, false) {
                let idle = Duration::from_millis(self.config.record_sync_idle_ms);
                if self.changed.wait_for(&mut state, idle).timed_out() {
                    return Some(Vec::new());
                }
                continue;
            }
            self.changed.wait(&mut state);
        }
    }

    fn sync_round(&self, round: Vec<FlushHandle>, on_done: &(impl Fn(FlushDone) + ?Sized)) {
        let files: usize = round.iter().map(|h| h.work.files.len()).sum();
        match &self.file_system {
            Some(file_system) if files > self.config.syncfs_above_files => {
                self.sync_whole(&**file_system, round, on_done);
            }
            Some(_) | None => sync_each(round, on_done),
        }
    }

    fn sync_whole(
        &self,
        file_system: &dyn FileSystem,
        round: Vec<FlushHandle>,
        on_done: &(impl Fn(FlushDone) + ?Sized),
    ) {
        let synced = {
            let mut failed = self.file_system_failed.lock();
            if *failed {
                drop(failed);
                return sync_each(round, on_done);
            }
            let synced = file_system.sync();
            *failed = synced.is_err();
            synced
        };
        match synced {
            Ok(()) => {
                for handle in round {
                    let result = handle.work.sync_names(true).map_err(names_failed);
                    on_done(handle.done(result));
                }
            }
            // The error names no file. Each dirty file is asked through its own descriptor, and the logs of those
            // that report are poisoned. No flushed end advances from this round: the others are flushed again.
            Err(error) => {
                let path = self.data.path().display();
                tracing::error!(%error, %path, "sync of the file system failed; from now on file by file");
                for handle in round {
                    let result = handle.sync();
                    on_done(FlushDone { again: true, ..handle.done(result) });
                }
            }
        }
    }
}

fn sync_each(round: Vec<FlushHandle>, on_done: &(impl Fn(FlushDone) + ?Sized)) {
    for handle in round {
        let result = handle.sync();
        on_done(handle.done(result));
    }
}
