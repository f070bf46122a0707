//! The stream to one incarnation of one coordinator: requests out, answers back in any order.
//!
//! A task owns the stream. It opens it when a request wants it; when it is lost, every open request is told so, and the
//! next request opens another. A request that is given up is withdrawn at the coordinator too, once it was sent.

use crate::coordinator_port::GroupCall;
use crate::coordinators::ForwardLimits;
use bytes::Bytes;
use proto_types::coordinator_api::{AnswerFrame, ForwardFrame, ForwardRefusal, ForwardedRequest};
use proto_types::ids::{CoordinatorId, Incarnation};
use quic_transport::{FrameReceiver, FrameSender, Identity, MessageKind, PeerTarget, Role, Transport};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

/// Requests that are written together.
const FRAMES_PER_WRITE: usize = 64;

/// Whom a stream reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) coordinator: CoordinatorId,
    pub(crate) incarnation: Incarnation,
    /// `host:port` of its endpoint.
    pub(crate) address: String,
}

/// No answer came, and what became of the request is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unsent(pub(crate) String);

enum Command {
    Ask { frame: ForwardedRequest, reply: oneshot::Sender<AnswerFrame>, permit: OwnedSemaphorePermit },
    Abandon { id: u64 },
}

/// A handle to the stream. The task ends when it is dropped.
pub(crate) struct CoordinatorStream {
    target: Target,
    commands: mpsc::Sender<Command>,
    next_id: AtomicU64,
    places: Arc<Semaphore>,
}

impl CoordinatorStream {
    /// Starts the task. The stream is opened by the first request.
    pub(crate) fn start(transport: Arc<dyn Transport>, target: Target, limits: ForwardLimits) -> Self {
        // Every place has at most one request and one withdrawal on the way.
        let (commands, queue) = mpsc::channel(limits.requests_max.saturating_mul(2).max(1));
        let task = Task { transport, target: target.clone(), limits, open: HashMap::new() };
        tokio::spawn(task.run(queue));
        Self {
            target,
            commands,
            next_id: AtomicU64::new(0),
            places: Arc::new(Semaphore::new(limits.requests_max)),
        }
    }

    /// Whom it reaches.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Sends a request and waits for its answer, however long that takes. Dropping the future withdraws the request.
    pub(crate) async fn ask(&self, call: &GroupCall) -> Result<AnswerFrame, Unsent> {
        let full = |_| Unsent("too many requests are open".to_owned());
        let permit = Arc::clone(&self.places).try_acquire_owned().map_err(full)?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let frame = ForwardedRequest {
            id,
            shard: call.shard,
            api_key: call.api as i16,
            api_version: call.api_version,
            client_id: call.client_id.clone(),
            client_host: call.client_host.clone(),
            listener: call.listener.clone(),
            principal: call.principal.clone(),
            body: call.body.to_vec(),
        };
        let (reply, answer) = oneshot::channel();
        let ended = |_| Unsent("the stream has ended".to_owned());
        self.commands.send(Command::Ask { frame, reply, permit }).await.map_err(ended)?;
        let mut withdrawal = Withdrawal { id, commands: Some(&self.commands) };
        let answer = answer.await;
        withdrawal.commands = None;
        answer.map_err(|_| Unsent("the stream was lost".to_owned()))
    }
}

/// Withdraws a request whose asker has gone.
struct Withdrawal<'a> {
    id: u64,
    commands: Option<&'a mpsc::Sender<Command>>,
}

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        if let Some(commands) = self.commands {
            // Without room the coordinator parks it for longer than it is wanted, nothing else.
            let _full = commands.try_send(Command::Abandon { id: self.id });
        }
    }
}

struct Open {
    reply: oneshot::Sender<AnswerFrame>,
    _permit: OwnedSemaphorePermit,
}

struct Task {
    transport: Arc<dyn Transport>,
    target: Target,
    limits: ForwardLimits,
    open: HashMap<u64, Open>,
}

impl Task {
    async fn run(mut self, mut queue: mpsc::Receiver<Command>) {
        while let Some(command) = queue.recv().await {
            // There is no stream, so nothing to withdraw from.
            let Command::Ask { .. } = command else { continue };
            let reason = match self.open_stream().await {
                Ok((sender, receiver)) => match self.carry(command, &mut queue, sender, receiver).await {
                    Ok(()) => return,
                    Err(reason) => reason,
                },
                Err(reason) => reason,
            };
            tracing::debug!(coordinator = %self.target.coordinator, reason, "the stream to a coordinator is lost");
            // Dropping the replies tells everybody.
            self.open.clear();
        }
    }

    async fn open_stream(&self) -> Result<(FrameSender, FrameReceiver), String> {
        let target = &self.target;
        let number = u64::try_from(target.coordinator.0).map_err(|_| "a negative id".to_owned())?;
        let cluster = self.transport.identity().cluster_id();
        let identity =
            Identity::new(cluster, Role::Coordinator, number).map_err(|error| error.to_string())?;
        let address = match target.address.parse() {
            Ok(address) => address,
            Err(_) => tokio::net::lookup_host(&target.address)
                .await
                .map_err(|error| format!("cannot resolve {}: {error}", target.address))?
                .next()
                .ok_or_else(|| format!("cannot resolve {}: no address", target.address))?,
        };
        let peer = self.transport.peer(PeerTarget::new(address, identity));
        let opened = peer.open_stream(MessageKind::Forward, Bytes::new(), self.limits.open_max).await;
        opened.map_err(|error| error.to_string())
    }

    /// Carries requests and answers until the handle is gone (`Ok`) or the stream is lost.
    async fn carry(
        &mut self,
        first: Command,
        queue: &mut mpsc::Receiver<Command>,
        mut sender: FrameSender,
        mut receiver: FrameReceiver,
    ) -> Result<(), String> {
        let mut commands = vec![first];
        loop {
            let limit = sender.frame_bytes_max();
            let frames: Vec<Bytes> =
                commands.drain(..).filter_map(|command| self.frame(command, limit)).collect();
            if !frames.is_empty() {
                sender.send_all(frames).await.map_err(|error| error.to_string())?;
            }
            tokio::select! {
                count = queue.recv_many(&mut commands, FRAMES_PER_WRITE) => {
                    if count == 0 {
                        return Ok(());
                    }
                }
                answer = receiver.recv_message::<AnswerFrame>() => match answer {
                    Ok(Some(answer)) => self.answer(answer),
                    Ok(None) => return Err("the coordinator ended it".to_owned()),
                    Err(error) => return Err(error.to_string()),
                }
            }
        }
    }

    /// What is to be sent, if anything: a request that does not fit in a frame of `limit` bytes is refused here, since the
    /// others on the stream would be lost with it.
    fn frame(&mut self, command: Command, limit: usize) -> Option<Bytes> {
        match command {
            Command::Ask { frame, reply, permit } => {
                // Its asker has gone before it was sent.
                if reply.is_closed() {
                    return None;
                }
                let (id, api_key, shard) = (frame.id, frame.api_key, frame.shard);
                let encoded = proto_types::encode(&ForwardFrame::Request(frame));
                if encoded.len() > limit {
                    let bytes = encoded.len();
                    tracing::warn!(%shard, api_key, bytes, limit, "a request is too large for a coordinator");
                    // The asker may have gone.
                    let _gone = reply.send(AnswerFrame::Refused { id, reason: ForwardRefusal::Malformed });
                    return None;
                }
                self.open.insert(id, Open { reply, _permit: permit });
                Some(Bytes::from(encoded))
            }
            Command::Abandon { id } => {
                self.open.remove(&id)?;
                Some(Bytes::from(proto_types::encode(&ForwardFrame::Abandon { id })))
            }
        }
    }

    fn answer(&mut self, answer: AnswerFrame) {
        let (AnswerFrame::Answer { id, .. } | AnswerFrame::Refused { id, .. }) = answer;
        if let Some(open) = self.open.remove(&id) {
            // The asker may have gone.
            let _gone = open.reply.send(answer);
        }
    }
}
