//! Moves copies to other data directories of this node, one after the other, as AlterReplicaLogDirs asks (KIP-113).
//!
//! A copy is read and written while it is copied, until only its newest records are left; then the task that opens copies closes
//! it for the moment that those take (`partition/registry/moves`). A leader of several replicas gives its leadership up before, as
//! its followers could have what it would have to leave out; where nobody else can lead it waits for a while.

use crate::clock::Clock;
use crate::controller_port::ControllerPort;
use crate::partition::Partitions;
use crate::partition::registry::{AskedMove, Closing, Lookup};
use crate::published_image::PublishedImage;
use crate::resigner::resignation;
use log_engine::{LogMove, MoveError};
use proto_types::controller_api::{AlterPartition, ControllerReply, ControllerRequest, ProposedIsr};
use proto_types::ids::{BrokerEpoch, NodeId, TopicPartition};
use proto_types::metadata::PartitionState;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Pause between two tries to close a copy.
const PAUSE: Duration = Duration::from_millis(250);
/// A copy that cannot be closed for so long, as nobody else can lead, stays where it is.
const CLOSING_MS_MAX: i64 = 60_000;
/// So little is left to copy that the log may be closed for it.
const LITTLE_LEFT: u64 = 4 << 20;
/// How often to look whether the old files of a copy are gone, before it is moved again.
const OLD_FILES_WAITS_MAX: usize = 40;
/// Rounds of copying before a log is closed all the same, or turns out to grow faster than it is copied.
const ROUNDS_MAX: usize = 20;

/// The task.
pub(crate) struct Mover {
    pub(crate) me: NodeId,
    pub(crate) partitions: Arc<Partitions>,
    pub(crate) published: Arc<PublishedImage>,
    pub(crate) controller: Arc<dyn ControllerPort>,
    /// This node's registration, once there is one.
    pub(crate) broker_epoch: watch::Receiver<Option<BrokerEpoch>>,
    /// Longest that one question to the controllers may take.
    pub(crate) call_max: Duration,
    pub(crate) clock: Clock,
}

/// Why a copy stays where it is.
enum Stays {
    /// Nobody wants it any more, or the copy is not there.
    Ended,
    Failed(String),
}

impl From<MoveError> for Stays {
    fn from(error: MoveError) -> Self {
        match error {
            MoveError::Stopped => Stays::Ended,
            error => Stays::Failed(error.to_string()),
        }
    }
}

impl Mover {
    /// Moves until it is dropped.
    pub(crate) async fn run(self) {
        loop {
            let asked = self.partitions.moves().next().await;
            let path =
                self.partitions.directories().nth(asked.target).map(|data| data.path().display().to_string());
            let (id, path) = (asked.id, path.unwrap_or_default());
            tracing::info!(partition = %id, path, "move a copy to another data directory");
            let outcome = self.carry_out(&asked).await;
            self.partitions.moves().over(&asked);
            match outcome {
                Ok(()) => {
                    self.partitions.metrics().on_copy_moved();
                    tracing::info!(partition = %id, path, "the copy is in its new data directory");
                }
                Err(Stays::Ended) => tracing::info!(partition = %id, path, "the copy is not moved any more"),
                Err(Stays::Failed(reason)) => {
                    self.partitions.metrics().on_move_failed();
                    tracing::error!(partition = %id, path, reason, "the copy could not be moved");
                }
            }
        }
    }

    async fn carry_out(&self, asked: &Arc<AskedMove>) -> Result<(), Stays> {
        let mut moving = self.begin(asked).await?;
        let mut waits_since = None;
        for _ in 0..ROUNDS_MAX {
            moving = self.copy(asked, moving).await?;
            if let Err(stays) = self.wait_until_closable(asked, &mut waits_since).await {
                self.abandon(moving).await;
                return Err(stays);
            }
            // That may have taken long.
            moving = self.copy(asked, moving).await?;
            match self.partitions.moves().close(asked, moving).await {
                None => return Err(Stays::Ended),
                Some(Closing::Moved) => return Ok(()),
                Some(Closing::NotYet(again)) => {
                    moving = again;
                    tokio::time::sleep(PAUSE).await;
                }
                Some(Closing::Failed(left, error)) => {
                    self.abandon(left).await;
                    return Err(error.into());
                }
                Some(Closing::Lost(reason)) => return Err(Stays::Failed(reason)),
            }
        }
        self.abandon(moving).await;
        Err(Stays::Failed("the log grows faster than it is copied".to_owned()))
    }

    /// Begins to copy. What an earlier move of the copy left is being removed, which may take a moment.
    async fn begin(&self, asked: &Arc<AskedMove>) -> Result<LogMove, Stays> {
        let mut waits = 0;
        loop {
            let (partitions, begun) = (Arc::clone(&self.partitions), Arc::clone(asked));
            let begin = tokio::task::spawn_blocking(move || partitions.begin_move(&begun)).await;
            match begin.map_err(|error| Stays::Failed(error.to_string()))? {
                Err(MoveError::OldFiles { .. }) if waits < OLD_FILES_WAITS_MAX => {
                    waits += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                begun => return Ok(begun?),
            }
        }
    }

    /// Copies until little is left.
    async fn copy(&self, asked: &Arc<AskedMove>, mut moving: LogMove) -> Result<LogMove, Stays> {
        let (partitions, asked, ended) = (Arc::clone(&self.partitions), Arc::clone(asked), Arc::clone(asked));
        let copy = move || {
            for _ in 0..ROUNDS_MAX {
                let Lookup::Open(handle) = partitions.get(asked.id) else {
                    return (Err(MoveError::Stopped), moving);
                };
                let mut pace = |bytes| partitions.keep_pace(&asked, bytes);
                let copied = moving.copy_written(handle.reader(), &mut pace);
                asked.note_copied_to(moving.copied_to());
                match copied {
                    Ok(bytes) if bytes > LITTLE_LEFT => {}
                    Ok(_) => break,
                    Err(error) => return (Err(error), moving),
                }
            }
            (Ok(()), moving)
        };
        match tokio::task::spawn_blocking(copy).await {
            Ok((Ok(()), moving)) => Ok(moving),
            Ok((Err(error), moving)) => {
                self.abandon(moving).await;
                // What it read may be gone with the copy.
                Err(if ended.is_cancelled() { Stays::Ended } else { error.into() })
            }
            Err(error) => Err(Stays::Failed(error.to_string())),
        }
    }

    async fn abandon(&self, moving: LogMove) {
        if let Ok(Err(error)) = tokio::task::spawn_blocking(move || moving.abandon()).await {
            tracing::warn!(%error, "what was copied of a log stays until the next start");
        }
    }

    /// Sees to it that this node does not lead the partition, or is its only replica.
    async fn wait_until_closable(&self, asked: &AskedMove, since: &mut Option<i64>) -> Result<(), Stays> {
        loop {
            if self.partitions.moves().is_ended(asked) {
                return Err(Stays::Ended);
            }
            let image = self.published.load();
            let Some(state) = image.partition(asked.id) else { return Err(Stays::Ended) };
            if state.leader != Some(self.me) || state.replicas.len() == 1 {
                *since = None;
                return Ok(());
            }
            let now = self.clock.monotonic().0;
            if now - *since.get_or_insert(now) > CLOSING_MS_MAX {
                let reason = "this node leads the partition, and nobody else can, or too few would be in sync without it; have \
                              another replica lead, or move it when more replicas are in sync";
                return Err(Stays::Failed(reason.to_owned()));
            }
            let registered = *self.broker_epoch.borrow();
            let proposal = step_back(self.me, asked.id, state, self.in_sync_min(asked.id));
            if let (Some(broker_epoch), Some(proposal)) = (registered, proposal) {
                let partitions = vec![proposal];
                self.resign(asked.id, AlterPartition { node: self.me, broker_epoch, partitions }).await;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn in_sync_min(&self, id: TopicPartition) -> usize {
        match self.partitions.get(id) {
            Lookup::Open(handle) => handle.settings().replica.min_insync,
            Lookup::Failed | Lookup::Absent => 1,
        }
    }

    async fn resign(&self, id: TopicPartition, request: AlterPartition) {
        match self.controller.ask(ControllerRequest::AlterPartition(request), self.call_max).await {
            Ok(ControllerReply::IsrAltered(results)) => {
                for result in results {
                    match result {
                        Ok(_) => tracing::info!(partition = %id, "others lead while the copy is moved"),
                        Err(rejection) => {
                            tracing::debug!(partition = %id, %rejection, "nobody else can lead as yet")
                        }
                    }
                }
            }
            Ok(other) => tracing::error!(?other, "resign for a move: unexpected answer"),
            Err(failure) => tracing::debug!(partition = %id, %failure, "resign for a move"),
        }
    }
}

/// What to ask for, for others to lead. This node is well, and does not count any more afterwards: enough others must.
fn step_back(
    me: NodeId,
    id: TopicPartition,
    state: &PartitionState,
    in_sync_min: usize,
) -> Option<ProposedIsr> {
    resignation(me, id, state).filter(|proposal| proposal.isr.len() >= in_sync_min.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto_types::ids::{LeaderEpoch, PartitionEpoch, TopicId};
    use proto_types::metadata::topic_partition;
    use uuid::Uuid;

    #[test]
    fn a_leader_steps_back_only_where_enough_others_are_in_sync() {
        let id = topic_partition(TopicId(Uuid::from_u128(1)), 0);
        let asks = |isr: &[i32], in_sync_min| {
            let state = PartitionState {
                replicas: [1, 2, 3].map(NodeId).to_vec(),
                adding: vec![],
                removing: vec![],
                isr: isr.iter().copied().map(NodeId).collect(),
                elr: vec![],
                leader: Some(NodeId(1)),
                leader_epoch: LeaderEpoch(1),
                partition_epoch: PartitionEpoch(1),
            };
            step_back(NodeId(1), id, &state, in_sync_min).is_some()
        };
        assert!(asks(&[1, 2], 1) && asks(&[1, 2, 3], 2));
        assert!(!asks(&[1, 2], 2) && !asks(&[1], 1) && !asks(&[1], 0));
    }
}
