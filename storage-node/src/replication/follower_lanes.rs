//! The lanes over which this node follows others: a few for each leader's node, opened when a session wants one.
//!
//! Each lane has a task on the data thread. When it is lost, or the leader's node has a new incarnation, every session on
//! it is told so; replicas ask again when they see fit, and the next open session opens the lane anew.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proto_types::ids::{BrokerEpoch, Incarnation, NodeId, TopicPartition};
use proto_types::replication_api::{Batches, FollowerFrame, LaneHello, LeaderFrame, OpenSession, SessionId};
use quic_transport::{FrameReceiver, FrameSender, Identity, MessageKind, PeerTarget, Role, Transport};
use storage_node_core::SessionKey;
use storage_node_core::image::ClusterImage;
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use super::batches_from_leader::check_batches;
use super::follower_session::{FollowerSession, LogEnds};
use super::{ReplicationLimits, ReplicationMetrics, Throttles, lane_of};
use crate::disk::event::{BatchesFromLeader, Event, FromLeader};
use crate::partition::handle::Shared;
use crate::published_image::PublishedImage;

/// Longer than any process lives.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);
/// Frames that are written together.
const FRAMES_PER_WRITE: usize = 256;
/// What every frame of records costs at least of the memory for them, so that small ones are bounded too.
const FRAME_COST_MIN: usize = 512;

/// What a replica asks for.
#[derive(Debug)]
pub(crate) struct FollowRequest {
    pub(crate) partition: Arc<Shared>,
    pub(crate) key: SessionKey,
    pub(crate) leader: NodeId,
    pub(crate) leader_epoch: proto_types::ids::LeaderEpoch,
    pub(crate) ends: LogEnds,
}

/// See the module. Shared behind an `Arc`.
pub(crate) struct FollowerLanes {
    parts: LaneParts,
    runtime: Handle,
    next_session: AtomicU64,
    leaders: Mutex<HashMap<NodeId, Arc<LeaderNode>>>,
}

/// What every lane works with.
#[derive(Clone)]
pub(crate) struct LaneParts {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) published: Arc<PublishedImage>,
    /// This node's registration, once there is one.
    pub(crate) broker_epoch: watch::Receiver<Option<BrokerEpoch>>,
    pub(crate) limits: ReplicationLimits,
    pub(crate) metrics: ReplicationMetrics,
    pub(crate) throttles: Arc<Throttles>,
}

/// What is shared by the lanes to one leader's node.
struct LeaderNode {
    lanes: Vec<Arc<FollowerLane>>,
    sessions: Arc<AtomicUsize>,
}

/// One lane.
pub(crate) struct FollowerLane {
    leader: NodeId,
    number: u16,
    parts: LaneParts,
    /// Bytes that may wait to be appended, of all lanes to the node together.
    memory: Arc<Semaphore>,
    /// Sessions on all lanes to the node.
    node_sessions: Arc<AtomicUsize>,
    state: Mutex<LaneState>,
    wake: Notify,
}

#[derive(Default)]
struct LaneState {
    sessions: HashMap<SessionId, Arc<FollowerSession>>,
    /// Sessions that have something to send; each at most once.
    queue: VecDeque<Arc<FollowerSession>>,
    /// Sessions that the leader has heard of and that are over.
    closing: Vec<SessionId>,
    /// Sessions whose credit is withheld because they catch up too fast.
    held_back: Vec<Arc<FollowerSession>>,
}

/// Between whom a lane is: it ends when either is another one.
struct Reached {
    target: Target,
    /// This node's registration, which the leader names when it vouches for this node's copies.
    broker_epoch: BrokerEpoch,
}

/// Whom a lane reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    incarnation: Incarnation,
    address: String,
}

impl FollowerLanes {
    /// `runtime` is where the lanes' tasks run.
    pub(crate) fn new(parts: LaneParts, runtime: Handle) -> Self {
        Self { parts, runtime, next_session: AtomicU64::new(1), leaders: Mutex::default() }
    }

    /// Opens a session. What comes of it comes through the partition's queue.
    pub(crate) fn open(&self, request: FollowRequest) -> Arc<FollowerSession> {
        let id = request.partition.id;
        let lane = self.lane(request.leader, id);
        let session = SessionId(self.next_session.fetch_add(1, Ordering::Relaxed));
        let open = OpenSession {
            session,
            partition: id,
            leader_epoch: request.leader_epoch,
            log_start: request.ends.log_start,
            log_end: request.ends.log_end,
            last_epoch: request.ends.last_epoch,
            credit_bytes: self.credit(&lane),
        };
        let FollowRequest { key, leader, partition, .. } = request;
        let session = Arc::new(FollowerSession::new(key, leader, open, Arc::clone(&lane), partition));
        lane.add(&session);
        session
    }

    /// The memory for what waits to be appended is shared by the sessions at one node.
    fn credit(&self, lane: &FollowerLane) -> u64 {
        let limits = &self.parts.limits;
        let share = limits.peer_bytes_max / lane.node_sessions.load(Ordering::Relaxed).saturating_add(1);
        share.clamp(limits.credit_bytes_min, limits.credit_bytes_max) as u64
    }

    fn lane(&self, leader: NodeId, id: TopicPartition) -> Arc<FollowerLane> {
        let mut leaders = self.leaders.lock();
        let node = leaders.entry(leader).or_insert_with(|| Arc::new(self.connect(leader)));
        Arc::clone(&node.lanes[usize::from(lane_of(id, self.parts.limits.lanes))])
    }

    fn connect(&self, leader: NodeId) -> LeaderNode {
        let sessions = Arc::new(AtomicUsize::new(0));
        let memory = Arc::new(Semaphore::new(self.parts.limits.peer_bytes_max));
        let lanes = (0..self.parts.limits.lanes).map(|number| {
            let lane = Arc::new(FollowerLane {
                leader,
                number,
                parts: self.parts.clone(),
                memory: Arc::clone(&memory),
                node_sessions: Arc::clone(&sessions),
                state: Mutex::default(),
                wake: Notify::new(),
            });
            self.runtime.spawn(Arc::clone(&lane).run());
            lane
        });
        LeaderNode { lanes: lanes.collect(), sessions: Arc::clone(&sessions) }
    }

    /// Sessions at all leaders.
    pub(crate) fn session_count(&self) -> usize {
        self.leaders.lock().values().map(|node| node.sessions.load(Ordering::Relaxed)).sum()
    }
}

impl FollowerLane {
    fn add(&self, session: &Arc<FollowerSession>) {
        let mut state = self.state.lock();
        state.sessions.insert(session.wire, Arc::clone(session));
        state.queue.push_back(Arc::clone(session));
        drop(state);
        self.node_sessions.fetch_add(1, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// A session has something to send.
    pub(super) fn queue(&self, session: &Arc<FollowerSession>) {
        let mut state = self.state.lock();
        // One that was lost meanwhile has nobody to tell.
        if state.sessions.contains_key(&session.wire) {
            state.queue.push_back(Arc::clone(session));
            drop(state);
            self.wake.notify_one();
        }
    }

    /// A session is over.
    pub(super) fn close(&self, session: &FollowerSession) {
        if self.forget(session.wire).is_some() {
            self.state.lock().closing.push(session.wire);
            self.wake.notify_one();
        }
    }

    fn forget(&self, wire: SessionId) -> Option<Arc<FollowerSession>> {
        let session = self.state.lock().sessions.remove(&wire)?;
        self.node_sessions.fetch_sub(1, Ordering::Relaxed);
        Some(session)
    }

    fn get(&self, wire: SessionId) -> Option<Arc<FollowerSession>> {
        self.state.lock().sessions.get(&wire).cloned()
    }

    async fn run(self: Arc<Self>) {
        loop {
            self.work().await;
            let reason = match self.connect().await {
                Ok((reached, sender, receiver)) => {
                    self.parts.metrics.on_lane_opened();
                    self.carry(&reached, sender, receiver).await
                }
                Err(reason) => reason,
            };
            tracing::debug!(leader = %self.leader, lane = self.number, reason, "a replication lane is lost");
            self.lose_all();
        }
    }

    /// Returns when a session has something to send.
    async fn work(&self) {
        loop {
            let woken = self.wake.notified();
            {
                let mut state = self.state.lock();
                if !state.queue.is_empty() {
                    return;
                }
                // Without a lane there is nobody who has to hear that they are over.
                state.closing.clear();
            }
            woken.await;
        }
    }

    async fn connect(&self) -> Result<(Reached, FrameSender, FrameReceiver), String> {
        let Some(broker_epoch) = *self.parts.broker_epoch.borrow() else {
            return Err("this node is not registered yet".to_owned());
        };
        let target = target_of(&self.parts.published.load(), self.leader);
        let target = target.ok_or_else(|| "the leader's node is not known".to_owned())?;
        let cluster_id = self.parts.transport.identity().cluster_id().to_owned();
        let number = u64::try_from(self.leader.0).map_err(|_| "a negative node id".to_owned())?;
        let identity = Identity::new(&cluster_id, Role::StorageNode, number).map_err(|e| e.to_string())?;
        let address = resolve(&target.address).await?;
        let peer =
            self.parts.transport.peer(PeerTarget { lane: self.number, ..PeerTarget::new(address, identity) });
        let hello = Bytes::from(proto_types::encode(&LaneHello { cluster_id, broker_epoch }));
        let opened =
            peer.open_stream(MessageKind::ReplicationLane, hello, self.parts.limits.connect_max).await;
        let (sender, receiver) = opened.map_err(|error| error.to_string())?;
        Ok((Reached { target, broker_epoch }, sender, receiver))
    }

    /// Carries frames until the lane is lost; says why.
    async fn carry(&self, reached: &Reached, sender: FrameSender, receiver: FrameReceiver) -> String {
        let Reached { target, broker_epoch } = reached;
        let moved = |image: &ClusterImage| target_of(image, self.leader).as_ref() != Some(target);
        let mut registered = self.parts.broker_epoch.clone();
        // Registered anew: the controllers take nobody's word for the registration before (KIP-903).
        let anew = async {
            if registered.wait_for(|now| *now != Some(*broker_epoch)).await.is_err() {
                // The node is being torn down, and so is this.
                std::future::pending().await
            }
        };
        tokio::select! {
            reason = self.send(sender) => reason,
            reason = self.receive(receiver) => reason,
            _image = self.parts.published.wait_for(FOREVER, moved) => "the leader's node is another one now".to_owned(),
            () = anew => "this node has registered anew".to_owned(),
        }
    }

    async fn send(&self, mut sender: FrameSender) -> String {
        let mut frames = Vec::new();
        loop {
            let woken = self.wake.notified();
            self.let_go();
            self.take_frames(&mut frames);
            if frames.is_empty() {
                match self.held_back_for() {
                    None => woken.await,
                    // Whichever comes first: there is something to send, or credit may be given again.
                    Some(pause) => drop(timeout(pause, woken).await),
                }
                continue;
            }
            let encoded = frames.drain(..).map(|frame| Bytes::from(proto_types::encode(&frame))).collect();
            if let Err(error) = sender.send_all(encoded).await {
                return error.to_string();
            }
        }
    }

    fn take_frames(&self, frames: &mut Vec<FollowerFrame>) {
        let mut state = self.state.lock();
        // A session is closed after all that it had to say.
        frames.extend(state.closing.drain(..).map(|session| FollowerFrame::Close { session }));
        while frames.len() < FRAMES_PER_WRITE
            && let Some(session) = state.queue.pop_front()
        {
            let throttled = self.is_throttled(&session);
            if session.take_frames(throttled, frames) {
                state.held_back.push(session);
            }
        }
    }

    /// Whether the session may not catch up as fast as it can (KIP-73).
    fn is_throttled(&self, session: &FollowerSession) -> bool {
        let Self { parts, .. } = self;
        let throttled =
            || session.partition.settings.load().follower_throttled.has(session.id.partition, self.me());
        let in_sync = || {
            let image = parts.published.load();
            image.partition(session.id).is_some_and(|state| state.isr.contains(&self.me()))
        };
        parts.throttles.follower.is_set() && throttled() && !in_sync()
    }

    fn me(&self) -> NodeId {
        let number = self.parts.transport.identity().node_id();
        NodeId(i32::try_from(number).expect("a certificate of a storage node was checked at start"))
    }

    /// For how long credit that is withheld stays so.
    fn held_back_for(&self) -> Option<Duration> {
        if self.state.lock().held_back.is_empty() {
            return None;
        }
        Some(self.parts.throttles.follower.wait().unwrap_or(Duration::ZERO))
    }

    /// Gives credit that was withheld, as far as the rate allows.
    fn let_go(&self) {
        let throttle = &self.parts.throttles.follower;
        while throttle.wait().is_none() {
            let Some(session) = self.state.lock().held_back.pop() else { return };
            throttle.take(session.let_go());
            self.queue(&session);
        }
    }

    async fn receive(&self, mut receiver: FrameReceiver) -> String {
        loop {
            let frame = match receiver.recv_message::<LeaderFrame>().await {
                Ok(Some(frame)) => frame,
                Ok(None) => return "the leader's node ended it".to_owned(),
                Err(error) => return error.to_string(),
            };
            let batches = match frame {
                LeaderFrame::Batches(batches) => batches,
                other => {
                    self.on_word(other);
                    continue;
                }
            };
            match receiver.recv().await {
                Ok(Some(records)) => self.on_batches(&batches, records).await,
                Ok(None) => return "the leader's node ended it between header and records".to_owned(),
                Err(error) => return error.to_string(),
            }
        }
    }

    fn on_word(&self, frame: LeaderFrame) {
        let (LeaderFrame::Answer { session: wire, .. }
        | LeaderFrame::Marks { session: wire, .. }
        | LeaderFrame::Closed { session: wire }
        | LeaderFrame::Batches(Batches { session: wire, .. })) = frame;
        // One that is over here may still be spoken of.
        let Some(session) = self.get(wire) else { return };
        match frame {
            LeaderFrame::Answer { answer, .. } => {
                let from = FromLeader::Answer { session: Arc::clone(&session), answer };
                session.tell(Event::FromLeader(from));
            }
            LeaderFrame::Marks { marks, .. } => {
                if session.note_marks(marks) {
                    session.tell(Event::FromLeader(FromLeader::Marks { session: Arc::clone(&session) }));
                }
            }
            LeaderFrame::Closed { .. } => self.lose(wire),
            LeaderFrame::Batches(_) => {}
        }
    }

    async fn on_batches(&self, batches: &Batches, records: Bytes) {
        let Some(session) = self.get(batches.session) else { return };
        let expected = session.expected();
        let checked = match batches.from.0 == expected.next {
            true => check_batches(&records, expected).map_err(|fault| fault.to_string()),
            false => Err(format!("batches from {} came where {} was expected", batches.from, expected.next)),
        };
        let (headers, expected) = match checked {
            Ok(checked) => checked,
            Err(fault) => {
                self.parts.metrics.on_bad_batches();
                tracing::error!(partition = %session.id, leader = %self.leader, fault, "what the leader sent is not appended");
                self.lose(session.wire);
                self.state.lock().closing.push(session.wire);
                self.wake.notify_one();
                return;
            }
        };
        session.expect(expected);
        let Some(memory) = self.reserve(records.len()).await else { return };
        self.parts.metrics.on_received(records.len());
        let event = BatchesFromLeader {
            session: Arc::clone(&session),
            from: batches.from,
            marks: batches.marks,
            bytes: records,
            headers,
            _memory: memory,
        };
        session.tell(Event::FromLeader(FromLeader::Batches(event)));
    }

    /// Waits until there is room for more that waits to be appended.
    async fn reserve(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let cost = bytes.max(FRAME_COST_MIN).min(self.parts.limits.peer_bytes_max);
        let cost = u32::try_from(cost).unwrap_or(u32::MAX);
        Arc::clone(&self.memory).acquire_many_owned(cost).await.ok()
    }

    fn lose(&self, wire: SessionId) {
        if let Some(session) = self.forget(wire) {
            tell_lost(&session);
        }
    }

    fn lose_all(&self) {
        let sessions: Vec<_> = {
            let mut state = self.state.lock();
            state.queue.clear();
            state.closing.clear();
            state.held_back.clear();
            state.sessions.drain().map(|(_, session)| session).collect()
        };
        self.node_sessions.fetch_sub(sessions.len(), Ordering::Relaxed);
        sessions.iter().for_each(tell_lost);
    }
}

fn tell_lost(session: &Arc<FollowerSession>) {
    if session.lose() {
        session.tell(Event::SessionLost { session: Arc::clone(session) });
    }
}

/// The present incarnation of a node.
fn target_of(image: &ClusterImage, node: NodeId) -> Option<Target> {
    let registration = &image.node(node)?.registration;
    let (incarnation, address) = (registration.incarnation, registration.data_address.clone());
    (!address.is_empty()).then_some(Target { incarnation, address })
}

async fn resolve(address: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = address.parse() {
        return Ok(address);
    }
    let mut found = tokio::net::lookup_host(address)
        .await
        .map_err(|error| format!("cannot resolve {address}: {error}"))?;
    found.next().ok_or_else(|| format!("cannot resolve {address}: no address"))
}
