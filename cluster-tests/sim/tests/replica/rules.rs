//! The rules R1 to R11 and L2 (deleted records stay deleted, and none goes before it is committed), checked where something happens that could break them; `check_logs` compares everything with
//! everything from time to time.

use proto_types::controller_api::ProposedIsr;
use proto_types::ids::{BrokerEpoch, NodeId, Offset};
use proto_types::metadata::PartitionState;
use storage_node_core::{Acks, DeleteRecordsError, ProduceError, Produced, Standing, Ticket, View};

use crate::log::ModelLog;
use crate::node::Pending;
use crate::shell::is_promise;
use crate::world::World;

impl World {
    /// Whether what a copy shows is nobody's promise: after an unclean election, until it agrees with the winner.
    fn is_exempt(&self, node: usize, partition: usize) -> bool {
        let copy = &self.nodes[node].copies[&partition];
        let shown = copy.live.as_ref().is_some_and(|live| live.view.high_watermark.0 <= copy.shown);
        shown || copy.reconciled < self.ghost.partitions[partition].unclean_epoch
    }

    /// The controller has committed a new state of a partition.
    pub(crate) fn partition_changed(
        &mut self,
        partition: usize,
        before: Option<&PartitionState>,
        after: &PartitionState,
    ) {
        let Some(before) = before else { return };
        assert!(
            after.leader_epoch >= before.leader_epoch && after.partition_epoch > before.partition_epoch,
            "R6: epochs go back: {before:?} to {after:?}"
        );
        if before.leader != after.leader || before.leader_epoch != after.leader_epoch {
            self.leader_changed(partition, before, after);
        }
        let moves = |state: &PartitionState| !state.removing.is_empty() || !state.adding.is_empty();
        if moves(before) && !moves(after) {
            self.ghost.mark("reassignment over");
        }
        if after.isr.len() < before.isr.len() {
            self.ghost.mark("in-sync set shrank");
        }
        if after.isr.iter().any(|node| !before.isr.contains(node)) {
            self.ghost.mark("in-sync set grew");
        }
        if !after.elr.is_empty() {
            self.ghost.mark("somebody eligible outside the in-sync set");
        }
        self.check_eligible(partition);
    }

    fn leader_changed(&mut self, partition: usize, before: &PartitionState, after: &PartitionState) {
        assert!(after.leader_epoch > before.leader_epoch, "R6: another leader in the same epoch: {after:?}");
        let Some(leader) = after.leader else {
            self.ghost.mark("no leader");
            return;
        };
        let ghost = &mut self.ghost.partitions[partition];
        if ghost.suspended {
            ghost.unclean_epoch = after.leader_epoch.0;
        }
        if before.isr.contains(&leader) || self.admitting.contains(&leader) {
            self.ghost.mark("leader elected from the in-sync set");
        } else if before.elr.contains(&leader) {
            self.ghost.mark("leader elected from the eligible replicas");
        } else {
            assert!(
                self.plan.unclean_allowed,
                "R1: an unclean election that nobody allowed: {before:?} to {after:?}"
            );
            self.ghost.mark("unclean election");
            let ghost = &mut self.ghost.partitions[partition];
            ghost.suspended = true;
            ghost.unclean_epoch = after.leader_epoch.0;
        }
    }

    /// R10: whoever was admitted to an in-sync set is alive in the very registration that the leader vouches for.
    pub(crate) fn check_admitted(&mut self, partition: usize, proposed: &[(NodeId, BrokerEpoch)]) {
        let state = self.controller.partition(partition);
        for (node, epoch) in proposed.iter().filter(|(node, _)| state.isr.contains(node)) {
            let known = self.controller.state().nodes().get(*node).expect("a member is registered");
            let current = known.registration.broker_epoch;
            assert!(!known.fenced, "R10: node {node} is fenced and in the in-sync set");
            assert!(
                *epoch == ProposedIsr::NOT_HEARD_FROM || *epoch == current,
                "R10: node {node} was heard from as {epoch}, is {current}, and is in the in-sync set"
            );
        }
    }

    /// R10: the controller has registered a node whose machine lost power. Of topics with `weir.flush=os` it may lack committed
    /// records, so it is not eligible any more, unless nobody else is: then what it has is the truth from now on.
    pub(crate) fn registered_after_loss(&mut self, node: usize) {
        if !self.plan.flush_os {
            return;
        }
        let id = NodeId(node as i32);
        for partition in 0..self.plan.partitions {
            let state = self.controller.partition(partition);
            let eligible: Vec<NodeId> = state.isr.iter().chain(&state.elr).copied().collect();
            if !eligible.contains(&id) {
                if state.replicas.contains(&id) {
                    self.ghost.mark("replica without its tail is not eligible");
                }
                continue;
            }
            assert!(eligible == [id], "R10: node {node} may lack its tail and is eligible: {state:?}");
            let ghost = &mut self.ghost.partitions[partition];
            ghost.suspended = true;
            ghost.unclean_epoch = ghost.unclean_epoch.max(state.leader_epoch.0 + 1);
            self.ghost.mark("last eligible replica without its tail");
        }
    }

    /// R3: every replica that could be elected has every committed record, so that it would still have it after a crash.
    pub(crate) fn check_eligible(&mut self, partition: usize) {
        let ghost = &self.ghost.partitions[partition];
        if ghost.suspended {
            return;
        }
        let state = self.controller.partition(partition);
        for node in state.isr.iter().chain(&state.elr) {
            let Some(copy) = self.nodes[node.0 as usize].copies.get(&partition) else {
                assert!(
                    ghost.sure == 0,
                    "R3: node {node} is eligible and has nothing of partition {partition}"
                );
                continue;
            };
            let os = self.plan.flush_os;
            if os && self.nodes[node.0 as usize].lost_unnoticed() {
                continue;
            }
            let durable = if os { copy.log.end() } else { copy.log.flushed };
            assert!(
                durable >= ghost.sure && ghost.is_in(&copy.log, ghost.sure),
                "R3: node {node} is eligible, {} is committed, and it has {durable} on disk and {:?} there",
                ghost.sure,
                copy.log.at(ghost.sure - 1)
            );
        }
    }

    /// A leader begins its epoch.
    pub(crate) fn leader_begins(&mut self, node: usize, partition: usize, epoch: i32, start: Offset) {
        let run = (node, self.nodes[node].run);
        let current = self.controller.partition(partition).leader_epoch.0;
        let os = self.plan.flush_os;
        let copy = self.nodes[node].copies.get_mut(&partition).expect("it leads");
        assert!(start.0 == copy.log.end(), "an epoch begins where the log ends");
        copy.log.begin_epoch(epoch);
        copy.reconciled = copy.reconciled.max(epoch);
        let ghost = &mut self.ghost.partitions[partition];
        let other = *ghost.leaders.entry(epoch).or_insert(run);
        assert!(other == run, "R5: {other:?} and {run:?} (node, run) lead in epoch {epoch}");
        if epoch < ghost.unclean_epoch {
            return;
        }
        let log = &copy.log;
        let (deleted, told_in) = ghost.deleted;
        if ghost.suspended {
            ghost.deleted = (0, -1);
        } else {
            assert!(
                epoch <= told_in || log.start >= deleted,
                "L2: node {node} leads in epoch {epoch} and begins at {}; a client was told in epoch {told_in} that all below {deleted} is deleted",
                log.start
            );
        }
        let shown = copy.live.as_ref().expect("it leads").replica.positions().high_watermark.0;
        let durable = if os { log.end() } else { log.flushed };
        if ghost.suspended {
            ghost.cut_to(log, durable, shown);
            ghost.suspended = false;
            self.ghost.mark("leader begins after an unclean election");
        } else if !ghost.is_in(log, ghost.sure) {
            assert!(
                epoch < current,
                "R1: node {node} leads in epoch {epoch}, {} is committed, and it has {:?} there and ends at {}",
                ghost.sure,
                log.at(ghost.sure - 1),
                log.end()
            );
            self.ghost.mark("leader that was replaced before it began");
        } else if !ghost.is_in(log, ghost.high_watermark) {
            // What an unclean leader showed though nobody else had to have it.
            ghost.cut_to(log, durable, shown);
            ghost.unclean_epoch = epoch;
        } else if epoch < current {
            self.ghost.mark("leader of an old epoch began");
        } else if shown > ghost.high_watermark && shown <= copy.shown {
            // So it does with what it showed before another unclean leader had the same records.
            ghost.adopt(log, shown);
        }
        if epoch == current {
            copy.shown = -1;
        }
    }

    /// R5: who appends in an epoch is who began it.
    pub(crate) fn check_writer(&mut self, node: usize, partition: usize, epoch: i32) {
        let run = (node, self.nodes[node].run);
        let leader = self.ghost.partitions[partition].leaders.get(&epoch);
        assert!(leader == Some(&run), "R5: {run:?} writes in epoch {epoch}, which {leader:?} leads");
    }

    /// A copy shows its readers another state.
    pub(crate) fn published(&mut self, node: usize, partition: usize, view: View) {
        let unclean_epoch = self.ghost.partitions[partition].unclean_epoch;
        let copy = self.nodes[node].copies.get_mut(&partition).expect("it publishes");
        let live = copy.live.as_mut().expect("it publishes");
        let (before, log) = (std::mem::replace(&mut live.view, view), &copy.log);
        let high_watermark = view.high_watermark.0;
        assert!(
            (view.start.0, view.end.0) == (log.start, log.end()) && high_watermark <= log.end(),
            "R7: {view:?} of a log {}..{}",
            log.start,
            log.end()
        );
        assert!(view.leader_epoch >= before.leader_epoch, "R6: epochs go back, {before:?} to {view:?}");
        let leads_on =
            |view: &View| view.standing == Standing::Leader && view.leader_epoch == before.leader_epoch;
        if high_watermark > before.high_watermark.0 && leads_on(&before) && leads_on(&view) {
            let status = live.replica.in_sync().expect("it leads");
            assert!(
                status.in_sync >= status.needed,
                "R7: the high watermark moves from {} to {high_watermark} with {status:?}",
                before.high_watermark
            );
        }
        let went_back = high_watermark < before.high_watermark.0;
        // A log that begins inside a batch, and is cut there, loses the whole batch; if it had shown nothing, it takes nothing
        // back.
        let allowed = live.cut_below || before.high_watermark == before.start;
        assert!(!went_back || allowed, "R7: the high watermark goes back, {before:?} to {view:?}");
        live.cut_below &= !went_back;
        if copy.reconciled < unclean_epoch || high_watermark <= copy.shown {
            return;
        }
        copy.shown = -1;
        let ghost = &mut self.ghost.partitions[partition];
        if view.standing == Standing::Leader && high_watermark > ghost.high_watermark {
            let status = live.replica.in_sync().expect("it leads");
            assert!(
                status.in_sync >= status.needed,
                "R7: the high watermark moves to {high_watermark} with {status:?}"
            );
            ghost.commit(log, high_watermark);
            self.check_eligible(partition);
            self.check_maximal(node, partition);
            return;
        }
        assert!(
            high_watermark <= ghost.high_watermark,
            "R7: node {node} shows {high_watermark}, and {} is committed",
            ghost.high_watermark
        );
        assert!(
            ghost.is_in(log, high_watermark),
            "R8: node {node} shows {:?} as committed, which is {:?}",
            log.at(high_watermark - 1),
            ghost.at(high_watermark - 1)
        );
    }

    /// R4: who is in sync by the controller is counted by the leader, when it moves the high watermark.
    fn check_maximal(&mut self, node: usize, partition: usize) {
        let state = self.controller.partition(partition);
        let owner = &self.nodes[node];
        let live = owner.copies[&partition].live.as_ref().expect("it publishes");
        if live.view.leader_epoch != state.leader_epoch || state.leader != Some(owner.id()) {
            return;
        }
        let high_watermark = live.view.high_watermark;
        let statuses = live.replica.followers(proto_types::ids::Millis(self.now + owner.clock));
        for status in statuses.filter(|status| state.isr.contains(&status.node)) {
            assert!(
                status.end.is_some_and(|end| end >= high_watermark),
                "R4: {high_watermark} is committed without {status:?}, which is in sync by the controller"
            );
        }
    }

    /// L2: no record goes before it is committed, whoever wants it gone.
    pub(crate) fn start_moves(&self, node: usize, partition: usize, start: Offset) {
        let live = self.nodes[node].copies[&partition].live.as_ref().expect("its log is open");
        let known = live.replica.positions().high_watermark;
        assert!(start <= known, "L2: node {node} drops all below {start}, and {known} is its high watermark");
        let ghost = &self.ghost.partitions[partition];
        assert!(
            start.0 <= ghost.high_watermark || ghost.suspended || self.is_exempt(node, partition),
            "L2: node {node} drops all below {start}, and {} is committed",
            ghost.high_watermark
        );
    }

    /// R11: records that a copy knew to be committed are cut only where an unclean election gave them up.
    pub(crate) fn truncates(&mut self, node: usize, partition: usize, to: Offset, below: Option<Offset>) {
        let copy = self.nodes[node].copies.get_mut(&partition).expect("it cuts");
        let live = copy.live.as_mut().expect("it cuts");
        let known = live.replica.positions().high_watermark;
        assert!(below.is_some() == (to < known), "a cut below the high watermark is told");
        let follows = (live.view.standing == Standing::Follower).then_some(live.view.leader_epoch.0);
        assert!(
            self.answering == follows && follows.is_some(),
            "R11: node {node}, of epoch {follows:?}, cuts to {to} by the word of epoch {:?}",
            self.answering
        );
        copy.shown = copy.shown.min(to.0);
        self.ghost.mark("log cut");
        if to < known {
            // Since it last agreed with a leader.
            let unclean = self.ghost.partitions[partition].unclean_epoch;
            assert!(
                unclean > copy.reconciled,
                "R11: node {node} cuts to {to}, {known} is its high watermark, agreed in epoch {}, unclean {unclean}",
                copy.reconciled
            );
            live.cut_below = true;
            self.ghost.mark("log cut below the high watermark");
        }
    }

    /// A producer is told that its batch is in the log, and with acks=all that it stays there.
    pub(crate) fn acknowledged(&mut self, node: usize, partition: usize, acks: Acks, produced: &Produced) {
        if !is_promise(acks) || self.is_exempt(node, partition) {
            return;
        }
        let log = &self.nodes[node].copies[&partition].log;
        let base = produced.base_offset.0;
        if base < log.start {
            return;
        }
        let ghost = &mut self.ghost.partitions[partition];
        let batch = log.at(base).expect("an acknowledged batch is in the log");
        assert!(
            batch.base == base && ghost.at(base) == Some(batch) && batch.end <= ghost.high_watermark,
            "R1: acknowledged is {batch:?}, committed {:?} up to {}",
            ghost.at(base),
            ghost.high_watermark
        );
        ghost.acknowledge(base, batch.id);
        self.ghost.mark("acknowledged");
    }

    /// A client is told what became of its wish to delete records.
    pub(crate) fn records_deleted(
        &mut self,
        node: usize,
        partition: usize,
        ticket: Ticket,
        result: Result<Offset, DeleteRecordsError>,
    ) {
        let Some(live) = self.nodes[node].live(partition) else { return };
        let pending = live.pending.remove(&ticket);
        let asked = matches!(pending, Some(Pending::Delete));
        assert!(asked, "C5: answered twice, or somebody who did not ask: {ticket:?}");
        let epoch = live.view.leader_epoch.0;
        let low_watermark = match result {
            Ok(low_watermark) => low_watermark.0,
            Err(error) => return self.ghost.mark(mark_of_deletion(error)),
        };
        self.ghost.mark("records deleted");
        let ghost = &mut self.ghost.partitions[partition];
        if epoch >= ghost.unclean_epoch {
            ghost.deleted = (ghost.deleted.0.max(low_watermark), ghost.deleted.1.max(epoch));
        }
    }

    /// A consumer reads what a copy shows.
    pub(crate) fn consume(&mut self, number: usize, node: usize, partition: usize) {
        let anywhere = self.consumers[number].anywhere;
        let position = self.consumers[number].positions[partition].0;
        let current = self.controller.partition(partition).clone();
        let Some(copy) = self.nodes[node].copies.get(&partition) else { return };
        let Some(live) = &copy.live else { return };
        let view = live.view;
        let readable = match view.standing {
            Standing::Leader => true,
            Standing::Follower => anywhere,
            Standing::NotLeader | Standing::Failed => false,
        };
        if !readable || self.is_exempt(node, partition) {
            return;
        }
        let ghost = &self.ghost.partitions[partition];
        if position > ghost.high_watermark {
            // What it read was given up by an unclean election.
            assert!(ghost.unclean_epoch >= 0, "R8: a consumer is at {position} of {}", ghost.high_watermark);
            self.consumers[number].positions[partition] = Offset(ghost.high_watermark);
            return;
        }
        let leads_now = view.leader_epoch == current.leader_epoch && view.standing == Standing::Leader;
        assert!(
            !leads_now || position <= view.end.0 || ghost.unclean_epoch >= 0,
            "R8: a consumer that read up to {position} finds a leader that ends at {}",
            view.end
        );
        let from = position.max(view.start.0);
        let next = ghost.check_read(from, &copy.log.read(from, 2_000, true), view.high_watermark.0);
        self.consumers[number].positions[partition] = Offset(next.max(position));
        if next > from {
            let follower = view.standing == Standing::Follower;
            self.ghost.mark(if follower { "read from a follower" } else { "read from a leader" });
        }
    }

    /// An idempotent producer finds that the log lacks what was acknowledged to it.
    pub(crate) fn check_gap(&mut self, partition: usize) {
        self.ghost.mark("producer found a gap");
        let allowed = self.ghost.partitions[partition].unclean_epoch >= 0 || self.deleted;
        assert!(allowed, "X2: the log of partition {partition} lacks what was acknowledged");
    }

    /// R2 and R6 over all logs.
    pub(crate) fn check_logs(&mut self) {
        for partition in 0..self.plan.partitions {
            let logs: Vec<(usize, &ModelLog)> = self
                .nodes
                .iter()
                .filter_map(|node| Some((node.number, &node.copies.get(&partition)?.log)))
                .collect();
            for (at, (node, log)) in logs.iter().enumerate() {
                check_epochs(*node, log);
                for (other_node, other) in &logs[at + 1..] {
                    check_matching(partition, (*node, log), (*other_node, other));
                }
            }
            self.check_eligible(partition);
        }
    }
}

/// R6: the history of epochs is what the batches tell, and maybe an epoch that has no record yet.
fn check_epochs(node: usize, log: &ModelLog) {
    let scanned = log.scanned_epochs();
    let known = log.epochs.entries();
    let grow = known
        .windows(2)
        .all(|pair| pair[0].epoch < pair[1].epoch && pair[0].start_offset < pair[1].start_offset);
    assert!(grow, "R6: node {node} knows the epochs {known:?}");
    let with_records = known.iter().take_while(|entry| entry.start_offset < log.end()).count();
    let told: Vec<_> = scanned.entries().iter().map(|entry| (entry.epoch, entry.start_offset)).collect();
    let kept: Vec<_> = known[..with_records].iter().map(|entry| (entry.epoch, entry.start_offset)).collect();
    assert!(told == kept, "R6: node {node} knows the epochs {kept:?}, its batches tell {told:?}");
}

/// R2: where two logs have the same offset in the same epoch they are the same, there and below.
fn check_matching(partition: usize, (a, log_a): (usize, &ModelLog), (b, log_b): (usize, &ModelLog)) {
    let start = log_a.start.max(log_b.start);
    let (mut i, mut j) = (log_a.batches.len(), log_b.batches.len());
    let mut met = false;
    while i > 0 && j > 0 {
        let (x, y) = (&log_a.batches[i - 1], &log_b.batches[j - 1]);
        if x.end <= start || y.end <= start {
            return;
        }
        if x == y {
            met = true;
        } else {
            let same_place = x.base < y.end && y.base < x.end && x.epoch == y.epoch;
            assert!(
                !met && !same_place,
                "R2: partition {partition} has {x:?} on node {a} and {y:?} on node {b}"
            );
        }
        // Down to the lower one; both where they begin together.
        match x.base.cmp(&y.base) {
            std::cmp::Ordering::Less => j -= 1,
            std::cmp::Ordering::Equal => (i, j) = (i - 1, j - 1),
            std::cmp::Ordering::Greater => i -= 1,
        }
    }
}

/// A mark for each refusal that somebody who deletes records can get.
fn mark_of_deletion(error: DeleteRecordsError) -> &'static str {
    match error {
        DeleteRecordsError::NotLeader => "deletion refused: not leader",
        DeleteRecordsError::OffsetOutOfRange { .. } => "deletion refused: out of range",
        DeleteRecordsError::TimedOut => "deletion refused: timed out",
        DeleteRecordsError::Busy => "deletion refused: busy",
        DeleteRecordsError::WriteRefused => "deletion refused: full disk",
        DeleteRecordsError::LogFailed => "deletion refused: log failed",
    }
}

/// A mark for each refusal that a producer can get.
pub(crate) fn mark_of(error: &ProduceError) -> &'static str {
    match error {
        ProduceError::NotLeader => "refused: not leader",
        ProduceError::NotEnoughReplicas { .. } => "refused: not enough replicas",
        ProduceError::NotEnoughReplicasAfterAppend { .. } => "refused: not enough replicas after append",
        ProduceError::TimedOut => "refused: timed out",
        ProduceError::OutOfOrderSequence { .. } => "refused: out of order",
        ProduceError::BehindRefused => "refused: behind a refused batch",
        ProduceError::DuplicateTooOld => "refused: duplicate too old",
        ProduceError::InvalidProducerEpoch { .. } => "refused: producer epoch",
        ProduceError::InvalidTxnState { .. } => "refused: transaction state",
        ProduceError::TooManyTransactions { .. } => "refused: too many transactions",
        ProduceError::TransactionCoordinatorFenced { .. } => "refused: coordinator epoch",
        ProduceError::Busy => "refused: busy",
        ProduceError::WriteRefused => "refused: full disk",
        ProduceError::DiskFull => "refused: the reserve of the disk",
        ProduceError::LogFailed => "refused: log failed",
    }
}
