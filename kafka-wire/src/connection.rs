//! One client connection: frames in, requests in order, responses out in order.
//!
//! Two loops run side by side in one task. The reading loop takes a frame, finds its row, and runs a plain request to
//! its end or a staged one until it is queued; the result goes to the writing loop, which drives all answers that are
//! still open and writes them in the order of their requests. A permit per request, held from before its frame is read
//! until its response is written, bounds what is in between.
//!
//! When reading ends (the client is gone, its frame is malformed, the server drains), what was accepted before is still
//! answered, as Kafka's one-at-a-time loop would have done; when writing fails, everything ends.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesOrdered;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit, mpsc};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::clock::monotonic_now;
use crate::close_reason::CloseReason;
use crate::config::Limits;
use crate::dispatch::{ApiTable, Call, Outcome, RequestContext};
use crate::frame_reader::{Frame, FrameReader};
use crate::metrics::{RouteMetrics, WireMetrics};
use crate::request_memory::RequestMemory;
use crate::response_writer::ResponseWriter;
use crate::warm_pages::WarmPool;

/// What all connections of a server share.
pub(crate) struct Shared<S> {
    pub(crate) table: Arc<ApiTable<S>>,
    pub(crate) state: Arc<S>,
    pub(crate) limits: Limits,
    pub(crate) metrics: Arc<WireMetrics>,
    /// Metrics of the table's rows, in their order.
    pub(crate) routes: Vec<RouteMetrics>,
    /// Bytes of requests in flight, over all connections.
    pub(crate) memory: RequestMemory,
    pub(crate) warm: WarmPool,
    pub(crate) draining: CancellationToken,
}

/// A request between its handler and its response.
struct Pending<'a> {
    answer: Answer,
    route: usize,
    arrived: Instant,
    memory: OwnedSemaphorePermit,
    slot: SemaphorePermit<'a>,
}

enum Answer {
    Ready(Outcome),
    Open(BoxFuture<'static, Outcome>),
}

/// A request whose response only has to be written.
struct Settled<'a> {
    outcome: Outcome,
    route: usize,
    arrived: Instant,
    _slot: SemaphorePermit<'a>,
}

/// Bytes of responses that wait for the socket, and the end of that waiting.
#[derive(Default)]
struct Backlog {
    bytes: AtomicUsize,
    written: Notify,
}

/// Serves a connection to its end.
pub(crate) async fn serve<S>(shared: &Shared<S>, stream: &TcpStream, context: RequestContext) -> CloseReason {
    let slots = Semaphore::new(shared.limits.requests_in_flight_max);
    let backlog = Backlog::default();
    let (queue, pending) = mpsc::channel(shared.limits.requests_in_flight_max);
    let mut reading = pin!(read_requests(shared, stream, context, &slots, &backlog, queue));
    let mut writing = pin!(write_responses(shared, stream, &backlog, pending));
    tokio::select! {
        end = &mut reading => match writing.await {
            Ok(()) => end,
            Err(reason) => reason,
        },
        end = &mut writing => end.err().unwrap_or(CloseReason::ClientClosed),
    }
}

/// The reading loop. Its `queue` end is dropped with it, which tells the writing loop to finish.
async fn read_requests<'a, S>(
    shared: &'a Shared<S>,
    stream: &'a TcpStream,
    mut context: RequestContext,
    slots: &'a Semaphore,
    backlog: &'a Backlog,
    queue: mpsc::Sender<Box<Pending<'a>>>,
) -> CloseReason {
    let mut reader = FrameReader::new(stream, &shared.limits, &shared.memory);
    loop {
        let Ok(slot) = slots.acquire().await else { return CloseReason::Draining };
        if let Err(reason) = wait_for_frame(shared, &mut reader, slots).await {
            return reason;
        }
        let frame = match reader.read().await {
            Ok(frame) => frame,
            Err(reason) => return reason,
        };
        let arrived = monotonic_now();
        context.arrived = arrived;
        let (route, answer, memory) = match start(shared, stream, &mut context, frame, backlog).await {
            Ok(started) => started,
            Err(reason) => return reason,
        };
        if let Answer::Ready(outcome) = &answer {
            backlog.bytes.fetch_add(outcome.response_bytes(), Ordering::Relaxed);
        }
        // The queue holds as many as there are slots, so this never waits; it fails when writing has ended.
        if queue.send(Box::new(Pending { answer, route, arrived, memory, slot })).await.is_err() {
            return CloseReason::ClientClosed;
        }
    }
}

/// Waits for the first byte of a frame; ends when the connection is idle or the server drains.
async fn wait_for_frame<S>(
    shared: &Shared<S>,
    reader: &mut FrameReader<'_>,
    slots: &Semaphore,
) -> Result<(), CloseReason> {
    let idle_max = shared.limits.idle_max;
    loop {
        tokio::select! {
            biased;
            () = shared.draining.cancelled() => return Err(CloseReason::Draining),
            waited = timeout(idle_max, reader.wait()) => match waited {
                Ok(arrived) => return arrived,
                // One slot is ours; the connection is idle when all others are free.
                Err(_elapsed) if slots.available_permits() + 1 == shared.limits.requests_in_flight_max => {
                    return Err(CloseReason::Idle(idle_max));
                }
                Err(_elapsed) => {}
            },
        }
    }
}

/// Dispatches a frame: runs a plain request to its end, a staged one until it is queued.
async fn start<S>(
    shared: &Shared<S>,
    stream: &TcpStream,
    context: &mut RequestContext,
    frame: Frame,
    backlog: &Backlog,
) -> Result<(usize, Answer, OwnedSemaphorePermit), CloseReason> {
    let Frame { body, memory } = frame;
    let frame_bytes = body.len();
    let (route, call) = shared.table.call(&shared.state, context, body)?;
    let metrics = &shared.routes[route];
    metrics.requests.inc();
    metrics.request_bytes.inc_by(frame_bytes as u64);
    let answer = match call {
        Call::Done(outcome) => Answer::Ready(outcome),
        Call::Plain(run) => {
            backlog.wait_below(shared.limits.response_backlog_bytes_max).await;
            tokio::select! {
                biased;
                outcome = run => Answer::Ready(outcome),
                () = gone(stream, &shared.limits) => return Err(CloseReason::ClientClosed),
            }
        }
        Call::Staged(queueing) => match queueing.await {
            Ok(answer) => Answer::Open(answer),
            Err(reason) => Answer::Ready(Outcome::Close(reason)),
        },
    };
    Ok((route, answer, memory))
}

/// Returns some time after the client has closed its sending side: `PRIORITY` readiness includes that event and, unlike
/// `READABLE`, is not raised by requests that are pipelined behind the running one.
async fn gone(stream: &TcpStream, limits: &Limits) {
    loop {
        match stream.ready(Interest::PRIORITY).await {
            Ok(ready) if ready.is_read_closed() => break,
            Ok(_) => tokio::task::yield_now().await,
            Err(_) => break,
        }
    }
    sleep(limits.half_closed_grace).await;
}

impl Backlog {
    /// Waits until at most `max` bytes wait for the socket.
    async fn wait_below(&self, max: usize) {
        while self.bytes.load(Ordering::Relaxed) > max {
            // One task runs both loops, so nothing is written between the check and the wait.
            self.written.notified().await;
        }
    }
}

/// The writing loop: drives all open answers, writes them in order. Ends well when the queue is closed and empty.
async fn write_responses<S>(
    shared: &Shared<S>,
    stream: &TcpStream,
    backlog: &Backlog,
    mut queue: mpsc::Receiver<Box<Pending<'_>>>,
) -> Result<(), CloseReason> {
    let writer = ResponseWriter {
        stream,
        write_stall_max: shared.limits.write_stall_max,
        warm: &shared.warm,
        metrics: &shared.metrics,
    };
    let mut open = FuturesOrdered::new();
    let mut more = true;
    while more || !open.is_empty() {
        tokio::select! {
            next = queue.recv(), if more => match next {
                Some(pending) => open.push_back(settle(pending, backlog)),
                None => more = false,
            },
            Some(settled) = open.next(), if !open.is_empty() => {
                finish(shared, &writer, settled, backlog).await?;
            }
        }
    }
    Ok(())
}

/// Waits for the answer and gives its request memory back.
async fn settle<'a>(pending: Box<Pending<'a>>, backlog: &Backlog) -> Settled<'a> {
    let Pending { answer, route, arrived, memory, slot } = *pending;
    let outcome = match answer {
        Answer::Ready(outcome) => outcome,
        Answer::Open(answer) => {
            let outcome = answer.await;
            backlog.bytes.fetch_add(outcome.response_bytes(), Ordering::Relaxed);
            outcome
        }
    };
    drop(memory);
    Settled { outcome, route, arrived, _slot: slot }
}

/// Writes one response and counts it.
async fn finish<S>(
    shared: &Shared<S>,
    writer: &ResponseWriter<'_>,
    settled: Settled<'_>,
    backlog: &Backlog,
) -> Result<(), CloseReason> {
    let metrics = &shared.routes[settled.route];
    let bytes = settled.outcome.response_bytes();
    let mut observer = None;
    match settled.outcome {
        Outcome::Respond(frame, on_written) => {
            let written = writer.write(&frame.parts).await;
            if written.is_err() {
                metrics.failures.inc();
            }
            written?;
            backlog.bytes.fetch_sub(bytes, Ordering::Relaxed);
            backlog.written.notify_waiters();
            observer = on_written;
        }
        Outcome::Silence => {}
        Outcome::Close(reason) => {
            metrics.failures.inc();
            return Err(reason);
        }
    }
    metrics.response_bytes.inc_by(bytes as u64);
    let written = monotonic_now();
    metrics.seconds.observe(written.saturating_duration_since(settled.arrived).as_secs_f64());
    if let Some(observer) = observer {
        observer.on_written(written);
    }
    Ok(())
}
