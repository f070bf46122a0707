//! Where two logs part, found by leader epoch and never by high watermark (KIP-101, KIP-279, KIP-320).
//!
//! Within one leader epoch one node writes, so logs that hold the same epoch agree up to where the shorter of the two ends
//! it. The follower names the epoch of its last record; the leader names the largest epoch that it has itself and that is
//! not above, and where that ends; the follower cuts what it cannot share with that, and asks again. Each round cuts
//! something, and no log has more rounds than epochs.

use log_engine_core::EpochHistory;
use proto_types::ids::{LeaderEpoch, Offset};
use proto_types::replication_api::{Marks, SessionAnswer};

use crate::input::OpenSession;
use crate::replica::Positions;

/// What a leader answers to a follower that may follow it. `dropped_to` is what compaction has dropped of its log
/// ([`crate::LogFacts::dropped_to`]).
///
/// A follower that ends beyond that has copied what was dropped, or was itself told of it when it began empty. One that does
/// not is told, and knows whether it may go on: only if it was empty, or already was told of as much, when it began to copy
/// (`following`). It is not in sync: passes end below the high watermark, and whoever is in sync has everything below that.
pub(crate) fn answer(
    open: &OpenSession,
    own: &Positions,
    epochs: &EpochHistory,
    dropped_to: Offset,
) -> SessionAnswer {
    if open.log_end < own.start {
        return SessionAnswer::StartsLater { start: own.start };
    }
    let marks = Marks { log_start: own.start, high_watermark: own.high_watermark };
    let begins = match open.log_end <= dropped_to {
        true => SessionAnswer::BeginsCompacted { marks, dropped_to },
        false => SessionAnswer::Begins { marks },
    };
    if open.log_start == open.log_end {
        // No record that could differ: it needs only an offset to go on from.
        return match open.log_end <= own.end {
            true => begins,
            false => SessionAnswer::Diverged { epoch: LeaderEpoch(-1), end: own.end },
        };
    }
    let Some((epoch, end)) = floor(epochs, open.last_epoch, own.end) else {
        // All of its records are of epochs that this log begins after: what it has below our start nobody needs, and what
        // it has above is not ours.
        return SessionAnswer::StartsLater { start: own.start };
    };
    match epoch == open.last_epoch && open.log_end <= end {
        true => begins,
        false => SessionAnswer::Diverged { epoch, end },
    }
}

/// How much of its log a follower gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Everything from here on.
    Truncate(Offset),
    /// Everything; the log begins anew here, which is not in it.
    Restart(Offset),
}

/// What a follower cuts when the leader's largest epoch that is not above its own last one is `epoch`, ending at `end`.
pub(crate) fn cut(own: &Positions, epochs: &EpochHistory, epoch: LeaderEpoch, end: Offset) -> Cut {
    let shared = match floor(epochs, epoch, own.end) {
        Some((own_epoch, own_end)) if own_epoch == epoch => own_end.min(end),
        // The leader has an epoch that this log lacks. What is shared is older: a question of its own, after this cut.
        Some((_, own_end)) => own_end,
        None => own.start.min(end),
    };
    match shared < own.start {
        true => Cut::Restart(shared),
        false => Cut::Truncate(shared),
    }
}

/// Leader epoch of a log's last record, −1 without records.
pub(crate) fn last_epoch(own: &Positions, epochs: &EpochHistory) -> LeaderEpoch {
    match own.start < own.end {
        true => LeaderEpoch(epochs.epoch_of(own.end.0 - 1).unwrap_or(-1)),
        false => LeaderEpoch(-1),
    }
}

/// The largest epoch of a log that is not above `asked`, and where it ends in that log.
fn floor(epochs: &EpochHistory, asked: LeaderEpoch, log_end: Offset) -> Option<(LeaderEpoch, Offset)> {
    let entries = epochs.entries();
    let after = entries.partition_point(|entry| entry.epoch <= asked.0);
    let found = entries[..after].last()?;
    let end = entries.get(after).map_or(log_end, |next| Offset(next.start_offset));
    Some((LeaderEpoch(found.epoch), end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::SessionKey;
    use proto_types::ids::{BrokerEpoch, NodeId};

    fn history(entries: &[(i32, i64)]) -> EpochHistory {
        let mut history = EpochHistory::new();
        for &(epoch, start) in entries {
            history.assign(epoch, start);
        }
        history
    }

    fn positions(start: i64, end: i64) -> Positions {
        Positions {
            start: Offset(start),
            high_watermark: Offset(start),
            flushed: Offset(end),
            end: Offset(end),
        }
    }

    fn open(log_start: i64, log_end: i64, last_epoch: i32) -> OpenSession {
        OpenSession {
            session: SessionKey(1),
            from: NodeId(2),
            broker_epoch: BrokerEpoch(1),
            leader_epoch: LeaderEpoch(9),
            log_start: Offset(log_start),
            log_end: Offset(log_end),
            last_epoch: LeaderEpoch(last_epoch),
        }
    }

    fn diverged(epoch: i32, end: i64) -> SessionAnswer {
        SessionAnswer::Diverged { epoch: LeaderEpoch(epoch), end: Offset(end) }
    }

    #[test]
    fn the_leader_answers_by_epoch() {
        let leader = positions(100, 300);
        let epochs = history(&[(2, 100), (4, 150), (7, 250), (9, 300)]);
        let starts_later = SessionAnswer::StartsLater { start: Offset(100) };
        let begins =
            SessionAnswer::Begins { marks: Marks { log_start: Offset(100), high_watermark: Offset(100) } };
        let cases = [
            // Behind the start, or of epochs that are gone.
            (open(0, 99, 2), starts_later),
            (open(0, 100, 1), starts_later),
            (open(0, 180, 1), starts_later),
            // Nothing there.
            (open(0, 0, -1), starts_later),
            (open(120, 120, -1), begins),
            (open(400, 400, -1), diverged(-1, 300)),
            // A part of ours.
            (open(0, 100, 2), begins),
            (open(0, 150, 2), begins),
            (open(0, 250, 4), begins),
            (open(0, 260, 7), begins),
            // More of an epoch than we have, or an epoch that we have not.
            (open(0, 151, 2), diverged(2, 150)),
            (open(0, 160, 3), diverged(2, 150)),
            (open(0, 310, 7), diverged(7, 300)),
            (open(0, 280, 8), diverged(7, 300)),
            // Never: a record of our own epoch that we have not. It is cut all the same.
            (open(0, 310, 9), diverged(9, 300)),
            (open(0, 310, 12), diverged(9, 300)),
        ];
        for (open, expected) in cases {
            assert_eq!(answer(&open, &leader, &epochs, Offset(-1)), expected, "{open:?}");
        }
    }

    #[test]
    fn who_lacks_what_compaction_has_dropped_is_told() {
        let leader = positions(100, 300);
        let epochs = history(&[(2, 100), (4, 150)]);
        let marks = Marks { log_start: Offset(100), high_watermark: Offset(100) };
        let dropped_to = Offset(200);
        let told = SessionAnswer::BeginsCompacted { marks, dropped_to };
        let cases = [
            (open(0, 120, 2), told),
            (open(120, 120, -1), told),
            (open(0, 200, 4), told),
            (open(0, 201, 4), SessionAnswer::Begins { marks }),
            (open(0, 99, 2), SessionAnswer::StartsLater { start: Offset(100) }),
            // First it has to agree with this log.
            (open(0, 160, 3), diverged(2, 150)),
        ];
        for (open, expected) in cases {
            assert_eq!(answer(&open, &leader, &epochs, dropped_to), expected, "{open:?}");
        }
    }

    #[test]
    fn the_follower_cuts_what_it_cannot_share() {
        let follower = positions(50, 200);
        let epochs = history(&[(2, 50), (4, 150), (6, 180)]);
        let cases = [
            // The same epoch: up to where the shorter of the two ends it.
            ((6, 190), Cut::Truncate(Offset(190))),
            ((4, 170), Cut::Truncate(Offset(170))),
            ((4, 190), Cut::Truncate(Offset(180))),
            ((2, 100), Cut::Truncate(Offset(100))),
            // The leader has an epoch that we lack: everything newer goes.
            ((5, 190), Cut::Truncate(Offset(180))),
            ((3, 190), Cut::Truncate(Offset(150))),
            // Nothing shared.
            ((1, 100), Cut::Truncate(Offset(50))),
            ((1, 30), Cut::Restart(Offset(30))),
            ((2, 30), Cut::Restart(Offset(30))),
            ((-1, 20), Cut::Restart(Offset(20))),
        ];
        for ((epoch, end), expected) in cases {
            assert_eq!(cut(&follower, &epochs, LeaderEpoch(epoch), Offset(end)), expected, "{epoch} {end}");
        }
        assert_eq!(last_epoch(&follower, &epochs), LeaderEpoch(6));
        let led_without_a_word = history(&[(2, 50), (8, 200)]);
        assert_eq!(last_epoch(&follower, &led_without_a_word), LeaderEpoch(2), "8 has no record");
        assert_eq!(last_epoch(&positions(70, 70), &epochs), LeaderEpoch(-1));
    }
}
