//! The log thread's part of a compaction: short steps between the clients' work.

use super::Slot;
use crate::disk::event::CompactionStep;
use log_engine::Installed;
use storage_node_core::{Input, Standing};

impl Slot {
    /// A thread that compacts wants something. If it is gone meanwhile, so be it.
    pub(crate) fn on_compaction(&mut self, step: CompactionStep) {
        match step {
            CompactionStep::Begin { mut request, reply } => {
                // Who asked has looked a while ago: an unclean election may have taken something back since.
                let view = self.replica.view();
                request.bound = request.bound.min(view.high_watermark.min(view.last_stable).0);
                // Who follows must get a tombstone before it goes.
                request.keep_from = self.replica.copied_to().map_or(i64::MAX, |offset| offset.0);
                let may_begin = self.settings.compacted && view.standing != Standing::Failed;
                let begun = may_begin.then(|| self.log.begin_compaction(&request));
                _ = reply.send(begun.flatten());
            }
            CompactionStep::Install { segment, reply } => {
                if !self.settings.compacted {
                    (*segment).discard();
                    _ = reply.send(Ok(Installed::Stale));
                    return;
                }
                let installed = self.log.install(*segment).map_err(|error| error.to_string());
                if let Some(reason) = self.log.poisoned().map(str::to_owned)
                    && installed.is_err()
                {
                    self.fail(&reason);
                }
                self.flush_wanted = true;
                _ = reply.send(installed);
                // A session that has begun meanwhile may be behind what was dropped.
                self.step(Input::Tick);
            }
            CompactionStep::Finish { finished, reply } => {
                _ = reply.send(self.log.finish_compaction(&finished));
            }
        }
    }
}
