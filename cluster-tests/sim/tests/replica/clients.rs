//! Model clients: producers that send one batch at a time and repeat it until they are told something final, and consumers
//! that read from leaders or followers and remember how far they are.

use controller_core::Chance;
use proto_types::ids::Offset;
use storage_node_core::{Acks, ProduceError, Produced, ProducerStamp};

/// A batch that a producer wants in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) partition: usize,
    pub(crate) records: i32,
    pub(crate) bytes: u64,
    pub(crate) stamp: Option<ProducerStamp>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Outstanding {
    pub(crate) number: u64,
    pub(crate) deadline: i64,
    pub(crate) wanted: Wanted,
}

/// Per partition, who leads as far as a client knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownLeader {
    pub(crate) epoch: i32,
    pub(crate) leader: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct Producer {
    pub(crate) acks: Acks,
    idempotent: bool,
    producer_id: i64,
    next_sequence: Vec<i32>,
    pub(crate) known: Vec<KnownLeader>,
    pub(crate) outstanding: Option<Outstanding>,
    next_number: u64,
    pub(crate) pause_ms: usize,
    pub(crate) done: u64,
}

/// What a producer makes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Done,
    Again,
    /// The log does not know what was acknowledged to an idempotent producer.
    Gap,
}

impl Producer {
    pub(crate) fn new(rng: &mut Chance, partitions: usize, producer_id: i64) -> Self {
        let acks = [Acks::All, Acks::All, Acks::Leader, Acks::None][rng.below(4)];
        Producer {
            acks,
            // As with Kafka's clients, idempotence asks for acks=all.
            idempotent: acks == Acks::All && rng.below(3) > 0,
            producer_id,
            next_sequence: vec![0; partitions],
            known: vec![KnownLeader { epoch: -1, leader: None }; partitions],
            outstanding: None,
            next_number: 0,
            pause_ms: [10, 40, 200][rng.below(3)],
            done: 0,
        }
    }

    pub(crate) fn next_batch(&mut self, rng: &mut Chance, partitions: usize) -> Wanted {
        let partition = rng.below(partitions);
        let stamp = self.idempotent.then_some(ProducerStamp {
            producer_id: self.producer_id,
            producer_epoch: 0,
            base_sequence: self.next_sequence[partition],
            is_transactional: false,
        });
        Wanted { partition, records: 1 + rng.below(4) as i32, bytes: 50 + rng.below(300) as u64, stamp }
    }

    pub(crate) fn sent(&mut self, wanted: Wanted, deadline: i64) -> u64 {
        self.next_number += 1;
        self.outstanding = Some(Outstanding { number: self.next_number, deadline, wanted });
        self.next_number
    }

    pub(crate) fn learn(&mut self, partition: usize, known: KnownLeader) {
        if known.epoch > self.known[partition].epoch {
            self.known[partition] = known;
        }
    }

    pub(crate) fn answered(&mut self, wanted: &Wanted, result: Result<Produced, ProduceError>) -> Verdict {
        match result {
            Ok(_) => {
                self.done += 1;
                self.outstanding = None;
                if wanted.stamp.is_some() {
                    self.next_sequence[wanted.partition] += wanted.records;
                }
                Verdict::Done
            }
            Err(
                ProduceError::OutOfOrderSequence { .. }
                | ProduceError::InvalidProducerEpoch { .. }
                | ProduceError::InvalidTxnState { .. }
                | ProduceError::TransactionCoordinatorFenced { .. }
                | ProduceError::DuplicateTooOld,
            ) => Verdict::Gap,
            Err(
                ProduceError::NotLeader
                | ProduceError::NotEnoughReplicas { .. }
                | ProduceError::NotEnoughReplicasAfterAppend { .. }
                | ProduceError::TimedOut
                | ProduceError::Busy
                | ProduceError::BehindRefused
                | ProduceError::TooManyTransactions { .. }
                | ProduceError::WriteRefused
                | ProduceError::DiskFull
                | ProduceError::LogFailed,
            ) => Verdict::Again,
        }
    }

    /// Begins anew under another producer id.
    pub(crate) fn begin_anew(&mut self, producer_id: i64) {
        self.producer_id = producer_id;
        self.next_sequence.fill(0);
        self.outstanding = None;
    }
}

#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) positions: Vec<Offset>,
    /// Reads from any replica, not only from the leader (KIP-392).
    pub(crate) anywhere: bool,
    pub(crate) pause_ms: usize,
}

impl Consumer {
    pub(crate) fn new(rng: &mut Chance, partitions: usize) -> Self {
        Consumer {
            positions: vec![Offset(0); partitions],
            anywhere: rng.below(2) == 0,
            pause_ms: 5 + rng.below(60),
        }
    }
}
