//! Removes the files of deleted logs and segments on a thread of its own: for a large log that takes long, and everybody who
//! has a partition in the directory waits for the log thread.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use log_engine::{DetachedLog, DetachedSegments};
use proto_types::ids::Millis;

use crate::clock::Clock;

/// Removals that may wait for the thread; further ones are done by whoever brings them.
const QUEUE_MAX: usize = 10_000;
/// Removals whose time has not come; further ones are done at once.
const DELAYED_MAX: usize = 100_000;
/// How long the thread waits when nothing is due.
const IDLE_WAIT: Duration = Duration::from_secs(1);

/// Files to remove.
pub(crate) enum Doomed {
    /// All of a log.
    Log(DetachedLog),
    /// Of segments that their log has dropped.
    Segments(DetachedSegments),
}

struct Removal {
    doomed: Doomed,
    due: Millis,
}

/// The thread. When dropped it ends after the removal that it is at: the next start removes what is left.
pub(crate) struct Remover {
    queue: Option<SyncSender<Removal>>,
    stopping: Arc<AtomicBool>,
    hurry: Arc<AtomicBool>,
    clock: Clock,
    thread: Option<JoinHandle<()>>,
}

struct Running {
    queue: Receiver<Removal>,
    stopping: Arc<AtomicBool>,
    /// Nothing waits for its time: the disk is nearly full.
    hurry: Arc<AtomicBool>,
    clock: Clock,
    delayed: BTreeMap<(Millis, u64), Doomed>,
    next_number: u64,
}

impl Remover {
    /// Starts the thread for a data directory, given by its place in the configuration.
    pub(crate) fn start(directory: usize, clock: Clock) -> io::Result<Self> {
        let (sender, queue) = sync_channel(QUEUE_MAX);
        let stopping = Arc::new(AtomicBool::new(false));
        let hurry = Arc::new(AtomicBool::new(false));
        let running = Running {
            queue,
            stopping: Arc::clone(&stopping),
            hurry: Arc::clone(&hurry),
            clock,
            delayed: BTreeMap::new(),
            next_number: 0,
        };
        let thread = std::thread::Builder::new()
            .name(format!("weir-remove-{directory}"))
            .spawn(move || running.run())?;
        Ok(Self { queue: Some(sender), stopping, hurry, clock, thread: Some(thread) })
    }

    /// Whether the delays are passed over, because the disk is nearly full.
    pub(crate) fn set_hurry(&self, hurry: bool) {
        self.hurry.store(hurry, Ordering::Relaxed);
    }

    /// Has the files removed, after a while.
    pub(crate) fn remove(&self, doomed: Doomed, delay_ms: i64) {
        let removal = Removal { doomed, due: Millis(self.clock.monotonic().0.saturating_add(delay_ms)) };
        match self.queue.as_ref().map(|queue| queue.try_send(removal)) {
            Some(Err(TrySendError::Full(removal) | TrySendError::Disconnected(removal))) => {
                remove(removal.doomed);
            }
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

impl Running {
    fn run(mut self) {
        loop {
            let came = self.queue.recv_timeout(self.wait());
            if self.stopping.load(Ordering::Acquire) {
                return;
            }
            match came {
                Ok(removal) => self.take(removal),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = self.now();
            while let Some(first) = self.delayed.first_entry().filter(|first| first.key().0 <= now) {
                remove(first.remove());
                if self.stopping.load(Ordering::Acquire) {
                    return;
                }
            }
        }
    }

    fn take(&mut self, removal: Removal) {
        if removal.due <= self.now() || self.delayed.len() >= DELAYED_MAX {
            return remove(removal.doomed);
        }
        self.next_number += 1;
        self.delayed.insert((removal.due, self.next_number), removal.doomed);
    }

    /// The time by which removals are due.
    fn now(&self) -> Millis {
        match self.hurry.load(Ordering::Relaxed) {
            true => Millis(i64::MAX),
            false => self.clock.monotonic(),
        }
    }

    fn wait(&self) -> Duration {
        let Some((due, _)) = self.delayed.keys().next() else { return IDLE_WAIT };
        let left = due.0.saturating_sub(self.clock.monotonic().0);
        IDLE_WAIT.min(Duration::from_millis(u64::try_from(left).unwrap_or(0)))
    }
}

fn remove(doomed: Doomed) {
    let removed = match doomed {
        Doomed::Log(log) => log.remove_files(),
        Doomed::Segments(segments) => segments.remove_files(),
    };
    if let Err(error) = removed {
        tracing::error!(%error, "files of deleted records stay until the next start");
    }
}
