//! Raft's outgoing side: calls and snapshot streams to the other controllers.
//!
//! Heartbeats, log entries and snapshots each have a connection of their own, so that none waits behind another.

use super::peers::Peers;
use super::stored::{BorrowedEntry, StoredLogId};
use super::type_config::{Entry, Environment, LogId, Member, Vote};
use super::wire::{
    AppendReply, BorrowedAppendAsk, Heard, Signed, SnapshotHello, SnapshotReply, TransferAsk, TransferReply,
    VoteAsk, VoteReply,
};
use bytes::Bytes;
use openraft::alias::SnapshotOf;
use openraft::async_runtime::Select2;
use openraft::errors::{
    NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout as RpcTimeout, Unreachable,
};
use openraft::network::{RPCOption, RPCTypes};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderError,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::TypeConfigExt;
use openraft::{OptionalSend, RaftNetworkFactory, RaftNetworkV2};
use proto_types::message_kind::MessageKind;
use proto_types::{decode, encode};
use quic_transport::{CallError, FrameError, Identity, Peer, PeerTarget, Role, Transport};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of entries in one call; at least one entry goes. An entry alone may be larger, up to the limit on records.
const APPEND_BYTES_MAX: usize = 2 << 20;
/// Bytes in one frame of a snapshot.
const SNAPSHOT_FRAME: usize = 1 << 20;

/// Connections to one controller.
#[derive(Debug, Clone, Copy)]
#[repr(u16)]
pub(crate) enum Lane {
    Log = 0,
    Heartbeat = 1,
    Snapshot = 2,
}

/// Carries questions to other controllers: QUIC, or the network of a test.
pub(crate) trait Carrier: Send + Sync + 'static {
    /// One connection to one controller.
    type Conduit: Conduit;
    /// A connection to `target`, made when it is first used.
    fn conduit(&self, target: u64, address: String, lane: Lane) -> Self::Conduit;
}

/// See [`Carrier`].
pub(crate) trait Conduit: Send + Sync + 'static {
    /// Asks, and waits for the answer.
    fn ask(
        &mut self,
        kind: MessageKind,
        question: Bytes,
        timeout: Duration,
    ) -> impl Future<Output = Result<Bytes, CallError>> + Send;
    /// Sends a snapshot, and waits for the answer.
    fn send_snapshot(
        &mut self,
        hello: Bytes,
        data: Bytes,
        timeout: Duration,
    ) -> impl Future<Output = Result<Bytes, CallError>> + Send;
}

/// Over QUIC.
pub(crate) struct QuicCarrier {
    transport: Arc<dyn Transport>,
    cluster_id: String,
}

/// See [`QuicCarrier`].
pub(crate) struct QuicConduit {
    transport: Arc<dyn Transport>,
    cluster_id: String,
    target: u64,
    address: String,
    lane: Lane,
    peer: Option<Peer>,
}

impl QuicCarrier {
    pub(crate) fn new(transport: Arc<dyn Transport>, cluster_id: String) -> Self {
        Self { transport, cluster_id }
    }
}

impl Carrier for QuicCarrier {
    type Conduit = QuicConduit;

    fn conduit(&self, target: u64, address: String, lane: Lane) -> QuicConduit {
        let (transport, cluster_id) = (Arc::clone(&self.transport), self.cluster_id.clone());
        QuicConduit { transport, cluster_id, target, address, lane, peer: None }
    }
}

impl QuicConduit {
    /// The peer; names are resolved when first used and again after a failure to connect.
    async fn peer(&mut self) -> Result<Peer, CallError> {
        if let Some(peer) = &self.peer {
            return Ok(peer.clone());
        }
        let unreachable = |reason| CallError::Unreachable { reason };
        let found = tokio::net::lookup_host(&self.address).await;
        let address = match found.map(|mut addresses| addresses.next()) {
            Ok(Some(address)) => address,
            Ok(None) => return Err(unreachable(format!("{} has no address", self.address))),
            Err(error) => return Err(unreachable(format!("{} cannot be resolved: {error}", self.address))),
        };
        let identity = Identity::new(&self.cluster_id, Role::Controller, self.target)
            .map_err(|error| unreachable(error.to_string()))?;
        let peer = self.transport.peer(PeerTarget { address, identity, lane: self.lane as u16 });
        self.peer = Some(peer.clone());
        Ok(peer)
    }

    fn forget<T>(&mut self, outcome: Result<T, CallError>) -> Result<T, CallError> {
        if matches!(outcome, Err(CallError::Unreachable { .. })) {
            self.peer = None;
        }
        outcome
    }
}

impl Conduit for QuicConduit {
    async fn ask(
        &mut self,
        kind: MessageKind,
        question: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, CallError> {
        let answer = self.peer().await?.call(kind, question, timeout).await;
        self.forget(answer)
    }

    async fn send_snapshot(
        &mut self,
        hello: Bytes,
        data: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, CallError> {
        let opened = self.peer().await?.open_stream(MessageKind::RaftSnapshot, hello, timeout).await;
        let (mut sender, mut receiver) = self.forget(opened)?;
        let broken = |error: FrameError| CallError::Closed { reason: error.to_string() };
        let mut rest = data;
        while !rest.is_empty() {
            let frame = rest.split_to(SNAPSHOT_FRAME.min(rest.len()));
            sender.send(frame).await.map_err(broken)?;
        }
        sender.finish().await.map_err(broken)?;
        let answer = receiver.recv().await.map_err(broken)?;
        answer.ok_or_else(|| CallError::Closed { reason: "the other controller gave no answer".to_owned() })
    }
}

/// Makes the connections.
pub(crate) struct Network<K: Carrier> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    carrier: K,
    me: u64,
    /// As our own config says; wins over what the log says.
    addresses: BTreeMap<u64, String>,
    peers: Peers,
}

impl<K: Carrier> Network<K> {
    pub(crate) fn new(carrier: K, me: u64, addresses: BTreeMap<u64, String>, peers: Peers) -> Self {
        Self { shared: Arc::new(Shared { carrier, me, addresses, peers }) }
    }

    fn link(&self, target: u64, member: &Member, lane: Lane) -> Link<K> {
        let address = self.shared.addresses.get(&target).unwrap_or(&member.address).clone();
        let conduit = self.shared.carrier.conduit(target, address, lane);
        Link { shared: Arc::clone(&self.shared), target, conduit }
    }
}

impl<C: Environment, K: Carrier> RaftNetworkFactory<C> for Network<K> {
    type Network = Link<K>;

    async fn new_client(&mut self, target: u64, node: &Member) -> Link<K> {
        self.link(target, node, Lane::Log)
    }

    async fn new_heartbeat_client(&mut self, target: u64, node: &Member) -> Link<K> {
        self.link(target, node, Lane::Heartbeat)
    }

    async fn new_snapshot_client(&mut self, target: u64, node: &Member) -> Link<K> {
        self.link(target, node, Lane::Snapshot)
    }
}

/// One connection to one controller.
pub(crate) struct Link<K: Carrier> {
    shared: Arc<Shared<K>>,
    target: u64,
    conduit: K::Conduit,
}

impl<K: Carrier> Link<K> {
    async fn ask<C: Environment, A: DeserializeOwned>(
        &mut self,
        kind: MessageKind,
        action: RPCTypes,
        question: &(impl Serialize + Sync),
        timeout: Duration,
    ) -> Result<A, RPCError<C>> {
        let question = Signed { directory: self.shared.peers.ours(), message: question };
        let answer = self.conduit.ask(kind, encode(&question).into(), timeout).await;
        let answer = answer.map_err(|error| self.rpc_error(action, timeout, error))?;
        self.heard::<C, A>(&answer).await.map_err(|reason| Unreachable::from_string(reason).into())
    }

    /// An answer counts only if it comes from the directory that this controller had before.
    async fn heard<C: Environment, A: DeserializeOwned>(&self, answer: &[u8]) -> Result<A, String> {
        let heard = decode(answer).map_err(|error| format!("unreadable answer: {error}"))?;
        match heard {
            Heard::Answer(Signed { directory, message }) => {
                let checked = self.shared.peers.check::<C>(self.target, directory).await;
                checked.map(|()| message).map_err(|error| error.to_string())
            }
            Heard::OtherDirectory(reason) => {
                self.shared.peers.on_rejected(&reason);
                Err(reason)
            }
        }
    }

    fn rpc_error<C: Environment>(
        &self,
        action: RPCTypes,
        timeout: Duration,
        error: CallError,
    ) -> RPCError<C> {
        match error {
            CallError::Timeout => {
                RpcTimeout { action, id: self.shared.me, target: self.target, timeout }.into()
            }
            // It would be refused again at once: back off.
            CallError::Unreachable { .. }
            | CallError::Refused { .. }
            | CallError::TooLarge { .. }
            | CallError::Remote(_) => Unreachable::new(&error).into(),
            CallError::Closed { .. } => NetworkError::new(&error).into(),
        }
    }

    async fn ask_vote<C: Environment>(
        &mut self,
        kind: MessageKind,
        rpc: VoteRequest<C>,
        option: &RPCOption,
    ) -> Result<VoteResponse<C>, RPCError<C>> {
        let question = VoteAsk {
            vote: (&rpc.vote).into(),
            last_log_id: rpc.last_log_id.as_ref().map(Into::into),
            leadership_transfer: rpc.leadership_transfer,
        };
        let reply: VoteReply = self.ask(kind, RPCTypes::Vote, &question, option.hard_ttl()).await?;
        let vote = Vote::from(reply.vote);
        Ok(VoteResponse::new(vote, reply.last_log_id.map(Into::into), reply.granted))
    }

    async fn send_snapshot<C: Environment>(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<C, Bytes>,
        timeout: Duration,
    ) -> Result<SnapshotResponse<C>, StreamingError<C>> {
        let data = snapshot.snapshot;
        let message =
            SnapshotHello { vote: (&vote).into(), meta: (&snapshot.meta).into(), bytes: data.len() as u64 };
        let hello = Signed { directory: self.shared.peers.ours(), message };
        let sent = self.conduit.send_snapshot(encode(&hello).into(), data, timeout).await;
        let answer = sent.map_err(|error| self.rpc_error(RPCTypes::InstallSnapshot, timeout, error))?;
        let reply: SnapshotReply =
            self.heard::<C, _>(&answer).await.map_err(|reason| Unreachable::from_string(reason))?;
        Ok(SnapshotResponse::new(reply.vote.into()))
    }
}

impl<C: Environment, K: Carrier> RaftNetworkV2<C> for Link<K> {
    type SnapshotData = Bytes;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<C>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<C>, RPCError<C>> {
        let count = entries_within(&rpc.entries, APPEND_BYTES_MAX);
        let question = BorrowedAppendAsk {
            vote: (&rpc.vote).into(),
            prev_log_id: rpc.prev_log_id.as_ref().map(Into::into),
            leader_commit: rpc.leader_commit.as_ref().map(Into::into),
            entries: rpc.entries[..count].iter().map(BorrowedEntry::from).collect(),
        };
        let reply: AppendReply =
            self.ask(MessageKind::RaftAppend, RPCTypes::AppendEntries, &question, option.hard_ttl()).await?;
        Ok(match reply {
            AppendReply::Success if count < rpc.entries.len() => {
                let sent: LogId = rpc.entries[count - 1].log_id;
                AppendEntriesResponse::PartialSuccess(Some(sent))
            }
            AppendReply::Success => AppendEntriesResponse::Success,
            AppendReply::PartialSuccess(id) => AppendEntriesResponse::PartialSuccess(id.map(Into::into)),
            AppendReply::Conflict => AppendEntriesResponse::Conflict,
            AppendReply::HigherVote(vote) => AppendEntriesResponse::HigherVote(vote.into()),
        })
    }

    async fn vote(&mut self, rpc: VoteRequest<C>, option: RPCOption) -> Result<VoteResponse<C>, RPCError<C>> {
        self.ask_vote(MessageKind::RaftVote, rpc, &option).await
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<C>,
        option: RPCOption,
    ) -> Result<VoteResponse<C>, RPCError<C>> {
        match self.ask_vote(MessageKind::RaftPreVote, rpc, &option).await {
            // Raft takes an unreachable peer for one that does not know pre-votes, and counts it as a grant. All of ours
            // know them: who does not answer has not granted.
            Err(RPCError::Unreachable(error)) => Err(NetworkError::from_string(error).into()),
            other => other,
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<C, Bytes>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<C>, StreamingError<C>> {
        let timeout = option.hard_ttl();
        let overdue = RpcTimeout {
            action: RPCTypes::InstallSnapshot,
            id: self.shared.me,
            target: self.target,
            timeout,
        };
        match C::select2(cancel, C::timeout(timeout, self.send_snapshot(vote, snapshot, timeout))).await {
            Select2::First(closed) => Err(closed.into()),
            Select2::Second(sent) => sent.unwrap_or_else(|_elapsed| Err(overdue.into())),
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<C>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<C>, RPCError<C>> {
        let question = TransferAsk {
            from: request.from_leader().into(),
            to: *request.to_node_id(),
            last_log_id: request.last_log_id().map(StoredLogId::from),
        };
        let kind = MessageKind::RaftTransferLeader;
        let reply = self.ask(kind, RPCTypes::TransferLeader, &question, option.hard_ttl()).await?;
        Ok(match reply {
            TransferReply::Accepted => Ok(()),
            TransferReply::VoteChanged { expected, actual } => {
                Err(TransferLeaderError::VoteChanged { expected: expected.into(), actual: actual.into() })
            }
            TransferReply::LogNotFlushed { expected, actual } => Err(TransferLeaderError::LogNotFlushed {
                expected: expected.map(Into::into),
                actual: actual.map(Into::into),
            }),
        })
    }
}

/// How many entries from the first on have at most `bytes_max` together; at least one if there are any.
fn entries_within(entries: &[Entry], bytes_max: usize) -> usize {
    if entries.len() <= 1 {
        return entries.len();
    }
    let mut bytes = 0;
    let within = entries
        .iter()
        .take_while(|entry| {
            bytes += encode(&BorrowedEntry::from(*entry)).len();
            bytes <= bytes_max
        })
        .count();
    within.max(1)
}
