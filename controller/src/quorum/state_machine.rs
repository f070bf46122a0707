//! The committed log applied: [`ClusterState`], what is published of it, and snapshots.
//!
//! Raft's own task calls this; everybody else sees a [`StateView`]: the newest state, the index it stands at, and the
//! newest changes for the feed. The state itself is only in memory; it is rebuilt at start from snapshot and log.

use super::snapshot_files::SnapshotFiles;
use super::stored::StoredSnapshotMeta;
use super::type_config::{Changes, Environment, LogId, SnapshotMeta, StoredMembership};
use crate::breakdown::Breakdown;
use crate::change_feed::ChangeRing;
use arc_swap::ArcSwap;
use bytes::Bytes;
use controller_core::{ClusterState, plan};
use futures_util::{Stream, StreamExt};
use openraft::alias::SnapshotOf;
use openraft::entry::RaftEntry;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend, Snapshot};
use parking_lot::Mutex;
use proto_types::feature::LevelRange;
use proto_types::ids::MetadataIndex;
use proto_types::metadata::MetadataChange;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::sync::watch;

/// What the rest of the controller sees of the applied state. Cheap to clone.
#[derive(Clone)]
pub(crate) struct StateView {
    state: Arc<ArcSwap<ClusterState>>,
    applied: watch::Receiver<MetadataIndex>,
    ring: Arc<Mutex<ChangeRing>>,
    breakdown: Breakdown,
}

impl StateView {
    /// The newest applied state.
    pub(crate) fn state(&self) -> Arc<ClusterState> {
        self.state.load_full()
    }

    /// Wakes up whenever something was applied.
    pub(crate) fn applied(&self) -> watch::Receiver<MetadataIndex> {
        self.applied.clone()
    }

    /// The newest changes.
    pub(crate) fn ring(&self) -> &Mutex<ChangeRing> {
        &self.ring
    }

    /// Where work that the controller cannot do without reports a panic.
    pub(crate) fn breakdown(&self) -> &Breakdown {
        &self.breakdown
    }
}

/// See the module.
pub(crate) struct StateMachine {
    state: ClusterState,
    last_applied: Option<LogId>,
    membership: StoredMembership,
    files: SnapshotFiles,
    /// What this build supports.
    levels: LevelRange,
    view: StateView,
    applied: watch::Sender<MetadataIndex>,
}

impl StateMachine {
    /// An empty state; raft brings it up to date from snapshot and log. `ring` bounds what is kept for the feed;
    /// a state at a level above `levels` is not taken.
    pub(crate) fn new(files: SnapshotFiles, ring: ChangeRing, levels: LevelRange) -> (Self, StateView) {
        let state = ClusterState::new();
        let (applied, applied_rx) = watch::channel(state.applied());
        let view = StateView {
            state: Arc::new(ArcSwap::from_pointee(state.clone())),
            applied: applied_rx,
            ring: Arc::new(Mutex::new(ring)),
            breakdown: Breakdown::new(),
        };
        let machine = Self {
            state,
            last_applied: None,
            membership: StoredMembership::default(),
            files,
            levels,
            view: view.clone(),
            applied,
        };
        (machine, view)
    }

    fn publish(&self) {
        self.view.state.store(Arc::new(self.state.clone()));
        self.applied.send_replace(self.state.applied());
    }

    fn apply_changes(&mut self, index: MetadataIndex, changes: Arc<Vec<MetadataChange>>) -> io::Result<()> {
        // A state that was left half changed is never looked at again: raft's task ends with the panic.
        let apply = AssertUnwindSafe(|| self.state.apply_batch(index, &changes));
        self.view.breakdown.watch(format_args!("applying the metadata at index {index}"), apply);
        self.check_level(&self.state)?;
        self.view.ring.lock().push(index, changes);
        Ok(())
    }

    /// What belongs to a level that this build does not know yet it must not act on: it ends here, and nobody sees the state.
    /// A level below those that it supports may just be an old one, which is raised further on in the log, and a new cluster
    /// begins with one; nodes and coordinators are checked when they register, controllers when they are to get a vote.
    fn check_level(&self, state: &ClusterState) -> io::Result<()> {
        let level = state.features().level();
        if level <= self.levels.max {
            return Ok(());
        }
        plan::check_level(level, "this controller", self.levels).map_err(|rejection| {
            self.view.breakdown.give_up(rejection.message.clone());
            io::Error::other(rejection.message)
        })
    }
}

impl<C: Environment> RaftStateMachine<C> for StateMachine {
    type SnapshotData = Bytes;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok((self.last_applied, self.membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<C>, io::Error>> + Unpin + OptionalSend,
    {
        let mut responders = Vec::new();
        while let Some(item) = entries.next().await {
            let (entry, responder) = item?;
            let log_id = entry.log_id();
            let index = MetadataIndex(log_id.index);
            match entry.payload {
                EntryPayload::Blank => self.apply_changes(index, Arc::default())?,
                EntryPayload::Normal(Changes(changes)) => self.apply_changes(index, changes)?,
                EntryPayload::Membership(membership) => {
                    self.membership = StoredMembership::new(Some(log_id), membership);
                    self.apply_changes(index, Arc::default())?;
                }
            }
            self.last_applied = Some(log_id);
            responders.extend(responder);
        }
        // First everybody can see it, then whoever proposed it is told.
        self.publish();
        for responder in responders {
            responder.send(());
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        let mut last_applied = self.last_applied;
        if cfg!(weir_planted_bug = "B29")
            && let Some(id) = &mut last_applied
        {
            id.index += 1;
        }
        SnapshotBuilder {
            state: self.state.clone(),
            meta: SnapshotMeta { last_log_id: last_applied, last_membership: self.membership.clone() },
            files: self.files.clone(),
        }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: Bytes) -> Result<(), io::Error> {
        let changes: Vec<MetadataChange> = proto_types::decode(&snapshot).map_err(io::Error::other)?;
        let index = MetadataIndex(meta.last_log_id.as_ref().map_or(0, |id| id.index));
        let what = format!("applying the metadata's snapshot at index {index}");
        let state = self.view.breakdown.watch(what, || ClusterState::from_changes(index, &changes));
        self.check_level(&state)?;
        save::<C>(self.files.clone(), meta.into(), snapshot).await?;
        self.state = state;
        self.last_applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        self.view.ring.lock().restart_after(index);
        self.publish();
        tracing::info!(%index, "snapshot of the metadata installed");
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<SnapshotOf<C, Bytes>>, io::Error> {
        let files = self.files.clone();
        let loaded = C::blocking(move || files.load()).await??;
        loaded
            .map(|(meta, snapshot)| {
                let meta = meta.try_into().map_err(io::Error::other)?;
                Ok(Snapshot { meta, snapshot })
            })
            .transpose()
    }
}

/// Writes a snapshot of the state as it was when it was made, while new entries are applied.
pub(crate) struct SnapshotBuilder {
    state: ClusterState,
    meta: SnapshotMeta,
    files: SnapshotFiles,
}

impl<C: Environment> RaftSnapshotBuilder<C> for SnapshotBuilder {
    type SnapshotData = Bytes;

    async fn build_snapshot(&mut self) -> Result<SnapshotOf<C, Bytes>, io::Error> {
        let state = self.state.clone();
        let snapshot = Bytes::from(C::blocking(move || proto_types::encode(&state.to_changes())).await?);
        save::<C>(self.files.clone(), (&self.meta).into(), snapshot.clone()).await?;
        tracing::info!(index = %self.state.applied(), bytes = snapshot.len(), "snapshot of the metadata written");
        Ok(Snapshot { meta: self.meta.clone(), snapshot })
    }
}

async fn save<C: Environment>(
    files: SnapshotFiles,
    meta: StoredSnapshotMeta,
    data: Bytes,
) -> Result<(), io::Error> {
    C::blocking(move || files.save(&meta, &data)).await?.map_err(|error| {
        tracing::error!(%error, "snapshot could not be written");
        error.into()
    })
}
