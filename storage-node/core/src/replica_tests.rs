use super::*;
use crate::action::{Duplicate, Produced};
use crate::input::{Acks, ProducerStamp};
use log_engine_core::ProducerBatch;

const ME: NodeId = NodeId(1);
const CONFIG: ReplicaConfig = ReplicaConfig { min_insync: 1, flush: FlushMode::Ack, waiters_max: 100 };

/// A replica with the producer window that its log would keep, and a short way to say what happens.
struct Bench {
    replica: Replica,
    producers: ProducerStates,
    now: i64,
    next_ticket: u64,
    proposed: Option<Proposal>,
}

impl Bench {
    fn new(config: ReplicaConfig, end: i64) -> Self {
        let replica = Replica::new(ME, config, Offset(0), Offset(end), Offset(end));
        Self { replica, producers: ProducerStates::new(100), now: 0, next_ticket: 0, proposed: None }
    }

    fn leader(config: ReplicaConfig, replication_factor: usize, isr: &[i32]) -> Self {
        let mut bench = Self::new(config, 0);
        bench.epoch(1, 1, Some(1), replication_factor, isr);
        bench
    }

    fn step(&mut self, input: Input) -> Vec<Action> {
        self.replica.step(Millis(self.now), &self.producers, input)
    }

    fn epoch(
        &mut self,
        epoch: i32,
        partition_epoch: i32,
        leader: Option<i32>,
        rf: usize,
        isr: &[i32],
    ) -> Vec<Action> {
        self.step(Input::NewEpoch(NewEpoch {
            leader: leader.map(NodeId),
            leader_epoch: LeaderEpoch(epoch),
            partition_epoch: PartitionEpoch(partition_epoch),
            replication_factor: rf,
            isr: isr.iter().copied().map(NodeId).collect(),
        }))
    }

    /// Proposes and, if the replica says so, appends. All actions, and the ticket.
    fn produce(
        &mut self,
        acks: Acks,
        offsets: i32,
        producer: Option<(i64, i16, i32)>,
    ) -> (Ticket, Vec<Action>) {
        self.next_ticket += 1;
        let proposal = Proposal {
            ticket: Ticket(self.next_ticket),
            acks,
            offsets,
            max_timestamp: 1_000 + self.next_ticket as i64,
            producer: producer.map(|(producer_id, producer_epoch, base_sequence)| ProducerStamp {
                producer_id,
                producer_epoch,
                base_sequence,
            }),
            deadline: Millis(self.now + 100),
        };
        let mut actions = self.step(Input::Propose(proposal));
        if let Some(&Action::Append { base_offset, .. }) =
            actions.iter().find(|action| matches!(action, Action::Append { .. }))
        {
            let end = base_offset.0 + i64::from(offsets);
            if let Some((producer_id, producer_epoch, first_sequence)) = producer {
                self.producers.append(&ProducerBatch {
                    producer_id,
                    producer_epoch,
                    first_sequence,
                    offset_delta: offsets - 1,
                    last_offset: end - 1,
                    timestamp: proposal.max_timestamp,
                    is_transactional: false,
                    is_control: false,
                });
            }
            actions.extend(self.step(Input::Appended { end: Offset(end) }));
        }
        self.proposed = Some(proposal);
        (proposal.ticket, actions)
    }

    fn flushed(&mut self, end: i64) -> Vec<Action> {
        self.step(Input::Flushed { end: Offset(end) })
    }

    fn ack(&mut self, node: i32, epoch: i32, appended: i64, flushed: i64) -> Vec<Action> {
        self.step(Input::FollowerAck(FollowerAck {
            node: NodeId(node),
            leader_epoch: LeaderEpoch(epoch),
            appended: Offset(appended),
            flushed: Offset(flushed),
        }))
    }

    fn high_watermark(&self) -> i64 {
        self.replica.view().high_watermark.0
    }
}

/// The answers among the actions: ticket and base offset, or error.
fn replies(actions: &[Action]) -> Vec<(Ticket, Result<i64, ProduceError>)> {
    actions
        .iter()
        .filter_map(|action| match action {
            Action::Reply { ticket, result } => {
                Some((*ticket, result.map(|produced| produced.base_offset.0)))
            }
            _ => None,
        })
        .collect()
}

fn flushes(actions: &[Action]) -> usize {
    actions.iter().filter(|action| **action == Action::Flush).count()
}

#[test]
fn nobody_leads_before_the_metadata_says_so() {
    let mut bench = Bench::new(CONFIG, 5);
    let (ticket, actions) = bench.produce(Acks::Leader, 1, None);
    assert_eq!(replies(&actions), [(ticket, Err(ProduceError::NotLeader))]);
    let actions = bench.epoch(3, 0, Some(1), 1, &[1]);
    assert!(actions.contains(&Action::AssignEpoch { epoch: LeaderEpoch(3), start: Offset(5) }));
    let view = bench.replica.view();
    assert_eq!((view.standing, view.high_watermark, view.end), (Standing::Leader, Offset(5), Offset(5)));
}

#[test]
fn acks_one_is_answered_at_the_append_and_acks_all_by_the_flush() {
    let mut bench = Bench::leader(CONFIG, 1, &[1]);
    let (first, actions) = bench.produce(Acks::Leader, 2, None);
    assert_eq!(replies(&actions), [(first, Ok(0))]);
    assert_eq!(flushes(&actions), 1);
    let (second, actions) = bench.produce(Acks::All, 3, None);
    assert_eq!(replies(&actions), []);
    assert_eq!(flushes(&actions), 0, "one flush is on its way");
    assert_eq!(bench.high_watermark(), 0);
    let actions = bench.flushed(2);
    assert_eq!((replies(&actions).len(), flushes(&actions), bench.high_watermark()), (0, 1, 2));
    let actions = bench.flushed(5);
    assert_eq!((replies(&actions), flushes(&actions)), (vec![(second, Ok(2))], 0));
    assert_eq!(bench.high_watermark(), 5);
}

#[test]
fn flush_os_commits_at_the_append() {
    let mut bench = Bench::leader(ReplicaConfig { flush: FlushMode::Os, ..CONFIG }, 1, &[1]);
    let (ticket, actions) = bench.produce(Acks::All, 2, None);
    assert_eq!((replies(&actions), flushes(&actions)), (vec![(ticket, Ok(0))], 0));
    assert_eq!(bench.high_watermark(), 2);
}

#[test]
fn a_change_of_the_flush_mode_takes_nothing_back() {
    let mut bench = Bench::leader(ReplicaConfig { flush: FlushMode::Os, ..CONFIG }, 1, &[1]);
    bench.produce(Acks::All, 4, None);
    let actions = bench.step(Input::ConfigChanged(CONFIG));
    assert_eq!((flushes(&actions), bench.high_watermark()), (1, 4));
    let (ticket, actions) = bench.produce(Acks::All, 1, None);
    assert_eq!(replies(&actions), []);
    assert_eq!(replies(&bench.flushed(5)), [(ticket, Ok(4))]);
}

#[test]
fn the_high_watermark_is_the_least_flushed_end_of_the_in_sync_replicas() {
    let mut bench = Bench::leader(ReplicaConfig { min_insync: 2, ..CONFIG }, 3, &[1, 2, 3]);
    let (ticket, _) = bench.produce(Acks::All, 10, None);
    bench.flushed(10);
    bench.ack(2, 1, 10, 8);
    assert_eq!(bench.high_watermark(), 0, "3 was not heard of");
    bench.ack(3, 1, 9, 9);
    assert_eq!(bench.high_watermark(), 8);
    bench.ack(2, 0, 10, 10);
    assert_eq!(bench.high_watermark(), 8, "an ack of another epoch does not count");
    bench.ack(2, 1, 10, 10);
    bench.ack(2, 1, 3, 3);
    assert_eq!(bench.high_watermark(), 9, "an old ack does not take back");
    assert_eq!(replies(&bench.ack(3, 1, 99, 99)), [(ticket, Ok(0))]);
    assert_eq!(bench.high_watermark(), 10);
    assert_eq!(bench.replica.view().last_stable, Offset(10));
}

#[test]
fn too_few_in_sync_replicas_refuse_acks_all_and_hold_the_high_watermark() {
    let mut bench = Bench::leader(ReplicaConfig { min_insync: 2, ..CONFIG }, 3, &[1, 2]);
    let (waiting, _) = bench.produce(Acks::All, 1, None);
    bench.flushed(1);
    let actions = bench.epoch(1, 2, Some(1), 3, &[1]);
    let error = ProduceError::NotEnoughReplicasAfterAppend { in_sync: 1, needed: 2 };
    assert_eq!(replies(&actions), [(waiting, Err(error))]);
    let (refused, actions) = bench.produce(Acks::All, 1, None);
    let error = ProduceError::NotEnoughReplicas { in_sync: 1, needed: 2 };
    assert_eq!(replies(&actions), [(refused, Err(error))]);
    let (taken, actions) = bench.produce(Acks::Leader, 1, None);
    assert_eq!(replies(&actions), [(taken, Ok(1))]);
    bench.flushed(2);
    assert_eq!(bench.high_watermark(), 0);
    bench.step(Input::ConfigChanged(CONFIG));
    assert_eq!(bench.high_watermark(), 2);
}

#[test]
fn min_insync_above_the_replication_factor_means_all_replicas() {
    let mut bench = Bench::leader(ReplicaConfig { min_insync: 5, ..CONFIG }, 1, &[1]);
    let (ticket, _) = bench.produce(Acks::All, 1, None);
    assert_eq!(replies(&bench.flushed(1)), [(ticket, Ok(0))]);
}

#[test]
fn a_repetition_gets_the_original_offset_once_it_is_committed() {
    let mut bench = Bench::leader(CONFIG, 1, &[1]);
    bench.produce(Acks::All, 3, None);
    let (original, _) = bench.produce(Acks::All, 2, Some((7, 0, 0)));
    let (repeated, actions) = bench.produce(Acks::All, 2, Some((7, 0, 0)));
    assert_eq!(replies(&actions), []);
    let (impatient, actions) = bench.produce(Acks::Leader, 2, Some((7, 0, 0)));
    assert_eq!(replies(&actions), [], "also acks=1 must not be told of what can still vanish");
    let actions = bench.flushed(5);
    assert_eq!(replies(&actions)[1..], [(original, Ok(3)), (repeated, Ok(3)), (impatient, Ok(3))]);
    assert_eq!(bench.replica.positions().end, Offset(5));
    let (late, actions) = bench.produce(Acks::All, 2, Some((7, 0, 0)));
    let produced = Produced {
        base_offset: Offset(3),
        duplicate_of: Some(Duplicate { timestamp: 1_002 }),
        log_start: Offset(0),
    };
    assert!(actions.contains(&Action::Reply { ticket: late, result: Ok(produced) }));
}

#[test]
fn gaps_and_old_epochs_are_refused_and_unknown_producers_start_anywhere() {
    let mut bench = Bench::leader(CONFIG, 1, &[1]);
    let (ticket, actions) = bench.produce(Acks::Leader, 2, Some((7, 3, 40)));
    assert_eq!(replies(&actions), [(ticket, Ok(0))]);
    let (ticket, actions) = bench.produce(Acks::Leader, 1, Some((7, 3, 44)));
    let error = ProduceError::OutOfOrderSequence { expected: 42, found: 44 };
    assert_eq!(replies(&actions), [(ticket, Err(error))]);
    let (ticket, actions) = bench.produce(Acks::Leader, 1, Some((7, 2, 42)));
    assert_eq!(replies(&actions), [(ticket, Err(ProduceError::InvalidProducerEpoch { current: 3 }))]);
    let (ticket, actions) = bench.produce(Acks::Leader, 1, Some((7, 4, 42)));
    let error = ProduceError::OutOfOrderSequence { expected: 0, found: 42 };
    assert_eq!(replies(&actions), [(ticket, Err(error))]);
    let (ticket, actions) = bench.produce(Acks::Leader, 1, Some((7, 4, 0)));
    assert_eq!(replies(&actions), [(ticket, Ok(2))]);
}

#[test]
fn waiting_ends_with_the_deadline() {
    let mut bench = Bench::leader(CONFIG, 1, &[1]);
    let (ticket, _) = bench.produce(Acks::All, 1, None);
    assert_eq!(bench.replica.next_deadline(), Some(Millis(100)));
    bench.now = 99;
    assert_eq!(replies(&bench.step(Input::Tick)), []);
    bench.now = 100;
    assert_eq!(replies(&bench.step(Input::Tick)), [(ticket, Err(ProduceError::TimedOut))]);
    assert_eq!(bench.replica.next_deadline(), None);
    assert_eq!(replies(&bench.flushed(1)), []);
}

#[test]
fn losing_the_leadership_answers_all_who_wait() {
    let mut bench = Bench::leader(CONFIG, 1, &[1]);
    let (ticket, _) = bench.produce(Acks::All, 1, None);
    let actions = bench.epoch(2, 2, Some(9), 1, &[9]);
    assert_eq!(replies(&actions), [(ticket, Err(ProduceError::NotLeader))]);
    assert_eq!(bench.replica.view().standing, Standing::NotLeader);
    assert_eq!(bench.replica.view().check_leader(-1), Err(crate::LeadershipError::NotLeader));
    bench.epoch(1, 9, Some(1), 1, &[1]);
    assert_eq!(bench.replica.view().standing, Standing::NotLeader, "old metadata changes nothing");
}

#[test]
fn a_new_epoch_of_the_same_leader_keeps_who_waits() {
    let mut bench = Bench::leader(CONFIG, 1, &[1]);
    let (ticket, _) = bench.produce(Acks::All, 1, None);
    let actions = bench.epoch(2, 2, Some(1), 1, &[1]);
    assert!(actions.contains(&Action::AssignEpoch { epoch: LeaderEpoch(2), start: Offset(1) }));
    assert_eq!(replies(&bench.flushed(1)), [(ticket, Ok(0))]);
    let view = bench.replica.view();
    assert_eq!(view.check_leader(2), Ok(()));
    let current = LeaderEpoch(2);
    let fenced = crate::LeadershipError::FencedLeaderEpoch { requested: 1, current };
    assert_eq!(view.check_leader(1), Err(fenced));
    let unknown = crate::LeadershipError::UnknownLeaderEpoch { requested: 3, current };
    assert_eq!(view.check_leader(3), Err(unknown));
}

#[test]
fn a_failed_log_takes_the_partition_offline_for_good() {
    let mut bench = Bench::leader(CONFIG, 1, &[1]);
    let (waiting, _) = bench.produce(Acks::All, 1, None);
    let proposal = Proposal { ticket: Ticket(99), ..bench.proposed.unwrap() };
    bench.step(Input::Propose(proposal));
    let actions = bench.step(Input::LogFailed);
    let failed = Err(ProduceError::LogFailed);
    assert_eq!(replies(&actions), [(Ticket(99), failed), (waiting, failed)]);
    assert_eq!(flushes(&actions), 0);
    bench.epoch(5, 5, Some(1), 1, &[1]);
    assert_eq!(bench.replica.view().check_leader(-1), Err(crate::LeadershipError::LogFailed));
}

#[test]
fn a_refused_append_changes_nothing() {
    let mut bench = Bench::leader(CONFIG, 1, &[1]);
    bench.produce(Acks::Leader, 2, None);
    let proposal = Proposal { ticket: Ticket(99), ..bench.proposed.unwrap() };
    bench.step(Input::Propose(proposal));
    let actions = bench.step(Input::AppendRefused);
    assert_eq!(replies(&actions), [(Ticket(99), Err(ProduceError::WriteRefused))]);
    let (ticket, actions) = bench.produce(Acks::Leader, 1, None);
    assert_eq!(replies(&actions), [(ticket, Ok(2))]);
}

#[test]
fn records_are_deleted_up_to_the_high_watermark_only() {
    let mut bench = Bench::leader(CONFIG, 1, &[1]);
    bench.produce(Acks::Leader, 10, None);
    bench.flushed(6);
    let mut delete = |ticket: u64, before: Option<i64>| {
        let ticket = Ticket(ticket);
        let mut actions = bench.step(Input::DeleteRecords { ticket, before: before.map(Offset) });
        assert_eq!(actions.len(), 1);
        if let Some(&Action::MoveStart { start }) = actions.first() {
            actions = bench.step(Input::StartMoved { start });
        }
        match actions[actions.len() - 1] {
            Action::RecordsDeleted { ticket: answered, result } if answered == ticket => {
                result.map(|start| start.0)
            }
            ref other => panic!("{other:?}"),
        }
    };
    let out_of_range = Err(DeleteRecordsError::OffsetOutOfRange { high_watermark: Offset(6) });
    assert_eq!(delete(1, Some(7)), out_of_range);
    assert_eq!(delete(2, Some(-2)), out_of_range);
    assert_eq!(delete(3, Some(4)), Ok(4));
    assert_eq!(delete(4, Some(2)), Ok(4), "the start never moves back");
    assert_eq!(delete(5, None), Ok(6));
    assert_eq!(bench.replica.view().start, Offset(6));
}

#[test]
fn a_start_that_finds_no_room_is_refused_and_the_leader_goes_on() {
    let mut bench = Bench::leader(CONFIG, 1, &[1]);
    bench.produce(Acks::Leader, 10, None);
    bench.flushed(10);
    let ticket = Ticket(50);
    for before in [4, 5] {
        bench.step(Input::DeleteRecords { ticket, before: Some(Offset(before)) });
        let actions = bench.step(Input::StartRefused);
        let result = Err(DeleteRecordsError::WriteRefused);
        assert_eq!(actions, [Action::RecordsDeleted { ticket, result }]);
        assert_eq!(bench.replica.view().start, Offset(0));
    }
    let (ticket, actions) = bench.produce(Acks::Leader, 1, None);
    assert_eq!(replies(&actions), [(ticket, Ok(10))]);
}

#[test]
fn waiters_are_bounded() {
    let mut bench = Bench::leader(ReplicaConfig { waiters_max: 2, ..CONFIG }, 1, &[1]);
    bench.produce(Acks::All, 1, None);
    bench.produce(Acks::All, 1, None);
    let (ticket, actions) = bench.produce(Acks::All, 1, None);
    assert_eq!(replies(&actions), [(ticket, Err(ProduceError::Busy))]);
}

#[test]
fn readers_are_shown_what_producers_are_told() {
    let mut bench = Bench::leader(CONFIG, 1, &[1]);
    bench.produce(Acks::All, 1, None);
    let actions = bench.flushed(1);
    assert!(matches!(actions[..], [Action::Publish(_), Action::Reply { .. }]), "{actions:?}");
}
