//! The metadata feed: what was committed, in order, to any number of storage nodes and coordinators.
//!
//! Every controller serves it, from what it has applied itself. Each follower is a task of its own that stands at the last
//! index it has sent: deltas while the ring in memory still holds what comes next, else a snapshot first. A follower that
//! does not read is held up by its own stream alone; when it reads again and the ring has moved on, it gets a snapshot.

use crate::quorum::state_machine::StateView;
use bytes::Bytes;
use proto_types::controller_api::{FeedFrame, FeedRequest};
use proto_types::encode;
use proto_types::ids::MetadataIndex;
use proto_types::metadata::MetadataChange;
use quic_transport::{FrameError, FrameReceiver, FrameSender};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Changes in one frame of a snapshot.
const CHANGES_PER_FRAME: usize = 10_000;
/// Deltas sent with one write.
const DELTAS_PER_WRITE: usize = 64;
/// Largest delta that is sent as such, bytes; a larger one is told by a snapshot, whose frames are cut.
const DELTA_BYTES_MAX: usize = 4 << 20;

/// The newest committed changes in memory.
pub(crate) struct ChangeRing {
    deltas: VecDeque<Delta>,
    /// The deltas hold everything after this index.
    after: MetadataIndex,
    weight: usize,
    weight_max: usize,
}

#[derive(Clone)]
struct Delta {
    index: MetadataIndex,
    changes: Arc<Vec<MetadataChange>>,
}

/// What a follower gets next.
enum Next {
    Deltas(Vec<Delta>),
    Snapshot,
    Nothing,
}

impl ChangeRing {
    /// A ring that holds about `changes_max` changes.
    pub(crate) fn new(changes_max: usize) -> Self {
        Self { deltas: VecDeque::new(), after: MetadataIndex(0), weight: 0, weight_max: changes_max }
    }

    /// Adds what was applied at `index`.
    pub(crate) fn push(&mut self, index: MetadataIndex, changes: Arc<Vec<MetadataChange>>) {
        self.weight += weight(&changes);
        self.deltas.push_back(Delta { index, changes });
        while self.weight > self.weight_max
            && let Some(oldest) = self.deltas.pop_front()
        {
            self.weight -= weight(&oldest.changes);
            self.after = oldest.index;
        }
    }

    /// Forgets everything: the state has jumped to `index`.
    pub(crate) fn restart_after(&mut self, index: MetadataIndex) {
        self.deltas.clear();
        self.weight = 0;
        self.after = index;
    }

    fn next(&self, sent: Option<MetadataIndex>) -> Next {
        let Some(sent) = sent.filter(|sent| *sent >= self.after) else {
            return Next::Snapshot;
        };
        let begin = self.deltas.partition_point(|delta| delta.index <= sent);
        let deltas: Vec<Delta> = self.deltas.iter().skip(begin).take(DELTAS_PER_WRITE).cloned().collect();
        if deltas.is_empty() { Next::Nothing } else { Next::Deltas(deltas) }
    }
}

fn weight(changes: &[MetadataChange]) -> usize {
    changes.len() + 1
}

/// Serves one follower until it goes away or does not read for `stall`.
pub(crate) async fn serve(
    view: StateView,
    request: FeedRequest,
    mut sender: FrameSender,
    mut receiver: FrameReceiver,
    stall: Duration,
) -> Result<(), FrameError> {
    let mut applied = view.applied();
    let mut sent = request.after;
    loop {
        // Before looking, so that nothing that comes after is missed.
        applied.mark_unchanged();
        let next = view.ring().lock().next(sent);
        match next {
            Next::Nothing => {
                tokio::select! {
                    changed = applied.changed() => {
                        if changed.is_err() {
                            return sender.finish().await;
                        }
                    }
                    // The follower never sends anything: whatever comes is its end.
                    _ended = receiver.recv() => return sender.finish().await,
                }
            }
            Next::Deltas(deltas) => match delta_frames(&deltas) {
                Some(frames) => {
                    write(&mut sender, frames, stall).await?;
                    sent = deltas.last().map(|delta| delta.index);
                }
                None => sent = Some(send_snapshot(&view, &mut sender, stall).await?),
            },
            Next::Snapshot => sent = Some(send_snapshot(&view, &mut sender, stall).await?),
        }
    }
}

fn delta_frames(deltas: &[Delta]) -> Option<Vec<Bytes>> {
    deltas
        .iter()
        .map(|delta| {
            let changes = delta.changes.to_vec();
            let frame = encode(&FeedFrame::Delta { index: delta.index, changes });
            (frame.len() <= DELTA_BYTES_MAX).then(|| Bytes::from(frame))
        })
        .collect()
}

async fn send_snapshot(
    view: &StateView,
    sender: &mut FrameSender,
    stall: Duration,
) -> Result<MetadataIndex, FrameError> {
    let state = view.state();
    let index = state.applied();
    let changes = state.to_changes();
    let count = changes.len().div_ceil(CHANGES_PER_FRAME).max(1);
    for at in 0..count {
        let end = changes.len().min((at + 1) * CHANGES_PER_FRAME);
        let part = changes[at * CHANGES_PER_FRAME..end].to_vec();
        let frame = FeedFrame::Snapshot { index, first: at == 0, last: at + 1 == count, changes: part };
        write(sender, vec![Bytes::from(encode(&frame))], stall).await?;
    }
    Ok(index)
}

async fn write(sender: &mut FrameSender, frames: Vec<Bytes>, stall: Duration) -> Result<(), FrameError> {
    match tokio::time::timeout(stall, sender.send_all(frames)).await {
        Ok(sent) => sent,
        Err(_elapsed) => Err(FrameError::Abandoned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto_types::ids::ProducerId;

    fn changes(count: i64) -> Arc<Vec<MetadataChange>> {
        Arc::new((0..count).map(|n| MetadataChange::ProducerIdsAllocated { next: ProducerId(n) }).collect())
    }

    fn indexes(next: Next) -> Vec<u64> {
        match next {
            Next::Deltas(deltas) => deltas.iter().map(|delta| delta.index.0).collect(),
            Next::Nothing => vec![],
            Next::Snapshot => vec![u64::MAX],
        }
    }

    #[test]
    fn a_follower_gets_deltas_while_the_ring_holds_them() {
        let mut ring = ChangeRing::new(10);
        for index in 1..=3 {
            ring.push(MetadataIndex(index), changes(1));
        }
        assert_eq!(indexes(ring.next(Some(MetadataIndex(0)))), [1, 2, 3]);
        assert_eq!(indexes(ring.next(Some(MetadataIndex(2)))), [3]);
        assert_eq!(indexes(ring.next(Some(MetadataIndex(3)))), [] as [u64; 0]);
        assert_eq!(indexes(ring.next(Some(MetadataIndex(9)))), [] as [u64; 0], "ahead of this controller");
        assert_eq!(indexes(ring.next(None)), [u64::MAX]);
        for index in 4..=6 {
            ring.push(MetadataIndex(index), changes(2));
        }
        assert_eq!(indexes(ring.next(Some(MetadataIndex(1)))), [u64::MAX], "the ring has moved on");
        assert_eq!(indexes(ring.next(Some(MetadataIndex(4)))), [5, 6]);
        ring.push(MetadataIndex(7), changes(100));
        assert_eq!(indexes(ring.next(Some(MetadataIndex(6)))), [u64::MAX], "larger than the ring");
        assert_eq!(indexes(ring.next(Some(MetadataIndex(7)))), [] as [u64; 0]);
        ring.restart_after(MetadataIndex(20));
        assert_eq!(indexes(ring.next(Some(MetadataIndex(7)))), [u64::MAX]);
    }
}
