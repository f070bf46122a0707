//! Expiry of offsets and groups (KIP-211): a group without members keeps its offsets for `offsets.retention.minutes`
//! from when it became empty; one that never had members, from each commit; a stable group of consumers loses only those
//! of topics that it no longer subscribes to. A group that is left with nothing goes.

use std::collections::BTreeSet;

use kafka_wire_core::Str;

use super::{Shard, write};
use crate::deadlines::Deadline;
use crate::group::GroupState;
use crate::request::{Decision, Now};
use crate::stored::{GroupMetadataKey, OffsetCommitKey, OffsetCommitValue, Record};

/// From when the retention of a group's offsets counts.
enum Retention<'a> {
    /// They do not expire.
    Kept,
    /// From this wall clock, all together.
    Since(i64),
    /// From each commit.
    SinceCommit,
    /// From each commit, for topics other than these.
    SinceCommitUnless(&'a BTreeSet<Str>),
}

impl Shard {
    /// Looks at some groups and goes on with the others in the next turn.
    pub(super) fn expire(&mut self, now: Now) -> Decision {
        let mut decision = Decision::default();
        let mut looked_at = 0;
        while looked_at < self.config.expiry_turn_max {
            let Some(id) = self.state.next_group(self.expiry_cursor.as_ref()) else {
                self.expiry_cursor = None;
                let interval = self.config.offsets_retention_check_interval_ms;
                self.deadlines.set(Deadline::Expiry, now.monotonic + interval);
                return decision;
            };
            looked_at += 1 + self.state.offset_count(&id);
            if self.expire_group(now, &id, &mut decision) {
                self.expiry_cursor = Some(id);
            }
        }
        self.deadlines.set(Deadline::Expiry, now.monotonic + 1);
        decision
    }

    /// Whether the group is done with; a group with many expired offsets takes several turns.
    fn expire_group(&mut self, now: Now, id: &Str, decision: &mut Decision) -> bool {
        let retention = self.retention(id);
        let is_expired = |topic: &Str, value: &OffsetCommitValue| {
            let since = match &retention {
                Retention::Kept => return false,
                Retention::Since(start) => *start,
                Retention::SinceCommit => value.commit_timestamp,
                Retention::SinceCommitUnless(topics) if topics.contains(topic) => return false,
                Retention::SinceCommitUnless(_) => value.commit_timestamp,
            };
            match value.expire_timestamp {
                -1 => now.wall.saturating_sub(since) >= self.config.offsets_retention_ms,
                expiry => now.wall >= expiry,
            }
        };
        let offsets = self.state.offsets(id).filter(|((topic, _), value)| is_expired(topic, value));
        let expired: Vec<(Str, i32)> =
            offsets.map(|(key, _)| key.clone()).take(self.config.expiry_turn_max).collect();
        let done = expired.len() < self.config.expiry_turn_max;
        for (topic, partition) in expired {
            let key = OffsetCommitKey { group: id.clone(), topic, partition };
            write(&mut self.state, decision, now, Record::Offset(key, None));
        }
        let is_empty = !self.live.contains_key(id);
        if is_empty && self.state.offset_count(id) == 0 && self.state.group(id).is_some() {
            let key = GroupMetadataKey { group: id.clone() };
            write(&mut self.state, decision, now, Record::Group(key, None));
        }
        done
    }

    fn retention(&self, id: &Str) -> Retention<'_> {
        if let Some(group) = self.live.get(id).filter(|group| group.state != GroupState::Empty) {
            return match group.subscribed() {
                Some(topics) if group.state == GroupState::Stable => Retention::SinceCommitUnless(topics),
                Some(_) | None => Retention::Kept,
            };
        }
        match self.state.group(id) {
            Some(stored) if !stored.protocol_type.is_empty() && stored.current_state_timestamp != -1 => {
                Retention::Since(stored.current_state_timestamp)
            }
            Some(_) | None => Retention::SinceCommit,
        }
    }
}
