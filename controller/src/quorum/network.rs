//! Raft's outgoing side: calls and snapshot streams to the other controllers.
//!
//! Heartbeats, log entries and snapshots each have a connection of their own, so that none waits behind another.

use super::peers::Peers;
use super::stored::{BorrowedEntry, StoredLogId};
use super::type_config::{Entry, LogId, Member, TypeConfig, Vote};
use super::wire::{
    AppendReply, BorrowedAppendAsk, Heard, Signed, SnapshotHello, SnapshotReply, TransferAsk, TransferReply,
    VoteAsk, VoteReply,
};
use bytes::Bytes;
use openraft::alias::SnapshotOf;
use openraft::errors::{
    NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout as RpcTimeout, Unreachable,
};
use openraft::network::{RPCOption, RPCTypes};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderError,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{OptionalSend, RaftNetworkFactory, RaftNetworkV2};
use proto_types::encode;
use proto_types::message_kind::MessageKind;
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
enum Lane {
    Log = 0,
    Heartbeat = 1,
    Snapshot = 2,
}

/// Makes the connections.
#[derive(Clone)]
pub(crate) struct Network {
    shared: Arc<Shared>,
}

struct Shared {
    transport: Arc<dyn Transport>,
    cluster_id: String,
    me: u64,
    /// As our own config says; wins over what the log says.
    addresses: BTreeMap<u64, String>,
    peers: Peers,
}

impl Network {
    pub(crate) fn new(
        transport: Arc<dyn Transport>,
        cluster_id: String,
        me: u64,
        addresses: BTreeMap<u64, String>,
        peers: Peers,
    ) -> Self {
        Self { shared: Arc::new(Shared { transport, cluster_id, me, addresses, peers }) }
    }

    fn link(&self, target: u64, member: &Member, lane: Lane) -> Link {
        let address = self.shared.addresses.get(&target).unwrap_or(&member.address).clone();
        Link { shared: Arc::clone(&self.shared), target, address, lane, peer: None }
    }
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Link;

    async fn new_client(&mut self, target: u64, node: &Member) -> Link {
        self.link(target, node, Lane::Log)
    }

    async fn new_heartbeat_client(&mut self, target: u64, node: &Member) -> Link {
        self.link(target, node, Lane::Heartbeat)
    }

    async fn new_snapshot_client(&mut self, target: u64, node: &Member) -> Link {
        self.link(target, node, Lane::Snapshot)
    }
}

/// One connection to one controller.
pub(crate) struct Link {
    shared: Arc<Shared>,
    target: u64,
    address: String,
    lane: Lane,
    peer: Option<Peer>,
}

impl Link {
    /// The peer; names are resolved when first used and again after a failure to connect.
    async fn peer(&mut self) -> Result<Peer, String> {
        if let Some(peer) = &self.peer {
            return Ok(peer.clone());
        }
        let found = tokio::net::lookup_host(&self.address).await;
        let address = match found.map(|mut addresses| addresses.next()) {
            Ok(Some(address)) => address,
            Ok(None) => return Err(format!("{} has no address", self.address)),
            Err(error) => return Err(format!("{} cannot be resolved: {error}", self.address)),
        };
        let identity = Identity::new(&self.shared.cluster_id, Role::Controller, self.target)
            .map_err(|error| error.to_string())?;
        let target = PeerTarget { address, identity, lane: self.lane as u16 };
        let peer = self.shared.transport.peer(target);
        self.peer = Some(peer.clone());
        Ok(peer)
    }

    async fn ask<A: DeserializeOwned>(
        &mut self,
        kind: MessageKind,
        action: RPCTypes,
        question: &(impl Serialize + Sync),
        timeout: Duration,
    ) -> Result<A, RPCError<TypeConfig>> {
        let peer = self.peer().await.map_err(Unreachable::from_string)?;
        let question = Signed { directory: self.shared.peers.ours(), message: question };
        let answer = peer.ask(kind, &question, timeout).await;
        let heard = answer.map_err(|error| self.rpc_error(action, timeout, error))?;
        self.check(heard).await.map_err(|reason| Unreachable::from_string(reason).into())
    }

    /// An answer counts only if it comes from the directory that this controller had before.
    async fn check<A>(&self, heard: Heard<A>) -> Result<A, String> {
        match heard {
            Heard::Answer(Signed { directory, message }) => {
                let checked = self.shared.peers.check(self.target, directory).await;
                checked.map(|()| message).map_err(|error| error.to_string())
            }
            Heard::OtherDirectory(reason) => {
                self.shared.peers.on_rejected(&reason);
                Err(reason)
            }
        }
    }

    fn rpc_error(&mut self, action: RPCTypes, timeout: Duration, error: CallError) -> RPCError<TypeConfig> {
        match error {
            CallError::Timeout => {
                RpcTimeout { action, id: self.shared.me, target: self.target, timeout }.into()
            }
            CallError::Unreachable { .. } => {
                self.peer = None;
                Unreachable::new(&error).into()
            }
            // It would be refused again at once: back off.
            CallError::Refused { .. } | CallError::TooLarge { .. } | CallError::Remote(_) => {
                Unreachable::new(&error).into()
            }
            CallError::Closed { .. } => NetworkError::new(&error).into(),
        }
    }

    async fn ask_vote(
        &mut self,
        kind: MessageKind,
        rpc: VoteRequest<TypeConfig>,
        option: &RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        let question = VoteAsk {
            vote: (&rpc.vote).into(),
            last_log_id: rpc.last_log_id.as_ref().map(Into::into),
            leadership_transfer: rpc.leadership_transfer,
        };
        let reply: VoteReply = self.ask(kind, RPCTypes::Vote, &question, option.hard_ttl()).await?;
        let vote = Vote::from(reply.vote);
        Ok(VoteResponse::new(vote, reply.last_log_id.map(Into::into), reply.granted))
    }

    async fn send_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<TypeConfig, Bytes>,
        timeout: Duration,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let peer = self.peer().await.map_err(Unreachable::from_string)?;
        let data = snapshot.snapshot;
        let message =
            SnapshotHello { vote: (&vote).into(), meta: (&snapshot.meta).into(), bytes: data.len() as u64 };
        let hello = Signed { directory: self.shared.peers.ours(), message };
        let opened = peer.open_stream(MessageKind::RaftSnapshot, encode(&hello).into(), timeout).await;
        let (mut sender, mut receiver) =
            opened.map_err(|error| self.rpc_error(RPCTypes::InstallSnapshot, timeout, error))?;
        let broken = |error: FrameError| StreamingError::from(NetworkError::new(&error));
        let mut rest = data;
        while !rest.is_empty() {
            let frame = rest.split_to(SNAPSHOT_FRAME.min(rest.len()));
            sender.send(frame).await.map_err(broken)?;
        }
        sender.finish().await.map_err(broken)?;
        match receiver.recv_message::<Heard<SnapshotReply>>().await.map_err(broken)? {
            Some(heard) => {
                let reply = self.check(heard).await.map_err(Unreachable::from_string)?;
                Ok(SnapshotResponse::new(reply.vote.into()))
            }
            None => Err(NetworkError::from_string("the other controller gave no answer").into()),
        }
    }
}

impl RaftNetworkV2<TypeConfig> for Link {
    type SnapshotData = Bytes;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
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

    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.ask_vote(MessageKind::RaftVote, rpc, &option).await
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
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
        snapshot: SnapshotOf<TypeConfig, Bytes>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let timeout = option.hard_ttl();
        let overdue = RpcTimeout {
            action: RPCTypes::InstallSnapshot,
            id: self.shared.me,
            target: self.target,
            timeout,
        };
        tokio::select! {
            closed = cancel => Err(closed.into()),
            sent = tokio::time::timeout(timeout, self.send_snapshot(vote, snapshot, timeout)) => {
                sent.unwrap_or_else(|_elapsed| Err(overdue.into()))
            }
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RPCError<TypeConfig>> {
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
