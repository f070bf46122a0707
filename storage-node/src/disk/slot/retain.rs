//! A partition copy's own housekeeping: idle segments end, and what was kept long enough goes.
//!
//! The leader decides what goes, never above the high watermark; followers follow its log's start.

use std::sync::atomic::Ordering;

use log_engine::DetachedSegments;
use log_engine_core::retention::ExpiryReason;
use proto_types::ids::Offset;
use storage_node_core::{Input, Standing};

use super::Slot;
use crate::disk::housekeeping::HouseTime;

impl Slot {
    /// Takes a look at what the log keeps. Answers how many segments went.
    pub(crate) fn keep_house(&mut self, time: HouseTime) -> usize {
        let standing = self.replica.view().standing;
        if standing == Standing::Failed {
            return 0;
        }
        match self.log.roll_if_idle(time.now_ms) {
            Ok(rolled) => self.flush_wanted |= rolled,
            Err(error) if self.log.poisoned().is_some() => {
                self.fail(&error);
                return 0;
            }
            Err(error) => {
                tracing::warn!(partition = %self.shared.id, %error, "an idle segment stays open");
            }
        }
        match standing {
            Standing::Leader => self.expire_records(time),
            Standing::Follower | Standing::NotLeader | Standing::Failed => 0,
        }
    }

    /// Whether a batch may be written without touching the reserve, which is kept for the partitions of coordinators.
    pub(super) fn has_room_for(&self, bytes: usize) -> bool {
        self.settings.is_internal() || self.space.admits(bytes)
    }

    fn expire_records(&mut self, time: HouseTime) -> usize {
        let view = self.replica.view();
        let limits = self.settings.retention;
        let expired = self.log.expired(&limits, view.high_watermark.0, time.now_ms, time.is_believed);
        let Some(expiry) = expired else { return 0 };
        self.step(Input::Expire { start: Offset(expiry.start) });
        if self.log.start() < expiry.start {
            return 0;
        }
        let config = match expiry.reason {
            ExpiryReason::Age => "retention.ms",
            ExpiryReason::Size => "retention.bytes",
        };
        tracing::info!(
            partition = %self.shared.id, topic = %self.settings.topic_name,
            start = expiry.start, segments = expiry.segments, config,
            "records were kept long enough"
        );
        expiry.segments
    }

    /// Why the disk counts as failed, if it was this log that met the failure.
    pub(crate) fn device_failure(&self) -> Option<&str> {
        self.log.device_failure()
    }

    /// Says to others whether only opening the log anew helps, and nothing of it is under way any more.
    pub(crate) fn note_closed_for_space(&self) {
        if self.flushing_since.is_none() && self.log.closed_for_space().is_some() {
            self.shared.closed_for_space.store(true, Ordering::Release);
        }
    }

    /// See [`Replica::let_epoch_go_on`](storage_node_core::Replica::let_epoch_go_on).
    pub(crate) fn let_epoch_go_on(&mut self) {
        self.replica.let_epoch_go_on();
    }

    /// The directory is offline: this copy is of no use either, whether it has met the failure or not.
    pub(crate) fn go_offline(&mut self) {
        if self.replica.view().standing != Standing::Failed {
            self.metrics.on_log_failed();
            self.step(Input::LogFailed);
        }
    }

    /// Files of segments that went, and how long they are kept all the same (`file.delete.delay.ms`).
    pub(crate) fn take_detached(&mut self) -> Option<(DetachedSegments, i64)> {
        Some((self.log.take_detached()?, self.settings.file_delete_delay_ms))
    }
}
