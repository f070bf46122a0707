//! Removes the files of deleted logs on a thread of its own: for a large log that takes long, and everybody who has a
//! partition in the directory waits for the log thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use log_engine::DetachedLog;

/// Logs that may wait; further ones are removed by whoever brings them.
const QUEUE_MAX: usize = 10_000;

/// The thread. When dropped it ends after the log that it is at: the next start removes what is left.
pub(crate) struct Remover {
    queue: Option<SyncSender<DetachedLog>>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Remover {
    /// Starts the thread for a data directory, given by its place in the configuration.
    pub(crate) fn start(directory: usize) -> io::Result<Self> {
        let (queue, logs) = sync_channel::<DetachedLog>(QUEUE_MAX);
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        let thread =
            std::thread::Builder::new().name(format!("weir-remove-{directory}")).spawn(move || {
                for log in logs {
                    if !stop.load(Ordering::Acquire) {
                        remove(log);
                    }
                }
            })?;
        Ok(Self { queue: Some(queue), stopping, thread: Some(thread) })
    }

    /// Has the files removed.
    pub(crate) fn remove(&self, log: DetachedLog) {
        match self.queue.as_ref().map(|queue| queue.try_send(log)) {
            Some(Err(TrySendError::Full(log) | TrySendError::Disconnected(log))) => remove(log),
            Some(Ok(())) | None => {}
        }
    }
}

impl Drop for Remover {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

fn remove(log: DetachedLog) {
    if let Err(error) = log.remove_files() {
        tracing::error!(%error, "the files of a deleted log stay until the next start");
    }
}
