//! A partition of an internal topic in the hands of its log thread: the fence, and the appends of coordinators.

use super::{Batch, Slot, Waiting};
use crate::disk::claim;
use crate::disk::event::AppendToShard;
use crate::partition::handle::Shared;
use proto_types::coordinator_api::{ShardAppended, ShardLogError};
use proto_types::ids::{CoordinatorEpoch, Offset};
use records::BatchHeader;
use storage_node_core::{Acks, Input, ProduceError, Produced, Proposal, Standing, View};
use tokio::sync::oneshot;

type Reply = oneshot::Sender<Result<ShardAppended, ShardLogError>>;

/// What a log thread knows of a shard.
#[derive(Debug, Default)]
pub(super) struct ShardState {
    /// The newest claim could not be read: nobody may append.
    unreadable: Option<String>,
    /// The newest append of a coordinator, which may be repeated.
    last: Option<ShardAppend>,
    /// Repetitions that wait for the high watermark.
    repeated: Vec<(Offset, ShardAppended, Reply)>,
}

/// A coordinator's batch that is in the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShardAppend {
    epoch: CoordinatorEpoch,
    is_claim: bool,
    crc: u32,
    appended: ShardAppended,
}

/// A coordinator that waits for its append.
pub(super) struct WaitingShard {
    reply: Reply,
    epoch: CoordinatorEpoch,
    is_claim: bool,
    crc: u32,
    /// It is in the log: what is said now can only be that its fate is not known.
    appended: Option<ShardAppended>,
}

impl ShardState {
    /// The log goes on otherwise than by appends of a coordinator here: nothing of what it appended may be repeated.
    pub(super) fn forget_last(&mut self) {
        self.last = None;
    }

    /// The newest claim in the log of an internal topic is the fence; other logs have none.
    pub(super) fn begin(claim: Result<Option<CoordinatorEpoch>, String>, shared: &Shared) -> Self {
        match claim {
            Ok(fence) => {
                shared.fence.raise(fence);
                Self::default()
            }
            Err(reason) => {
                // If it is for damage the copy goes offline, and another node leads the shard.
                shared.scrub.suspect(shared.id);
                tracing::error!(partition = %shared.id, reason, "the newest claim of a coordinator cannot be read");
                Self { unreadable: Some(reason), ..Self::default() }
            }
        }
    }
}

impl Slot {
    /// A coordinator's claim or batch.
    pub(crate) fn append_to_shard(&mut self, request: AppendToShard) {
        let AppendToShard { epoch, expected_end, batch, deadline, reply, permit, id: _ } = request;
        let is_claim = batch.is_none();
        let (bytes, header) = match batch {
            Some((bytes, header)) => (bytes, header),
            None => {
                let bytes = claim::encode(epoch, self.clock.wall().0);
                let header = BatchHeader::parse(&bytes).expect("a claim is a batch");
                (bytes.into(), header)
            }
        };
        match self.check_shard(epoch, expected_end, is_claim, header.crc) {
            Ok(None) => {}
            Ok(Some(repeated)) => return self.repeat(repeated, reply),
            Err(error) => {
                // Whoever asked may have gone.
                _ = reply.send(Err(error));
                return;
            }
        }
        let ticket = self.new_ticket();
        let proposal = Proposal {
            ticket,
            acks: Acks::All,
            offsets: header.record_count,
            max_timestamp: header.max_timestamp,
            producer: None,
            has_room: true,
            deadline,
        };
        let waiting = WaitingShard { reply, epoch, is_claim, crc: header.crc, appended: None };
        self.waiting.insert(ticket, Waiting::Shard(waiting));
        let mut batch = Some(Batch { bytes, header, _permit: permit });
        self.run(Input::Propose(proposal), &mut batch);
    }

    /// Whether the append may be made; `Some` if it was made before.
    fn check_shard(
        &self,
        epoch: CoordinatorEpoch,
        expected_end: Option<Offset>,
        is_claim: bool,
        crc: u32,
    ) -> Result<Option<ShardAppended>, ShardLogError> {
        let view = self.replica.view();
        match view.standing {
            Standing::Leader => {}
            Standing::Follower | Standing::NotLeader => return Err(ShardLogError::NotLeader),
            Standing::Failed => return Err(ShardLogError::Unavailable("the log has failed".to_owned())),
        }
        if let Some(reason) = &self.shard.unreadable {
            return Err(ShardLogError::Unavailable(format!("the fence cannot be read: {reason}")));
        }
        self.shared.fence.check(epoch)?;
        if is_claim {
            return Ok(None);
        }
        let end = self.replica.positions().end;
        if expected_end == Some(end) {
            return Ok(None);
        }
        match self.shard.last {
            Some(last)
                if (last.epoch, last.crc) == (epoch, crc)
                    && Some(last.appended.base_offset) == expected_end
                    && last.appended.end == end =>
            {
                Ok(Some(last.appended))
            }
            Some(_) | None => Err(ShardLogError::UnexpectedEnd { end }),
        }
    }

    /// The same append came again, after a lost answer: it is answered when the first one is committed.
    fn repeat(&mut self, appended: ShardAppended, reply: Reply) {
        if appended.end <= self.replica.positions().high_watermark {
            // Whoever asked may have gone.
            _ = reply.send(Ok(appended));
        } else {
            self.shard.repeated.push((appended.end, appended, reply));
        }
    }

    /// What follows for the partition from a coordinator's batch that is in the log: a claim raises the fence at once, so
    /// that nothing of an older epoch comes behind it.
    pub(super) fn note_shard_append(&mut self, append: ShardAppend) {
        if append.is_claim {
            self.shared.fence.raise(Some(append.epoch));
            self.shard.last = None;
        } else {
            self.shard.last = Some(append);
        }
    }

    /// The view has changed: repetitions may be committed, or nobody's business any more.
    pub(super) fn answer_repeated(&mut self, view: &View) {
        if self.shard.repeated.is_empty() {
            return;
        }
        let leads = view.standing == Standing::Leader;
        for (end, appended, reply) in std::mem::take(&mut self.shard.repeated) {
            if leads && end > view.high_watermark {
                self.shard.repeated.push((end, appended, reply));
            } else {
                let unknown =
                    || ShardLogError::Unknown("the leadership ended before it was committed".to_owned());
                // Whoever asked may have gone.
                _ = reply.send(if leads { Ok(appended) } else { Err(unknown()) });
            }
        }
    }
}

impl WaitingShard {
    /// It is in the log.
    pub(super) fn appended_at(&mut self, base_offset: Offset, end: Offset) -> ShardAppend {
        let appended = ShardAppended { base_offset, end };
        self.appended = Some(appended);
        ShardAppend { epoch: self.epoch, is_claim: self.is_claim, crc: self.crc, appended }
    }

    pub(super) fn answer(self, result: Result<Produced, ProduceError>) {
        let answer = match (result, self.appended) {
            (Ok(_), Some(appended)) => Ok(appended),
            (Ok(_), None) => Err(ShardLogError::Unknown("committed without being appended".to_owned())),
            (Err(error), Some(_)) => Err(ShardLogError::Unknown(error.to_string())),
            (Err(ProduceError::NotLeader), None) => Err(ShardLogError::NotLeader),
            (Err(error), None) => Err(ShardLogError::Unavailable(error.to_string())),
        };
        // Whoever asked may have gone.
        _ = self.reply.send(answer);
    }
}
