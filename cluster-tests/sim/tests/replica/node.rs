//! One storage node as far as replication sees it: the runs of its process, what of the metadata it has applied, and its
//! copies of partitions. The shell's part is as short as it can be; everything that decides is the real code.

use std::collections::BTreeMap;

use proto_types::ids::{BrokerEpoch, Incarnation, LeaderEpoch, NodeId, PartitionEpoch};
use storage_node_core::{Acks, Replica, ReplicaConfig, Ticket, View};
use uuid::Uuid;

use crate::log::ModelLog;
use crate::sessions::{Following, Leading};

/// What a client waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pending {
    Produce { producer: usize, number: u64, acks: Acks },
    Delete,
}

/// A proposal of an in-sync set on its way to the controller.
#[derive(Clone, Debug)]
pub(crate) struct SentProposal {
    pub(crate) node: usize,
    pub(crate) run: u64,
    pub(crate) partition: usize,
    pub(crate) number: u64,
    pub(crate) broker_epoch: BrokerEpoch,
    pub(crate) epochs: (LeaderEpoch, PartitionEpoch),
    pub(crate) isr: Vec<(NodeId, BrokerEpoch)>,
    /// The network delivers it twice.
    pub(crate) twice: bool,
}

/// A copy that runs.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) replica: Replica,
    pub(crate) view: View,
    pub(crate) config: ReplicaConfig,
    pub(crate) pending: BTreeMap<Ticket, Pending>,
    /// The session in which it follows.
    pub(crate) following: Vec<Following>,
    /// The sessions that it serves.
    pub(crate) leading: Vec<Leading>,
    pub(crate) tick_at: Option<i64>,
    /// A cut below the high watermark was asked for, so it goes back in the next view.
    pub(crate) cut_below: bool,
    /// Proposals of in-sync sets without an answer: one about each state of the partition.
    pub(crate) proposing: Vec<u64>,
}

/// A copy of a partition on a node's disk.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) log: ModelLog,
    /// The newest leader epoch in which the log was made to agree with its leader's, or in which it led.
    pub(crate) reconciled: i32,
    /// What it showed as committed when an unclean leader turned out to have the same records. It need not take that back,
    /// though nobody has committed it anew.
    pub(crate) shown: i64,
    pub(crate) live: Option<Live>,
}

impl Copy {
    pub(crate) fn new() -> Self {
        Copy { log: ModelLog::new(), reconciled: -1, shown: -1, live: None }
    }
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) number: usize,
    /// Counts the runs of its process.
    pub(crate) run: u64,
    pub(crate) up: bool,
    pub(crate) paused_until: i64,
    /// What its monotonic clock shows at the world's zero.
    pub(crate) clock: i64,
    pub(crate) broker_epoch: Option<BrokerEpoch>,
    /// The index of metadata that it has applied.
    pub(crate) applied: u64,
    /// The newest of its runs that the controller has registered.
    pub(crate) registered_run: u64,
    /// The newest of its runs that ended with the machine; 0 if none did.
    pub(crate) lost_in: u64,
    /// It has not been told yet that the controller knows of that.
    pub(crate) unflushed_lost: bool,
    /// Whether a delivery of metadata is on its way.
    pub(crate) feeding: bool,
    /// It has seen its own registration: what the metadata says of its leaderships is about this run.
    pub(crate) open: bool,
    pub(crate) stopping: bool,
    pub(crate) healthy: bool,
    pub(crate) copies: BTreeMap<usize, Copy>,
    pub(crate) next_ticket: u64,
    pub(crate) next_proposal: u64,
}

impl Node {
    pub(crate) fn new(number: usize, clock: i64) -> Self {
        Node {
            number,
            run: 1,
            up: true,
            paused_until: 0,
            clock,
            broker_epoch: None,
            applied: 0,
            registered_run: 1,
            lost_in: 0,
            unflushed_lost: false,
            feeding: false,
            open: false,
            stopping: false,
            healthy: true,
            copies: BTreeMap::new(),
            next_ticket: 0,
            next_proposal: 0,
        }
    }

    pub(crate) fn id(&self) -> NodeId {
        NodeId(self.number as i32)
    }

    pub(crate) fn incarnation(&self) -> Incarnation {
        incarnation(self.number, self.run)
    }

    /// Its machine lost power, and the controller does not know yet.
    pub(crate) fn lost_unnoticed(&self) -> bool {
        self.lost_in >= self.registered_run
    }

    pub(crate) fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    pub(crate) fn live(&mut self, partition: usize) -> Option<&mut Live> {
        self.copies.get_mut(&partition)?.live.as_mut()
    }
}

pub(crate) fn incarnation(node: usize, run: u64) -> Incarnation {
    Incarnation(Uuid::from_u128(((node as u128) << 64) | u128::from(run)))
}
