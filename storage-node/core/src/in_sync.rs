//! Which replicas are in sync, how far each is, and what that makes of the high watermark.
//!
//! The set that counts is the *maximal* in-sync set: whoever the metadata says is in sync, plus whoever a pending
//! proposal would add. The leader itself is always a member of it.

use std::collections::BTreeMap;

use proto_types::ids::{NodeId, Offset};

use crate::replica::FlushMode;

/// How far a replica is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Progress {
    pub(crate) appended: Offset,
    pub(crate) flushed: Offset,
}

impl Progress {
    /// The end that counts for the high watermark.
    pub(crate) fn counted(self, mode: FlushMode) -> Offset {
        match mode {
            FlushMode::Ack => self.flushed,
            FlushMode::Os => self.appended,
        }
    }
}

/// The in-sync followers of a leader, with what they told since the leader's epoch began.
#[derive(Debug)]
pub(crate) struct InSync {
    replication_factor: usize,
    /// `None`: in sync by the metadata, but not heard of in this epoch.
    followers: BTreeMap<NodeId, Option<Progress>>,
}

impl InSync {
    pub(crate) fn new(me: NodeId, replication_factor: usize, isr: &[NodeId]) -> Self {
        let followers = isr.iter().filter(|&&node| node != me).map(|&node| (node, None)).collect();
        Self { replication_factor, followers }
    }

    /// Takes over a new set within the same leader epoch; what members told stays.
    pub(crate) fn change(&mut self, me: NodeId, replication_factor: usize, isr: &[NodeId]) {
        let mut changed = Self::new(me, replication_factor, isr);
        for (node, progress) in &mut changed.followers {
            *progress = self.followers.get(node).copied().flatten();
        }
        *self = changed;
    }

    /// Members, the leader included.
    pub(crate) fn len(&self) -> usize {
        self.followers.len() + 1
    }

    /// Members that are needed to commit: `min.insync.replicas`, but never more than the partition has replicas.
    pub(crate) fn needed(&self, min_insync: usize) -> usize {
        min_insync.min(self.replication_factor).max(1)
    }

    /// Notes what a follower told. Positions of one epoch never move back: an old ack that comes late is ignored.
    pub(crate) fn on_ack(&mut self, node: NodeId, ack: Progress) {
        let Some(progress) = self.followers.get_mut(&node) else { return };
        let known = progress.get_or_insert(ack);
        known.appended = known.appended.max(ack.appended);
        known.flushed = known.flushed.max(ack.flushed);
    }

    /// Where every member is, by what `mode` counts. `None` while a member has not been heard of.
    pub(crate) fn committed_end(&self, own: Progress, mode: FlushMode) -> Option<Offset> {
        self.followers
            .values()
            .try_fold(own.counted(mode), |least, progress| Some(least.min((*progress)?.counted(mode))))
    }
}
