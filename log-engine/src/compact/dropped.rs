//! What compaction has dropped that older copies of the log would have to be told (KAFKA-4529): up to which offset.
//!
//! A copy that ends at or below that, and began to copy before, has records that should be deleted, or an open transaction,
//! and the tombstone or marker comes no more: it must begin anew. The offset is durable before a replacement is installed. One
//! that is too high costs a copy that begins anew; none is too low: where the file is damaged, all that was there may have been
//! dropped. A log that is copied from another takes over that one's offset before its first record.
//!
//! A marker may go long after others that lie above it: it waits until the data of its transaction have gone. Whoever began to
//! copy in between knows the offset as it was, may hold those data, and must be found out as well. So the offset rises with
//! each pass that drops something, though what it drops lies below.

use super::CompactionRequest;
use super::cleaned_ends::UNKNOWN;
use crate::error::FileError;
use crate::log::Log;

impl Log {
    /// From where on a pass that begins now keeps tombstones and markers, and up to where it counts as having dropped some at
    /// least if it drops any.
    ///
    /// That is beyond what anybody was told of before, but below the bound: who is in sync has everything below that, and is
    /// none of those that begin anew. A pass in which it cannot rise drops nothing; and so does one beside a copy that is not
    /// beyond what it was told of, since that would begin anew with every pass, and may never end.
    pub(super) fn rise_of_dropped(&self, request: &CompactionRequest) -> (i64, i64) {
        let known = self.data.dropped().get(self.name).unwrap_or(-1);
        let least = known.saturating_add(1);
        match least < request.bound.min(request.keep_from) {
            true => (request.keep_from, least),
            false => (0, known),
        }
    }

    /// The highest offset of which compaction has dropped a tombstone that was the newest of its key, or a transaction marker,
    /// here or where this log was copied from; −1 if there is none.
    pub fn dropped_to(&self) -> i64 {
        self.dropped_to
    }

    /// Where it is not known what was dropped, everything may have been if the log `is_compacted`, and nothing counts as
    /// dropped else. Called once, when the log has been opened.
    pub fn settle_dropped(&mut self, is_compacted: bool) {
        if self.dropped_to != UNKNOWN {
            return;
        }
        self.dropped_to = if is_compacted { self.end() - 1 } else { -1 };
        self.data.dropped().raise(self.name, self.dropped_to);
    }

    /// Notes durably that the log is a copy of one in which something was dropped at `to`. Waits for the device.
    pub fn note_dropped(&mut self, to: i64) -> Result<(), FileError> {
        if to <= self.dropped_to {
            return Ok(());
        }
        self.data.dropped().raise_if(self.name, to, || true);
        self.data.dropped().write()?;
        self.dropped_to = to;
        Ok(())
    }

    /// The log is about to end at `end`: what was dropped above that was of records that are cut.
    pub(crate) fn cut_dropped(&mut self, end: i64) -> Result<(), FileError> {
        self.dropped_to = self.dropped_to.min(end - 1);
        self.data.dropped().lower_durably(self.name, Some(end - 1))
    }

    /// Another log takes this one's name.
    pub(crate) fn forget_dropped(&mut self) -> Result<(), FileError> {
        self.dropped_to = -1;
        self.data.dropped().lower_durably(self.name, None)
    }
}
