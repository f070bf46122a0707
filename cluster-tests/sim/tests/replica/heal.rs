//! C5: after the faults everything comes back in bounded time: leaders, full in-sync sets, finished reassignments, answers
//! for everybody; then all copies are the same, and hold all that was acknowledged.

use crate::world::{END_AT, Event, World};

impl World {
    /// Looks whether all is well; the run is over when it is, and fails when it takes too long.
    pub(crate) fn look_for_progress(&mut self) {
        match self.what_is_missing() {
            None if self.winding_down => {
                self.check_logs();
                self.check_at_rest();
                self.over = true;
            }
            None => {
                self.winding_down = true;
                self.after(100, Event::Progress);
            }
            Some(missing) => {
                assert!(self.now < END_AT, "C5: {missing}");
                self.after(100, Event::Progress);
            }
        }
    }

    fn what_is_missing(&self) -> Option<String> {
        for partition in 0..self.plan.partitions {
            let missing = self.missing_of(partition);
            if missing.is_some() {
                return missing.map(|missing| format!("partition {partition}: {missing}"));
            }
        }
        let producers = self.producers.iter().zip(&self.done_at_heal);
        for (number, (producer, before)) in producers.enumerate() {
            if producer.done <= *before {
                return Some(format!("producer {number} got nothing done: {:?}", producer.outstanding));
            }
            if self.winding_down && producer.outstanding.is_some() {
                return Some(format!("producer {number} waits: {:?}", producer.outstanding));
            }
        }
        None
    }

    fn missing_of(&self, partition: usize) -> Option<String> {
        let state = self.controller.partition(partition);
        let Some(leader) = state.leader else { return Some(format!("no leader: {state:?}")) };
        if !state.adding.is_empty() || !state.removing.is_empty() {
            return Some(format!("the reassignment is not over: {state:?}"));
        }
        if state.isr.len() < state.replicas.len() {
            return Some(format!("not all are in sync: {state:?}"));
        }
        let of = |node: usize| self.nodes[node].copies.get(&partition).and_then(|copy| copy.live.as_ref());
        let Some(led) = of(leader.0 as usize) else { return Some("its leader has no copy".to_owned()) };
        if self.winding_down && !led.pending.is_empty() {
            return Some(format!("somebody waits: {:?}", led.pending));
        }
        for replica in &state.replicas {
            let Some(copy) = of(replica.0 as usize) else { return Some(format!("{replica} has no copy")) };
            if copy.view.leader_epoch != state.leader_epoch {
                return Some(format!("{replica} is in another epoch: {:?}", copy.view));
            }
            if self.winding_down && copy.view.start < led.view.start {
                return Some(format!("{replica} does not begin at {}: {:?}", led.view.start, copy.view));
            }
            let same = (copy.view.end, copy.view.high_watermark) == (led.view.end, led.view.end);
            if self.winding_down && !same {
                return Some(format!("{replica} is not at the end {}: {:?}", led.view.end, copy.view));
            }
        }
        None
    }

    /// Nothing moves any more: all copies are the same, and hold all that was acknowledged.
    fn check_at_rest(&mut self) {
        for partition in 0..self.plan.partitions {
            let state = self.controller.partition(partition);
            for replica in &state.replicas {
                let log = &self.nodes[replica.0 as usize].copies[&partition].log;
                let ghost = &self.ghost.partitions[partition];
                assert!(
                    ghost.high_watermark == log.end(),
                    "R1: {} is committed, {} here",
                    ghost.high_watermark,
                    log.end()
                );
                ghost.check_acknowledged(log);
            }
        }
        self.ghost.mark("healed");
    }
}
