//! What the batches of a log tell of its producers: replayed from the newest snapshot on, when a log is opened or cut.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use log_engine_core::{
    AbortedDigest, AbortedTransaction, CompletedTransaction, ProducerBatch, ProducerStates,
    TransactionMarker, TransactionOutcome,
};
use records::{BatchHeader, BatchView, EndMarker};

use crate::disk::Disk;
use crate::full_walk::Pace;
use crate::scan::{Fault, Found};
use crate::segment::{Segment, parse_file_name};
use crate::snapshots::{self, Saved};

/// A batch by what it means for the producers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProducerEvent {
    Data(ProducerBatch),
    Marker(TransactionMarker),
    /// A control batch that ends no transaction.
    Nothing,
}

impl ProducerEvent {
    /// Reads it out of a batch; the records are looked at only in control batches.
    pub fn of(batch: &BatchView<'_>) -> ProducerEvent {
        let header = batch.header();
        if !header.is_control() {
            return ProducerEvent::Data(producer_batch(header));
        }
        let Some(marker) = EndMarker::decode(batch) else { return ProducerEvent::Nothing };
        ProducerEvent::Marker(TransactionMarker {
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            coordinator_epoch: marker.coordinator_epoch,
            outcome: match marker.is_commit {
                true => TransactionOutcome::Commit,
                false => TransactionOutcome::Abort,
            },
            offset: header.base_offset,
            timestamp: header.max_timestamp,
        })
    }

    /// Replays it. Answers with the transaction that it ended.
    pub fn replay(&self, producers: &mut ProducerStates) -> Option<CompletedTransaction> {
        match self {
            ProducerEvent::Data(batch) => {
                producers.append(batch);
                None
            }
            ProducerEvent::Marker(marker) => producers.complete(marker),
            ProducerEvent::Nothing => None,
        }
    }
}

/// The facts of a batch of data that idempotence needs.
pub fn producer_batch(header: &BatchHeader) -> ProducerBatch {
    ProducerBatch {
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        first_sequence: header.base_sequence,
        offset_delta: header.last_offset_delta,
        last_offset: header.last_offset(),
        timestamp: header.max_timestamp,
        is_transactional: header.is_transactional(),
    }
}

/// Walks the headers of the batches from `from` on, with what they mean for the producers.
pub(crate) fn replay_segment(
    segment: &Segment,
    from: i64,
    mut each: impl FnMut(&BatchHeader, &ProducerEvent),
) -> Result<(), Fault> {
    replay_segment_while(segment, from, |header, event| {
        each(header, event);
        true
    })
}

/// The same, as long as it answers to go on.
pub(crate) fn replay_segment_while(
    segment: &Segment,
    from: i64,
    mut each: impl FnMut(&BatchHeader, &ProducerEvent) -> bool,
) -> Result<(), Fault> {
    let Some((first, mut scan)) = segment.locate(from.max(segment.base_offset()), false)? else {
        return Ok(());
    };
    let mut next = Some(first);
    while let Some(found) = next {
        if !each(&found.header, &event_of(segment, &found)?) {
            break;
        }
        next = scan.next()?;
    }
    Ok(())
}

fn event_of(segment: &Segment, found: &Found) -> Result<ProducerEvent, Fault> {
    if !found.header.is_control() {
        return Ok(ProducerEvent::Data(producer_batch(&found.header)));
    }
    let bytes = segment.read_batch(found)?;
    let checked = BatchView::parse(&bytes).and_then(|batch| batch.check_crc().map(|()| batch));
    match checked {
        Ok(batch) => Ok(ProducerEvent::of(&batch)),
        Err(e) => Err(Fault::Damaged { position: found.position, reason: e.to_string() }),
    }
}

/// Forgets the transactions that a snapshot as of `as_of` has open and of which the log has nothing any more below that.
/// Compaction touches none that is open, so they have ended since; and it may have dropped the marker after the data, so that
/// nothing behind the snapshot tells. `dropped_to`: no marker above was dropped. What began below `start` cannot be judged.
/// Nothing is forgotten if the pace ended it.
pub(crate) fn forget_phantoms(
    segments: &[Arc<Segment>],
    producers: &mut ProducerStates,
    as_of: i64,
    (start, dropped_to): (i64, i64),
    pace: Pace<'_>,
) -> Result<(), (Fault, Arc<Segment>)> {
    let open = producers.iter().filter_map(|(id, state)| Some((id, state.txn_first_offset?)));
    let mut suspects: BTreeMap<i64, i64> =
        open.filter(|&(_, first)| (start..=dropped_to).contains(&first)).collect();
    let Some(&from) = suspects.values().min() else { return Ok(()) };
    let mut goes_on = true;
    for segment in segments {
        if segment.state().read().next_offset <= from || segment.base_offset() >= as_of {
            continue;
        }
        let walked = replay_segment_while(segment, from, |header, _| {
            let is_part = header.base_offset < as_of && header.is_transactional() && !header.is_control();
            let first = suspects.get(&header.producer_id);
            if is_part && first.is_some_and(|&first| header.last_offset() >= first) {
                suspects.remove(&header.producer_id);
            }
            goes_on = pace(header.size() as u64);
            goes_on
        });
        walked.map_err(|fault| (fault, segment.clone()))?;
        if !goes_on {
            return Ok(());
        }
    }
    for (producer_id, first_offset) in suspects {
        tracing::info!(
            producer_id,
            first_offset,
            as_of,
            "a producer snapshot has a transaction open that was compacted away since: it has ended"
        );
        producers.forget_transaction(producer_id);
    }
    Ok(())
}

/// The transactions that markers in one segment have aborted, and the producers at its end, from the batches and the
/// newest snapshot before it. Waits for the device.
pub(crate) fn aborted_in(
    segments: &[Arc<Segment>],
    at: usize,
    producers_max: usize,
) -> Result<(ProducerStates, Vec<AbortedTransaction>), Fault> {
    let segment = &segments[at];
    let (disk, dir) = (segment.disk(), segment.dir());
    let names = disk.list(dir).map_err(|e| Fault::io("list", dir, e))?;
    let saved: BTreeSet<i64> = names
        .iter()
        .filter_map(|entry| parse_file_name(&entry.name).filter(|(_, suffix)| *suffix == "snapshot"))
        .map(|(offset, _)| offset)
        .collect();
    let newest = snapshots::load_newest(&**disk, dir, &saved, segment.base_offset(), producers_max);
    let (from, mut producers) = match newest.map_err(Fault::Io)? {
        Some(newest) => (newest.offset, newest.producers),
        None => (i64::MIN, ProducerStates::new(producers_max)),
    };
    let known = (segments[0].base_offset(), i64::MAX);
    forget_phantoms(segments, &mut producers, from, known, &mut |_| true).map_err(|(fault, _)| fault)?;
    let aborted = replay_up_to(segments, at, from, &mut producers)?;
    Ok((producers, aborted))
}

/// Replays the batches from `from` to the end of a segment. Answers with the transactions that markers in that one aborted.
pub(crate) fn replay_up_to(
    segments: &[Arc<Segment>],
    at: usize,
    from: i64,
    producers: &mut ProducerStates,
) -> Result<Vec<AbortedTransaction>, Fault> {
    let mut aborted = Vec::new();
    for (i, segment) in segments[..=at].iter().enumerate() {
        if segment.state().read().next_offset <= from {
            continue;
        }
        replay_segment(segment, from, |header, event| {
            if header.base_offset < from {
                return;
            }
            let completed = event.replay(producers).filter(|_| i == at);
            aborted.extend(completed.and_then(|completed| completed.aborted()));
        })?;
    }
    Ok(aborted)
}

/// The segment within which a snapshot stands, and what its transaction index has up to there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Within {
    pub(crate) segment: i64,
    pub(crate) digest: AbortedDigest,
}

/// The newest snapshot up to `offset_max`, unless it stands within a segment whose transaction index up to there is not what it
/// was: then the newest that does not. With the segment within which it stands, and what the index has up to there.
pub(crate) fn newest_trusted(
    (disk, dir): (&dyn Disk, &Path),
    segments: &[Arc<Segment>],
    saved: &BTreeSet<i64>,
    offset_max: i64,
    producers_max: usize,
) -> Result<(Option<Saved>, Option<Within>), Fault> {
    let newest =
        |offset_max| snapshots::load_newest(disk, dir, saved, offset_max, producers_max).map_err(Fault::Io);
    let Some(found) = newest(offset_max)? else { return Ok((None, None)) };
    let Some(within) = segments.iter().rfind(|segment| segment.base_offset() < found.offset) else {
        return Ok((Some(found), None));
    };
    let segment = within.base_offset();
    let ends_there = within.state().read().next_offset <= found.offset;
    if ends_there && segments.last().is_some_and(|last| last.base_offset() > segment) {
        // It is finished, and verified when it is needed.
        return Ok((Some(found), None));
    }
    if let Some(digest) = found.aborted.digest_of(segment)
        && within.aborted().begins_with(within, digest)?
    {
        return Ok((Some(found), Some(Within { segment, digest })));
    }
    tracing::warn!(path = %within.aborted().file().path().display(), "the transaction index is damaged or unknown, read it from the batches");
    Ok((newest(segment)?, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataDir, DataDirOptions, Log, LogConfig, LogName, SimDisk};
    use records::BatchBuilder;
    use uuid::Uuid;

    const BATCHES: i64 = 5;

    #[test]
    fn a_search_for_phantoms_tells_of_each_batch_and_can_be_ended() {
        let options = DataDirOptions {
            cluster_id: "c1".into(),
            node_id: 1,
            new_directory_id: Uuid::from_u128(9),
            descriptors_max: 10,
        };
        let data = DataDir::open(SimDisk::new(1), Path::new("data"), &options).unwrap();
        let name = LogName { topic_id: Uuid::from_u128(1), partition: 0 };
        let (mut log, _) = Log::open(&data, name, LogConfig::default(), 0).unwrap();
        for offset in 0..BATCHES {
            let mut builder = BatchBuilder::new().base_offset(offset).leader_epoch(1);
            builder.push(0, None, Some(b"of no transaction"), &[]).unwrap();
            let batch = builder.build();
            log.append(&batch, &[BatchHeader::parse(&batch).unwrap()], 0).unwrap();
        }
        let mut producers = ProducerStates::new(10);
        producers.append(&ProducerBatch {
            producer_id: 7,
            producer_epoch: 0,
            first_sequence: 0,
            offset_delta: 0,
            last_offset: 1,
            timestamp: 0,
            is_transactional: true,
        });
        let mut search = |told_max: i64| {
            let mut told = 0;
            let mut pace = |_| {
                told += 1;
                told < told_max
            };
            let segments = log.shared.segments();
            forget_phantoms(&segments, &mut producers, BATCHES, (0, BATCHES), &mut pace)
                .map_err(|_| ())
                .unwrap();
            (told, producers.iter().any(|(_, state)| state.txn_first_offset.is_some()))
        };
        assert_eq!(search(2), (2, true), "it was not searched to the end");
        assert_eq!(search(i64::MAX), (BATCHES - 1, false), "from where the transaction began");
    }
}
