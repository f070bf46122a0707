//! [`ShardOwner`]: the life of a shard at one coordinator, as a machine without I/O: claim, load, serve, and from there
//! drop and load again, or resign.
//!
//! Take-over: append a claim with the new epoch, which fences all older owners once it is below the high watermark; replay
//! the log up to the claim; only then answer. A load that did not end at its own claim could miss an append of the former
//! owner that was already on its way.
//!
//! The driver carries out [`Effect`]s and reports back. Every effect that can come back late carries an [`Attempt`];
//! reports of an earlier attempt are ignored.

use std::sync::Arc;

use bytes::Bytes;
use kafka_wire_core::{ErrorCode, Str};
use uuid::Uuid;

use crate::config::Config;
use crate::request::{Completion, GroupRequest, Now, RequestContext, TopicImage};
use crate::shard::Shard;
use crate::shard_log::{Append, AppendOutcome, Epoch, Fate, ShardLog};
use crate::state::Replayed;

/// Counts the loads of a shard at this owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(pub u64);

/// What the driver is to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Append a claim of `epoch` and report with [`ShardOwner::claimed`]. A claim of the epoch that the log already has
    /// is appended again: it is the barrier of a new load.
    Claim {
        /// To be reported back.
        attempt: Attempt,
        /// The owner's epoch.
        epoch: Epoch,
    },
    /// Read committed records from `from` on, or from the log's start if that is later, and report with
    /// [`ShardOwner::loaded`] or [`ShardOwner::load_failed`].
    Load {
        /// To be reported back.
        attempt: Attempt,
        /// First offset to read.
        from: i64,
        /// One past the last offset to read.
        until: i64,
    },
    /// Append and report with [`ShardOwner::appended`], once the high watermark covers it.
    Append {
        /// To be reported back.
        attempt: Attempt,
        /// What, where, and as whom.
        append: Append,
    },
    /// Send a reply, if the process's lease still holds at that moment.
    Reply(Completion),
    /// The owner has ended; every request was answered. The shard's next owner, if it is this process, has a new epoch.
    Resigned(Resignation),
}

/// Why an owner ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resignation {
    /// Somebody else owns the shard.
    Fenced,
    /// It was asked to.
    Asked,
    /// The log holds a record at this offset that no release writes.
    Damaged(i64),
}

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// It stands at this offset, below the high watermark.
    Claimed {
        /// Offset of the claim.
        offset: i64,
    },
    /// The log knows a claim of a newer epoch.
    Fenced,
    /// No answer, or one that does not tell.
    Unknown,
}

/// A record of the log. Control records are not reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedRecord {
    /// Its offset.
    pub offset: i64,
    /// Its key; without one it is damaged.
    pub key: Option<Bytes>,
    /// Its value; `None` is a tombstone.
    pub value: Option<Bytes>,
}

/// Where an owner stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owned {
    /// Its claim is on its way.
    Claiming,
    /// It replays the log; next offset and the end of it.
    Loading(i64, i64),
    /// It answers.
    Serving,
    /// It has ended.
    Resigned,
}

#[derive(Debug)]
enum Phase {
    Claiming { retry_at: Option<i64>, loaded: Option<Box<Shard>> },
    Loading { shard: Box<Shard>, next: i64, until: i64, retry_at: Option<i64> },
    Serving { shard: Box<Shard>, log: ShardLog },
    Resigned,
}

/// One shard at one coordinator under one epoch.
#[derive(Debug)]
pub struct ShardOwner {
    config: Arc<Config>,
    epoch: Epoch,
    attempt: Attempt,
    phase: Phase,
}

/// A load that reads before it claims: the planted bug B24.
const LOAD_BEFORE_CLAIM: bool = cfg!(weir_planted_bug = "B24");

impl ShardOwner {
    /// Begins to own a shard under `epoch`, which no other owner has or had.
    #[must_use]
    pub fn take_over(config: Arc<Config>, epoch: Epoch) -> (Self, Vec<Effect>) {
        let mut owner = ShardOwner {
            config,
            epoch,
            attempt: Attempt(0),
            phase: Phase::Claiming { retry_at: None, loaded: None },
        };
        let effects = owner.begin();
        (owner, effects)
    }

    fn begin(&mut self) -> Vec<Effect> {
        self.attempt.0 += 1;
        if LOAD_BEFORE_CLAIM {
            let shard = Box::new(Shard::new(Arc::clone(&self.config)));
            self.phase = Phase::Loading { shard, next: 0, until: i64::MAX, retry_at: None };
            return vec![Effect::Load { attempt: self.attempt, from: 0, until: i64::MAX }];
        }
        self.phase = Phase::Claiming { retry_at: None, loaded: None };
        vec![self.claim()]
    }

    fn claim(&self) -> Effect {
        let epoch = if cfg!(weir_planted_bug = "B23") { Epoch(i64::MAX) } else { self.epoch };
        Effect::Claim { attempt: self.attempt, epoch }
    }

    /// Its epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Where it stands.
    #[must_use]
    pub fn status(&self) -> Owned {
        match &self.phase {
            Phase::Claiming { .. } => Owned::Claiming,
            Phase::Loading { next, until, .. } => Owned::Loading(*next, *until),
            Phase::Serving { .. } => Owned::Serving,
            Phase::Resigned => Owned::Resigned,
        }
    }

    /// The shard, while it is served; for metrics and tests.
    #[must_use]
    pub fn shard(&self) -> Option<&Shard> {
        match &self.phase {
            Phase::Serving { shard, .. } => Some(shard),
            Phase::Claiming { .. } | Phase::Loading { .. } | Phase::Resigned => None,
        }
    }

    /// Appends and waiting replies, while the shard is served; for metrics and tests.
    #[must_use]
    pub fn log(&self) -> Option<&ShardLog> {
        match &self.phase {
            Phase::Serving { log, .. } => Some(log),
            Phase::Claiming { .. } | Phase::Loading { .. } | Phase::Resigned => None,
        }
    }

    /// What became of the claim.
    pub fn claimed(&mut self, now: Now, attempt: Attempt, outcome: ClaimOutcome) -> Vec<Effect> {
        let Phase::Claiming { retry_at, loaded } = &mut self.phase else { return Vec::new() };
        if attempt != self.attempt {
            return Vec::new();
        }
        match outcome {
            ClaimOutcome::Fenced => self.end(Resignation::Fenced),
            ClaimOutcome::Unknown => {
                *retry_at = Some(now.monotonic + self.config.append_retry_ms);
                Vec::new()
            }
            ClaimOutcome::Claimed { offset } => {
                if let Some(shard) = loaded.take() {
                    return self.serve(now, shard, offset + 1);
                }
                let shard = Box::new(Shard::new(Arc::clone(&self.config)));
                let until = offset + 1;
                self.phase = Phase::Loading { shard, next: 0, until, retry_at: None };
                vec![Effect::Load { attempt, from: 0, until }]
            }
        }
    }

    /// Records of the log, in order, as far as `next`: the first offset that was not read. It lies behind what was asked
    /// from, also if compaction left nothing there.
    pub fn loaded(&mut self, now: Now, attempt: Attempt, records: &[LoadedRecord], next: i64) -> Vec<Effect> {
        let Phase::Loading { shard, next: at, until, retry_at } = &mut self.phase else { return Vec::new() };
        if attempt != self.attempt {
            return Vec::new();
        }
        for record in records.iter().filter(|record| (*at..*until).contains(&record.offset)) {
            let replayed = record.key.as_ref().map(|key| shard.replay(key, record.value.as_ref()));
            match replayed {
                Some(Ok(Replayed::Applied | Replayed::Skipped)) => {}
                Some(Err(_)) | None => {
                    let offset = record.offset;
                    return self.end(Resignation::Damaged(offset));
                }
            }
        }
        if next <= *at && !LOAD_BEFORE_CLAIM {
            *retry_at = Some(now.monotonic + self.config.append_retry_ms);
            return Vec::new();
        }
        let (from, until) = (next, *until);
        *at = next;
        if from < until && !LOAD_BEFORE_CLAIM {
            return vec![Effect::Load { attempt, from, until }];
        }
        let shard = std::mem::replace(shard, Box::new(Shard::new(Arc::clone(&self.config))));
        if LOAD_BEFORE_CLAIM {
            self.phase = Phase::Claiming { retry_at: None, loaded: Some(shard) };
            return vec![self.claim()];
        }
        self.serve(now, shard, until)
    }

    /// The log could not be read now.
    pub fn load_failed(&mut self, now: Now, attempt: Attempt) {
        if let Phase::Loading { retry_at, .. } = &mut self.phase
            && attempt == self.attempt
        {
            *retry_at = Some(now.monotonic + self.config.append_retry_ms);
        }
    }

    fn serve(&mut self, now: Now, mut shard: Box<Shard>, end: i64) -> Vec<Effect> {
        let mut log = ShardLog::new(Arc::clone(&self.config), self.epoch, end);
        let decision = shard.open(now);
        let effects = replies(log.push(decision));
        self.phase = Phase::Serving { shard, log };
        self.and_append(now, effects)
    }

    /// A request. Its reply is an effect of this call or a later one; there is exactly one.
    pub fn request(
        &mut self,
        now: Now,
        context: &RequestContext,
        request: &GroupRequest,
        topics: &dyn TopicImage,
    ) -> Vec<Effect> {
        let version = context.api_version;
        let answer =
            |reply| vec![Effect::Reply(Completion { token: context.token, version, reply, group: None })];
        match &mut self.phase {
            Phase::Claiming { .. } | Phase::Loading { .. } => answer(request.refuse_while_loading(version)),
            Phase::Resigned => answer(request.refuse(version, ErrorCode::NotCoordinator)),
            Phase::Serving { log, .. } if !log.has_room() => {
                answer(request.refuse(version, ErrorCode::CoordinatorNotAvailable))
            }
            Phase::Serving { shard, log } => {
                let effects = replies(log.push(shard.handle(now, context, request, topics)));
                self.and_append(now, effects)
            }
        }
    }

    /// A topic was deleted: its offsets go. While the shard loads they stay, until they expire.
    pub fn topic_deleted(&mut self, now: Now, name: &Str, id: Uuid) -> Vec<Effect> {
        let Phase::Serving { shard, log } = &mut self.phase else { return Vec::new() };
        let effects = replies(log.push(shard.topic_deleted(now, name, id)));
        self.and_append(now, effects)
    }

    /// What became of an append.
    pub fn appended(
        &mut self,
        now: Now,
        attempt: Attempt,
        expected_end: i64,
        outcome: AppendOutcome,
    ) -> Vec<Effect> {
        let Phase::Serving { log, .. } = &mut self.phase else { return Vec::new() };
        if attempt != self.attempt {
            return Vec::new();
        }
        let (fate, ready) = log.appended(now.monotonic, expected_end, outcome);
        let mut effects = replies(ready);
        effects.extend(self.follow(now, fate));
        effects
    }

    /// When [`ShardOwner::tick`] is next due, on the monotonic clock.
    #[must_use]
    pub fn next_deadline(&self) -> Option<i64> {
        match &self.phase {
            Phase::Claiming { retry_at, .. } | Phase::Loading { retry_at, .. } => *retry_at,
            // What is due waits for room, which an append makes.
            Phase::Serving { log, .. } if !log.has_room() => log.next_deadline(),
            Phase::Serving { shard, log } => {
                [shard.next_deadline(), log.next_deadline()].into_iter().flatten().min()
            }
            Phase::Resigned => None,
        }
    }

    /// Acts on every deadline that has come.
    pub fn tick(&mut self, now: Now) -> Vec<Effect> {
        let due = |retry_at: &mut Option<i64>| retry_at.take_if(|at| *at <= now.monotonic).is_some();
        match &mut self.phase {
            Phase::Claiming { retry_at, .. } => match due(retry_at) {
                true => vec![self.claim()],
                false => Vec::new(),
            },
            Phase::Loading { next, until, retry_at, .. } => {
                let load = Effect::Load { attempt: self.attempt, from: *next, until: *until };
                if due(retry_at) { vec![load] } else { Vec::new() }
            }
            Phase::Serving { shard, log } => {
                let mut effects = Vec::new();
                while log.has_room()
                    && let Some(decision) = shard.tick(now)
                {
                    effects.extend(replies(log.push(decision)));
                }
                let fate = log.tick(now.monotonic);
                effects.extend(self.follow(now, fate));
                effects
            }
            Phase::Resigned => Vec::new(),
        }
    }

    /// Ends it: the shard was given to another, or the process goes down.
    pub fn resign(&mut self) -> Vec<Effect> {
        self.end(Resignation::Asked)
    }

    fn follow(&mut self, now: Now, fate: Fate) -> Vec<Effect> {
        match fate {
            Fate::Serving => self.and_append(now, Vec::new()),
            Fate::Fenced => self.end(Resignation::Fenced),
            Fate::Reload => {
                // Whether what waits took effect is not known; clients are told to ask again, not that it failed.
                let mut effects = self.close(ErrorCode::CoordinatorNotAvailable);
                effects.extend(self.begin());
                effects
            }
        }
    }

    fn and_append(&mut self, now: Now, mut effects: Vec<Effect>) -> Vec<Effect> {
        if let Phase::Serving { log, .. } = &mut self.phase
            && let Some(append) = log.next_append(now.monotonic)
        {
            effects.push(Effect::Append { attempt: self.attempt, append });
        }
        effects
    }

    fn end(&mut self, why: Resignation) -> Vec<Effect> {
        let mut effects = self.close(ErrorCode::NotCoordinator);
        if !matches!(self.phase, Phase::Resigned) {
            effects.push(Effect::Resigned(why));
        }
        self.phase = Phase::Resigned;
        effects
    }

    fn close(&mut self, error: ErrorCode) -> Vec<Effect> {
        let claiming = Phase::Claiming { retry_at: None, loaded: None };
        match std::mem::replace(&mut self.phase, claiming) {
            Phase::Serving { shard, log } => {
                let mut completions = log.close(error);
                completions.extend(shard.close(error));
                replies(completions)
            }
            phase @ (Phase::Claiming { .. } | Phase::Loading { .. } | Phase::Resigned) => {
                self.phase = phase;
                Vec::new()
            }
        }
    }
}

fn replies(completions: Vec<Completion>) -> Vec<Effect> {
    completions.into_iter().map(Effect::Reply).collect()
}
