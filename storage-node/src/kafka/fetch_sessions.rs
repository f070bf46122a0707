//! Fetch sessions (KIP-227): the node remembers what a consumer reads, so that requests and answers carry changes only.
//!
//! A request is one of three. *Sessionless*: everything is named, nothing is remembered. *Full* (epoch 0): everything is
//! named, and remembered if there is room. *Incremental*: the remembered partitions, changed as the request says; the
//! answer leaves out partitions of which there is nothing new. [`FetchSessions::begin`] says which partitions to read
//! and in which order, [`FetchSessions::finish`] what of the outcome to send. Sessions are bounded in number and size; a
//! consumer whose session was pushed out is told so and begins a new one.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kafka_wire_core::ErrorCode;
use kafka_wire_core::messages::fetch::PartitionData;
use parking_lot::Mutex;
use proto_types::ids::Millis;
use uuid::Uuid;

use super::find_partition::TopicKey;

const INITIAL_EPOCH: i32 = 0;
const FINAL_EPOCH: i32 = -1;
const NO_SESSION: i32 = 0;

/// Bounds of the session cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FetchSessionLimits {
    /// Sessions that are remembered (`max.incremental.fetch.session.cache.slots`).
    pub(crate) sessions_max: usize,
    /// Partitions of one session; a larger fetch works without one.
    pub(crate) partitions_max: usize,
    /// A session may be pushed out once it was idle, or there, for so long.
    pub(crate) eviction_ms: i64,
}

/// A partition as the client names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PartitionKey {
    pub(crate) topic: TopicKey,
    pub(crate) partition: i32,
}

/// What a client wants to read of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) current_leader_epoch: i32,
    pub(crate) fetch_offset: i64,
    pub(crate) last_fetched_epoch: i32,
    pub(crate) bytes_max: i32,
}

/// The session part of a fetch request.
#[derive(Debug)]
pub(crate) struct SessionRequest {
    pub(crate) session_id: i32,
    pub(crate) session_epoch: i32,
    /// Whether topics are named by id in this version.
    pub(crate) by_id: bool,
    pub(crate) wanted: Vec<(PartitionKey, Wanted)>,
    pub(crate) forgotten: Vec<PartitionKey>,
}

/// A fetch under way.
#[derive(Debug)]
pub(crate) struct FetchContext {
    kind: Kind,
    /// The partitions to read, in this order.
    pub(crate) partitions: Vec<(PartitionKey, Wanted)>,
}

#[derive(Debug)]
enum Kind {
    Sessionless,
    Full { by_id: bool },
    Incremental { session_id: i32, session: Arc<Mutex<Session>> },
}

/// What of the outcome is sent.
#[derive(Debug)]
pub(crate) struct FetchOutcome {
    pub(crate) session_id: i32,
    pub(crate) partitions: Vec<(PartitionKey, PartitionData)>,
}

#[derive(Debug)]
struct Session {
    /// The epoch that the next request must carry.
    next_epoch: i32,
    by_id: bool,
    created: Millis,
    last_used: Millis,
    /// Partitions in the order in which they are read: whoever got data goes to the end.
    order: BTreeMap<u64, Cached>,
    places: HashMap<PartitionKey, u64>,
    next_place: u64,
}

#[derive(Debug)]
struct Cached {
    key: PartitionKey,
    wanted: Wanted,
    /// What the client was told last; −1 so that it is told again.
    high_watermark: i64,
    log_start: i64,
}

/// The sessions of a node.
#[derive(Debug)]
pub(crate) struct FetchSessions {
    limits: FetchSessionLimits,
    sessions: Mutex<HashMap<i32, Arc<Mutex<Session>>>>,
}

impl FetchSessions {
    pub(crate) fn new(limits: FetchSessionLimits) -> Self {
        Self { limits, sessions: Mutex::new(HashMap::new()) }
    }

    /// Sessions that are remembered now.
    pub(crate) fn len(&self) -> usize {
        self.sessions.lock().len()
    }

    /// Finds or begins the session of a request, and what it is about. The error is one for the whole request.
    pub(crate) fn begin(&self, now: Millis, request: SessionRequest) -> Result<FetchContext, ErrorCode> {
        let SessionRequest { session_id, session_epoch, by_id, wanted, forgotten } = request;
        if session_epoch == INITIAL_EPOCH || session_epoch == FINAL_EPOCH {
            if session_id != NO_SESSION {
                self.sessions.lock().remove(&session_id);
            }
            let kind = match session_epoch {
                INITIAL_EPOCH => Kind::Full { by_id },
                _ => Kind::Sessionless,
            };
            return Ok(FetchContext { kind, partitions: each_once(wanted) });
        }
        let session = self.sessions.lock().get(&session_id).cloned();
        let session = session.ok_or(ErrorCode::FetchSessionIdNotFound)?;
        let mut guard = session.lock();
        if guard.next_epoch != session_epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if guard.by_id != by_id {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        let mut kept = KeptTopic::default();
        for (key, wanted) in wanted {
            guard.put(&mut kept, key, wanted);
        }
        for key in &forgotten {
            guard.forget(key);
        }
        let partitions: Vec<_> =
            guard.order.values().map(|cached| (cached.key.clone(), cached.wanted)).collect();
        if partitions.is_empty() || partitions.len() > self.limits.partitions_max {
            // Whoever makes room holds the map and takes each session: never the other way round.
            drop(guard);
            self.sessions.lock().remove(&session_id);
            return Ok(FetchContext { kind: Kind::Sessionless, partitions });
        }
        guard.next_epoch = next_epoch(session_epoch);
        guard.last_used = now;
        drop(guard);
        Ok(FetchContext { kind: Kind::Incremental { session_id, session }, partitions })
    }

    /// Chooses what to send, and remembers it.
    pub(crate) fn finish(
        &self,
        now: Millis,
        context: FetchContext,
        outcome: Vec<(PartitionKey, PartitionData)>,
    ) -> FetchOutcome {
        match context.kind {
            Kind::Sessionless => FetchOutcome { session_id: NO_SESSION, partitions: outcome },
            Kind::Full { by_id } => {
                let session_id = self.create(now, by_id, &context.partitions, &outcome);
                FetchOutcome { session_id, partitions: outcome }
            }
            Kind::Incremental { session_id, session } => {
                let mut session = session.lock();
                let mut partitions = outcome;
                partitions.retain(|(key, data)| session.note(key, data));
                FetchOutcome { session_id, partitions }
            }
        }
    }

    /// Remembers a new session if there is room, or room can be made. The new session's id, or 0.
    fn create(
        &self,
        now: Millis,
        by_id: bool,
        wanted: &[(PartitionKey, Wanted)],
        outcome: &[(PartitionKey, PartitionData)],
    ) -> i32 {
        if wanted.is_empty() || wanted.len() > self.limits.partitions_max {
            return NO_SESSION;
        }
        let mut session = Session {
            next_epoch: next_epoch(INITIAL_EPOCH),
            by_id,
            created: now,
            last_used: now,
            order: BTreeMap::new(),
            places: HashMap::new(),
            next_place: 0,
        };
        let mut kept = KeptTopic::default();
        for (key, wanted) in wanted {
            session.put(&mut kept, key.clone(), *wanted);
        }
        for (key, data) in outcome {
            session.note(key, data);
        }
        let mut sessions = self.sessions.lock();
        if sessions.len() >= self.limits.sessions_max && !self.push_one_out(&mut sessions, now, wanted.len())
        {
            return NO_SESSION;
        }
        let id = unused_id(&sessions);
        sessions.insert(id, Arc::new(Mutex::new(session)));
        id
    }

    /// Makes room by dropping the session that was idle longest, if that was long, else the smallest one that has had
    /// its time, if the new one is larger.
    fn push_one_out(
        &self,
        sessions: &mut HashMap<i32, Arc<Mutex<Session>>>,
        now: Millis,
        new_size: usize,
    ) -> bool {
        let long_ago = |time: Millis| now.0.saturating_sub(time.0) > self.limits.eviction_ms;
        let facts = |(&id, session): (&i32, &Arc<Mutex<Session>>)| {
            let session = session.lock();
            (id, session.last_used, session.created, session.order.len())
        };
        let all: Vec<_> = sessions.iter().map(facts).collect();
        let idle = all.iter().filter(|(_, used, _, _)| long_ago(*used)).min_by_key(|(_, used, _, _)| *used);
        let small = all
            .iter()
            .filter(|(_, _, created, size)| long_ago(*created) && *size < new_size)
            .min_by_key(|(_, used, _, size)| (*size, *used));
        match idle.or(small) {
            Some((id, ..)) => sessions.remove(id).is_some(),
            None => false,
        }
    }
}

/// The topic that was stored last and what of it is stored: partitions of one topic follow each other, and share one name.
#[derive(Default)]
struct KeptTopic(Option<(TopicKey, TopicKey)>);

impl KeptTopic {
    fn of(&mut self, topic: TopicKey) -> TopicKey {
        match &self.0 {
            Some((last, kept)) if *last == topic => kept.clone(),
            _ => {
                let kept = topic.detach();
                self.0 = Some((topic, kept.clone()));
                kept
            }
        }
    }
}

impl Session {
    /// Adds a partition at the end, or changes what is wanted of it.
    fn put(&mut self, kept: &mut KeptTopic, key: PartitionKey, wanted: Wanted) {
        if let Some(place) = self.places.get(&key)
            && let Some(cached) = self.order.get_mut(place)
        {
            cached.wanted = wanted;
            return;
        }
        let place = self.new_place();
        // It outlives the request, whose frame it must not keep.
        let key = PartitionKey { topic: kept.of(key.topic), ..key };
        self.places.insert(key.clone(), place);
        self.order.insert(place, Cached { key, wanted, high_watermark: -1, log_start: -1 });
    }

    fn forget(&mut self, key: &PartitionKey) {
        if let Some(place) = self.places.remove(key) {
            self.order.remove(&place);
        }
    }

    /// Notes what is about to be sent. Whether there is something new in it.
    fn note(&mut self, key: &PartitionKey, data: &PartitionData) -> bool {
        let Some(&place) = self.places.get(key) else { return true };
        let Some(cached) = self.order.get_mut(&place) else { return true };
        let has_records = data.records.as_ref().is_some_and(|records| !records.is_empty());
        // A client that is sent elsewhere, or has to cut its log, must hear of it even if nothing else is new.
        let sent_away = data.preferred_read_replica >= 0;
        let failed = data.error_code != ErrorCode::None || data.diverging_epoch.epoch >= 0;
        let news = has_records
            || failed
            || sent_away
            || cached.high_watermark != data.high_watermark
            || cached.log_start != data.log_start_offset;
        cached.high_watermark = if failed { -1 } else { data.high_watermark };
        cached.log_start = data.log_start_offset;
        if has_records {
            // Others come first next time.
            let next = self.new_place();
            if let Some(cached) = self.order.remove(&place) {
                self.places.insert(cached.key.clone(), next);
                self.order.insert(next, cached);
            }
        }
        news
    }

    fn new_place(&mut self) -> u64 {
        self.next_place += 1;
        self.next_place
    }
}

/// A partition that is named again is read once, in its first place and as it was named last: as in Kafka.
fn each_once(wanted: Vec<(PartitionKey, Wanted)>) -> Vec<(PartitionKey, Wanted)> {
    let mut places: HashMap<PartitionKey, usize> = HashMap::with_capacity(wanted.len());
    let mut once: Vec<(PartitionKey, Wanted)> = Vec::with_capacity(wanted.len());
    for (key, wanted) in wanted {
        match places.get(&key) {
            Some(&place) => once[place].1 = wanted,
            None => {
                places.insert(key.clone(), once.len());
                once.push((key, wanted));
            }
        }
    }
    once
}

/// Epochs of a session count 1, 2, … and begin again at 1.
fn next_epoch(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}

/// A random positive id, so that a client with an old id does not meet somebody else's session.
fn unused_id(sessions: &HashMap<i32, Arc<Mutex<Session>>>) -> i32 {
    loop {
        let id = (Uuid::new_v4().as_u128() as i32) & i32::MAX;
        if id != NO_SESSION && !sessions.contains_key(&id) {
            return id;
        }
    }
}

#[cfg(test)]
#[path = "fetch_sessions_tests.rs"]
mod tests;
