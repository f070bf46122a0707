//! The answering side of a call, the same over QUIC and in memory: the table, the limits, the deadline.

use crate::config::{Limits, Timing};
use crate::envelope::{self, ReplyHeader, RequestHeader};
use crate::error::Refusal;
use crate::identity::Identity;
use crate::metrics::{Side, TransportMetrics, refusal_label};
use crate::peer::call_frame_max;
use crate::router::{Call, CallHandler, Caller, Handler, Router, StreamHandler};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Unit of the memory budget, bytes.
const MEMORY_UNIT: usize = 1024;

pub(crate) struct Service {
    router: Router,
    limits: Limits,
    call_max: Duration,
    calls: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    calls_by_peer: Arc<PeerCounts>,
    streams_by_peer: Arc<PeerCounts>,
    memory: Arc<Semaphore>,
    /// Replies on their way.
    delivering: TaskTracker,
    draining: AtomicBool,
    pub(crate) metrics: TransportMetrics,
}

/// Header and body of a reply, ready to be written.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) head: Bytes,
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) fn done(request_id: u64, body: Bytes) -> Self {
        Self { head: envelope::head(&ReplyHeader::done(request_id), body.len()), body }
    }

    pub(crate) fn refused(request_id: u64, refusal: Refusal) -> Self {
        Self { head: envelope::head(&ReplyHeader::refused(request_id, refusal), 0), body: Bytes::new() }
    }
}

/// A request that passed table and limits.
pub(crate) enum Admitted {
    Call(AdmittedCall),
    Stream(AdmittedStream),
}

pub(crate) struct AdmittedCall {
    call: Call,
    handler: CallHandler,
    permit: InProgress,
}

pub(crate) struct AdmittedStream {
    pub(crate) call: Call,
    pub(crate) handler: StreamHandler,
    pub(crate) permit: InProgress,
}

/// A request in progress: a share of the total and of its peer's.
#[derive(Debug)]
pub(crate) struct InProgress {
    _total: OwnedSemaphorePermit,
    _peer: PeerShare,
}

impl Service {
    pub(crate) fn new(router: Router, limits: Limits, timing: &Timing, metrics: TransportMetrics) -> Self {
        let memory_units = limits.call_memory_bytes / MEMORY_UNIT + 2;
        Self {
            router,
            limits,
            call_max: timing.call_max,
            calls: Arc::new(Semaphore::new(limits.calls_total as usize)),
            streams: Arc::new(Semaphore::new(limits.streams_total as usize)),
            calls_by_peer: Arc::new(PeerCounts::new(limits.calls_per_peer)),
            streams_by_peer: Arc::new(PeerCounts::new(limits.streams_per_peer)),
            memory: Arc::new(Semaphore::new(memory_units)),
            delivering: TaskTracker::new(),
            draining: AtomicBool::new(false),
            metrics,
        }
    }

    /// Waits until a request of `bytes` (at most `call_bytes_max` and a header) fits into the memory budget.
    pub(crate) async fn reserve(&self, bytes: usize) -> OwnedSemaphorePermit {
        let bytes = bytes.min(call_frame_max(self.limits.call_bytes_max));
        let units = u32::try_from(bytes / MEMORY_UNIT + 1).expect("call_bytes_max is at most 1 GiB");
        let permit = Arc::clone(&self.memory).acquire_many_owned(units).await;
        permit.expect("the budget's semaphore is never closed")
    }

    /// Looks a request up in the table and takes its permit, or makes the reply that refuses it.
    pub(crate) fn admit(&self, caller: &Caller, frame: &Bytes) -> Result<Admitted, Reply> {
        let (header, body) = match envelope::open::<RequestHeader>(frame) {
            Ok(opened) => opened,
            Err(reason) => return Err(self.refuse(0, 0, Refusal::Malformed(reason))),
        };
        self.metrics.call_begun(Side::Server, header.kind);
        self.metrics.received().inc_by(body.len() as u64);
        let refuse = |refusal| Err(self.refuse(header.kind, header.request_id, refusal));
        if body.len() > self.limits.call_bytes_max {
            return refuse(Refusal::TooLarge { limit: self.limits.call_bytes_max as u64 });
        }
        if self.draining.load(Ordering::Relaxed) {
            return refuse(Refusal::ShuttingDown);
        }
        let (kind, handler) = match self.router.find(header.kind, header.version, caller.identity.role()) {
            Ok(found) => found,
            Err(refusal) => return refuse(refusal),
        };
        let left = Duration::from_millis(u64::from(header.deadline_ms)).min(self.call_max);
        let call = Call {
            caller: caller.clone(),
            kind,
            version: header.version,
            request_id: header.request_id,
            trace: header.trace,
            deadline: Instant::now() + left,
            body,
        };
        match handler {
            Handler::Call(handler) if !header.stream => {
                match in_progress(&self.calls, &self.calls_by_peer, &caller.identity) {
                    Some(permit) => Ok(Admitted::Call(AdmittedCall { call, handler, permit })),
                    None => refuse(Refusal::Busy),
                }
            }
            Handler::Stream(handler) if header.stream => {
                match in_progress(&self.streams, &self.streams_by_peer, &caller.identity) {
                    Some(permit) => Ok(Admitted::Stream(AdmittedStream { call, handler, permit })),
                    None => refuse(Refusal::Busy),
                }
            }
            Handler::Call(_) | Handler::Stream(_) => refuse(Refusal::WrongShape),
        }
    }

    /// Runs a call's handler until its deadline. Hold the token until the reply has arrived, else a shutdown takes the reply
    /// away.
    pub(crate) async fn run(&self, admitted: AdmittedCall) -> (Reply, TaskTrackerToken) {
        let AdmittedCall { call, handler, permit: _permit } = admitted;
        let (kind, request_id, deadline) = (call.kind.number(), call.request_id, call.deadline);
        let begun = Instant::now();
        let outcome = match tokio::time::timeout_at(deadline, handler(call)).await {
            Ok(Ok(body)) if body.len() > self.limits.call_bytes_max => {
                let limit = self.limits.call_bytes_max;
                Err(Refusal::Failed(format!("the reply has {} bytes, the limit is {limit}", body.len())))
            }
            Ok(outcome) => outcome,
            Err(_elapsed) => Err(Refusal::DeadlinePassed),
        };
        let error = outcome.as_ref().err().map(refusal_label);
        self.metrics.call_ended(Side::Server, kind, begun.elapsed(), error);
        let reply = match outcome {
            Ok(body) => {
                self.metrics.sent().inc_by(body.len() as u64);
                Reply::done(request_id, body)
            }
            Err(refusal) => Reply::refused(request_id, refusal),
        };
        (reply, self.delivering.token())
    }

    pub(crate) fn refuse(&self, kind: u16, request_id: u64, refusal: Refusal) -> Reply {
        self.metrics.failed(Side::Server, kind, refusal_label(&refusal));
        Reply::refused(request_id, refusal)
    }

    /// Refuses everything new and waits, at most `grace`, for the calls in progress.
    pub(crate) async fn drain(&self, grace: Duration) {
        self.draining.store(true, Ordering::Relaxed);
        let ended = async {
            let _all = self.calls.acquire_many(self.limits.calls_total).await;
            self.delivering.close();
            self.delivering.wait().await;
        };
        if tokio::time::timeout(grace, ended).await.is_err() {
            tracing::info!(?grace, "calls still in progress after the grace period are given up");
        }
    }
}

fn in_progress(total: &Arc<Semaphore>, peers: &Arc<PeerCounts>, identity: &Identity) -> Option<InProgress> {
    let peer = PeerCounts::take(peers, identity)?;
    let total = Arc::clone(total).try_acquire_owned().ok()?;
    Some(InProgress { _total: total, _peer: peer })
}

/// How much each peer has in progress. Holds only peers that have something, so it is bounded by the total.
#[derive(Debug)]
struct PeerCounts {
    limit: u32,
    counts: Mutex<BTreeMap<Identity, u32>>,
}

impl PeerCounts {
    fn new(limit: u32) -> Self {
        Self { limit, counts: Mutex::default() }
    }

    fn take(this: &Arc<Self>, identity: &Identity) -> Option<PeerShare> {
        let mut counts = this.counts.lock();
        let count = counts.get(identity).copied().unwrap_or(0);
        if count >= this.limit {
            return None;
        }
        counts.insert(identity.clone(), count + 1);
        drop(counts);
        Some(PeerShare { counts: Arc::clone(this), identity: identity.clone() })
    }
}

/// One of the requests that a peer has in progress.
#[derive(Debug)]
struct PeerShare {
    counts: Arc<PeerCounts>,
    identity: Identity,
}

impl Drop for PeerShare {
    fn drop(&mut self) {
        let mut counts = self.counts.counts.lock();
        match counts.get_mut(&self.identity) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => {
                counts.remove(&self.identity);
            }
        }
    }
}
