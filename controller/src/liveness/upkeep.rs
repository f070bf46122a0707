//! The part of the watch that is about partitions: what the leader does for them by itself. Internal topics get the replicas
//! that they could not have when they were created, and preferred leaders get their partitions back.
//!
//! Called by the watch's task alone. At most one step of each kind is on its way to being committed.

use super::{Event, Task};
use controller_core::plan;
use proto_types::ids::Millis;
use std::time::Duration;

/// Leaders that move in one batch; the next one follows at once.
const LEADERS_PER_STEP: usize = 1_000;

/// What is under way.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    raising: bool,
    balancing: bool,
    /// When preferred leaders are looked after next.
    balance_at: Option<Millis>,
}

/// News about upkeep for the watch.
pub(super) enum UpkeepNews {
    /// Internal topics got replicas, or could not get any.
    Raised,
    /// So many leaders moved; `None` if that could not be committed.
    Balanced(Option<usize>),
}

impl Upkeep {
    /// A leadership begins: nothing is due before a whole pause has passed.
    pub(super) fn begin_leadership(&mut self) {
        self.balance_at = None;
    }
}

impl Task {
    pub(super) fn take_upkeep_news(&mut self, news: UpkeepNews) {
        match news {
            UpkeepNews::Raised => self.upkeep.raising = false,
            UpkeepNews::Balanced(moved) => {
                self.upkeep.balancing = false;
                if moved == Some(LEADERS_PER_STEP) {
                    self.upkeep.balance_at = Some(self.clock.now());
                }
            }
        }
    }

    /// Begins what is due.
    pub(super) fn look_after_partitions(&mut self) {
        let state = self.view.state();
        if !self.upkeep.raising && plan::internal_topics_lack_replicas(&state) {
            self.upkeep.raising = true;
            self.raise_internal_topics();
        }
        let Some(pause) = self.config.rebalance else { return };
        let now = self.clock.now();
        let due = *self.upkeep.balance_at.get_or_insert_with(|| after(now, pause));
        if now < due || self.upkeep.balancing {
            return;
        }
        self.upkeep.balance_at = Some(after(now, pause));
        if state.partitions().iter().any(|(_, partition)| plan::is_imbalanced(&state, partition)) {
            self.upkeep.balancing = true;
            self.balance_leaders();
        }
    }

    fn raise_internal_topics(&self) {
        let (proposer, events) = (self.proposer.clone(), self.events.clone());
        tokio::spawn(async move {
            match proposer.propose_own(plan::raise_internal_topics).await {
                Ok((raised, index)) => {
                    tracing::info!(
                        partitions = raised.partitions, minimums = raised.minimums, %index,
                        "internal topics get more replicas"
                    );
                }
                Err(error) => tracing::info!(%error, "internal topics could not get more replicas"),
            }
            if let Some(events) = events.upgrade() {
                // Fails only when the watch has ended with the process.
                let _ended = events.send(Event::Upkeep(UpkeepNews::Raised)).await;
            }
        });
    }

    fn balance_leaders(&self) {
        let (proposer, events) = (self.proposer.clone(), self.events.clone());
        tokio::spawn(async move {
            let planned = proposer.propose_own(|state, _| plan::balance_leaders(state, LEADERS_PER_STEP));
            let moved = match planned.await {
                Ok((moved, index)) => {
                    tracing::info!(moved, %index, "preferred leaders got their partitions back");
                    Some(moved)
                }
                Err(error) => {
                    tracing::info!(%error, "preferred leaders could not get their partitions back");
                    None
                }
            };
            if let Some(events) = events.upgrade() {
                // Fails only when the watch has ended with the process.
                let _ended = events.send(Event::Upkeep(UpkeepNews::Balanced(moved))).await;
            }
        });
    }
}

fn after(now: Millis, pause: Duration) -> Millis {
    Millis(now.0.saturating_add(i64::try_from(pause.as_millis()).unwrap_or(i64::MAX)))
}
