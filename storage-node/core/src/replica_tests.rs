use super::*;
use crate::action::{Duplicate, Produced};
use crate::input::{
    Acks, FollowerAck, FromLeader, IsrAnswered, IsrOutcome, LeaderBatches, OpenSession, ProducerStamp,
    SessionKey,
};
use log_engine_core::{ProducerBatch, ProducerStates};
use proto_types::controller_api::ProposedIsr;
use proto_types::ids::BrokerEpoch;
use proto_types::replication_api::{Marks, SessionAnswer};

const ME: NodeId = NodeId(1);
const UNHEARD: i64 = ProposedIsr::NOT_HEARD_FROM.0;
const LAG_MS_MAX: i64 = 30_000;
const LATE: Millis = Millis(1_000_000);
const CONFIG: ReplicaConfig =
    ReplicaConfig { min_insync: 1, flush: FlushMode::Ack, waiters_max: 100, replica_lag_ms_max: LAG_MS_MAX };

/// A replica with the producer window that its log would keep, and a short way to say what happens.
struct Bench {
    replica: Replica,
    producers: ProducerStates,
    epochs: EpochHistory,
    dropped_to: Offset,
    now: i64,
    next_ticket: u64,
    proposed: Option<Proposal>,
    has_room: bool,
}

impl Bench {
    fn new(config: ReplicaConfig, end: i64) -> Self {
        let replica = Replica::new(ME, config, Offset(0), Offset(end), Offset(end));
        Self {
            replica,
            producers: ProducerStates::new(100),
            epochs: EpochHistory::new(),
            dropped_to: Offset(-1),
            now: 0,
            next_ticket: 0,
            proposed: None,
            has_room: true,
        }
    }

    fn leader(config: ReplicaConfig, replication_factor: i32, isr: &[i32]) -> Self {
        let mut bench = Self::new(config, 0);
        bench.epoch(1, 1, Some(1), replication_factor, isr);
        bench
    }

    fn step(&mut self, input: Input) -> Vec<Action> {
        let log = LogFacts { producers: &self.producers, epochs: &self.epochs, dropped_to: self.dropped_to };
        let actions = self.replica.step(Millis(self.now), log, input);
        for action in &actions {
            if let Action::AssignEpoch { epoch, start } = action {
                self.epochs.assign(epoch.0, start.0);
            }
        }
        actions
    }

    fn epoch(
        &mut self,
        epoch: i32,
        partition_epoch: i32,
        leader: Option<i32>,
        rf: i32,
        isr: &[i32],
    ) -> Vec<Action> {
        self.step(Input::NewEpoch(NewEpoch {
            leader: leader.map(NodeId),
            leader_epoch: LeaderEpoch(epoch),
            partition_epoch: PartitionEpoch(partition_epoch),
            replicas: (1..=rf).map(NodeId).collect(),
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
                is_transactional: false,
            }),
            has_room: self.has_room,
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

    /// A follower of `epoch` whose log ends at `end`, without records, asks for a session, which is number `node`.
    fn open(&mut self, node: i32, epoch: i32, end: i64) -> Vec<Action> {
        self.open_as(node, epoch, end, BrokerEpoch(i64::from(node) * 10), SessionKey(node as u64))
    }

    fn open_as(
        &mut self,
        node: i32,
        epoch: i32,
        end: i64,
        broker_epoch: BrokerEpoch,
        session: SessionKey,
    ) -> Vec<Action> {
        self.step(Input::OpenSession(OpenSession {
            session,
            from: NodeId(node),
            broker_epoch,
            leader_epoch: LeaderEpoch(epoch),
            log_start: Offset(end),
            log_end: Offset(end),
            last_epoch: LeaderEpoch(-1),
        }))
    }

    /// The follower in the session of that number tells where it is.
    fn ack(&mut self, session: i32, appended: i64, flushed: i64) -> Vec<Action> {
        self.step(Input::FollowerAck(FollowerAck {
            session: SessionKey(session as u64),
            appended: Offset(appended),
            flushed: Offset(flushed),
        }))
    }

    fn isr_answered(&mut self, epoch: i32, partition_epoch: i32, outcome: IsrOutcome) -> Vec<Action> {
        self.step(Input::IsrAnswered(IsrAnswered {
            leader_epoch: LeaderEpoch(epoch),
            partition_epoch: PartitionEpoch(partition_epoch),
            outcome,
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

/// The in-sync set that is proposed, if one is.
fn proposed(actions: &[Action]) -> Option<Vec<(i32, i64)>> {
    let mut found = actions.iter().filter_map(|action| match action {
        Action::ProposeIsr { isr, .. } => Some(isr.iter().map(|(node, epoch)| (node.0, epoch.0)).collect()),
        _ => None,
    });
    let first: Option<Vec<(i32, i64)>> = found.next();
    assert!(found.next().is_none(), "one proposal at a time");
    first
}

fn answer(actions: &[Action]) -> Option<SessionAnswer> {
    actions.iter().find_map(|action| match action {
        Action::AnswerSession { answer, .. } => Some(*answer),
        _ => None,
    })
}

#[test]
fn the_high_watermark_is_the_least_flushed_end_of_the_in_sync_replicas() {
    let mut bench = Bench::leader(ReplicaConfig { min_insync: 2, ..CONFIG }, 3, &[1, 2, 3]);
    bench.open(2, 1, 0);
    bench.open(3, 1, 0);
    let (ticket, _) = bench.produce(Acks::All, 10, None);
    bench.flushed(10);
    bench.ack(2, 10, 8);
    assert_eq!(bench.high_watermark(), 0, "3 was not heard of");
    bench.ack(3, 9, 9);
    assert_eq!(bench.high_watermark(), 8);
    bench.ack(4, 10, 10);
    assert_eq!(bench.high_watermark(), 8, "an ack of no session does not count");
    bench.ack(2, 10, 10);
    bench.ack(2, 3, 3);
    assert_eq!(bench.high_watermark(), 9, "an old ack does not take back");
    assert_eq!(replies(&bench.ack(3, 99, 99)), [(ticket, Ok(0))]);
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
fn gaps_and_old_epochs_are_refused_also_of_producers_that_are_unknown_here() {
    let mut bench = Bench::leader(CONFIG, 1, &[1]);
    bench.now = 10_000;
    // What comes before it is on its way to an older leader.
    let (ticket, actions) = bench.produce(Acks::Leader, 2, Some((7, 3, 40)));
    let error = ProduceError::OutOfOrderSequence { expected: 0, found: 40 };
    assert_eq!(replies(&actions), [(ticket, Err(error))]);
    let (ticket, actions) = bench.produce(Acks::Leader, 2, Some((7, 3, 0)));
    assert_eq!(replies(&actions), [(ticket, Ok(0))]);
    let (ticket, actions) = bench.produce(Acks::Leader, 1, Some((7, 3, 4)));
    let error = ProduceError::OutOfOrderSequence { expected: 2, found: 4 };
    assert_eq!(replies(&actions), [(ticket, Err(error))]);
    let (ticket, actions) = bench.produce(Acks::Leader, 1, Some((7, 2, 2)));
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
    let actions = bench.epoch(2, 2, Some(2), 2, &[2]);
    assert_eq!(replies(&actions), [(ticket, Err(ProduceError::NotLeader))]);
    assert!(!actions.iter().any(|action| matches!(action, Action::EndSession { .. })), "nobody followed");
    assert_eq!(bench.replica.view().standing, Standing::Follower);
    assert_eq!(bench.replica.view().check_leader(-1), Err(crate::LeadershipError::NotLeader));
    bench.epoch(1, 9, Some(1), 1, &[1]);
    assert_eq!(bench.replica.view().standing, Standing::Follower, "old metadata changes nothing");
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
        let mut actions =
            bench.step(Input::DeleteRecords { ticket, before: before.map(Offset), deadline: LATE });
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
    assert_eq!(delete(1, Some(11)), out_of_range);
    assert_eq!(delete(2, Some(-2)), out_of_range);
    assert_eq!(delete(3, Some(4)), Ok(4));
    assert_eq!(delete(4, Some(2)), Ok(4), "the start never moves back");
    assert_eq!(delete(5, Some(6)), Ok(6));
    assert_eq!(bench.replica.view().start, Offset(6));
}

/// Sends a request and does what comes of it; the answers.
fn delete(bench: &mut Bench, ticket: u64, before: Option<i64>) -> Vec<Action> {
    let (ticket, before, deadline) = (Ticket(ticket), before.map(Offset), Millis(bench.now + 100));
    let actions = bench.step(Input::DeleteRecords { ticket, before, deadline });
    move_start(bench, actions)
}

fn move_start(bench: &mut Bench, mut actions: Vec<Action>) -> Vec<Action> {
    if let Some(&Action::MoveStart { start }) = actions.last() {
        actions.extend(bench.step(Input::StartMoved { start }));
    }
    actions.retain(|action| matches!(action, Action::RecordsDeleted { .. }));
    actions
}

fn deleted(ticket: u64, result: Result<i64, DeleteRecordsError>) -> Action {
    Action::RecordsDeleted { ticket: Ticket(ticket), result: result.map(Offset) }
}

/// Whoever was answered with acks=1 may delete what it has just written: what is appended everywhere is waited for.
#[test]
fn what_is_not_flushed_yet_is_deleted_once_it_is() {
    let mut bench = Bench::leader(CONFIG, 1, &[1]);
    bench.produce(Acks::Leader, 10, None);
    bench.flushed(6);
    assert_eq!(delete(&mut bench, 1, None), []);
    assert_eq!(bench.replica.view().start, Offset(6), "what can go goes at once");
    assert_eq!(delete(&mut bench, 2, Some(8)), []);
    let actions = bench.flushed(10);
    assert_eq!(move_start(&mut bench, actions), [deleted(2, Ok(10)), deleted(1, Ok(10))]);
    // What is not committed in time is out of range, and where nobody waits for disks at once.
    for flush in [FlushMode::Ack, FlushMode::Os] {
        let mut bench = Bench::leader(ReplicaConfig { flush, ..CONFIG }, 2, &[1, 2]);
        bench.open(2, 1, 0);
        bench.produce(Acks::Leader, 10, None);
        bench.flushed(10);
        bench.ack(2, 4, 4);
        let out_of_range = DeleteRecordsError::OffsetOutOfRange { high_watermark: Offset(4) };
        let mut answers = delete(&mut bench, 3, Some(5));
        assert_eq!(answers.len(), usize::from(flush == FlushMode::Os));
        bench.now += 100;
        answers.extend(bench.step(Input::Tick));
        assert_eq!(answers, [deleted(3, Err(out_of_range))]);
        assert_eq!(bench.replica.view().start, Offset(0), "what is refused has deleted nothing");
    }
}

#[test]
fn nothing_goes_for_an_offset_that_is_not_committed() {
    let mut bench = Bench::leader(CONFIG, 1, &[1]);
    bench.produce(Acks::Leader, 10, None);
    bench.flushed(6);
    assert_eq!(delete(&mut bench, 1, Some(9)), []);
    assert_eq!(bench.replica.view().start, Offset(0));
    // Another one's offset is committed, and that is as far as the start goes.
    assert_eq!(delete(&mut bench, 2, Some(4)), [deleted(2, Ok(4))]);
    assert_eq!(bench.replica.view().start, Offset(4));
    let actions = bench.flushed(8);
    assert_eq!((move_start(&mut bench, actions), bench.replica.view().start), (vec![], Offset(4)));
    let actions = bench.flushed(9);
    assert_eq!(move_start(&mut bench, actions), [deleted(1, Ok(9))]);
}

/// Whoever wants everything below the high watermark gets what can go at once, and is not told of a refusal after that.
#[test]
fn what_was_deleted_in_part_is_not_refused() {
    let mut bench = Bench::leader(CONFIG, 1, &[1]);
    bench.produce(Acks::Leader, 10, None);
    bench.flushed(6);
    assert_eq!(delete(&mut bench, 1, None), []);
    assert_eq!(bench.replica.view().start, Offset(6));
    assert_eq!(delete(&mut bench, 2, None), []);
    assert_eq!(delete(&mut bench, 3, Some(10)), []);
    let moving = bench.flushed(10);
    assert_eq!(moving.last(), Some(&Action::MoveStart { start: Offset(10) }));
    let refused = Err(DeleteRecordsError::WriteRefused);
    let told = [deleted(1, Err(DeleteRecordsError::TimedOut)), deleted(2, refused), deleted(3, refused)];
    assert_eq!(bench.step(Input::StartRefused), told);
    assert_eq!(bench.step(Input::Tick), [], "and nobody tries again unasked");
    assert_eq!(delete(&mut bench, 4, None), [deleted(4, Ok(10))]);
}

#[test]
fn records_are_deleted_once_all_in_sync_and_all_who_follow_have_done_so() {
    let mut bench = Bench::leader(CONFIG, 4, &[1, 2]);
    for node in [2, 3] {
        bench.open(node, 1, 0);
    }
    bench.produce(Acks::Leader, 10, None);
    bench.flushed(10);
    bench.ack(2, 10, 10);
    let starts = |bench: &mut Bench, node: u64, log_start: i64| {
        bench.step(Input::FollowerStart { session: SessionKey(node), log_start: Offset(log_start) })
    };
    assert_eq!(delete(&mut bench, 1, Some(5)), []);
    assert_eq!(bench.replica.view().start, Offset(5));
    assert_eq!(delete(&mut bench, 2, Some(3)), []);
    assert_eq!(starts(&mut bench, 2, 5), [], "another one follows, the fourth does not");
    assert_eq!(starts(&mut bench, 3, 4), [deleted(2, Ok(4))]);
    assert_eq!(bench.replica.next_deadline(), Some(Millis(100)));
    assert_eq!(starts(&mut bench, 3, 5), [deleted(1, Ok(5))]);
    // What was told in a session that is over is forgotten.
    bench.step(Input::SessionEnded { session: SessionKey(2) });
    assert_eq!(delete(&mut bench, 3, Some(5)), []);
    bench.now += 100;
    assert_eq!(bench.step(Input::Tick), [deleted(3, Err(DeleteRecordsError::TimedOut))]);
    assert_eq!(delete(&mut bench, 4, Some(6)), []);
    let alone = bench.epoch(2, 2, Some(1), 4, &[1]);
    assert!(alone.contains(&deleted(4, Ok(6))), "{alone:?}");
}

#[test]
fn who_deletes_is_told_when_the_leadership_or_the_log_is_gone_and_when_too_many_wait() {
    let begin = || {
        let mut bench = Bench::leader(ReplicaConfig { waiters_max: 1, ..CONFIG }, 2, &[1, 2]);
        bench.open(2, 1, 0);
        bench.produce(Acks::Leader, 1, None);
        bench.flushed(1);
        bench.ack(2, 1, 1);
        assert_eq!(delete(&mut bench, 1, None), []);
        bench
    };
    let mut bench = begin();
    assert_eq!(delete(&mut bench, 2, None), [deleted(2, Err(DeleteRecordsError::Busy))]);
    assert!(bench.epoch(2, 2, Some(2), 2, &[1, 2]).contains(&deleted(1, Err(DeleteRecordsError::NotLeader))));
    assert!(begin().step(Input::LogFailed).contains(&deleted(1, Err(DeleteRecordsError::LogFailed))));
}

/// Else it could lead with records of which somebody was told that they are deleted.
#[test]
fn whoever_has_records_that_are_deleted_does_not_join_the_in_sync_set() {
    let mut bench = Bench::leader(CONFIG, 2, &[1]);
    bench.produce(Acks::Leader, 10, None);
    bench.flushed(10);
    assert_eq!(delete(&mut bench, 1, Some(5)), [deleted(1, Ok(5))]);
    let session = SessionKey(2);
    let began = bench.step(Input::OpenSession(OpenSession {
        session,
        from: NodeId(2),
        broker_epoch: BrokerEpoch(20),
        leader_epoch: LeaderEpoch(1),
        log_start: Offset(0),
        log_end: Offset(10),
        last_epoch: LeaderEpoch(1),
    }));
    assert!(matches!(began[..], [Action::AnswerSession { answer: SessionAnswer::Begins { .. }, .. }]));
    assert_eq!(bench.ack(2, 10, 10), [], "it has everything, and more than that");
    let actions = bench.step(Input::FollowerStart { session, log_start: Offset(5) });
    assert!(matches!(actions[..], [Action::ProposeIsr { .. }]), "{actions:?}");
}

/// The leader's marks may overtake batches on the way to a follower's log; on an idle partition nothing says them again.
#[test]
fn marks_that_came_before_their_batches_are_remembered() {
    let (mut bench, session) = follower();
    bench.hear(session, FromLeader::Answer(SessionAnswer::Begins { marks: marks(0, 9) }));
    bench.hear(session, FromLeader::Marks(marks(11, 12)));
    assert_eq!(bench.high_watermark(), 10);
    bench.step(Input::StartMoved { start: Offset(10) });
    bench.batches(session, 10, 12, 4, marks(0, 9));
    let actions = bench.step(Input::Appended { end: Offset(12) });
    assert_eq!(bench.high_watermark(), 12);
    assert_eq!(actions.last(), Some(&Action::MoveStart { start: Offset(11) }));
    let told = bench.step(Input::StartMoved { start: Offset(11) });
    assert!(told.contains(&Action::TellStart { session, log_start: Offset(11) }), "{told:?}");
}

#[test]
fn a_follower_whose_start_found_no_room_tries_again() {
    let (mut bench, session) = follower();
    bench.hear(session, FromLeader::Answer(SessionAnswer::Begins { marks: marks(0, 9) }));
    let actions = bench.hear(session, FromLeader::Marks(marks(4, 10)));
    assert_eq!(actions.last(), Some(&Action::MoveStart { start: Offset(4) }));
    for _ in 0..2 {
        bench.step(Input::StartRefused);
        let at = bench.replica.next_deadline().expect("it tries again");
        assert!(at > Millis(bench.now));
        bench.now = at.0;
        assert_eq!(bench.step(Input::Tick).last(), Some(&Action::MoveStart { start: Offset(4) }));
    }
    let actions = bench.step(Input::StartMoved { start: Offset(4) });
    assert!(actions.contains(&Action::TellStart { session, log_start: Offset(4) }), "{actions:?}");
    assert_eq!(bench.replica.next_deadline(), None);
}

#[test]
fn a_start_that_finds_no_room_is_refused_and_the_leader_goes_on() {
    let mut bench = Bench::leader(CONFIG, 1, &[1]);
    bench.produce(Acks::Leader, 10, None);
    bench.flushed(10);
    let ticket = Ticket(50);
    for before in [4, 5] {
        bench.step(Input::DeleteRecords { ticket, before: Some(Offset(before)), deadline: LATE });
        let actions = bench.step(Input::StartRefused);
        let result = Err(DeleteRecordsError::WriteRefused);
        assert_eq!(actions, [Action::RecordsDeleted { ticket, result }]);
        assert_eq!(bench.replica.view().start, Offset(0));
    }
    let (ticket, actions) = bench.produce(Acks::Leader, 1, None);
    assert_eq!(replies(&actions), [(ticket, Ok(10))]);
}

/// T-113.
#[test]
fn what_was_kept_long_enough_goes_up_to_the_high_watermark_and_only_where_it_is_led() {
    let mut bench = Bench::leader(CONFIG, 1, &[1]);
    bench.produce(Acks::Leader, 10, None);
    bench.flushed(6);
    assert_eq!(bench.step(Input::Expire { start: Offset(0) }), []);
    let actions = bench.step(Input::Expire { start: Offset(8) });
    assert_eq!(actions, [Action::MoveStart { start: Offset(6) }], "never past the high watermark");
    assert_eq!(bench.step(Input::StartRefused), [], "nobody waits for it");
    bench.step(Input::Expire { start: Offset(4) });
    bench.step(Input::StartMoved { start: Offset(4) });
    assert_eq!(bench.replica.view().start, Offset(4));
    assert_eq!(bench.step(Input::Expire { start: Offset(3) }), [], "the start never moves back");
    bench.step(Input::LogFailed);
    assert_eq!(bench.step(Input::Expire { start: Offset(6) }), []);
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

const TWO: ReplicaConfig = ReplicaConfig { min_insync: 2, ..CONFIG };

fn ended(actions: &[Action]) -> Vec<u64> {
    let ended = actions.iter().filter_map(|action| match action {
        Action::EndSession { session } => Some(session.0),
        _ => None,
    });
    ended.collect()
}

/// A leader of three in epoch 1, alone in sync, that has 10 records on disk, all committed.
fn alone() -> Bench {
    let mut bench = Bench::leader(CONFIG, 3, &[1]);
    bench.produce(Acks::All, 10, None);
    bench.flushed(10);
    bench
}

fn accepted(partition_epoch: i32, isr: &[i32]) -> IsrOutcome {
    IsrOutcome::Accepted(NewEpoch {
        leader: Some(ME),
        leader_epoch: LeaderEpoch(1),
        partition_epoch: PartitionEpoch(partition_epoch),
        replicas: (1..=3).map(NodeId).collect(),
        isr: isr.iter().copied().map(NodeId).collect(),
    })
}

#[test]
fn sessions_are_of_the_leaders_epoch_and_of_replicas_only() {
    let mut bench = Bench::leader(CONFIG, 3, &[1, 2, 3]);
    let marks = Marks { log_start: Offset(0), high_watermark: Offset(0) };
    assert_eq!(answer(&bench.open(2, 1, 0)), Some(SessionAnswer::Begins { marks }));
    #[cfg(not(weir_planted_bug = "B2"))]
    for epoch in [0, 2] {
        let current = LeaderEpoch(1);
        assert_eq!(answer(&bench.open(3, epoch, 0)), Some(SessionAnswer::WrongEpoch { current }));
    }
    assert_eq!(answer(&bench.open(4, 1, 0)), Some(SessionAnswer::NotServed));
    assert_eq!(answer(&bench.open(1, 1, 0)), Some(SessionAnswer::NotServed));
    bench.epoch(2, 2, Some(2), 3, &[2]);
    let current = LeaderEpoch(2);
    assert_eq!(answer(&bench.open(3, 1, 0)), Some(SessionAnswer::WrongEpoch { current }));
    bench.step(Input::LogFailed);
    assert_eq!(answer(&bench.open(3, 2, 0)), Some(SessionAnswer::NotServed));
}

#[test]
fn a_follower_that_asks_anew_gives_its_session_up_and_an_older_registration_gets_none() {
    let mut bench = Bench::leader(TWO, 3, &[1, 2]);
    bench.open_as(2, 1, 0, BrokerEpoch(20), SessionKey(7));
    bench.produce(Acks::All, 5, None);
    bench.flushed(5);
    let actions = bench.open_as(2, 1, 0, BrokerEpoch(30), SessionKey(8));
    assert_eq!(ended(&actions), [7]);
    bench.ack(7, 5, 5);
    assert_eq!(bench.high_watermark(), 0, "what the earlier incarnation had is of no account");
    let actions = bench.open_as(2, 1, 0, BrokerEpoch(20), SessionKey(9));
    assert_eq!((answer(&actions), ended(&actions)), (Some(SessionAnswer::NotServed), vec![]));
    bench.ack(8, 5, 5);
    assert_eq!(bench.high_watermark(), 5);
    bench.step(Input::SessionEnded { session: SessionKey(8) });
    bench.produce(Acks::All, 1, None);
    bench.flushed(6);
    bench.ack(8, 6, 6);
    assert_eq!(bench.high_watermark(), 5, "the session is over");
}

#[test]
fn a_new_epoch_ends_the_sessions_of_the_old_one() {
    let mut bench = Bench::leader(TWO, 3, &[1, 2, 3]);
    bench.open(2, 1, 0);
    bench.open(3, 1, 0);
    bench.produce(Acks::All, 5, None);
    bench.flushed(5);
    bench.ack(2, 5, 5);
    bench.ack(3, 4, 4);
    assert_eq!(bench.high_watermark(), 4);
    assert_eq!(ended(&bench.epoch(2, 1, Some(1), 3, &[1, 2, 3])), [2, 3]);
    bench.ack(3, 5, 5);
    assert_eq!(bench.high_watermark(), 4, "T-9: only acks of this epoch count");
    bench.open_as(2, 2, 0, BrokerEpoch(20), SessionKey(12));
    bench.open_as(3, 2, 0, BrokerEpoch(30), SessionKey(13));
    bench.ack(12, 5, 5);
    bench.ack(13, 5, 5);
    assert_eq!(bench.high_watermark(), 5);
    assert_eq!(ended(&bench.epoch(3, 1, Some(2), 3, &[1, 2, 3])), [12, 13]);
}

#[test]
fn a_node_that_is_no_replica_any_more_is_followed_no_longer() {
    let mut bench = Bench::leader(CONFIG, 3, &[1, 2]);
    bench.open(2, 1, 0);
    bench.open(3, 1, 0);
    assert_eq!(ended(&bench.epoch(1, 2, Some(1), 2, &[1, 2])), [3]);
    assert_eq!(answer(&bench.open(3, 1, 0)), Some(SessionAnswer::NotServed));
}

#[test]
fn whoever_has_what_is_committed_is_proposed_and_counts_at_once() {
    let mut bench = alone();
    bench.open(2, 1, 0);
    assert_eq!(proposed(&bench.ack(2, 10, 9)), None, "the last record is not on its disk");
    assert_eq!(proposed(&bench.ack(2, 10, 10)), Some(vec![(2, 20), (1, UNHEARD)]));
    let (ticket, actions) = bench.produce(Acks::All, 1, None);
    assert_eq!((replies(&actions), proposed(&actions)), (vec![], None));
    assert_eq!(replies(&bench.flushed(11)), [], "T-18: who may be in sync by now has to have it");
    assert_eq!(replies(&bench.ack(2, 11, 11)), [(ticket, Ok(10))]);
    let actions = bench.isr_answered(1, 1, accepted(2, &[1, 2]));
    assert_eq!(proposed(&actions), None);
    let status = bench.replica.in_sync();
    assert_eq!(status, Some(InSyncStatus { in_sync: 2, needed: 1, replicas: 3 }));
    assert_eq!(bench.replica.counters().isr_expands, 1);
}

#[test]
#[cfg(not(weir_planted_bug = "B3"))]
fn t16_nobody_joins_before_the_start_of_the_leaders_epoch() {
    // A leader that knows nothing to be committed of the 10 records that it found.
    let mut bench = Bench::new(TWO, 10);
    bench.epoch(1, 1, Some(1), 3, &[1, 2]);
    assert!(!bench.replica.view().committed_to_epoch_start);
    bench.open(3, 1, 0);
    assert_eq!(
        proposed(&bench.ack(3, 5, 5)),
        None,
        "beyond the high watermark, but not of all that may be committed"
    );
    assert!(proposed(&bench.ack(3, 10, 10)).is_some());
    bench.open(2, 1, 0);
    bench.ack(2, 10, 10);
    assert!(bench.replica.view().committed_to_epoch_start);
}

#[test]
#[cfg(not(weir_planted_bug = "B5"))]
fn t14_a_proposed_member_does_not_make_enough() {
    let mut bench = Bench::leader(TWO, 3, &[1]);
    bench.produce(Acks::Leader, 5, None);
    bench.flushed(5);
    bench.open(2, 1, 0);
    assert!(proposed(&bench.ack(2, 5, 5)).is_some());
    assert_eq!(bench.high_watermark(), 0);
    bench.isr_answered(1, 1, accepted(2, &[1, 2]));
    assert_eq!(bench.high_watermark(), 5);
}

#[test]
fn t15_who_lags_leaves_and_what_waited_for_it_is_answered_with_the_new_set() {
    let mut bench = Bench::leader(TWO, 3, &[1, 2, 3]);
    bench.open(2, 1, 0);
    bench.open(3, 1, 0);
    bench.ack(2, 0, 0);
    bench.ack(3, 0, 0);
    bench.now = 1_000_000;
    let (ticket, _) = bench.produce(Acks::All, 4, None);
    let waits = Millis(1_000_100);
    assert_eq!(bench.replica.next_deadline(), Some(waits));
    bench.flushed(4);
    bench.now += 50;
    bench.ack(2, 4, 4);
    bench.now = 1_000_000 + LAG_MS_MAX;
    // The producer has given up; this is about the next one.
    let actions = bench.step(Input::Tick);
    assert_eq!(replies(&actions), [(ticket, Err(ProduceError::TimedOut))]);
    let (ticket, actions) = bench.produce(Acks::All, 1, None);
    assert_eq!(proposed(&actions), None, "it lags no longer than it may");
    bench.flushed(5);
    bench.ack(2, 5, 5);
    assert_eq!(bench.replica.next_deadline(), Some(Millis(bench.now + 1)));
    bench.now += 1;
    let actions = bench.step(Input::Tick);
    assert_eq!(proposed(&actions), Some(vec![(2, 20), (1, UNHEARD)]));
    assert_eq!(replies(&actions), [], "it is in sync until the controller says otherwise");
    assert_eq!(
        bench.isr_answered(1, 1, accepted(2, &[1, 2])),
        [],
        "the metadata brings it, with its configs"
    );
    let actions = bench.epoch(1, 2, Some(1), 3, &[1, 2]);
    assert_eq!(replies(&actions), [(ticket, Ok(4))]);
    assert_eq!(bench.replica.counters().isr_shrinks, 1);
}

#[test]
fn an_idle_partition_keeps_its_in_sync_set() {
    let mut bench = alone();
    bench.epoch(1, 2, Some(1), 3, &[1, 2]);
    bench.open(2, 1, 0);
    bench.ack(2, 10, 10);
    assert_eq!(bench.replica.next_deadline(), None);
    bench.now = 100 * LAG_MS_MAX;
    assert_eq!(proposed(&bench.step(Input::Tick)), None, "T-17");
    let status: Vec<_> = bench.replica.followers(Millis(bench.now)).collect();
    let of_two =
        FollowerStatus { node: NodeId(2), in_sync: true, connected: true, end: Some(Offset(10)), lag_ms: 0 };
    assert_eq!(status[0], of_two);
    assert_eq!((status[1].connected, status[1].end, status[1].lag_ms), (false, None, bench.now));
    // Out of sight it is behind from now on, however idle the partition is.
    bench.step(Input::SessionEnded { session: SessionKey(2) });
    assert_eq!(bench.replica.next_deadline(), Some(Millis(bench.now + LAG_MS_MAX + 1)));
    bench.now += LAG_MS_MAX + 1;
    assert_eq!(proposed(&bench.step(Input::Tick)), Some(vec![(1, UNHEARD)]));
}

#[test]
fn another_flush_mode_makes_nobody_lag() {
    let mut bench = Bench::leader(ReplicaConfig { flush: FlushMode::Os, ..TWO }, 3, &[1, 2]);
    bench.open(2, 1, 0);
    bench.produce(Acks::All, 5, None);
    bench.ack(2, 5, 0);
    bench.now = 10 * LAG_MS_MAX;
    let actions = bench.step(Input::ConfigChanged(TWO));
    assert_eq!(proposed(&actions), None);
    bench.now += LAG_MS_MAX;
    assert_eq!(proposed(&bench.step(Input::Tick)), None);
    bench.now += 1;
    assert!(proposed(&bench.step(Input::Tick)).is_some(), "it never brings to disk what it has");
}

#[test]
fn a_refused_proposal_is_forgotten_and_made_again_after_a_pause() {
    let mut bench = alone();
    bench.open(2, 1, 0);
    assert!(proposed(&bench.ack(2, 10, 10)).is_some());
    let actions = bench.isr_answered(1, 1, IsrOutcome::Refused);
    assert_eq!(proposed(&actions), None);
    let (ticket, _) = bench.produce(Acks::All, 1, None);
    assert_eq!(replies(&bench.flushed(11)), [(ticket, Ok(10))], "nobody else is in sync");
    assert_eq!(proposed(&bench.ack(2, 11, 11)), None);
    assert_eq!(bench.replica.next_deadline(), Some(Millis(20)));
    bench.now = 20;
    assert!(proposed(&bench.step(Input::Tick)).is_some());
}

#[test]
#[cfg(not(weir_planted_bug = "B4"))]
fn t19_a_proposal_of_unknown_outcome_counts_until_it_is_settled() {
    let mut bench = alone();
    bench.open(2, 1, 0);
    assert!(proposed(&bench.ack(2, 10, 10)).is_some());
    bench.isr_answered(1, 1, IsrOutcome::Unknown);
    let (ticket, _) = bench.produce(Acks::All, 1, None);
    assert_eq!(replies(&bench.flushed(11)), []);
    // The follower goes: it is not wanted any more, but may have been let in.
    bench.step(Input::SessionEnded { session: SessionKey(2) });
    bench.now = 20;
    let actions = bench.step(Input::Tick);
    assert_eq!(proposed(&actions), Some(vec![(1, UNHEARD)]), "the present set takes it back");
    let actions = bench.isr_answered(1, 1, IsrOutcome::Refused);
    assert_eq!(replies(&actions), [], "the first one may still be accepted");
    bench.now = 60;
    assert!(proposed(&bench.step(Input::Tick)).is_some());
    let actions = bench.isr_answered(1, 1, accepted(2, &[1]));
    assert_eq!(replies(&actions), [], "the metadata has not said so yet");
    let actions = bench.epoch(1, 2, Some(1), 3, &[1]);
    assert_eq!(replies(&actions), [(ticket, Ok(10))]);
}

/// A leader of an old epoch that alone is in sync, of two that are needed, hears at once that it does not lead any more and
/// that one is enough: by neither order of the two may it commit what it has.
#[test]
fn configs_that_come_with_a_new_state_are_taken_over_by_way_of_the_stricter_ones() {
    let two = ReplicaConfig { min_insync: 2, ..CONFIG };
    let one = ReplicaConfig { min_insync: 1, flush: FlushMode::Os, ..CONFIG };
    assert_eq!(two.stricter(&one), ReplicaConfig { min_insync: 2, flush: FlushMode::Ack, ..one });
    assert_eq!(one.stricter(&two), two);
    assert_eq!(one.stricter(&one), one);
    let mut bench = Bench::leader(two, 3, &[1]);
    bench.produce(Acks::Leader, 10, None);
    bench.flushed(10);
    bench.step(Input::ConfigChanged(two.stricter(&one)));
    bench.epoch(2, 5, Some(2), 3, &[2]);
    bench.step(Input::ConfigChanged(one));
    assert_eq!(bench.replica.view().high_watermark, Offset(0));
}

/// Seed 3516 of the simulator: the answer overtakes a rise of min.insync.replicas, by which the controller keeps the member
/// that is dropped as eligible.
#[test]
fn an_answer_that_drops_a_member_waits_for_the_metadata_and_its_configs() {
    let mut bench = Bench::leader(CONFIG, 3, &[1, 2]);
    bench.open(2, 1, 0);
    bench.ack(2, 0, 0);
    bench.produce(Acks::All, 10, None);
    bench.flushed(10);
    bench.isr_answered(1, 1, accepted(2, &[1]));
    assert_eq!(bench.replica.view().high_watermark, Offset(0));
    bench.step(Input::ConfigChanged(ReplicaConfig { min_insync: 2, ..CONFIG }));
    bench.epoch(1, 2, Some(1), 3, &[1]);
    assert_eq!(bench.replica.view().high_watermark, Offset(0), "too few are in sync");
}

#[test]
fn the_metadata_settles_a_proposal_and_a_late_answer_changes_nothing() {
    let mut bench = alone();
    bench.open(2, 1, 0);
    bench.open(3, 1, 0);
    assert!(proposed(&bench.ack(2, 10, 10)).is_some());
    assert_eq!(proposed(&bench.ack(3, 10, 10)), None, "one proposal at a time");
    let actions = bench.epoch(1, 2, Some(1), 3, &[1, 2]);
    assert_eq!(proposed(&actions).map(|isr| isr.len()), Some(3));
    assert_eq!(proposed(&bench.isr_answered(1, 1, accepted(2, &[1, 2]))), None);
    assert_eq!(proposed(&bench.isr_answered(1, 1, IsrOutcome::Refused)), None);
    bench.now = 5_000;
    assert_eq!(proposed(&bench.step(Input::Tick)), None, "the second one is still out");
    // T-19: an answer that names another leader is believed as the metadata is.
    let mut deposed = accepted(1, &[2]);
    if let IsrOutcome::Accepted(state) = &mut deposed {
        (state.leader, state.leader_epoch) = (Some(NodeId(2)), LeaderEpoch(2));
    }
    bench.isr_answered(1, 2, deposed);
    assert_eq!(bench.replica.view().standing, Standing::Follower);
}

#[test]
#[cfg(not(weir_planted_bug = "B9"))]
fn an_epoch_of_an_earlier_incarnation_is_not_continued() {
    let mut bench = Bench::new(CONFIG, 5);
    bench.epochs.assign(3, 0);
    let actions = bench.epoch(3, 7, Some(1), 1, &[1]);
    assert_eq!(actions, [Action::Publish(bench.replica.view())]);
    assert_eq!(bench.replica.view().standing, Standing::NotLeader);
    bench.epoch(4, 8, Some(1), 1, &[1]);
    assert_eq!(bench.replica.view().standing, Standing::Leader);
    // Within its own incarnation, a leader whose epoch is known stays one.
    bench.epoch(4, 9, Some(1), 1, &[1]);
    assert_eq!(bench.replica.view().standing, Standing::Leader);
}

/// A follower of node 2 in epoch 4 that has 10 records of epochs 1 and 2, all on its disk.
fn follower() -> (Bench, SessionKey) {
    let mut bench = Bench::new(CONFIG, 10);
    bench.epochs.assign(1, 0);
    bench.epochs.assign(2, 6);
    let actions = bench.epoch(4, 1, Some(2), 3, &[2]);
    let session = opened(&actions).expect("it asks at once");
    let expected = Action::OpenSession {
        leader: NodeId(2),
        session,
        leader_epoch: LeaderEpoch(4),
        log_start: Offset(0),
        log_end: Offset(10),
        last_epoch: LeaderEpoch(2),
    };
    assert_eq!(actions[0], expected);
    (bench, session)
}

fn opened(actions: &[Action]) -> Option<SessionKey> {
    actions.iter().find_map(|action| match action {
        Action::OpenSession { session, .. } => Some(*session),
        _ => None,
    })
}

fn marks(log_start: i64, high_watermark: i64) -> Marks {
    Marks { log_start: Offset(log_start), high_watermark: Offset(high_watermark) }
}

impl Bench {
    fn hear(&mut self, session: SessionKey, said: FromLeader) -> Vec<Action> {
        self.step(Input::FromLeader { session, said })
    }

    fn batches(&mut self, session: SessionKey, from: i64, end: i64, epoch: i32, marks: Marks) -> Vec<Action> {
        let batches = LeaderBatches {
            ticket: Ticket(77),
            from: Offset(from),
            end: Offset(end),
            first_epoch: LeaderEpoch(epoch),
            last_epoch: LeaderEpoch(epoch),
            marks,
        };
        self.hear(session, FromLeader::Batches(batches))
    }
}

#[test]
fn a_follower_appends_acks_and_takes_over_marks_as_far_as_it_reaches() {
    let (mut bench, session) = follower();
    let actions = bench.hear(session, FromLeader::Answer(SessionAnswer::Begins { marks: marks(0, 12) }));
    assert_eq!(bench.high_watermark(), 10);
    let ack =
        |appended, flushed| Action::Ack { session, appended: Offset(appended), flushed: Offset(flushed) };
    assert_eq!(actions, [Action::Publish(bench.replica.view()), ack(10, 10)]);
    let actions = bench.batches(session, 10, 15, 4, marks(0, 13));
    assert_eq!(actions, [Action::AppendBatches { ticket: Ticket(77) }]);
    let actions = bench.step(Input::Appended { end: Offset(15) });
    assert_eq!(bench.high_watermark(), 13);
    assert_eq!(actions, [Action::Flush, Action::Publish(bench.replica.view()), ack(15, 10)]);
    assert_eq!(bench.flushed(15), [ack(15, 15)]);
    bench.hear(session, FromLeader::Marks(marks(0, 99)));
    assert_eq!(bench.high_watermark(), 15);
    bench.hear(session, FromLeader::Marks(marks(0, 3)));
    assert_eq!(bench.high_watermark(), 15, "an old mark takes nothing back");
    let actions = bench.hear(session, FromLeader::Marks(marks(7, 15)));
    assert_eq!(actions, [Action::MoveStart { start: Offset(7) }]);
    bench.step(Input::StartMoved { start: Offset(7) });
    assert_eq!(bench.replica.view().start, Offset(7));
    assert_eq!(bench.replica.view().standing, Standing::Follower);
}

#[test]
#[cfg(not(any(weir_planted_bug = "B2", weir_planted_bug = "B10")))]
fn t10_marks_are_taken_over_in_a_session_that_has_begun_and_what_is_old_is_dropped() {
    let (mut bench, session) = follower();
    let old = SessionKey(session.0 + 1);
    for key in [session, old] {
        assert_eq!(bench.hear(key, FromLeader::Marks(marks(0, 9))), []);
        assert_eq!(bench.batches(key, 10, 12, 4, marks(0, 9)), [], "T-36");
    }
    let begins = SessionAnswer::Begins { marks: marks(0, 9) };
    assert_eq!(bench.hear(old, FromLeader::Answer(begins)), []);
    let diverged = SessionAnswer::Diverged { epoch: LeaderEpoch(2), end: Offset(8) };
    assert_eq!(bench.hear(old, FromLeader::Answer(diverged)), [], "T-28");
    assert_eq!(bench.high_watermark(), 0);
    let actions = bench.hear(session, FromLeader::Answer(diverged));
    assert_eq!(actions, [Action::Truncate { to: Offset(8), below_high_watermark: None }]);
    assert_eq!(bench.high_watermark(), 0);
    let again = opened(&bench.step(Input::Truncated { end: Offset(8) })).expect("it asks anew");
    assert!(again > session);
    assert_eq!(bench.hear(session, FromLeader::Answer(begins)), []);
    bench.hear(again, FromLeader::Answer(begins));
    assert_eq!((bench.high_watermark(), bench.replica.counters().truncations), (8, 1));
    assert_eq!(bench.batches(session, 8, 12, 4, marks(0, 9)), []);
    // A new leader: the session is closed, and nothing of it counts any more.
    let actions = bench.epoch(5, 1, Some(3), 3, &[3]);
    assert_eq!(actions[0], Action::CloseSession { session: again });
    assert_eq!(bench.hear(again, FromLeader::Marks(marks(0, 99))), []);
    assert_eq!(bench.batches(again, 8, 12, 4, marks(0, 9)), []);
}

#[test]
fn t12_a_follower_behind_the_leaders_start_begins_anew() {
    let (mut bench, session) = follower();
    let later = SessionAnswer::StartsLater { start: Offset(40) };
    let actions = bench.hear(session, FromLeader::Answer(later));
    assert_eq!(actions, [Action::RestartAt { start: Offset(40), below_high_watermark: None }]);
    bench.epochs = EpochHistory::new();
    let actions = bench.step(Input::Restarted { start: Offset(40) });
    let opens = |action: &Action| {
        matches!(action, Action::OpenSession { log_start: Offset(40), log_end: Offset(40), last_epoch, .. }
            if *last_epoch == LeaderEpoch(-1))
    };
    assert!(actions.iter().any(opens), "{actions:?}");
    let at = bench.replica.positions();
    assert_eq!((at.start, at.high_watermark, at.flushed), (Offset(40), Offset(40), Offset(40)));
    bench.epoch(5, 1, Some(1), 3, &[1]);
    assert_eq!(bench.high_watermark(), 40);
}

/// Compaction has dropped a tombstone of the leader's log behind the follower's end (T-98).
#[test]
fn a_follower_that_was_away_while_tombstones_went_starts_over() {
    let (mut bench, session) = follower();
    bench.hear(session, FromLeader::Answer(SessionAnswer::Begins { marks: marks(0, 9) }));
    let session = opened(&bench.epoch(6, 1, Some(3), 3, &[3])).expect("another leader");
    let compacted = SessionAnswer::BeginsCompacted { marks: marks(3, 40), dropped_to: Offset(20) };
    let actions = bench.hear(session, FromLeader::Answer(compacted));
    let over = [Action::CloseSession { session }, Action::StartOver { start: Offset(3) }];
    assert_eq!(actions, over, "though 9 are known to be committed: the leader has them all");
    bench.epochs = EpochHistory::new();
    let session = opened(&bench.step(Input::Restarted { start: Offset(3) })).expect("it asks anew");
    let actions = bench.hear(session, FromLeader::Answer(compacted));
    assert_eq!(actions[0], Action::NoteDropped { session, to: Offset(20) });
    assert!(actions.contains(&Action::Ack { session, appended: Offset(3), flushed: Offset(3) }), "it begins");
    // It goes on where it was, though its lane breaks half-way.
    bench.dropped_to = Offset(20);
    bench.batches(session, 3, 12, 4, marks(3, 40));
    bench.step(Input::Appended { end: Offset(12) });
    bench.step(Input::SessionLost { session });
    bench.now += 60_000;
    let session = opened(&bench.step(Input::Tick)).expect("it asks again");
    let actions = bench.hear(session, FromLeader::Answer(compacted));
    assert!(actions.iter().any(|action| matches!(action, Action::Ack { .. })), "{actions:?}");
    // More has been dropped since.
    bench.step(Input::SessionLost { session });
    bench.now += 60_000;
    let session = opened(&bench.step(Input::Tick)).expect("it asks again");
    let compacted = SessionAnswer::BeginsCompacted { marks: marks(3, 40), dropped_to: Offset(30) };
    let actions = bench.hear(session, FromLeader::Answer(compacted));
    assert!(actions.contains(&Action::StartOver { start: Offset(3) }), "{actions:?}");
}

/// One leader's offset says nothing of what another one's copy still had when it was copied from.
#[test]
fn what_one_leader_has_dropped_is_not_compared_with_anothers() {
    let begins = |actions: &[Action]| actions.iter().any(|action| matches!(action, Action::Ack { .. }));
    let compacted = |dropped_to| {
        let dropped_to = Offset(dropped_to);
        FromLeader::Answer(SessionAnswer::BeginsCompacted { marks: marks(0, 40), dropped_to })
    };
    let mut bench = Bench::new(CONFIG, 0);
    // The first leader does not know what it dropped, so that it may be anything; it holds the key and its tombstone.
    let session = opened(&bench.epoch(5, 1, Some(2), 3, &[2])).expect("it follows");
    assert!(begins(&bench.hear(session, compacted(39))));
    bench.dropped_to = Offset(39);
    bench.batches(session, 0, 10, 5, marks(0, 40));
    bench.step(Input::Appended { end: Offset(10) });
    // The second has dropped the tombstone, at 15.
    let session = opened(&bench.epoch(6, 1, Some(3), 3, &[3])).expect("it follows the next");
    let actions = bench.hear(session, compacted(15));
    assert!(actions.contains(&Action::StartOver { start: Offset(0) }), "the key would stay: {actions:?}");
    (bench.epochs, bench.dropped_to) = (EpochHistory::new(), Offset(-1));
    let session = opened(&bench.step(Input::Restarted { start: Offset(0) })).expect("it asks anew");
    assert!(begins(&bench.hear(session, compacted(15))));
    // It could not be noted: the session was closed, and nothing was copied. Else it would lead and not know.
    bench.step(Input::SessionLost { session });
    bench.now += 60_000;
    let session = opened(&bench.step(Input::Tick)).expect("it asks again");
    let actions = bench.hear(session, compacted(15));
    assert_eq!(actions[0], Action::NoteDropped { session, to: Offset(15) });
    // Nor is the first leader's offset its own once it leads again.
    bench.dropped_to = Offset(15);
    bench.batches(session, 0, 10, 6, marks(0, 40));
    bench.step(Input::Appended { end: Offset(10) });
    let session = opened(&bench.epoch(7, 1, Some(3), 3, &[3])).expect("a later leadership");
    let actions = bench.hear(session, compacted(12));
    assert!(actions.contains(&Action::StartOver { start: Offset(0) }), "{actions:?}");
}

#[test]
fn a_cut_below_the_high_watermark_is_made_and_said() {
    let (mut bench, session) = follower();
    bench.hear(session, FromLeader::Answer(SessionAnswer::Begins { marks: marks(0, 9) }));
    let session = opened(&bench.epoch(6, 1, Some(3), 3, &[3])).expect("another leader");
    let diverged = SessionAnswer::Diverged { epoch: LeaderEpoch(1), end: Offset(20) };
    let actions = bench.hear(session, FromLeader::Answer(diverged));
    let cut = actions.iter().find(|action| matches!(action, Action::Truncate { .. }));
    let known = if cfg!(weir_planted_bug = "B10") { 10 } else { 9 };
    let expected = Action::Truncate { to: Offset(6), below_high_watermark: Some(Offset(known)) };
    assert_eq!(cut, Some(&expected));
    bench.step(Input::Truncated { end: Offset(6) });
    assert_eq!(bench.high_watermark(), 6);
}

#[test]
fn a_flush_that_began_before_a_cut_proves_nothing_of_what_came_after() {
    let (mut bench, session) = follower();
    bench.hear(session, FromLeader::Answer(SessionAnswer::Begins { marks: marks(0, 0) }));
    bench.batches(session, 10, 20, 4, marks(0, 0));
    bench.step(Input::Appended { end: Offset(20) });
    let session = opened(&bench.epoch(5, 1, Some(3), 3, &[3])).expect("another leader");
    let diverged = SessionAnswer::Diverged { epoch: LeaderEpoch(2), end: Offset(8) };
    bench.hear(session, FromLeader::Answer(diverged));
    let session = opened(&bench.step(Input::Truncated { end: Offset(8) })).expect("it asks anew");
    bench.hear(session, FromLeader::Answer(SessionAnswer::Begins { marks: marks(0, 0) }));
    bench.batches(session, 8, 30, 5, marks(0, 0));
    bench.step(Input::Appended { end: Offset(30) });
    let actions = bench.flushed(20);
    assert_eq!(bench.replica.positions().flushed, Offset(8));
    assert_eq!(flushes(&actions), 1);
    bench.flushed(30);
    assert_eq!(bench.replica.positions().flushed, Offset(30));
}

#[test]
fn a_follower_that_is_not_served_asks_again_after_growing_pauses() {
    let (mut bench, mut session) = follower();
    let answers = [
        SessionAnswer::WrongEpoch { current: LeaderEpoch(3) },
        SessionAnswer::NotServed,
        SessionAnswer::Diverged { epoch: LeaderEpoch(2), end: Offset(10) },
    ];
    for (answer, pause) in answers.into_iter().zip([20, 40, 80]) {
        assert_eq!(opened(&bench.hear(session, FromLeader::Answer(answer))), None);
        assert_eq!(bench.replica.next_deadline(), Some(Millis(bench.now + pause)));
        bench.now += pause;
        session = opened(&bench.step(Input::Tick)).expect("it asks again");
    }
    bench.step(Input::SessionLost { session });
    bench.now += 160;
    session = opened(&bench.step(Input::Tick)).expect("it asks again");
    // A leader that never answers is asked again as well.
    bench.now += 10_000;
    let actions = bench.step(Input::Tick);
    assert_eq!(actions, [Action::CloseSession { session }]);
    bench.now += 320;
    assert!(opened(&bench.step(Input::Tick)).is_some());
}

#[test]
#[cfg(not(weir_planted_bug = "B2"))]
fn batches_that_do_not_continue_the_log_end_the_session() {
    let cases = [(9, 12, 4), (11, 12, 4), (10, 10, 4), (10, 12, 5), (10, 12, 1)];
    for (from, end, epoch) in cases {
        let (mut bench, session) = follower();
        bench.hear(session, FromLeader::Answer(SessionAnswer::Begins { marks: marks(0, 9) }));
        let actions = bench.batches(session, from, end, epoch, marks(0, 99));
        assert_eq!(actions, [Action::CloseSession { session }], "{from} {end} {epoch}");
        assert_eq!(bench.high_watermark(), 9);
    }
}

#[test]
fn a_follower_without_room_tries_again_and_one_with_a_failed_log_does_not() {
    let (mut bench, session) = follower();
    bench.hear(session, FromLeader::Answer(SessionAnswer::Begins { marks: marks(0, 9) }));
    bench.batches(session, 10, 12, 4, marks(0, 9));
    assert_eq!(bench.step(Input::AppendRefused), [Action::CloseSession { session }]);
    bench.now += 20;
    let session = opened(&bench.step(Input::Tick)).expect("it asks again");
    bench.hear(session, FromLeader::Answer(SessionAnswer::Begins { marks: marks(0, 9) }));
    bench.batches(session, 10, 12, 4, marks(0, 9));
    let actions = bench.step(Input::LogFailed);
    assert_eq!(actions[0], Action::CloseSession { session });
    assert_eq!((bench.replica.view().standing, bench.replica.next_deadline()), (Standing::Failed, None));
}

#[test]
fn a_follower_refuses_what_only_a_leader_does_and_leads_from_its_own_end() {
    let (mut bench, session) = follower();
    bench.hear(session, FromLeader::Answer(SessionAnswer::Begins { marks: marks(0, 9) }));
    let (ticket, actions) = bench.produce(Acks::Leader, 1, None);
    assert_eq!(replies(&actions), [(ticket, Err(ProduceError::NotLeader))]);
    let ticket = Ticket(500);
    let refused = Action::RecordsDeleted { ticket, result: Err(DeleteRecordsError::NotLeader) };
    assert_eq!(bench.step(Input::DeleteRecords { ticket, before: None, deadline: LATE }), [refused]);
    let actions = bench.epoch(5, 1, Some(1), 3, &[1, 3]);
    assert!(actions.contains(&Action::CloseSession { session }));
    assert!(actions.contains(&Action::AssignEpoch { epoch: LeaderEpoch(5), start: Offset(10) }));
    assert_eq!(bench.high_watermark(), 9, "T-13: what it knows to be committed, and no more");
    assert!(!bench.replica.view().committed_to_epoch_start);
    bench.epoch(6, 1, None, 3, &[1]);
    assert_eq!(bench.replica.view().standing, Standing::NotLeader);
}

/// A log that was closed and opened again in the middle of its leadership.
#[test]
fn only_a_log_that_has_lost_nothing_goes_on_in_its_epoch() {
    for whole in [false, true] {
        let mut bench = Bench::new(CONFIG, 7);
        bench.epochs.assign(3, 2);
        if whole {
            bench.replica.let_epoch_go_on();
        }
        let actions = bench.epoch(3, 9, Some(1), 2, &[1]);
        let view = bench.replica.view();
        let expected = if whole { Standing::Leader } else { Standing::NotLeader };
        assert_eq!((view.standing, view.leader_epoch), (expected, LeaderEpoch(3)), "{actions:?}");
        assert_eq!(bench.epochs.entries().len(), 1, "it began where it began");
        assert!(!whole || view.committed_to_epoch_start, "alone in sync, with everything on its disk");
        bench.epoch(4, 10, Some(1), 2, &[1]);
        assert_eq!(bench.replica.view().standing, Standing::Leader);
    }
    // That holds for what it hears of first.
    let mut bench = Bench::new(CONFIG, 7);
    bench.epochs.assign(3, 2);
    bench.replica.let_epoch_go_on();
    bench.epoch(2, 8, Some(2), 2, &[2]);
    bench.epoch(3, 9, Some(1), 2, &[1]);
    assert_eq!(bench.replica.view().standing, Standing::NotLeader);
}
