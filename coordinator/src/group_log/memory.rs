//! Logs of shards in memory, for tests: the rules of the fence and of the expected end, without replicas and disks.

use super::{GroupLog, Page};
use bytes::Bytes;
use parking_lot::Mutex;
use proto_types::coordinator_api::{
    AppendShard, ReadShard, Shard, ShardAppended, ShardContent, ShardFrame, ShardLogError,
};
use proto_types::ids::{CoordinatorEpoch, Offset};
use quic_transport::{BoxFuture, FrameSender, MessageKind, Role, Roles, RouterBuilder};
use records::{BatchBuilder, BatchHeader, batches, set_base_offset};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All logs. Shared behind an `Arc`.
#[derive(Debug, Default)]
pub(crate) struct MemoryLog {
    logs: Mutex<BTreeMap<Shard, Log>>,
    faults: Mutex<Faults>,
}

/// What goes wrong next.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Faults {
    /// So many appends are carried out, and their answers lost.
    pub(crate) answers_lost: usize,
    /// So many appends are not carried out.
    pub(crate) appends_refused: usize,
}

#[derive(Debug, Default)]
struct Log {
    fence: Option<CoordinatorEpoch>,
    batches: Vec<Bytes>,
    end: i64,
}

impl MemoryLog {
    /// Makes the next appends go wrong.
    pub(crate) fn set_faults(&self, faults: Faults) {
        *self.faults.lock() = faults;
    }

    fn append_content(&self, request: &AppendShard) -> Result<ShardAppended, ShardLogError> {
        let mut faults = self.faults.lock();
        if faults.appends_refused > 0 {
            faults.appends_refused -= 1;
            return Err(ShardLogError::Unavailable("a fault of the test".to_owned()));
        }
        let mut logs = self.logs.lock();
        let log = logs.entry(request.shard).or_default();
        let appended = log.append(request)?;
        if faults.answers_lost > 0 {
            faults.answers_lost -= 1;
            return Err(ShardLogError::Unknown("a fault of the test".to_owned()));
        }
        Ok(appended)
    }

    fn read_all(&self, request: &ReadShard) -> Result<Vec<Bytes>, ShardLogError> {
        let logs = self.logs.lock();
        let Some(log) = logs.get(&request.shard) else { return Ok(Vec::new()) };
        log.check(request.epoch)?;
        let header = |batch: &Bytes| BatchHeader::parse(batch).expect("our own batch");
        let wanted = log.batches.iter().filter(|batch| {
            header(batch).last_offset() >= request.from.0 && header(batch).base_offset < request.to.0
        });
        Ok(wanted.cloned().collect())
    }
}

impl Log {
    fn check(&self, epoch: CoordinatorEpoch) -> Result<(), ShardLogError> {
        match self.fence {
            Some(current) if epoch < current => Err(ShardLogError::Fenced { current }),
            Some(_) | None => Ok(()),
        }
    }

    fn append(&mut self, request: &AppendShard) -> Result<ShardAppended, ShardLogError> {
        self.check(request.epoch)?;
        let bytes = match &request.content {
            ShardContent::Claim => {
                self.fence = Some(request.epoch);
                let mut claim = BatchBuilder::new().control();
                claim.push(0, Some(b"claim"), Some(&request.epoch.0.to_be_bytes()), &[]).expect("small");
                claim.build()
            }
            ShardContent::Batches(bytes) => {
                if request.expected_end != Some(Offset(self.end)) {
                    return Err(ShardLogError::UnexpectedEnd { end: Offset(self.end) });
                }
                bytes.clone()
            }
        };
        let base_offset = Offset(self.end);
        for batch in batches(&bytes) {
            let batch = batch.map_err(|error| ShardLogError::Invalid(error.to_string()))?;
            let mut kept = batch.bytes().to_vec();
            set_base_offset(&mut kept, self.end);
            self.end += i64::from(batch.header().last_offset_delta) + 1;
            self.batches.push(kept.into());
        }
        Ok(ShardAppended { base_offset, end: Offset(self.end) })
    }
}

impl GroupLog for MemoryLog {
    fn claim(
        &self,
        shard: Shard,
        epoch: CoordinatorEpoch,
    ) -> BoxFuture<'_, Result<ShardAppended, ShardLogError>> {
        let request = AppendShard { shard, epoch, expected_end: None, content: ShardContent::Claim };
        Box::pin(async move { self.append_content(&request) })
    }

    fn append(
        &self,
        shard: Shard,
        epoch: CoordinatorEpoch,
        expected_end: Offset,
        batches: Vec<u8>,
    ) -> BoxFuture<'_, Result<ShardAppended, ShardLogError>> {
        let content = ShardContent::Batches(batches);
        let request = AppendShard { shard, epoch, expected_end: Some(expected_end), content };
        Box::pin(async move { self.append_content(&request) })
    }

    fn read(
        &self,
        shard: Shard,
        epoch: CoordinatorEpoch,
        from: Offset,
        to: Offset,
    ) -> BoxFuture<'_, Result<Page, ShardLogError>> {
        let request = ReadShard { shard, epoch, from, to };
        Box::pin(async move { Ok(Page { batches: self.read_all(&request)?, next: to }) })
    }
}

/// Serves the logs as a storage node does.
pub(crate) fn serve(router: RouterBuilder, log: Arc<MemoryLog>) -> RouterBuilder {
    let coordinators = Roles::of(&[Role::Coordinator]);
    let (appends, reads) = (Arc::clone(&log), log);
    router
        .ask(MessageKind::AppendShard, coordinators, move |_, request: AppendShard| {
            let appended = appends.append_content(&request);
            async move { Ok(appended) }
        })
        .stream(MessageKind::ReadShard, coordinators, move |call, sender, _receiver| {
            let batches = call.decode::<ReadShard>().map(|request| reads.read_all(&request));
            async move {
                if let Ok(batches) = batches {
                    send(sender, batches).await;
                }
            }
        })
}

async fn send(mut sender: FrameSender, batches: Result<Vec<Bytes>, ShardLogError>) {
    let frames = match batches {
        Err(error) => vec![ShardFrame::Failed(error)],
        Ok(batches) => {
            let frames = batches.into_iter().map(|batch| ShardFrame::Batches(batch.to_vec()));
            frames.chain([ShardFrame::End]).collect()
        }
    };
    for frame in frames {
        // A reader that has enough goes away.
        if sender.send_message(&frame).await.is_err() {
            return;
        }
    }
    let _read = sender.finish().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group_log::suite;

    #[tokio::test]
    async fn keeps_the_contract() {
        suite::run(&MemoryLog::default()).await;
    }
}
