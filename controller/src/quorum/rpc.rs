//! Raft's incoming side: what the other controllers ask.
//!
//! Only controllers get here (the router's table), only voters of our config are heard, and nobody speaks for another:
//! a vote or an append names its sender, which must be the one in the certificate.

use super::peers::{PeerError, Peers};
use super::stored::{StoredLogId, StoredVote};
use super::type_config::{Raft, SnapshotMeta, TypeConfig, Vote};
use super::wire::{
    AppendAsk, AppendReply, Heard, Signed, SnapshotHello, SnapshotReply, TransferAsk, TransferReply, VoteAsk,
    VoteReply,
};
use bytes::{Bytes, BytesMut};
use openraft::Snapshot;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, TransferLeaderError, TransferLeaderRequest, VoteRequest,
    VoteResponse,
};
use proto_types::message_kind::MessageKind;
use quic_transport::{Call, FrameReceiver, FrameSender, Refusal, Role, Roles, RouterBuilder};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use uuid::Uuid;

/// Largest snapshot that is accepted, bytes: a hundred thousand partitions take about five million.
const SNAPSHOT_BYTES_MAX: u64 = 256 << 20;

const CONTROLLERS: Roles = Roles::of(&[Role::Controller]);

/// Where the handlers find raft: the table is made before raft is, since raft needs the endpoint.
pub(crate) struct RaftSlot {
    raft: OnceLock<Raft>,
    voters: BTreeSet<u64>,
    peers: Peers,
}

impl RaftSlot {
    pub(crate) fn new(voters: BTreeSet<u64>, peers: Peers) -> Self {
        Self { raft: OnceLock::new(), voters, peers }
    }

    /// From now on calls are answered.
    pub(crate) fn fill(&self, raft: Raft) {
        assert!(self.raft.set(raft).is_ok(), "raft is started once");
    }

    /// Lets only voters of ours ask, only in their own name, and only from the directory that they had before.
    async fn admit(&self, call: &Call, sender: StoredVote, directory: Uuid) -> Result<Admitted<'_>, Refusal> {
        let caller = call.caller.identity.node_id();
        if !self.voters.contains(&caller) {
            tracing::warn!(caller, "a controller that is not among our voters was refused");
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
        match self.peers.check(caller, directory).await {
            Ok(()) => {}
            Err(error @ PeerError::OtherDirectory { .. }) => {
                tracing::error!(%error, "a controller was refused");
                return Ok(Admitted::Not(error.to_string()));
            }
            Err(error @ (PeerError::Stopping | PeerError::Store(_))) => return Err(failed(error)),
        }
        self.raft.get().map(Admitted::To).ok_or(Refusal::Busy)
    }

    fn sign<T>(&self, message: T) -> Heard<T> {
        Heard::Answer(Signed { directory: self.peers.ours(), message })
    }
}

enum Admitted<'a> {
    To(&'a Raft),
    Not(String),
}

/// Adds raft's rows to the table.
pub(crate) fn add_routes(builder: RouterBuilder, slot: &Arc<RaftSlot>) -> RouterBuilder {
    let [append_slot, vote_slot, pre_vote_slot, transfer_slot, snapshot_slot] =
        std::array::from_fn(|_| Arc::clone(slot));
    builder
        .ask(MessageKind::RaftAppend, CONTROLLERS, move |call, question| {
            let slot = Arc::clone(&append_slot);
            async move { append(&slot, &call, question).await }
        })
        .ask(MessageKind::RaftVote, CONTROLLERS, move |call, question| {
            let slot = Arc::clone(&vote_slot);
            async move { vote(&slot, &call, question, false).await }
        })
        .ask(MessageKind::RaftPreVote, CONTROLLERS, move |call, question| {
            let slot = Arc::clone(&pre_vote_slot);
            async move { vote(&slot, &call, question, true).await }
        })
        .ask(MessageKind::RaftTransferLeader, CONTROLLERS, move |call, question| {
            let slot = Arc::clone(&transfer_slot);
            async move { transfer(&slot, &call, question).await }
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

async fn append(
    slot: &RaftSlot,
    call: &Call,
    question: Signed<AppendAsk>,
) -> Result<Heard<AppendReply>, Refusal> {
    let Signed { directory, message: question } = question;
    let raft = match slot.admit(call, question.vote, directory).await? {
        Admitted::To(raft) => raft,
        Admitted::Not(reason) => return Ok(Heard::OtherDirectory(reason)),
    };
    let entries = question.entries.into_iter().map(|entry| entry.into_entry().map_err(Refusal::Malformed));
    let request = AppendEntriesRequest::<TypeConfig> {
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

async fn vote(
    slot: &RaftSlot,
    call: &Call,
    question: Signed<VoteAsk>,
    pre: bool,
) -> Result<Heard<VoteReply>, Refusal> {
    let Signed { directory, message: question } = question;
    let raft = match slot.admit(call, question.vote, directory).await? {
        Admitted::To(raft) => raft,
        Admitted::Not(reason) => return Ok(Heard::OtherDirectory(reason)),
    };
    let mut request =
        VoteRequest::<TypeConfig>::new(Vote::from(question.vote), question.last_log_id.map(Into::into));
    request.leadership_transfer = question.leadership_transfer;
    let answered = if pre { raft.pre_vote(request).await } else { raft.vote(request).await };
    let VoteResponse { vote, vote_granted, last_log_id } = answered.map_err(failed)?;
    Ok(slot.sign(VoteReply {
        vote: (&vote).into(),
        granted: vote_granted,
        last_log_id: last_log_id.as_ref().map(StoredLogId::from),
    }))
}

async fn transfer(
    slot: &RaftSlot,
    call: &Call,
    question: Signed<TransferAsk>,
) -> Result<Heard<TransferReply>, Refusal> {
    let Signed { directory, message: question } = question;
    let raft = match slot.admit(call, question.from, directory).await? {
        Admitted::To(raft) => raft,
        Admitted::Not(reason) => return Ok(Heard::OtherDirectory(reason)),
    };
    let request = TransferLeaderRequest::<TypeConfig>::new(
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
    let Signed { directory, message: hello } = call.decode::<Signed<SnapshotHello>>()?;
    let raft = match slot.admit(call, hello.vote, directory).await? {
        Admitted::To(raft) => raft,
        Admitted::Not(reason) => {
            let answer = Heard::<SnapshotReply>::OtherDirectory(reason);
            sender.send_message(&answer).await.map_err(failed)?;
            return sender.finish().await.map_err(failed);
        }
    };
    if hello.bytes > SNAPSHOT_BYTES_MAX {
        return Err(Refusal::TooLarge { limit: SNAPSHOT_BYTES_MAX });
    }
    let meta = SnapshotMeta::try_from(hello.meta).map_err(Refusal::Malformed)?;
    let mut data = BytesMut::new();
    while let Some(frame) = receiver.recv().await.map_err(failed)? {
        data.extend_from_slice(&frame);
        if data.len() as u64 > hello.bytes {
            return Err(Refusal::Malformed("more bytes than announced".to_owned()));
        }
    }
    if data.len() as u64 != hello.bytes {
        return Err(Refusal::Malformed("fewer bytes than announced".to_owned()));
    }
    let snapshot = Snapshot { meta, snapshot: Bytes::from(data) };
    let response = raft.install_full_snapshot(hello.vote.into(), snapshot).await.map_err(failed)?;
    let reply = slot.sign(SnapshotReply { vote: (&response.vote).into() });
    sender.send_message(&reply).await.map_err(failed)?;
    sender.finish().await.map_err(failed)
}
