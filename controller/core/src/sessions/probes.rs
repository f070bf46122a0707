//! A quick proof of death: when a silent node is asked whether its process is there at all, and what the answer proves.
//!
//! A process that is gone has left its sockets: the operating system of its host refuses what is sent to them. Nothing else
//! proves anything; a node that stands still, or cannot be reached, refuses nothing and keeps its session to the end. Not
//! every network tells the truth: a filter may refuse in the name of a node that lives. So a node's refusals count only if
//! it was asked in good health before, at the same address, and did not refuse.

use core::net::SocketAddr;
use proto_types::ids::{BrokerEpoch, Millis, NodeId};

/// A question that the shell puts to a node's data address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The node.
    pub node: NodeId,
    /// Its registration.
    pub broker_epoch: BrokerEpoch,
    /// When it is asked.
    pub begun: Millis,
    /// Where.
    pub target: ProbeTarget,
}

/// Where a node is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeTarget {
    /// `host:port` as it registered, to be looked up: the node is in good health.
    Registered(String),
    /// Where it did not refuse when it was in good health.
    Known(SocketAddr),
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// Each time that it was asked, its host said that nobody has that socket.
    Refused,
    /// Anything else, silence in the first place, from this address.
    NotRefused(SocketAddr),
    /// It could not be asked.
    NotAsked,
}

/// What is known of one node, for one registration under one leadership.
#[derive(Debug, Clone, Default)]
pub(super) struct ProbeState {
    /// When it last gave a sign of life; none under this leadership, if `None`.
    heard: Option<Millis>,
    /// When it was last asked.
    asked: Option<Millis>,
    /// The answer is still open.
    open: bool,
    trust: Trust,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Trust {
    /// It was not asked in good health yet.
    #[default]
    Untested,
    /// In good health it did not refuse, at this address.
    Tested(SocketAddr),
    /// It lives and refuses, or cannot be asked: nothing is proved by it.
    Worthless,
}

impl ProbeState {
    /// A sign of life.
    pub(super) fn heard(&mut self, at: Millis) {
        self.heard = self.heard.max(Some(at));
    }

    /// When it last gave a sign of life under this leadership.
    pub(super) fn last_heard(&self) -> Option<Millis> {
        self.heard
    }

    /// Whether it should be asked now, and where; `registered` is the address that it gave. At most once per heartbeat
    /// interval.
    pub(super) fn due(&self, now: Millis, heartbeat_ms: i64, registered: &str) -> Option<ProbeTarget> {
        let since = |then: Millis| now.0.saturating_sub(then.0);
        if self.open || self.asked.is_some_and(|asked| since(asked) < heartbeat_ms) {
            return None;
        }
        let silent = since(self.heard?) >= heartbeat_ms.saturating_mul(2);
        match self.trust {
            Trust::Untested if !silent => Some(ProbeTarget::Registered(registered.to_owned())),
            Trust::Tested(address) if silent => Some(ProbeTarget::Known(address)),
            Trust::Untested | Trust::Tested(_) | Trust::Worthless => None,
        }
    }

    /// It is asked now.
    pub(super) fn asked(&mut self, now: Millis) {
        self.asked = Some(now);
        self.open = true;
    }

    /// Takes the answer to what was asked at `begun`. True if the node is dead.
    pub(super) fn answered(&mut self, begun: Millis, answer: ProbeAnswer) -> bool {
        if !self.open || self.asked != Some(begun) {
            return false;
        }
        self.open = false;
        let heard_since = self.heard > Some(begun);
        match (self.trust, answer) {
            (Trust::Untested, ProbeAnswer::NotRefused(address)) => self.trust = Trust::Tested(address),
            (Trust::Untested, ProbeAnswer::Refused | ProbeAnswer::NotAsked) => self.trust = Trust::Worthless,
            (Trust::Tested(_), ProbeAnswer::Refused) if !heard_since => return true,
            (Trust::Tested(_), ProbeAnswer::Refused) => self.trust = Trust::Worthless,
            (Trust::Tested(_), ProbeAnswer::NotRefused(_) | ProbeAnswer::NotAsked)
            | (Trust::Worthless, _) => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    const HEARTBEAT: i64 = 300;
    const NAME: &str = "node:9182";

    fn address() -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, 9182))
    }

    fn due(state: &ProbeState, now: i64) -> Option<ProbeTarget> {
        state.due(Millis(now), HEARTBEAT, NAME)
    }

    /// A node that did not refuse in good health at 0, and was last heard at 0.
    fn tested() -> ProbeState {
        let mut state = ProbeState::default();
        state.heard(Millis(0));
        assert_eq!(due(&state, 0), Some(ProbeTarget::Registered(NAME.to_owned())));
        state.asked(Millis(0));
        assert!(!state.answered(Millis(0), ProbeAnswer::NotRefused(address())));
        state
    }

    #[test]
    fn a_silence_of_two_heartbeats_is_looked_into_once_per_heartbeat() {
        let mut state = tested();
        assert_eq!(due(&state, 599), None);
        assert_eq!(due(&state, 600), Some(ProbeTarget::Known(address())));
        state.asked(Millis(600));
        assert_eq!(due(&state, 2_000), None, "its answer is open");
        assert!(!state.answered(Millis(600), ProbeAnswer::NotRefused(address())), "silence proves nothing");
        assert_eq!(due(&state, 899), None);
        assert_eq!(due(&state, 900), Some(ProbeTarget::Known(address())));
        state.asked(Millis(900));
        assert!(!state.answered(Millis(900), ProbeAnswer::NotAsked));
        state.asked(Millis(1_200));
        assert!(state.answered(Millis(1_200), ProbeAnswer::Refused));
    }

    #[test]
    fn whoever_is_heard_in_between_lives_and_is_not_judged_by_refusals_any_more() {
        let mut state = tested();
        state.asked(Millis(600));
        state.heard(Millis(601));
        assert!(!state.answered(Millis(600), ProbeAnswer::Refused));
        assert_eq!(due(&state, 5_000), None);
    }

    #[test]
    fn refusals_of_a_node_that_never_was_silent_to_a_probe_prove_nothing() {
        for answer in [ProbeAnswer::Refused, ProbeAnswer::NotAsked] {
            let mut state = ProbeState::default();
            state.heard(Millis(0));
            state.asked(Millis(0));
            assert!(!state.answered(Millis(0), answer));
            assert_eq!((due(&state, 100), due(&state, 5_000)), (None, None));
        }
        let mut never_tested = ProbeState::default();
        assert_eq!(due(&never_tested, 5_000), None, "not heard under this leadership");
        never_tested.heard(Millis(0));
        assert_eq!(due(&never_tested, 600), None, "too late for a test in good health");
    }

    #[test]
    fn answers_to_other_questions_are_nothing() {
        let mut state = tested();
        assert!(!state.answered(Millis(0), ProbeAnswer::Refused), "answered already");
        state.asked(Millis(900));
        assert!(!state.answered(Millis(600), ProbeAnswer::Refused), "of another time");
        assert!(state.answered(Millis(900), ProbeAnswer::Refused));
    }
}
