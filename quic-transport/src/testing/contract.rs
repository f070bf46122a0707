//! What every transport must do. Each check panics with a sentence when it does not.

use crate::config::Limits;
use crate::error::{CallError, FrameError, Refusal};
use crate::identity::{Identity, Role, Roles};
use crate::peer::{Peer, PeerTarget, Request, Transport};
use crate::router::{Call, Router};
use bytes::Bytes;
use proto_types::message_kind::MessageKind;
use serde::{Deserialize, Serialize};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Longer than any answer takes.
const LONG: Duration = Duration::from_secs(20);
/// Short enough to wait for.
const SHORT: Duration = Duration::from_secs(1);
const ECHO: MessageKind = MessageKind::Controller;
const ASK: MessageKind = MessageKind::RaftVote;
const STREAM: MessageKind = MessageKind::MetadataFeed;
/// In the table for controllers only.
const RESTRICTED: MessageKind = MessageKind::RaftAppend;
/// Not in the table.
const ABSENT: MessageKind = MessageKind::RaftTransferLeader;

/// Where the checks run: makes endpoints that can reach each other.
pub trait World: Send + Sync {
    /// Opens an endpoint.
    fn endpoint(
        &self,
        role: Role,
        node_id: u64,
        router: Router,
        limits: Limits,
    ) -> impl Future<Output = Arc<dyn Transport>> + Send;

    /// An address where nobody answers.
    fn dead_address(&self) -> SocketAddr;
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Question {
    left: u32,
    right: String,
}

/// Signals from inside handlers.
#[derive(Clone, Default)]
struct Signals {
    entered: Arc<Notify>,
    release: Arc<Notify>,
    dropped: Arc<Notify>,
    runs: Arc<AtomicU32>,
}

/// Tells when the handler that holds it ends, however it ends.
struct DropSignal(Arc<Notify>);

impl Drop for DropSignal {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// The table under test. `ECHO` answers by the first byte: `w` waits for a release, `h` hangs, `f` fails, `b` answers with
/// too much, anything else comes back.
fn router(signals: &Signals) -> Router {
    let everybody = Roles::of(&Role::ALL);
    let echo_signals = signals.clone();
    Router::builder()
        .call(ECHO, everybody, move |call| echo(call, echo_signals.clone()))
        .ask(ASK, everybody, |call: Call, question: Question| async move {
            let from = call.caller.identity.node_id();
            Ok((question.left, question.right, from, call.version, call.trace.0))
        })
        .versions(ASK, 1..=2)
        .call(RESTRICTED, Roles::of(&[Role::Controller]), |call| async move { Ok(call.body) })
        .stream(STREAM, everybody, |call, mut sender, mut receiver| async move {
            if sender.send(call.body).await.is_err() {
                return;
            }
            loop {
                match receiver.recv().await {
                    Ok(Some(frame)) if &frame[..] == b"crash" => return,
                    Ok(Some(frame)) => {
                        if sender.send(frame).await.is_err() {
                            return;
                        }
                    }
                    Ok(None) => {
                        let _finished = sender.finish().await;
                        return;
                    }
                    Err(_) => return,
                }
            }
        })
        .build()
}

async fn echo(call: Call, signals: Signals) -> Result<Bytes, Refusal> {
    signals.runs.fetch_add(1, Ordering::Relaxed);
    signals.entered.notify_one();
    match call.body.first() {
        Some(b'w') => {
            signals.release.notified().await;
            Ok(call.body)
        }
        Some(b'h') => {
            let _dropped = DropSignal(Arc::clone(&signals.dropped));
            std::future::pending().await
        }
        Some(b'f') => Err(Refusal::Failed("as asked".to_owned())),
        Some(b'b') => Ok(Bytes::from(vec![0; 64 << 10])),
        Some(_) | None => Ok(call.body),
    }
}

struct Pair {
    server: Arc<dyn Transport>,
    client: Arc<dyn Transport>,
    peer: Peer,
    signals: Signals,
}

async fn pair(world: &impl World, limits: Limits) -> Pair {
    let signals = Signals::default();
    let server = world.endpoint(Role::Controller, 1, router(&signals), limits).await;
    let client = world.endpoint(Role::StorageNode, 7, Router::empty(), limits).await;
    let target = PeerTarget::new(server.local_addr(), server.identity().clone());
    let peer = client.peer(target);
    Pair { server, client, peer, signals }
}

fn small_limits() -> Limits {
    Limits { call_bytes_max: 32 << 10, frame_bytes_max: 16 << 10, calls_total: 4, ..Limits::default() }
}

fn refused(refusal: Refusal) -> CallError {
    CallError::Refused { refusal }
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LONG, future).await {
        Ok(output) => output,
        Err(_) => panic!("did not happen in time: {what}"),
    }
}

/// Calls are answered, small and large, one after the other and at once, raw and typed.
pub async fn calls_are_answered(world: &impl World) {
    let pair = pair(world, Limits::default()).await;
    assert_eq!(pair.peer.call(ECHO, Bytes::new(), LONG).await, Ok(Bytes::new()));
    let large = Bytes::from((0..3_000_000_u32).map(|n| n as u8).collect::<Vec<u8>>());
    assert_eq!(pair.peer.call(ECHO, large.clone(), LONG).await, Ok(large));
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..100_u32 {
        let peer = pair.peer.clone();
        calls.spawn(async move {
            let body = Bytes::from(format!("call {n}"));
            assert_eq!(peer.call(ECHO, body.clone(), LONG).await, Ok(body));
        });
    }
    calls.join_all().await;
    let question = Question { left: 5, right: "fünf".to_owned() };
    let answer: (u32, String, u64, u16, u128) = pair.peer.ask(ASK, &question, LONG).await.expect("answered");
    assert_eq!(answer, (5, "fünf".to_owned(), 7, 1, 0));
    assert!(pair.peer.is_connected());
    assert_eq!(pair.peer.connect(LONG).await, Ok(()));
}

/// Version and trace reach the handler; other versions are refused by name.
pub async fn versions_are_checked(world: &impl World) {
    let pair = pair(world, Limits::default()).await;
    let body = Bytes::from(proto_types::encode(&Question { left: 1, right: String::new() }));
    let request = Request::new(ASK, body).version(2).trace(crate::TraceId(99));
    let answer = pair.peer.send(request.clone(), LONG).await.expect("answered");
    let answer: (u32, String, u64, u16, u128) = proto_types::decode(&answer).expect("whole");
    assert_eq!((answer.3, answer.4), (2, 99));
    let unsupported = refused(Refusal::UnsupportedVersion { min: 1, max: 2 });
    assert_eq!(pair.peer.send(request.version(3), LONG).await, Err(unsupported));
}

/// What the table does not allow is refused, each with its own reason.
pub async fn the_table_is_enforced(world: &impl World) {
    let pair = pair(world, Limits::default()).await;
    let peer = &pair.peer;
    let call = async |kind| peer.call(kind, Bytes::new(), LONG).await.expect_err("refused");
    assert_eq!(call(ABSENT).await, refused(Refusal::UnknownKind));
    assert_eq!(call(RESTRICTED).await, refused(Refusal::Forbidden));
    assert_eq!(call(STREAM).await, refused(Refusal::WrongShape));
    let unheard_of = Request::unknown_kind(60_000, Bytes::new());
    assert_eq!(peer.send(unheard_of.clone(), LONG).await, Err(refused(Refusal::UnknownKind)));
    let open = async |kind| peer.open_stream(kind, Bytes::new(), LONG).await.expect_err("refused");
    assert_eq!(open(ECHO).await, refused(Refusal::WrongShape));
    assert_eq!(open(ABSENT).await, refused(Refusal::UnknownKind));
    let allowed = world.endpoint(Role::Controller, 2, Router::empty(), Limits::default()).await;
    let allowed = allowed.peer(peer.target().clone());
    assert_eq!(allowed.call(RESTRICTED, Bytes::from_static(b"x"), LONG).await, Ok("x".into()));
}

/// A failure of the handler, a body that does not decode, and bytes after a body come back as errors.
pub async fn failures_come_back_typed(world: &impl World) {
    let pair = pair(world, small_limits()).await;
    let failed = pair.peer.call(ECHO, Bytes::from_static(b"f"), LONG).await;
    assert_eq!(failed, Err(CallError::Remote("as asked".to_owned())));
    let mut body = proto_types::encode(&Question { left: 1, right: String::new() });
    body.push(0);
    let left_over = pair.peer.call(ASK, Bytes::from(body), LONG).await;
    assert!(
        matches!(&left_over, Err(CallError::Refused { refusal: Refusal::Malformed(_) })),
        "bytes after the message: {left_over:?}"
    );
    let question = Question { left: 300, right: "x".to_owned() };
    let wrong_type = pair.peer.ask::<_, Question>(ASK, &question, LONG).await;
    assert!(matches!(wrong_type, Err(CallError::Remote(_))), "an answer of another type");
}

/// Bodies above the limit are refused, before they are sent where possible.
pub async fn sizes_are_bounded(world: &impl World) {
    let pair = pair(world, small_limits()).await;
    let limit = small_limits().call_bytes_max;
    let fits = Bytes::from(vec![1; limit]);
    assert_eq!(pair.peer.call(ECHO, fits.clone(), LONG).await, Ok(fits));
    let too_large = pair.peer.call(ECHO, Bytes::from(vec![1; limit + 1]), LONG).await;
    assert_eq!(too_large, Err(CallError::TooLarge { length: limit + 1, limit }));
    let answer = pair.peer.call(ECHO, Bytes::from_static(b"b"), LONG).await;
    assert!(matches!(answer, Err(CallError::Remote(_))), "a reply above the limit: {answer:?}");
    // A peer that allows itself more than the other takes.
    let careless = world.endpoint(Role::StorageNode, 8, Router::empty(), Limits::default()).await;
    let careless = careless.peer(pair.peer.target().clone());
    let refusal = careless.call(ECHO, Bytes::from(vec![1; 1 << 20]), LONG).await;
    assert_eq!(refusal, Err(refused(Refusal::TooLarge { limit: limit as u64 })));
}

/// The deadline ends the wait at the caller and the handler at the peer; so does giving up.
pub async fn deadlines_hold_at_both_ends(world: &impl World) {
    let pair = pair(world, Limits::default()).await;
    pair.peer.call(ECHO, Bytes::new(), LONG).await.expect("connected");
    let begun = tokio::time::Instant::now();
    let hanging = pair.peer.call(ECHO, Bytes::from_static(b"h"), SHORT).await;
    let by_peer = refused(Refusal::DeadlinePassed);
    assert!(hanging == Err(CallError::Timeout) || hanging == Err(by_peer), "{hanging:?}");
    assert!(hanging.expect_err("failed").may_have_run());
    assert!(begun.elapsed() >= SHORT && begun.elapsed() < LONG / 2, "waited {:?}", begun.elapsed());
    soon("the handler ends at the deadline", pair.signals.dropped.notified()).await;

    let peer = pair.peer.clone();
    let given_up = tokio::spawn(async move { peer.call(ECHO, Bytes::from_static(b"h"), LONG * 10).await });
    soon("the first handlers ran", pair.signals.entered.notified()).await;
    while pair.signals.runs.load(Ordering::Relaxed) < 3 {
        soon("the handler runs", pair.signals.entered.notified()).await;
    }
    given_up.abort();
    soon("the handler ends when the caller gives up", pair.signals.dropped.notified()).await;
}

/// Above the limit of calls the peer says that it is busy, and goes on when there is room.
pub async fn too_many_calls_are_refused(world: &impl World) {
    let pair = pair(world, small_limits()).await;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..small_limits().calls_total {
        let peer = pair.peer.clone();
        waiting.spawn(async move { peer.call(ECHO, Bytes::from_static(b"w"), LONG).await });
    }
    while pair.signals.runs.load(Ordering::Relaxed) < small_limits().calls_total {
        soon("the handlers run", pair.signals.entered.notified()).await;
    }
    let busy = pair.peer.call(ECHO, Bytes::new(), LONG).await;
    assert_eq!(busy, Err(refused(Refusal::Busy)));
    pair.signals.release.notify_waiters();
    for answer in waiting.join_all().await {
        assert_eq!(answer, Ok(Bytes::from_static(b"w")));
    }
    assert_eq!(pair.peer.call(ECHO, Bytes::new(), LONG).await, Ok(Bytes::new()));
}

/// A peer that takes all that it may leaves room for the others, over however many connections it comes.
pub async fn one_peer_cannot_take_everything(world: &impl World) {
    let limits = Limits { calls_per_peer: 2, ..Limits::default() };
    let pair = pair(world, limits).await;
    let lane = PeerTarget { lane: 1, ..pair.peer.target().clone() };
    let mut waiting = tokio::task::JoinSet::new();
    for peer in [pair.peer.clone(), pair.client.peer(lane)] {
        waiting.spawn(async move { peer.call(ECHO, Bytes::from_static(b"w"), LONG).await });
    }
    while pair.signals.runs.load(Ordering::Relaxed) < 2 {
        soon("the handlers run", pair.signals.entered.notified()).await;
    }
    let busy = pair.peer.call(ECHO, Bytes::new(), LONG).await;
    assert_eq!(busy, Err(refused(Refusal::Busy)));
    let other = world.endpoint(Role::StorageNode, 8, Router::empty(), limits).await;
    let other = other.peer(pair.peer.target().clone());
    assert_eq!(other.call(ECHO, Bytes::new(), LONG).await, Ok(Bytes::new()));
    pair.signals.release.notify_waiters();
    for answer in waiting.join_all().await {
        assert_eq!(answer, Ok(Bytes::from_static(b"w")));
    }
    assert_eq!(pair.peer.call(ECHO, Bytes::new(), LONG).await, Ok(Bytes::new()));
}

/// Frames arrive whole and in order in both directions; the end is seen as the end.
pub async fn streams_carry_frames_in_order(world: &impl World) {
    let pair = pair(world, small_limits()).await;
    let hello = Bytes::from_static(b"hello");
    let opened = pair.peer.open_stream(STREAM, hello.clone(), LONG).await;
    let (mut sender, mut receiver) = opened.expect("opened");
    assert_eq!(receiver.recv().await, Ok(Some(hello)));
    let frames: Vec<Bytes> = (0..200_usize)
        .map(|n| Bytes::from(vec![n as u8; if n % 50 == 49 { 16 << 10 } else { n * 7 }]))
        .collect();
    let sent = frames.clone();
    let sending = tokio::spawn(async move {
        for chunk in sent.chunks(3) {
            sender.send_all(chunk.to_vec()).await.expect("sent");
        }
        sender.finish().await.expect("finished");
    });
    for frame in frames {
        assert_eq!(soon("a frame", receiver.recv()).await, Ok(Some(frame)));
    }
    assert_eq!(soon("the end", receiver.recv()).await, Ok(None));
    sending.await.expect("sent");
    let length = (16 << 10) + 1;
    let (mut sender, _receiver) = pair.peer.open_stream(STREAM, Bytes::new(), LONG).await.expect("opened");
    let too_large = sender.send(Bytes::from(vec![0; length])).await;
    assert_eq!(too_large, Err(FrameError::TooLarge { length, limit: 16 << 10 }));
}

/// A stream needs no handle to its peer to live on.
pub async fn a_stream_outlives_its_handle(world: &impl World) {
    let Pair { server: _server, client, peer, .. } = pair(world, Limits::default()).await;
    let target = peer.target().clone();
    drop(peer);
    let opened = client.peer(target).open_stream(STREAM, Bytes::new(), LONG).await;
    let (mut sender, mut receiver) = opened.expect("opened");
    assert_eq!(soon("the hello", receiver.recv()).await, Ok(Some(Bytes::new())));
    for _ in 0..3 {
        sender.send(Bytes::from_static(b"x")).await.expect("sent");
        assert_eq!(soon("an echo", receiver.recv()).await, Ok(Some(Bytes::from_static(b"x"))));
    }
    sender.finish().await.expect("finished");
    assert_eq!(soon("the end", receiver.recv()).await, Ok(None));
}

/// A half that is dropped is an error at the other side, not an end.
pub async fn a_dropped_stream_is_an_error(world: &impl World) {
    let pair = pair(world, Limits::default()).await;
    let opened = pair.peer.open_stream(STREAM, Bytes::new(), LONG).await;
    let (mut sender, mut receiver) = opened.expect("opened");
    assert_eq!(receiver.recv().await, Ok(Some(Bytes::new())));
    sender.send(Bytes::from_static(b"crash")).await.expect("sent");
    let broken = soon("the handler's end is seen", receiver.recv()).await;
    assert!(matches!(broken, Err(FrameError::Closed { .. })), "{broken:?}");
    soon("the sender learns it too", sender.closed()).await;
}

/// Streams that nobody reads fill up and then make the sender wait.
pub async fn a_slow_reader_slows_the_sender(world: &impl World) {
    let limits = Limits {
        receive_window_bytes: 64 << 10,
        stream_window_bytes: 64 << 10,
        send_window_bytes: 64 << 10,
        ..Limits::default()
    };
    let pair = pair(world, limits).await;
    let opened = pair.peer.open_stream(STREAM, Bytes::new(), LONG).await;
    let (mut sender, mut receiver) = opened.expect("opened");
    // The far side echoes and so stops reading when its echoes are not read.
    let mut sent = 0;
    while tokio::time::timeout(SHORT, sender.send(Bytes::from(vec![7; 8 << 10]))).await.is_ok() {
        sent += 1;
        assert!(sent < 1000, "8 MiB were taken although nobody reads");
    }
    // The last send was given up half-way, which the sender remembers.
    assert_eq!(sender.send(Bytes::new()).await, Err(FrameError::Abandoned));
    assert_eq!(soon("the hello comes back", receiver.recv()).await, Ok(Some(Bytes::new())));
}

/// Nobody there, or somebody else there: unreachable at the deadline, and the request was not sent.
pub async fn strangers_and_the_dead_are_unreachable(world: &impl World) {
    let pair = pair(world, Limits::default()).await;
    let real = pair.server.identity().clone();
    let unreachable = async |address: SocketAddr, identity: Identity| {
        let peer = pair.client.peer(PeerTarget::new(address, identity));
        let error = peer.call(ECHO, Bytes::new(), SHORT * 2).await.expect_err("unreachable");
        assert!(matches!(error, CallError::Unreachable { .. }), "{error:?}");
        assert!(!error.may_have_run());
        assert!(matches!(peer.connect(SHORT).await, Err(CallError::Unreachable { .. })));
        assert!(!peer.is_connected());
        error.to_string()
    };
    unreachable(world.dead_address(), real.clone()).await;
    let other = Identity::new(real.cluster_id(), real.role(), 99).expect("valid");
    let reason = unreachable(pair.server.local_addr(), other).await;
    assert!(reason.contains(&real.to_string()), "the reason names who is there: {reason}");
    assert_eq!(pair.signals.runs.load(Ordering::Relaxed), 0);
}

/// A disconnect ends calls and streams in progress, and the next call connects again.
pub async fn a_disconnect_ends_what_is_in_progress(world: &impl World) {
    let pair = pair(world, Limits::default()).await;
    let opened = pair.peer.open_stream(STREAM, Bytes::new(), LONG).await;
    let (_sender, mut receiver) = opened.expect("opened");
    assert_eq!(receiver.recv().await, Ok(Some(Bytes::new())));
    let peer = pair.peer.clone();
    let call = tokio::spawn(async move { peer.call(ECHO, Bytes::from_static(b"h"), LONG * 10).await });
    soon("the handler runs", pair.signals.entered.notified()).await;
    pair.peer.disconnect("new incarnation");
    let closed = soon("the call ends", call).await.expect("no panic");
    assert!(matches!(&closed, Err(CallError::Closed { .. })), "{closed:?}");
    let broken = soon("the stream ends", receiver.recv()).await;
    assert!(matches!(broken, Err(FrameError::Closed { .. })), "{broken:?}");
    soon("the handler is cancelled", pair.signals.dropped.notified()).await;
    assert_eq!(pair.peer.call(ECHO, Bytes::new(), LONG).await, Ok(Bytes::new()));
}

/// A shutdown lets calls in progress end, refuses new ones, and leaves nobody there.
pub async fn a_shutdown_drains(world: &impl World) {
    let pair = pair(world, Limits::default()).await;
    let peer = pair.peer.clone();
    let call = tokio::spawn(async move { peer.call(ECHO, Bytes::from_static(b"w"), LONG).await });
    soon("the handler runs", pair.signals.entered.notified()).await;
    let server = Arc::clone(&pair.server);
    let shutdown = tokio::spawn(async move { server.shutdown(LONG).await });
    // The refusal tells that the drain has begun.
    let refusal = loop {
        match pair.peer.call(ECHO, Bytes::new(), LONG).await {
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => break error,
        }
    };
    assert_eq!(refusal, refused(Refusal::ShuttingDown));
    pair.signals.release.notify_waiters();
    let answer = soon("the call in progress ends", call).await.expect("no panic");
    assert_eq!(answer, Ok(Bytes::from_static(b"w")));
    soon("the shutdown ends", shutdown).await.expect("no panic");
    let after = pair.peer.call(ECHO, Bytes::new(), SHORT).await.expect_err("nobody there");
    assert!(matches!(after, CallError::Unreachable { .. } | CallError::Closed { .. }), "{after:?}");
    pair.client.shutdown(SHORT).await;
    let mine = pair.peer.call(ECHO, Bytes::new(), LONG).await.expect_err("own endpoint is down");
    assert!(matches!(mine, CallError::Unreachable { .. }), "{mine:?}");
}

/// Makes one test of every check. Give an expression that makes a [`World`].
#[macro_export]
macro_rules! transport_contract {
    ($world:expr) => {
        $crate::transport_contract!($world; calls_are_answered, versions_are_checked, the_table_is_enforced,
            failures_come_back_typed, sizes_are_bounded, deadlines_hold_at_both_ends, too_many_calls_are_refused, one_peer_cannot_take_everything,
            streams_carry_frames_in_order, a_stream_outlives_its_handle, a_dropped_stream_is_an_error, a_slow_reader_slows_the_sender,
            strangers_and_the_dead_are_unreachable, a_disconnect_ends_what_is_in_progress, a_shutdown_drains);
    };
    ($world:expr; $($check:ident),+) => {
        $(
            #[tokio::test]
            async fn $check() {
                $crate::testing::contract::$check(&$world).await;
            }
        )+
    };
}
