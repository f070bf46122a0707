//! Opens the logs of a data directory on a few threads, and hands each to the log thread as it is ready.
//!
//! A log with much that was not flushed takes minutes to recover; meanwhile the log thread serves those that are open, and
//! the others come up beside it. Logs of which little is to be recovered have threads of their own, so that no new topic waits
//! for old ones. The threads live as long as there is something to open. What waits for them is bounded by the number of
//! copies: the registry opens each once, and waits for the answer.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use log_engine::{DataDir, Log, OpenError, RecoveryProgress};
use parking_lot::Mutex;
use proto_types::ids::{CoordinatorEpoch, TopicPartition};
use storage_node_core::FlushMode;

use crate::clock::Clock;
use crate::disk::claim;
use crate::disk::event::{Event, Open, OpenFailure, Opened, OpenedLog};
use crate::disk::event_queue::EventQueue;
use crate::disk::health::DiskHealth;
use crate::disk::housekeeping::AppendClock;
use crate::disk::log_thread::{EndWithProcess, log_name};
use crate::partition::PartitionMetrics;

/// Logs of each kind that are opened at once. It is waiting for the disk that overlaps.
const OPENERS_MAX: usize = 16;

/// Why an open is refused that comes too late.
const STOPPING: &str = "the node is stopping";

/// What an opener is made of.
pub(crate) struct OpenerParts {
    pub(crate) data: DataDir,
    /// The directory's place in the configuration.
    pub(crate) directory: usize,
    pub(crate) queue: Arc<EventQueue<Event>>,
    pub(crate) health: Arc<DiskHealth>,
    pub(crate) clock: Clock,
    pub(crate) append_clock: AppendClock,
    pub(crate) metrics: PartitionMetrics,
}

/// The log thread's side.
pub(crate) struct Opener {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Copies whose opens the log thread has not answered yet.
    opening: BTreeSet<TopicPartition>,
}

struct Shared {
    parts: OpenerParts,
    /// Of old logs and of those of which little is to be recovered.
    lanes: [Mutex<Lane>; 2],
    stopping: AtomicBool,
}

/// Logs that wait for their threads.
#[derive(Default)]
struct Lane {
    waiting: VecDeque<Open>,
    running: usize,
}

impl Opener {
    /// An opener that has nothing to do yet.
    pub(crate) fn new(parts: OpenerParts) -> Self {
        let shared = Shared { parts, lanes: Default::default(), stopping: AtomicBool::new(false) };
        Self { shared: Arc::new(shared), threads: Vec::new(), opening: BTreeSet::new() }
    }

    /// Has a log opened. What came of it is in an [`Event::Opened`], unless it is refused at once.
    pub(crate) fn begin(&mut self, open: Open) {
        if let Some(reason) = self.refusal() {
            return self.refuse(open, &reason);
        }
        assert!(self.opening.insert(open.id), "the registry opens a copy once");
        let lane = usize::from(open.is_short);
        {
            let mut lane = self.shared.lanes[lane].lock();
            lane.waiting.push_back(open);
            if lane.running >= OPENERS_MAX {
                return;
            }
            lane.running += 1;
        }
        self.threads.retain(|thread| !thread.is_finished());
        let shared = Arc::clone(&self.shared);
        let name = format!("weir-open-{}", self.shared.parts.directory);
        match std::thread::Builder::new().name(name).spawn(move || shared.run(lane)) {
            Ok(thread) => self.threads.push(thread),
            Err(error) => self.on_no_thread(lane, &error.to_string()),
        }
    }

    /// Others that run take the work up; it fails for the moment if there are none.
    fn on_no_thread(&mut self, lane: usize, reason: &str) {
        let is_alone = {
            let mut lane = self.shared.lanes[lane].lock();
            lane.running -= 1;
            lane.running == 0
        };
        if is_alone {
            self.refuse_lane(lane, &format!("no thread can be started to open it: {reason}"));
        }
    }

    /// Whether the copy's open is not answered yet.
    pub(crate) fn is_opening(&self, id: TopicPartition) -> bool {
        self.opening.contains(&id)
    }

    /// A log is ready, or has failed: what came of it, unless the directory has failed meanwhile or the node stops; then it
    /// is closed and refused here.
    pub(crate) fn take(&mut self, opened: Opened) -> Option<Opened> {
        self.opening.remove(&opened.open.id);
        match self.refusal() {
            Some(reason) => {
                refuse_opened(opened, &reason);
                None
            }
            None => Some(opened),
        }
    }

    /// Refuses what no thread has taken up yet.
    pub(crate) fn refuse_waiting(&mut self, reason: &str) {
        (0..self.shared.lanes.len()).for_each(|lane| self.refuse_lane(lane, reason));
    }

    fn refuse_lane(&mut self, lane: usize, reason: &str) {
        let waiting = std::mem::take(&mut self.shared.lanes[lane].lock().waiting);
        for open in waiting {
            self.opening.remove(&open.id);
            self.refuse(open, reason);
        }
    }

    /// Opens nothing more, and ends the recoveries that are under way.
    pub(crate) fn request_stop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.refuse_waiting(STOPPING);
    }

    /// Waits until the threads have ended.
    pub(crate) fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // A panic has ended the process.
            drop(thread.join());
        }
    }

    /// The log stays as an earlier process may have left it.
    fn refuse(&self, open: Open, reason: &str) {
        self.shared.parts.data.set_unclean();
        drop(open.done.send(Err(OpenFailure::for_now(reason))));
    }

    fn refusal(&self) -> Option<String> {
        self.shared.refusal()
    }
}

impl Shared {
    fn run(&self, lane: usize) {
        let _guard = EndWithProcess("a thread that opens logs");
        while let Some(open) = self.next(lane) {
            let id = open.id;
            let result = self.open(&open);
            self.parts.health.on_opened(id);
            self.parts.metrics.opening().on_recovered(id);
            if let Err(Event::Opened(opened)) =
                self.parts.queue.push(Event::Opened(Box::new(Opened { open, result })))
            {
                refuse_opened(*opened, STOPPING);
            }
        }
    }

    /// The next log; without one the thread ends.
    fn next(&self, lane: usize) -> Option<Open> {
        let mut lane = self.lanes[lane].lock();
        let next = lane.waiting.pop_front();
        if next.is_none() {
            lane.running -= 1;
        }
        next
    }

    fn refusal(&self) -> Option<String> {
        let stopping = || self.stopping.load(Ordering::Acquire).then(|| STOPPING.to_owned());
        self.parts.health.failure().or_else(stopping)
    }

    fn open(&self, open: &Open) -> Result<OpenedLog, OpenFailure> {
        let parts = &self.parts;
        let mut watch = |progress: RecoveryProgress| {
            parts.health.on_opening(open.id, parts.clock.monotonic());
            parts.metrics.opening().on_recovering(open.id, progress);
            self.refusal().is_none()
        };
        let (config, now_ms) = (open.settings.log.clone(), parts.append_clock.now_ms());
        let opened = Log::open_watched(&parts.data, log_name(open.id), config, now_ms, &mut watch);
        let (log, report) = opened.map_err(|error| {
            let damaged = matches!(error, OpenError::Damaged { .. });
            OpenFailure { reason: error.to_string(), damaged }
        })?;
        match open.closed.filter(|closed| report.end < closed.end.0) {
            // It was acknowledged as soon as it was written, or has been committed.
            Some(closed) if closed.flush == FlushMode::Os || report.end < closed.high_watermark.0 => {
                let end = closed.end;
                let reason = format!("records up to offset {end} are gone that found no space on the disk");
                Err(OpenFailure { reason, damaged: true })
            }
            Some(_) | None => {
                let claim = match open.settings.is_internal() {
                    true => self.newest_claim(open.id, &log),
                    false => Ok(None),
                };
                Ok(OpenedLog { log, report, claim })
            }
        }
    }

    /// Searches the log for the newest claim of a coordinator.
    fn newest_claim(&self, id: TopicPartition, log: &Log) -> Result<Option<CoordinatorEpoch>, String> {
        let mut go_on = || {
            self.parts.health.on_opening(id, self.parts.clock.monotonic());
            self.refusal().is_none()
        };
        let found = claim::newest(&log.reader(), (log.start(), log.end()), &mut go_on);
        found.map_err(|error| error.to_string())
    }
}

/// Closes a log that came too late.
fn refuse_opened(Opened { open, result }: Opened, reason: &str) {
    if let Ok(opened) = result
        && let Err(error) = opened.log.close()
    {
        tracing::warn!(partition = %open.id, %error, "cannot close a log that is not needed any more");
    }
    drop(open.done.send(Err(OpenFailure::for_now(reason))));
}
