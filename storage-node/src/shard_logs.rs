//! The logs of shards, served to coordinators on the internal endpoint: claim, append, read.
//!
//! Only partitions of internal topics, only coordinators, and never under an epoch that is older than the newest claim.
//! What is read is committed.

use crate::clock::Clock;
use crate::disk::claim;
use crate::partition::validation::validate;
use crate::partition::{Lookup, PartitionHandle, Partitions};
use bytes::Bytes;
use proto_types::coordinator_api::{
    AppendShard, ReadShard, Shard, ShardAppended, ShardContent, ShardFrame, ShardLogError,
};
use proto_types::ids::{CoordinatorEpoch, Millis, Offset};
use quic_transport::{Call, FrameSender, MessageKind, Refusal, Role, Roles, RouterBuilder};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use storage_node_core::Standing;
use tokio::time::Instant;

const COORDINATORS: Roles = Roles::of(&[Role::Coordinator]);
/// Bytes of one frame of a log that is read, unless a single batch is larger.
const FRAME_BYTES: usize = 1 << 20;
/// The version of Produce whose rules the batches of coordinators obey.
const BATCH_RULES: i16 = 13;
/// Kept back from a caller's deadline for the way of the answer.
const WAY_BACK: Duration = Duration::from_millis(100);

/// What the handlers work with.
pub(crate) struct ShardLogs {
    pub(crate) partitions: Arc<Partitions>,
    pub(crate) clock: Clock,
}

/// Where the table finds them; they are made after it.
pub(crate) type ShardLogsSlot = Arc<OnceLock<ShardLogs>>;

/// Adds the rows to the table of the endpoint.
pub(crate) fn add_routes(builder: RouterBuilder, slot: &ShardLogsSlot) -> RouterBuilder {
    let (appends, reads) = (Arc::clone(slot), Arc::clone(slot));
    builder
        .ask(MessageKind::AppendShard, COORDINATORS, move |call, request: AppendShard| {
            let slot = Arc::clone(&appends);
            async move {
                let logs = slot.get().ok_or(Refusal::Busy)?;
                Ok(logs.append(&call, request).await)
            }
        })
        .stream(MessageKind::ReadShard, COORDINATORS, move |call, sender, _receiver| {
            let slot = Arc::clone(&reads);
            async move {
                if let Some(logs) = slot.get() {
                    logs.serve_read(&call, sender).await;
                }
            }
        })
}

impl ShardLogs {
    async fn append(&self, call: &Call, request: AppendShard) -> Result<ShardAppended, ShardLogError> {
        let AppendShard { shard, epoch, expected_end, content } = request;
        let handle = self.find(shard)?;
        let batch = match content {
            ShardContent::Claim => None,
            ShardContent::Batches(bytes) => {
                let checked = validate(&handle.settings(), BATCH_RULES, &bytes, self.clock.wall().0);
                let header = checked.map_err(|error| ShardLogError::Invalid(error.to_string()))?;
                Some((Bytes::from(bytes), header))
            }
        };
        let left = call.deadline.saturating_duration_since(Instant::now()).saturating_sub(WAY_BACK);
        let left = i64::try_from(left.as_millis()).unwrap_or(i64::MAX);
        let deadline = Millis(self.clock.monotonic().0.saturating_add(left));
        let appended = handle.append_to_shard(epoch, expected_end, batch, deadline).await?;
        if expected_end.is_none() {
            tracing::debug!(%shard, %epoch, coordinator = %call.caller.identity, "shard claimed");
        }
        Ok(appended)
    }

    async fn serve_read(&self, call: &Call, mut sender: FrameSender) {
        let request = match call.decode::<ReadShard>() {
            Ok(request) => request,
            Err(refusal) => {
                tracing::warn!(caller = %call.caller.identity, %refusal, "unreadable request for a shard's log");
                return;
            }
        };
        let frame = match self.read(&request, &mut sender).await {
            Ok(true) => ShardFrame::End,
            // The reader has enough.
            Ok(false) => return,
            Err(error) => ShardFrame::Failed(error),
        };
        if sender.send_message(&frame).await.is_ok() {
            // Fails only if the reader is gone.
            let _gone = sender.finish().await;
        }
    }

    /// Sends what was asked for. False if the reader has gone away.
    async fn read(&self, request: &ReadShard, sender: &mut FrameSender) -> Result<bool, ShardLogError> {
        let ReadShard { shard, epoch, from, to } = *request;
        let handle = self.find(shard)?;
        let mut at = from.max(handle.view().start);
        while at < to {
            check(&handle, epoch, to)?;
            let reader = handle.reader().clone();
            let chunk = move || claim::read(&reader, at.0, FRAME_BYTES, to.0);
            let read = self.partitions.read_pool().run(chunk).await;
            let unavailable = |reason: String| ShardLogError::Unavailable(reason);
            let (bytes, next) = read.map_err(|error| unavailable(error.to_string()))?.map_err(|error| {
                handle.on_read_error(&error);
                unavailable(error.to_string())
            })?;
            // Offsets that compaction took away leave nothing to read before `to`.
            if Offset(next) <= at {
                break;
            }
            if !bytes.is_empty() && sender.send_message(&ShardFrame::Batches(bytes)).await.is_err() {
                return Ok(false);
            }
            at = Offset(next);
        }
        check(&handle, epoch, to)?;
        Ok(true)
    }

    fn find(&self, shard: Shard) -> Result<PartitionHandle, ShardLogError> {
        match self.partitions.get(shard) {
            Lookup::Open(handle) if handle.settings().is_internal() => Ok(handle),
            Lookup::Open(_) => {
                Err(ShardLogError::Invalid("it is not a partition of an internal topic".to_owned()))
            }
            Lookup::Failed => Err(ShardLogError::Unavailable("the log cannot be opened".to_owned())),
            Lookup::Absent => Err(ShardLogError::NotLeader),
        }
    }
}

/// Whether `epoch` may read up to `to` here and now.
fn check(handle: &PartitionHandle, epoch: CoordinatorEpoch, to: Offset) -> Result<(), ShardLogError> {
    let view = handle.view();
    match view.standing {
        Standing::Leader => {}
        Standing::Follower | Standing::NotLeader => return Err(ShardLogError::NotLeader),
        Standing::Failed => return Err(ShardLogError::Unavailable("the log has failed".to_owned())),
    }
    handle.check_fence(epoch)?;
    if to > view.high_watermark {
        let message = format!("committed is only what lies below {}", view.high_watermark);
        return Err(ShardLogError::Unavailable(message));
    }
    Ok(())
}
