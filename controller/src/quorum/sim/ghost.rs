//! What nobody in the run can see as a whole, and the rules that must hold in it: C1 to C4.
//!
//! The ghost hears of every entry that a machine writes, has synced, cuts off or loses, and looks at every machine at
//! every tick. It keeps the log as it was committed, replays it, and compares.

use super::world::now;
use crate::quorum::log_files::LogFiles;
use crate::quorum::stored::{
    DiskKind, StoredEntry, StoredLogId, StoredMembers, StoredPayload, StoredVote, seal, unseal,
};
use crate::quorum::type_config::LogId;
use controller_core::ClusterState;
use openraft::RaftMetrics;
use proto_types::ids::MetadataIndex;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// A rule is broken: which one, and how.
pub(super) type Broken = String;

/// Who leads, in the order of leaderships.
type Leadership = (u64, u64);

#[derive(Default)]
pub(super) struct Ghost {
    logs: BTreeMap<u64, Log>,
    /// Logs of directories that were lost: what they acknowledged counts, as it did then.
    lost: Vec<(u64, Log)>,
    /// Every entry ever written, with the one before it.
    entries: BTreeMap<StoredLogId, (Vec<u8>, Option<StoredLogId>)>,
    /// Those of them that change the membership.
    memberships: BTreeMap<StoredLogId, StoredMembers>,
    pub(super) committed: BTreeMap<u64, Committed>,
    /// The committed log, replayed.
    model: ClusterState,
    model_next: u64,
    model_hashes: BTreeMap<u64, u64>,
    /// States that machines showed before the model stood there.
    shown: BTreeMap<u64, Vec<(u64, u64)>>,
    leaderships: BTreeSet<Leadership>,
    seen: BTreeMap<u64, Seen>,
    /// Voters of the past.
    gone: BTreeSet<u64>,
    voters: BTreeSet<u64>,
    pub(super) marks: BTreeMap<&'static str, u64>,
    trace: DefaultHasher,
}

/// The log of one machine.
#[derive(Default, Clone)]
struct Log {
    /// Before this, a snapshot holds everything.
    first: u64,
    before_first: Option<StoredLogId>,
    entries: BTreeMap<u64, StoredLogId>,
    /// Entries before this were said to be on disk.
    acked_next: u64,
    vote: Option<StoredVote>,
}

pub(super) struct Committed {
    pub(super) id: StoredLogId,
    pub(super) payload: StoredPayload,
    /// The newest leadership that whoever showed it knew of.
    seen_under: Leadership,
}

/// What a machine showed last in its present life.
#[derive(Default, Clone)]
struct Seen {
    term: u64,
    committed: Option<LogId>,
    applied: u64,
    next_producer: i64,
}

impl Log {
    fn next(&self) -> u64 {
        self.entries.last_key_value().map_or(self.first, |(index, _)| index + 1)
    }

    fn id(&self, index: u64) -> Option<StoredLogId> {
        if index + 1 == self.first { self.before_first } else { self.entries.get(&index).copied() }
    }
}

fn ensure(holds: bool, broken: impl FnOnce() -> Broken) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(broken()) }
}

fn leadership(vote: &StoredVote) -> Leadership {
    (vote.term, vote.node)
}

impl Ghost {
    pub(super) fn mark(&mut self, mark: &'static str) {
        *self.marks.entry(mark).or_default() += 1;
    }

    /// Notes something that happened; equal seeds must give equal notes.
    pub(super) fn note(&mut self, what: impl Hash) {
        (now(), what).hash(&mut self.trace);
    }

    pub(super) fn trace(&self) -> u64 {
        self.trace.finish()
    }

    /// A machine has a new, empty directory.
    pub(super) fn wiped(&mut self, id: u64) {
        self.lost.extend(self.logs.remove(&id).map(|log| (id, log)));
    }

    /// A machine begins a life with what its disk holds.
    pub(super) fn started(&mut self, id: u64, files: &LogFiles) -> Result<(), Broken> {
        let progress = files.progress();
        let first = match progress.purged {
            Some(purged) => purged.index + 1,
            None => progress.begins,
        };
        let mut log = Log { first, before_first: files.progress().purged, ..Log::default() };
        for index in first..files.next() {
            let (entry, _) = files.read(index).map_err(|e| e.to_string())?.expect("it is in the log");
            log.entries.insert(index, entry.id);
        }
        log.vote = files.vote();
        let before = self.logs.get(&id).cloned().unwrap_or_default();
        for index in before.first.max(first)..before.acked_next {
            ensure(log.id(index) == before.id(index), || {
                let (had, has) = (before.id(index), log.id(index));
                format!("C1 durable: machine {id} had acknowledged {had:?} and has {has:?} after a restart")
            })?;
        }
        ensure(log.next() >= before.acked_next, || {
            format!("C1 durable: machine {id} lost entries from {} on", log.next())
        })?;
        let order = |vote: Option<StoredVote>| vote.map(|vote| (vote.term, vote.node, vote.committed));
        ensure(order(log.vote) >= order(before.vote), || {
            format!("C1 vote: machine {id} had voted {:?} and knows of {:?}", before.vote, log.vote)
        })?;
        log.acked_next = log.next();
        self.note((id, log.next()));
        self.logs.insert(id, log);
        self.seen.insert(id, Seen::default());
        Ok(())
    }

    /// A machine writes entries.
    pub(super) fn appended(
        &mut self,
        id: u64,
        ids: &[StoredLogId],
        payloads: &[Vec<u8>],
    ) -> Result<(), Broken> {
        self.note((id, ids.last().map(|id| id.index), ids.len()));
        let log = self.logs.entry(id).or_default();
        for (entry, payload) in ids.iter().zip(payloads) {
            if log.entries.is_empty() && log.before_first.is_none() {
                log.first = entry.index;
            }
            let before = entry.index.checked_sub(1).and_then(|index| log.id(index));
            log.entries.insert(entry.index, *entry);
            match self.entries.get(entry) {
                Some((known, prior)) => {
                    ensure(known == payload, || {
                        format!("C1 log matching: {entry:?} has two contents, one at machine {id}")
                    })?;
                    ensure(*prior == before, || {
                        format!("C1 log matching: {entry:?} follows {prior:?}, at machine {id} {before:?}")
                    })?;
                }
                None => {
                    self.entries.insert(*entry, (payload.clone(), before));
                    if let StoredPayload::Membership(members) = payload_of(payload) {
                        self.memberships.insert(*entry, members);
                    }
                }
            }
        }
        Ok(())
    }

    /// A machine says that everything it wrote is on disk.
    pub(super) fn synced(&mut self, id: u64) {
        let log = self.logs.entry(id).or_default();
        log.acked_next = log.next();
    }

    /// A machine says that its vote is on disk.
    pub(super) fn voted(&mut self, id: u64, vote: StoredVote) -> Result<(), Broken> {
        self.note((id, vote.term, vote.node, vote.committed));
        let log = self.logs.entry(id).or_default();
        let order = |vote: StoredVote| (vote.term, vote.node, vote.committed);
        let before = log.vote.replace(vote);
        ensure(before.is_none_or(|before| order(before) <= order(vote)), || {
            format!("C1 vote: machine {id} voted {before:?} and then {vote:?}")
        })
    }

    /// A machine cuts its log off.
    pub(super) fn truncated(&mut self, id: u64, next: u64) -> Result<(), Broken> {
        self.mark("log cut off");
        let log = self.logs.entry(id).or_default();
        let cut = log.entries.split_off(&next);
        log.acked_next = log.acked_next.min(log.next());
        for (index, entry) in cut {
            let committed = self.committed.get(&index);
            ensure(committed.is_none_or(|committed| committed.id != entry), || {
                format!("C1 committed immutable: machine {id} cuts off {entry:?}")
            })?;
        }
        Ok(())
    }

    /// A machine forgets its log up to an entry that a snapshot holds.
    pub(super) fn purged(&mut self, id: u64, upto: StoredLogId) {
        self.mark("log purged");
        let log = self.logs.entry(id).or_default();
        if upto.index >= log.next() {
            self.marks.entry("snapshot beyond the log").and_modify(|count| *count += 1).or_insert(1);
        }
        let log = self.logs.entry(id).or_default();
        log.entries = log.entries.split_off(&(upto.index + 1));
        log.first = log.first.max(upto.index + 1);
        log.before_first = log.before_first.max(Some(upto));
        log.acked_next = log.acked_next.max(log.first);
    }

    /// Looks at one machine.
    pub(super) fn look(
        &mut self,
        id: u64,
        metrics: &RaftMetrics<super::world::SimConfig>,
        state: &ClusterState,
    ) -> Result<(), Broken> {
        let vote = StoredVote::from(&metrics.vote);
        self.look_at_order(id, metrics)?;
        let seen = self.seen.entry(id).or_default();
        ensure(seen.term <= vote.term, || {
            format!("C1 monotonic term: machine {id} was at {} and is at {}", seen.term, vote.term)
        })?;
        ensure(seen.committed <= metrics.local_committed, || {
            format!("C1 monotonic commit: machine {id} goes back from {:?}", seen.committed)
        })?;
        let applied = state.applied().0;
        ensure(seen.applied <= applied, || {
            format!("C1 monotonic applied: machine {id} goes back from {} to {applied}", seen.applied)
        })?;
        let next_producer = state.producer_ids().next().0;
        ensure(seen.next_producer <= next_producer, || {
            format!("C1 monotonic state: machine {id} has forgotten producer ids")
        })?;
        let moved = seen.applied < applied;
        *seen = Seen { term: vote.term, committed: metrics.local_committed, applied, next_producer };
        self.look_at_commits(id, metrics, leadership(&vote))?;
        if metrics.state.is_leader() {
            ensure(vote.node == id && vote.committed, || {
                format!("C1 election safety: machine {id} leads with vote {vote:?}")
            })?;
            self.look_at_leader(id, leadership(&vote))?;
        }
        if moved {
            self.shown.entry(applied).or_default().push((id, hash_of(state)));
        }
        self.replay()
    }

    fn look_at_order(&self, id: u64, metrics: &RaftMetrics<super::world::SimConfig>) -> Result<(), Broken> {
        let RaftMetrics { purged, snapshot, last_applied, local_committed, last_log_index, .. } = metrics;
        let last = last_log_index.map(|last| last + 1);
        let committed = local_committed.map(|id| id.index + 1);
        let in_order = purged <= snapshot
            && snapshot <= last_applied
            && last_applied <= local_committed
            && committed <= last;
        ensure(in_order, || {
            format!(
                "C1 state ordering: machine {id} has purged {purged:?}, snapshot {snapshot:?}, applied {last_applied:?}, \
                 committed {local_committed:?}, last {last_log_index:?}"
            )
        })
    }

    fn look_at_commits(
        &mut self,
        id: u64,
        metrics: &RaftMetrics<super::world::SimConfig>,
        under: Leadership,
    ) -> Result<(), Broken> {
        let Some(upto) = metrics.local_committed.as_ref().map(StoredLogId::from) else { return Ok(()) };
        let next = self.committed.last_key_value().map_or(0, |(index, _)| index + 1);
        for index in next..=upto.index {
            let log = &self.logs[&id];
            // A snapshot has taken its place: another machine will show it.
            let Some(entry) = log.entries.get(&index).copied() else { return Ok(()) };
            self.check_quorum(id, entry)?;
            let payload = payload_of(&self.entries[&entry].0);
            if let StoredPayload::Membership(members) = &payload {
                self.check_members(members)?;
            }
            self.note(index);
            let committed = Committed { id: entry, payload, seen_under: under };
            self.committed.insert(index, committed);
        }
        let known = self.committed.get(&upto.index).map(|committed| committed.id);
        ensure(known.is_none_or(|known| known == upto), || {
            format!("C1 state machine safety: {known:?} was committed, and at machine {id} {upto:?}")
        })
    }

    /// A committed entry is on disk at a quorum: of the members at its time, or of later ones that its machine knows.
    fn check_quorum(&self, id: u64, entry: StoredLogId) -> Result<(), Broken> {
        let holders: BTreeSet<u64> = self
            .logs
            .iter()
            .chain(self.lost.iter().map(|(id, log)| (id, log)))
            .filter(|(_, log)| {
                let has = entry.index < log.first || log.entries.get(&entry.index) == Some(&entry);
                has && entry.index < log.acked_next
            })
            .map(|(id, _)| *id)
            .collect();
        let log = &self.logs[&id];
        // Its leader may have gone on to a later membership that this machine has yet to hear of.
        let holding: Vec<&Log> = holders.iter().filter_map(|holder| self.logs.get(holder)).collect();
        let known = |id: &StoredLogId| {
            let committed = self.committed.get(&id.index).is_some_and(|committed| committed.id == *id);
            committed || holding.iter().any(|log| log.entries.get(&id.index) == Some(id))
        };
        let mut memberships: Vec<_> = self.memberships.iter().filter(|(id, _)| known(id)).collect();
        memberships.sort_by_key(|(id, _)| id.index);
        let at_its_time = memberships.partition_point(|(id, _)| id.index <= entry.index).saturating_sub(1);
        let any = !memberships.is_empty();
        for (_, members) in &memberships[at_its_time..] {
            let quorum = |config: &Vec<u64>| {
                config.iter().filter(|voter| holders.contains(voter)).count() > config.len() / 2
            };
            if members.configs.iter().all(quorum) {
                return Ok(());
            }
        }
        // The membership is in a snapshot that nobody of us can read.
        ensure(!any, || {
            let configs: Vec<_> =
                memberships.iter().map(|(id, members)| (id.index, &members.configs)).collect();
            let (first, next) = (log.first, log.next());
            format!(
                "C1 committed on quorum: {entry:?} of machine {id} (log {first} to {next}) is on disk only at \
                 {holders:?}; memberships {configs:?}"
            )
        })
    }

    fn check_members(&mut self, members: &StoredMembers) -> Result<(), Broken> {
        let voters: BTreeSet<u64> = members.configs.iter().flatten().copied().collect();
        self.gone.extend(self.voters.difference(&voters).copied());
        if voters.difference(&self.voters).next().is_some() && !self.voters.is_empty() {
            *self.marks.entry("voter added").or_default() += 1;
        }
        if self.voters.difference(&voters).next().is_some() {
            *self.marks.entry("voter removed").or_default() += 1;
        }
        let again: Vec<_> = voters.intersection(&self.gone).copied().collect();
        self.voters = voters;
        ensure(again.is_empty(), || format!("C4: removed controllers {again:?} are voters again"))
    }

    /// The voters, unless a change of them is under way anywhere.
    pub(super) fn voters_for_certain(&self) -> Option<BTreeSet<u64>> {
        let (newest, members) = self.memberships.iter().max_by_key(|(id, _)| id.index)?;
        let committed = self.committed.get(&newest.index).is_some_and(|committed| committed.id == *newest);
        let [voters] = &members.configs[..] else { return None };
        committed.then(|| voters.iter().copied().collect())
    }

    /// A leader has all that was committed before it.
    fn look_at_leader(&mut self, id: u64, leadership: Leadership) -> Result<(), Broken> {
        if !self.leaderships.insert(leadership) {
            return Ok(());
        }
        self.mark("leader elected");
        let log = &self.logs[&id];
        for (index, committed) in self.committed.range(log.first..) {
            if committed.seen_under < leadership {
                let has = log.id(*index);
                ensure(has == Some(committed.id), || {
                    let id_of_it = committed.id;
                    format!(
                        "C1 leader completeness: machine {id} leads {leadership:?} with {has:?}, not {id_of_it:?}"
                    )
                })?;
            }
        }
        Ok(())
    }

    /// Replays what was committed, and compares with what machines have shown.
    fn replay(&mut self) -> Result<(), Broken> {
        while let Some(committed) = self.committed.get(&self.model_next) {
            let index = MetadataIndex(self.model_next);
            match &committed.payload {
                StoredPayload::Changes(changes) => self.model.apply_batch(index, changes),
                StoredPayload::Blank | StoredPayload::Membership(_) => self.model.apply_batch(index, &[]),
            }
            self.model_hashes.insert(self.model_next, hash_of(&self.model));
            self.model_next += 1;
        }
        let later = self.shown.split_off(&self.model_next);
        for (index, shown) in std::mem::replace(&mut self.shown, later) {
            for (id, hash) in shown {
                ensure(self.model_hashes.get(&index) == Some(&hash), || {
                    format!(
                        "C2, C3: the state of machine {id} at {index} is not the replay of the committed log"
                    )
                })?;
            }
        }
        Ok(())
    }
}

fn payload_of(sealed: &[u8]) -> StoredPayload {
    unseal::<StoredEntry>(DiskKind::Entry, sealed).expect("our own bytes are readable").payload
}

fn hash_of(state: &ClusterState) -> u64 {
    let mut hasher = DefaultHasher::new();
    seal(DiskKind::SnapshotData, &state.to_changes()).hash(&mut hasher);
    hasher.finish()
}
