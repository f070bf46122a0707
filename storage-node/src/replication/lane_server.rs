//! The leader's end of a lane: takes what a follower's node says to the log threads, and hands the lane to its pump.
//!
//! Only storage nodes, only over the data endpoint. Who may follow which partition, the replica decides.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use proto_types::ids::{BrokerEpoch, NodeId, Offset};
use proto_types::replication_api::{
    FollowerFrame, LaneHello, OpenSession, SessionAck, SessionAnswer, SessionId,
};
use quic_transport::{Call, FrameReceiver, FrameSender, MessageKind, Role, Roles, Router};
use storage_node_core::SessionKey;

use super::lane_pump::{LanePump, LeaderThrottle};
use super::leader_session::{LeaderLane, LeaderSession};
use super::{ReplicationLimits, ReplicationMetrics};
use crate::disk::event::Event;
use crate::partition::{Lookup, Partitions};

const STORAGE_NODES: Roles = Roles::of(&[Role::StorageNode]);

/// What the lanes of all followers work with.
pub(crate) struct LaneServer {
    cluster_id: String,
    /// They own the lanes to other nodes, and so the endpoint that serves these.
    partitions: Weak<Partitions>,
    limits: ReplicationLimits,
    metrics: ReplicationMetrics,
    throttle: LeaderThrottle,
    next_key: AtomicU64,
}

/// Where the table of the data endpoint finds it; it is made after the endpoint.
pub(crate) type LaneServerSlot = Arc<OnceLock<LaneServer>>;

/// The table of the data endpoint.
pub(crate) fn router(slot: &LaneServerSlot) -> Router {
    let slot = Arc::clone(slot);
    let serve = move |call, sender, receiver| {
        let slot = Arc::clone(&slot);
        async move {
            // Before the partitions are there, followers are sent away and come again.
            if let Some(server) = slot.get() {
                server.serve(call, sender, receiver).await;
            }
        }
    };
    Router::builder().stream(MessageKind::ReplicationLane, STORAGE_NODES, serve).build()
}

/// One lane; what it leaves behind is told to the replicas when it is dropped, however that comes about.
struct ServedLane<'a> {
    server: &'a LaneServer,
    from: NodeId,
    broker_epoch: BrokerEpoch,
    shared: Arc<LeaderLane>,
}

impl LaneServer {
    pub(crate) fn new(
        cluster_id: String,
        partitions: &Arc<Partitions>,
        limits: ReplicationLimits,
        metrics: ReplicationMetrics,
        throttle: LeaderThrottle,
    ) -> Self {
        let partitions = Arc::downgrade(partitions);
        Self { cluster_id, partitions, limits, metrics, throttle, next_key: AtomicU64::new(1) }
    }

    async fn serve(&self, call: Call, sender: FrameSender, receiver: FrameReceiver) {
        let caller = &call.caller.identity;
        let hello = match call.decode::<LaneHello>() {
            Ok(hello) if hello.cluster_id == self.cluster_id => hello,
            Ok(hello) => {
                tracing::warn!(%caller, cluster_id = hello.cluster_id, "a follower of another cluster");
                return;
            }
            Err(refusal) => {
                tracing::warn!(%caller, %refusal, "unreadable hello of a follower");
                return;
            }
        };
        let Ok(from) = i32::try_from(caller.node_id()) else { return };
        let lane = ServedLane {
            server: self,
            from: NodeId(from),
            broker_epoch: hello.broker_epoch,
            shared: Arc::default(),
        };
        let Some(read_pool) = self.partitions.upgrade().map(|partitions| partitions.read_pool().clone())
        else {
            return;
        };
        let (shared, metrics) = (Arc::clone(&lane.shared), self.metrics.clone());
        let pump = LanePump::new(shared, self.limits, metrics, read_pool, self.throttle.clone());
        let reason = tokio::select! {
            reason = lane.listen(receiver) => reason,
            reason = pump.run(sender) => reason,
        };
        tracing::debug!(follower = from, reason, "a follower's lane has ended");
    }
}

impl ServedLane<'_> {
    /// Takes what the follower says until the lane ends; says why it did.
    async fn listen(&self, mut receiver: FrameReceiver) -> String {
        loop {
            match receiver.recv_message::<FollowerFrame>().await {
                Ok(Some(FollowerFrame::Open(open))) => {
                    if let Err(reason) = self.on_open(open) {
                        return reason;
                    }
                }
                Ok(Some(FollowerFrame::Ack(ack))) => self.on_ack(&ack),
                Ok(Some(FollowerFrame::LogStart { session, log_start })) => {
                    self.on_log_start(session, log_start);
                }
                Ok(Some(FollowerFrame::Close { session })) => self.on_close(session),
                Ok(None) => return "the follower's node ended it".to_owned(),
                Err(error) => return error.to_string(),
            }
        }
    }

    fn on_open(&self, open: OpenSession) -> Result<(), String> {
        let id = open.session;
        let sessions_max = self.server.limits.sessions_max;
        let found = self.server.partitions.upgrade().map(|partitions| partitions.get(open.partition));
        let partition = match found {
            Some(Lookup::Open(partition)) => partition,
            Some(Lookup::Failed | Lookup::Absent) | None => {
                let refused = self.shared.refuse(id, SessionAnswer::NotServed, sessions_max);
                return refused.map_err(|full| full.to_string());
            }
        };
        if let Err(full) = self.shared.check_room(sessions_max) {
            return Err(format!("{full} (limits.replication_sessions_max = {sessions_max})"));
        }
        let key = SessionKey(self.server.next_key.fetch_add(1, Ordering::Relaxed));
        let lane = Arc::clone(&self.shared);
        let counted = self.server.metrics.session();
        let session = LeaderSession::new(key, self.from, self.broker_epoch, open, partition, lane, counted);
        let session = Arc::new(session);
        if !self.shared.add(&session) {
            return Err("the follower has opened a session twice".to_owned());
        }
        self.server.metrics.on_session_opened();
        session.partition.tell(Event::OpenSession { session: Arc::clone(&session) });
        Ok(())
    }

    fn on_ack(&self, ack: &SessionAck) {
        // One that the leader has ended may still be acknowledged.
        let Some(session) = self.shared.get(ack.session) else { return };
        if session.on_ack(ack) {
            session.partition.tell(Event::FollowerAck { session: Arc::clone(&session) });
        }
        if ack.credit_bytes > 0 {
            session.wake();
        }
    }

    fn on_log_start(&self, id: SessionId, log_start: Offset) {
        let Some(session) = self.shared.get(id) else { return };
        if session.on_log_start(log_start) {
            session.partition.tell(Event::FollowerStart { session: Arc::clone(&session) });
        }
    }

    fn on_close(&self, id: SessionId) {
        if let Some(session) = self.shared.remove(id) {
            self.ended(&session);
            // The pump forgets it when it comes to its turn.
            session.wake();
        }
    }

    fn ended(&self, session: &Arc<LeaderSession>) {
        session.partition.tell(Event::SessionEnded { session: Arc::clone(session) });
    }
}

impl Drop for ServedLane<'_> {
    fn drop(&mut self) {
        for session in self.shared.end() {
            self.ended(&session);
        }
    }
}
