//! Transaction markers in the hands of the log thread: what a transaction coordinator wants in the log.

use log_engine_core::TransactionOutcome;
use records::{BatchHeader, EndMarker};
use storage_node_core::{Input, MarkerProposal, ProduceError};

use super::{Batch, Slot, Waiting, WaitingProduce};
use crate::disk::event::WriteMarker;

impl Slot {
    /// A coordinator's marker. The replica decides whether it is in time; the answer comes once it is committed.
    pub(crate) fn write_marker(&mut self, request: WriteMarker) {
        let WriteMarker { marker, deadline, reply, permit, id: _ } = request;
        let ticket = self.new_ticket();
        let now_ms = self.clock.wall().0;
        let record = EndMarker {
            is_commit: marker.outcome == TransactionOutcome::Commit,
            coordinator_epoch: marker.coordinator_epoch,
        };
        let built = record.encode(marker.producer_id, marker.producer_epoch, now_ms);
        let Some((bytes, header)) = built.ok().and_then(|bytes| {
            let header = BatchHeader::parse(&bytes).ok()?;
            Some((bytes, header))
        }) else {
            // Whoever asked may have gone.
            _ = reply.send(Err(ProduceError::WriteRefused));
            return;
        };
        let proposal = MarkerProposal {
            ticket,
            producer_id: marker.producer_id,
            producer_epoch: marker.producer_epoch,
            coordinator_epoch: marker.coordinator_epoch,
            outcome: marker.outcome,
            epoch_rule: marker.epoch_rule,
            timestamp: now_ms,
            deadline,
        };
        let waiting = WaitingProduce { reply, log_append_time: -1, stations: None };
        self.waiting.insert(ticket, Waiting::Produce(waiting));
        let mut batch = Some(Batch { bytes: bytes.into(), header, _permit: permit });
        self.run(Input::ProposeMarker(proposal), &mut batch);
    }
}
