//! The threads that compact: of all partitions with `cleanup.policy=compact` on this node the dirtiest one first.
//!
//! A thread looks which partition is due, asks its log thread for what a pass needs, reads and writes beside it, and hands back
//! each new segment to be put in its place (`log_engine::compact`). A partition that fails is set aside with its reason and
//! tried again later and later; the others go on. Leaders and followers compact alike, each its own copy.

mod board;
mod metrics;
mod pace;
mod settings;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use log_engine::{
    CompactedSegment, Compaction, CompactionCounts, CompactionError, CompactionRequest, Installed,
};
use log_engine_core::compact::Dirtiness;
use parking_lot::Mutex;
use proto_types::ids::{Millis, TopicPartition};
use storage_node_core::Standing;
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::disk::event::{CompactionStep, Event};
use crate::partition::{PartitionHandle, Partitions};
use board::Board;
pub(crate) use metrics::CleanerMetrics;
use pace::{CleanerPace, Throttle};
pub(crate) use settings::{CleanerSettings, CompactionSettings};

/// How old the metrics of waiting partitions become while threads are busy.
const LOOK_AGAIN_MS: i64 = 30_000;
/// Pause before a new segment is brought again whose sources are being read.
const INSTALL_PAUSE: Duration = Duration::from_millis(100);
/// After a minute of that the pass is given up.
const INSTALL_TRIES_MAX: usize = 600;

/// The cleaner of a node. Threads come and go with `log.cleaner.threads`.
#[derive(Debug)]
pub(crate) struct Cleaner {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    partitions: OnceLock<Weak<Partitions>>,
    settings: ArcSwap<CleanerSettings>,
    board: Board,
    throttle: Throttle,
    clock: Clock,
    looked_around: Mutex<Millis>,
    metrics: CleanerMetrics,
}

/// A partition that is due.
struct Job {
    handle: PartitionHandle,
    bound: i64,
    dirtiness: Dirtiness,
}

/// How a pass ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PassEnd {
    Done,
    /// The log, or its policy, has changed meanwhile; or there was nothing to do any more.
    Void,
    Stopped,
}

impl Cleaner {
    /// Without any threads yet.
    pub(crate) fn new(clock: Clock, metrics: CleanerMetrics) -> Self {
        let shared = Shared {
            partitions: OnceLock::new(),
            settings: ArcSwap::from_pointee(CleanerSettings::default()),
            board: Board::default(),
            throttle: Throttle::default(),
            clock,
            looked_around: Mutex::new(Millis(0)),
            metrics,
        };
        Self { shared: Arc::new(shared), threads: Mutex::default() }
    }

    /// Says whose partitions are to be compacted. Before this nothing runs.
    pub(crate) fn attach(&self, partitions: Weak<Partitions>) {
        // There is one set of partitions in a node.
        _ = self.shared.partitions.set(partitions);
    }

    /// Takes new settings: starts the threads that are wanted; those that are not end after their pass.
    pub(crate) fn configure(&self, settings: CleanerSettings) {
        let wanted = settings.threads;
        // The metadata change all the time, and each change ends here.
        if **self.shared.settings.load() != settings {
            self.shared.settings.store(Arc::new(settings));
            self.shared.board.wake();
        }
        let mut threads = self.threads.lock();
        threads.retain(|thread| !thread.is_finished());
        for index in self.shared.board.admit(wanted) {
            let shared = Arc::clone(&self.shared);
            let started = std::thread::Builder::new().name(format!("weir-clean-{index}")).spawn(move || {
                shared.run(index);
            });
            match started {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    self.shared.board.leave(index);
                    tracing::error!(%error, "a thread that compacts cannot be started");
                }
            }
        }
    }

    /// Lets passes stop where they are.
    pub(crate) fn request_stop(&self) {
        self.shared.board.stop();
    }

    /// Waits until all threads have ended, after [`request_stop`](Self::request_stop). Blocks.
    pub(crate) fn join(&self) {
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread that compacts had panicked");
            }
        }
    }
}

impl Shared {
    fn run(&self, index: usize) {
        while self.board.stays(index) {
            let settings = self.settings.load_full();
            // Whatever happens in a pass, the thread lives on for the other partitions.
            let round = catch_unwind(AssertUnwindSafe(|| self.round(&settings)));
            let worked = round.unwrap_or_else(|_| {
                self.metrics.on_failure();
                tracing::error!("a thread that compacts has panicked; it goes on after a pause");
                false
            });
            if !worked {
                self.board.pause(Duration::from_millis(settings.backoff_ms));
            }
        }
    }

    /// Compacts the partition that needs it most; `false` if none does.
    fn round(&self, settings: &CleanerSettings) -> bool {
        let Some(job) = self.find_job() else { return false };
        let (id, topic) = (job.handle.id(), job.handle.settings().topic_name.clone());
        let began = self.clock.monotonic();
        let mut counts = CompactionCounts::default();
        let pass = catch_unwind(AssertUnwindSafe(|| self.pass(&job, settings, &mut counts)));
        let pass = pass.unwrap_or_else(|_| Err("the thread panicked".to_owned()));
        let now = self.clock.monotonic();
        self.metrics.on_pass(&counts, now.0 - began.0);
        match &pass {
            Ok(PassEnd::Done) => {
                tracing::info!(
                    partition = %id, topic, from = job.dirtiness.from, until = job.dirtiness.until,
                    bytes_in = counts.bytes_in, bytes_out = counts.bytes_out, keys = counts.keys,
                    ms = now.0 - began.0, "compacted"
                );
                self.board.succeeded(id);
            }
            Ok(PassEnd::Void) => {
                self.metrics.on_void();
                self.board.rests(id, now);
            }
            Ok(PassEnd::Stopped) => self.board.released(id),
            Err(reason) => {
                self.metrics.on_failure();
                let pause_ms = self.board.failed(id, reason.clone(), now, settings.backoff_ms);
                tracing::error!(
                    partition = %id, topic, reason, retry_in_ms = pause_ms,
                    "the partition cannot be compacted; others go on"
                );
            }
        }
        self.metrics.set_uncleanable(self.board.set_aside(now));
        true
    }

    /// Looks at all compacted partitions, and takes the dirtiest that is due.
    fn find_job(&self) -> Option<Job> {
        let now = self.clock.monotonic();
        let due = self.look_around()?.into_iter();
        let due = due.filter(|job| job.dirtiness.due && self.board.is_free(job.handle.id(), now));
        let dirtiest = due.max_by(|a, b| a.dirtiness.ratio().total_cmp(&b.dirtiness.ratio()))?;
        self.board.take(dirtiest.handle.id(), now).then_some(dirtiest)
    }

    /// Looks what there is to do in each partition, and tells the metrics.
    fn look_around(&self) -> Option<Vec<Job>> {
        let partitions = self.partitions.get()?.upgrade()?;
        let candidates = partitions.compacted();
        drop(partitions);
        let now = self.clock.monotonic();
        *self.looked_around.lock() = now;
        let present: Vec<TopicPartition> = candidates.iter().map(|(handle, _)| handle.id()).collect();
        self.board.forget_absent(&present);
        let mut jobs = Vec::with_capacity(candidates.len());
        for (handle, data) in candidates {
            let view = handle.view();
            if view.standing == Standing::Failed {
                continue;
            }
            let bound = view.high_watermark.min(view.last_stable).0;
            let policy = handle.settings().compaction.policy();
            let dirtiness = handle.reader().dirtiness(&data, bound, handle.believed_ms(), &policy);
            jobs.push(Job { handle, bound, dirtiness });
        }
        self.metrics.set_dirtiness(jobs.iter().map(|job| (&job.handle, &job.dirtiness)));
        self.metrics.set_uncleanable(self.board.set_aside(now));
        Some(jobs)
    }

    /// In the middle of a pass, which may take hours: what is waiting meanwhile is told now and then.
    fn look_around_again(&self) {
        let last = *self.looked_around.lock();
        if self.clock.monotonic().0 - last.0 >= LOOK_AGAIN_MS {
            self.look_around();
        }
    }

    fn pass(
        &self,
        job: &Job,
        settings: &CleanerSettings,
        counts: &mut CompactionCounts,
    ) -> Result<PassEnd, String> {
        let topic = job.handle.settings();
        let request = CompactionRequest {
            bound: job.bound,
            dirtiness: job.dirtiness,
            now_ms: job.handle.believed_ms(),
            delete_retention_ms: topic.compaction.delete_retention_ms,
            keep_from: i64::MAX,
            map_bytes_max: settings.map_bytes_max(),
        };
        let begun = ask(&job.handle, |reply| CompactionStep::Begin { request, reply });
        let Some(mut compaction) = begun.flatten() else { return Ok(PassEnd::Void) };
        let ended = self.work(job, &mut compaction);
        *counts = compaction.counts();
        match ended {
            Ok(end) => Ok(end),
            Err(Failure::Pass(CompactionError::Stopped)) => Ok(PassEnd::Stopped),
            Err(Failure::Pass(CompactionError::Changed)) => Ok(PassEnd::Void),
            Err(Failure::Pass(error)) => {
                // Who looks at every segment makes sure of the damage, and has the copy repaired. Once is enough.
                if matches!(error, CompactionError::Damaged { .. }) && !self.board.has_failed(job.handle.id())
                {
                    job.handle.on_damage();
                }
                Err(error.to_string())
            }
            Err(Failure::Install(reason)) => Err(reason),
        }
    }

    fn work(&self, job: &Job, compaction: &mut Compaction) -> Result<PassEnd, Failure> {
        let mut pace = CleanerPace::new(self, &job.handle);
        compaction.prepare(&mut pace)?;
        while let Some(segment) = compaction.next_segment(&mut pace)? {
            if let Some(ended) = self.install(job, Box::new(segment))? {
                return Ok(ended);
            }
        }
        let finished = compaction.finished();
        match ask(&job.handle, |reply| CompactionStep::Finish { finished, reply }) {
            Some(true) => compaction.save_progress()?,
            Some(false) | None => return Ok(PassEnd::Void),
        }
        Ok(PassEnd::Done)
    }

    /// Has a new segment put in its place. Answers how the pass ended, if it did.
    fn install(&self, job: &Job, mut segment: Box<CompactedSegment>) -> Result<Option<PassEnd>, Failure> {
        for _ in 0..INSTALL_TRIES_MAX {
            match ask(&job.handle, |reply| CompactionStep::Install { segment, reply }) {
                Some(Ok(Installed::Yes | Installed::Gone)) => return Ok(None),
                Some(Ok(Installed::Stale)) | None => return Ok(Some(PassEnd::Void)),
                Some(Err(reason)) => return Err(Failure::Install(reason)),
                Some(Ok(Installed::Later(back))) => segment = back,
            }
            if !self.board.sleep(INSTALL_PAUSE) {
                (*segment).discard();
                return Ok(Some(PassEnd::Stopped));
            }
        }
        (*segment).discard();
        Ok(Some(PassEnd::Void))
    }
}

enum Failure {
    Pass(CompactionError),
    Install(String),
}

impl From<CompactionError> for Failure {
    fn from(error: CompactionError) -> Self {
        Failure::Pass(error)
    }
}

/// Asks the log thread and waits for its answer; `None` if the copy is not there any more.
fn ask<T>(handle: &PartitionHandle, step: impl FnOnce(oneshot::Sender<T>) -> CompactionStep) -> Option<T> {
    let (reply, answer) = oneshot::channel();
    // Bounded by the number of threads: each waits for the answer.
    handle.tell(Event::Compaction { id: handle.id(), step: step(reply) });
    answer.blocking_recv().ok()
}
