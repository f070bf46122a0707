//! Raft's incoming side: what the other controllers ask.
//!
//! Only controllers get here (the router's table), only members of our quorum are heard, and nobody speaks for another: a
//! vote or an append names its sender, which must be the one in the certificate.

use super::peers::{PeerError, Peers};
use super::state_machine::StateView;
use super::stored::{StoredLogId, StoredVote};
use super::type_config::{Environment, Raft, SnapshotMeta, TypeConfig, Vote};
use super::wire::{
    AppendAsk, AppendReply, Heard, Signed, SnapshotHello, SnapshotReply, TransferAsk, TransferReply, VoteAsk,
    VoteReply,
};
use bytes::{Bytes, BytesMut};
use openraft::Snapshot;
use openraft::async_runtime::WatchReceiver;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, TransferLeaderError, TransferLeaderRequest, VoteRequest,
    VoteResponse,
};
use proto_types::ids::ControllerId;
use proto_types::message_kind::MessageKind;
use quic_transport::{Call, FrameReceiver, FrameSender, Refusal, Role, Roles, RouterBuilder};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use uuid::Uuid;

/// Largest snapshot that is accepted, bytes: a hundred thousand partitions take about five million.
const SNAPSHOT_BYTES_MAX: u64 = 256 << 20;

const CONTROLLERS: Roles = Roles::of(&[Role::Controller]);

/// Where the handlers find raft: the table is made before raft is, since raft needs the endpoint.
pub(crate) struct RaftSlot<C: Environment = TypeConfig> {
    raft: OnceLock<(Raft<C>, StateView)>,
    /// Voters of our config: all that we know before we have a log.
    configured: BTreeSet<u64>,
    peers: Peers,
}

impl<C: Environment> RaftSlot<C> {
    pub(crate) fn new(configured: BTreeSet<u64>, peers: Peers) -> Self {
        Self { raft: OnceLock::new(), configured, peers }
    }

    /// From now on calls are answered.
    pub(crate) fn fill(&self, raft: Raft<C>, view: StateView) {
        assert!(self.raft.set((raft, view)).is_ok(), "raft is started once");
    }

    /// Lets only members ask, only in their own name, and only from the directory that they had before.
    async fn admit(
        &self,
        caller: u64,
        sender: StoredVote,
        directory: Uuid,
    ) -> Result<Admitted<'_, C>, Refusal> {
        let Some((raft, view)) = self.raft.get() else { return Err(Refusal::Busy) };
        if view.state().controllers().removed().contains(&ControllerId(caller)) {
            tracing::warn!(caller, "a controller that was removed from the quorum was refused");
            return Ok(Admitted::Not(removed_sentence(caller)));
        }
        if !self.is_member(raft, caller) {
            tracing::warn!(caller, "a controller that is not a member of our quorum was refused");
            return Err(Refusal::Forbidden);
        }
        if sender.node != caller {
            tracing::warn!(
                caller,
                speaks_for = sender.node,
                "a controller that speaks for another was refused"
            );
            return Err(Refusal::Forbidden);
        }
        match self.peers.check::<C>(caller, directory).await {
            Ok(()) => Ok(Admitted::To(raft)),
            Err(error @ PeerError::OtherDirectory { .. }) => {
                tracing::error!(%error, "a controller was refused");
                Ok(Admitted::Not(error.to_string()))
            }
            Err(error @ (PeerError::Stopping | PeerError::Store(_))) => Err(failed(error)),
        }
    }

    /// Whether we know the caller as a member. Nobody gets a vote before every voter has it in its log, so whoever is
    /// neither there nor in our config is of another quorum.
    fn is_member(&self, raft: &Raft<C>, caller: u64) -> bool {
        let metrics = raft.server_metrics();
        let metrics = metrics.borrow_watched();
        self.configured.contains(&caller) || metrics.membership_config.nodes().any(|(id, _)| *id == caller)
    }

    fn sign<T>(&self, message: T) -> Heard<T> {
        Heard::Answer(Signed { directory: self.peers.ours(), message })
    }
}

/// What a controller is told that is not a voter any more.
pub(crate) fn removed_sentence(id: u64) -> String {
    format!(
        "controller {id} was removed from the quorum, and its id is never used again. To bring this controller back, give \
         it a new id and an empty directory, and add it to the quorum"
    )
}

enum Admitted<'a, C: Environment> {
    To(&'a Raft<C>),
    Not(String),
}

/// Adds raft's rows to the table.
pub(crate) fn add_routes(builder: RouterBuilder, slot: &Arc<RaftSlot>) -> RouterBuilder {
    let [append_slot, vote_slot, pre_vote_slot, transfer_slot, snapshot_slot] =
        std::array::from_fn(|_| Arc::clone(slot));
    builder
        .ask(MessageKind::RaftAppend, CONTROLLERS, move |call, question| {
            let slot = Arc::clone(&append_slot);
            async move { append(&slot, call.caller.identity.node_id(), question).await }
        })
        .ask(MessageKind::RaftVote, CONTROLLERS, move |call, question| {
            let slot = Arc::clone(&vote_slot);
            async move { vote(&slot, call.caller.identity.node_id(), question, false).await }
        })
        .ask(MessageKind::RaftPreVote, CONTROLLERS, move |call, question| {
            let slot = Arc::clone(&pre_vote_slot);
            async move { vote(&slot, call.caller.identity.node_id(), question, true).await }
        })
        .ask(MessageKind::RaftTransferLeader, CONTROLLERS, move |call, question| {
            let slot = Arc::clone(&transfer_slot);
            async move { transfer(&slot, call.caller.identity.node_id(), question).await }
        })
        .stream(MessageKind::RaftSnapshot, CONTROLLERS, move |call, sender, receiver| {
            let slot = Arc::clone(&snapshot_slot);
            async move {
                if let Err(refusal) = snapshot(&slot, &call, sender, receiver).await {
                    tracing::warn!(%refusal, "a snapshot from another controller was not taken");
                }
            }
        })
}

fn failed(error: impl std::fmt::Display) -> Refusal {
    Refusal::Failed(error.to_string())
}

pub(super) async fn append<C: Environment>(
    slot: &RaftSlot<C>,
    caller: u64,
    question: Signed<AppendAsk>,
) -> Result<Heard<AppendReply>, Refusal> {
    let Signed { directory, message: question } = question;
    let raft = match slot.admit(caller, question.vote, directory).await? {
        Admitted::To(raft) => raft,
        Admitted::Not(reason) => return Ok(Heard::OtherDirectory(reason)),
    };
    let entries = question.entries.into_iter().map(|entry| entry.into_entry().map_err(Refusal::Malformed));
    let request = AppendEntriesRequest::<C> {
        vote: question.vote.into(),
        prev_log_id: question.prev_log_id.map(Into::into),
        entries: entries.collect::<Result<_, _>>()?,
        leader_commit: question.leader_commit.map(Into::into),
    };
    Ok(slot.sign(match raft.append_entries(request).await.map_err(failed)? {
        AppendEntriesResponse::Success => AppendReply::Success,
        AppendEntriesResponse::PartialSuccess(id) => {
            AppendReply::PartialSuccess(id.as_ref().map(StoredLogId::from))
        }
        AppendEntriesResponse::Conflict => AppendReply::Conflict,
        AppendEntriesResponse::HigherVote(vote) => AppendReply::HigherVote((&vote).into()),
    }))
}

pub(super) async fn vote<C: Environment>(
    slot: &RaftSlot<C>,
    caller: u64,
    question: Signed<VoteAsk>,
    pre: bool,
) -> Result<Heard<VoteReply>, Refusal> {
    let Signed { directory, message: question } = question;
    let raft = match slot.admit(caller, question.vote, directory).await? {
        Admitted::To(raft) => raft,
        Admitted::Not(reason) => return Ok(Heard::OtherDirectory(reason)),
    };
    let mut request = VoteRequest::<C>::new(Vote::from(question.vote), question.last_log_id.map(Into::into));
    request.leadership_transfer = question.leadership_transfer;
    let answered = if pre { raft.pre_vote(request).await } else { raft.vote(request).await };
    let VoteResponse { vote, vote_granted, last_log_id } = answered.map_err(failed)?;
    Ok(slot.sign(VoteReply {
        vote: (&vote).into(),
        granted: vote_granted,
        last_log_id: last_log_id.as_ref().map(StoredLogId::from),
    }))
}

pub(super) async fn transfer<C: Environment>(
    slot: &RaftSlot<C>,
    caller: u64,
    question: Signed<TransferAsk>,
) -> Result<Heard<TransferReply>, Refusal> {
    let Signed { directory, message: question } = question;
    let raft = match slot.admit(caller, question.from, directory).await? {
        Admitted::To(raft) => raft,
        Admitted::Not(reason) => return Ok(Heard::OtherDirectory(reason)),
    };
    let request = TransferLeaderRequest::<C>::new(
        question.from.into(),
        question.to,
        question.last_log_id.map(Into::into),
    );
    Ok(slot.sign(match raft.handle_transfer_leader(request).await.map_err(failed)? {
        Ok(()) => TransferReply::Accepted,
        Err(TransferLeaderError::VoteChanged { expected, actual }) => {
            TransferReply::VoteChanged { expected: (&expected).into(), actual: (&actual).into() }
        }
        Err(TransferLeaderError::LogNotFlushed { expected, actual }) => TransferReply::LogNotFlushed {
            expected: expected.as_ref().map(StoredLogId::from),
            actual: actual.as_ref().map(StoredLogId::from),
        },
    }))
}

async fn snapshot(
    slot: &RaftSlot,
    call: &Call,
    mut sender: FrameSender,
    mut receiver: FrameReceiver,
) -> Result<(), Refusal> {
    let hello = call.decode::<Signed<SnapshotHello>>()?;
    let (caller, bytes) = (call.caller.identity.node_id(), hello.message.bytes);
    if let Admitted::Not(reason) = slot.admit(caller, hello.message.vote, hello.directory).await? {
        let answer = Heard::<SnapshotReply>::OtherDirectory(reason);
        sender.send_message(&answer).await.map_err(failed)?;
        return sender.finish().await.map_err(failed);
    }
    if bytes > SNAPSHOT_BYTES_MAX {
        return Err(Refusal::TooLarge { limit: SNAPSHOT_BYTES_MAX });
    }
    let mut data = BytesMut::new();
    while let Some(frame) = receiver.recv().await.map_err(failed)? {
        data.extend_from_slice(&frame);
        if data.len() as u64 > bytes {
            return Err(Refusal::Malformed("more bytes than announced".to_owned()));
        }
    }
    let answer = install(slot, caller, hello, data.freeze()).await?;
    sender.send_message(&answer).await.map_err(failed)?;
    sender.finish().await.map_err(failed)
}

/// Takes a snapshot that has come whole.
pub(super) async fn install<C: Environment>(
    slot: &RaftSlot<C>,
    caller: u64,
    hello: Signed<SnapshotHello>,
    data: Bytes,
) -> Result<Heard<SnapshotReply>, Refusal> {
    let Signed { directory, message: hello } = hello;
    let raft = match slot.admit(caller, hello.vote, directory).await? {
        Admitted::To(raft) => raft,
        Admitted::Not(reason) => return Ok(Heard::OtherDirectory(reason)),
    };
    if data.len() as u64 != hello.bytes {
        return Err(Refusal::Malformed("fewer bytes than announced".to_owned()));
    }
    let meta = SnapshotMeta::try_from(hello.meta).map_err(Refusal::Malformed)?;
    let snapshot = Snapshot { meta, snapshot: data };
    let response = raft.install_full_snapshot(hello.vote.into(), snapshot).await.map_err(failed)?;
    Ok(slot.sign(SnapshotReply { vote: (&response.vote).into() }))
}
