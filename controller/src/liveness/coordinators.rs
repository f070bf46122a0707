//! The part of the watch that is about coordinators: their sessions, and the spread of shards over them.
//!
//! Called by the watch's task alone, which has confirmed the leadership before a heartbeat is taken. At most one verdict
//! per coordinator, and one step of the spread, is on its way to being committed.

use super::{Event, Task};
use controller_core::CoordinatorSessions;
use controller_core::coordinator_sessions::CoordinatorVerdict;
use controller_core::plan;
use controller_core::plan::assign_shards::{Assigned, orphans};
use proto_types::controller_api::{CoordinatorHeartbeat, CoordinatorHeartbeatReply};
use proto_types::error::ControllerError;
use proto_types::ids::{CoordinatorId, MetadataIndex, Millis, RegistrationEpoch};

/// Sessions of coordinators, and what is under way about them.
#[derive(Debug)]
pub(super) struct CoordinatorWatch {
    pub(super) sessions: CoordinatorSessions,
    assigning: bool,
}

/// News about coordinators for the watch.
pub(super) enum CoordinatorNews {
    Registered {
        coordinator: CoordinatorId,
        epoch: RegistrationEpoch,
    },
    Decided(CoordinatorVerdict),
    /// A step of the spread was committed at an index, or could not be.
    Assigned(Option<(Assigned, MetadataIndex)>),
}

impl CoordinatorWatch {
    pub(super) fn new(session_ms: u64) -> Self {
        Self { sessions: CoordinatorSessions::new(session_ms), assigning: false }
    }
}

impl Task {
    pub(super) fn take_coordinator_news(&mut self, news: CoordinatorNews) {
        let watch = &mut self.coordinators;
        match news {
            CoordinatorNews::Registered { coordinator, epoch } => {
                watch.sessions.registered(self.clock.now(), coordinator, epoch);
            }
            CoordinatorNews::Decided(verdict) => watch.sessions.decided(verdict),
            CoordinatorNews::Assigned(outcome) => {
                watch.assigning = false;
                if let Some((Assigned::Released(_), index)) = outcome {
                    watch.sessions.released(index);
                }
            }
        }
    }

    pub(super) fn take_coordinator_beat(
        &mut self,
        heartbeat: &CoordinatorHeartbeat,
        arrived: Millis,
    ) -> Result<CoordinatorHeartbeatReply, ControllerError> {
        let state = self.view.state();
        let beat = self.coordinators.sessions.beat(arrived, heartbeat, &state)?;
        self.metrics.heartbeat();
        if let Some(verdict) = beat.verdict {
            self.commit_coordinator(verdict);
        }
        Ok(CoordinatorHeartbeatReply {
            committed: state.applied(),
            fenced: beat.fenced,
            may_stop: beat.may_stop,
        })
    }

    /// Looks for sessions that have run out.
    pub(super) fn look_at_coordinators(&mut self) {
        for verdict in self.coordinators.sessions.expired(self.clock.now(), &self.view.state()) {
            self.commit_coordinator(verdict);
        }
    }

    /// Takes the next step towards an even spread of shards, if there is one to take.
    pub(super) fn spread_shards(&mut self) {
        let state = self.view.state();
        if self.coordinators.assigning || !plan::shards_are_uneven(&state) {
            return;
        }
        let released = orphans(&state);
        // What was released is given to nobody before all know of it.
        if !released.is_empty() && !self.coordinators.sessions.all_released(&state) {
            return;
        }
        self.coordinators.assigning = true;
        let (proposer, events) = (self.proposer.clone(), self.events.clone());
        tokio::spawn(async move {
            let planned = proposer.propose_own(move |state, _| plan::assign_shards(state, &released));
            let outcome = planned.await;
            match &outcome {
                Ok((Assigned::Nothing, _)) => {}
                Ok((assigned, index)) => tracing::info!(?assigned, %index, "shards spread"),
                Err(error) => tracing::info!(%error, "shards could not be spread"),
            }
            if let Some(events) = events.upgrade() {
                let event = Event::Coordinator(CoordinatorNews::Assigned(outcome.ok()));
                // Fails only when the watch has ended with the process.
                let _ended = events.send(event).await;
            }
        });
    }

    fn commit_coordinator(&self, verdict: CoordinatorVerdict) {
        let (proposer, events) = (self.proposer.clone(), self.events.clone());
        self.metrics.verdict(verdict.fence);
        tokio::spawn(async move {
            let CoordinatorVerdict { coordinator, epoch, fence, why } = verdict;
            let outcome = proposer
                .propose_own(move |state, _| {
                    if fence {
                        plan::fence_coordinator(state, coordinator, epoch)
                    } else {
                        plan::unfence_coordinator(state, coordinator, epoch)
                    }
                })
                .await;
            match &outcome {
                Ok(((), index)) if fence => tracing::warn!(%coordinator, %index, why, "coordinator fenced"),
                Ok(((), index)) => tracing::info!(%coordinator, %index, why, "coordinator unfenced"),
                Err(error) => {
                    tracing::info!(%coordinator, fence, %error, "coordinator could not be fenced or unfenced");
                }
            }
            if let Some(events) = events.upgrade() {
                // Fails only when the watch has ended with the process.
                let _ended = events.send(Event::Coordinator(CoordinatorNews::Decided(verdict))).await;
            }
        });
    }
}
