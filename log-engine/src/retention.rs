//! What has been kept long enough, and the end of idle segments: the log's half of housekeeping. The rules are
//! `log_engine_core`'s; here is what they are told.

use log_engine_core::retention::{self, Expiry, RetentionLimits, SegmentExtent};
use log_engine_core::roll::{RollLimits, is_idle_too_long};

use crate::error::LogError;
use crate::log::{Log, segment_fill};

impl Log {
    /// Why the device that holds the log counts as failed, if that is what closed the log for writing: an error of its own,
    /// neither lack of space nor damaged records.
    pub fn device_failure(&self) -> Option<&str> {
        self.poisoned.as_deref().filter(|_| self.device_failed)
    }

    /// Which records may go by `limits`: the answer's start is for [`set_start`](Self::set_start). `now_ms` is broker time;
    /// unless it `may_age` nothing goes by age. May wait for the device.
    pub fn expired(
        &self,
        limits: &RetentionLimits,
        high_watermark: i64,
        now_ms: i64,
        may_age: bool,
    ) -> Option<Expiry> {
        if limits.ms.is_none() && limits.bytes.is_none() {
            return None;
        }
        let segments = self.shared.segments();
        let extents: Vec<SegmentExtent> = segments
            .iter()
            .map(|segment| {
                let state = segment.state().read();
                SegmentExtent { end: state.next_offset, bytes: state.size }
            })
            .collect();
        let counts_from = |at: usize| {
            let last_append_ms = self.last_append_ms(&segments[at]);
            let newest = match segments[at].max_timestamp() {
                Ok(newest) => newest.map(|newest| newest.timestamp),
                // Damaged records must not keep those that are not: their append bounds their age too.
                Err(_) => None,
            };
            retention::age_counts_from(newest, last_append_ms)
        };
        retention::expired(limits, &extents, high_watermark, may_age.then_some(now_ms), counts_from)
    }

    /// The limits of the segment that begins there, with its own share of the jitter.
    pub(crate) fn roll_limits(&self, base_offset: i64) -> RollLimits {
        let (high, low) = self.name.topic_id.as_u64_pair();
        let seed = high ^ low.rotate_left(16) ^ u64::from(self.name.partition.unsigned_abs()) << 40;
        self.config.roll_limits(seed ^ base_offset.unsigned_abs())
    }

    /// Reserves no more than this ahead of the segment that grows, from the next append on: on a disk that fills up, room
    /// that is set aside for one log is missing for everything else.
    pub fn limit_space_ahead(&mut self, bytes: u64) {
        self.ahead_bytes_max = bytes;
    }

    /// Ends the active segment if it has been open for longer than `segment.ms`. Answers whether it did; then the log
    /// wants to be flushed.
    pub fn roll_if_idle(&mut self, now_ms: i64) -> Result<bool, LogError> {
        let Some(active) = &self.active else { return Ok(false) };
        if self.poisoned.is_some()
            || !is_idle_too_long(&self.roll_limits(active.base_offset()), &segment_fill(active), now_ms)
        {
            return Ok(false);
        }
        self.roll()?;
        Ok(true)
    }
}
