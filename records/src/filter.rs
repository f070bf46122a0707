//! What compaction does to one batch: some records go, the rest stay where they are.
//!
//! Offsets, sequences, epochs and the codec of the batch never change; only the record count, the largest timestamp and,
//! with a delete horizon (KIP-534), the base timestamp do. A batch of which everything stays is copied byte for byte.

use crate::header::{CONTROL_BIT, DELETE_HORIZON_BIT, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT};
use crate::record::read_record;
use crate::varint::{Cursor, put_varint, put_varlong};
use crate::{
    BatchError, BatchHeader, BatchView, Compression, NO_TIMESTAMP, Record, TimestampType, codec, crc,
};

/// Whether a batch gets a delete horizon: when, in milliseconds, its tombstones may go. A batch that has one keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Horizon {
    /// None is set.
    Leave,
    /// This one is set if a tombstone stays in the batch.
    ForTombstones(i64),
    /// This one is set.
    Set(i64),
}

/// What came of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filtered {
    /// Everything stays: the bytes were copied.
    Same,
    /// So many records stay, or all do and the batch has a delete horizon now.
    Rewritten { records: usize },
    /// No record stays: nothing was written.
    Nothing,
}

/// Filters batches. Keeps its buffers from one batch to the next.
#[derive(Debug, Default)]
pub struct BatchFilter {
    /// Where the records that stay lie among the unpacked ones: from, to.
    kept: Vec<(usize, usize)>,
    records: Vec<u8>,
}

/// What is known of the records that stay.
struct Kept {
    count: usize,
    all: bool,
    tombstones: bool,
    max_timestamp: i64,
}

impl BatchFilter {
    /// Appends to `out` the batch with only those records for which `keep` is true. The batch's checksum is not looked
    /// at. `output_cap` bounds the unpacked records in bytes.
    pub fn filter(
        &mut self,
        batch: &BatchView<'_>,
        output_cap: usize,
        horizon: Horizon,
        mut keep: impl FnMut(&Record<'_>) -> bool,
        out: &mut Vec<u8>,
    ) -> Result<Filtered, BatchError> {
        let header = batch.header();
        let unpacked = batch.records(output_cap)?;
        let data = unpacked.data();
        let kept = self.choose(header, unpacked.len(), data, &mut keep)?;
        if kept.count == 0 {
            return Ok(Filtered::Nothing);
        }
        let new_horizon = match horizon {
            _ if header.delete_horizon().is_some() => None,
            Horizon::Leave => None,
            Horizon::ForTombstones(at) => kept.tombstones.then_some(at),
            Horizon::Set(at) => Some(at),
        };
        // Timestamps too far from the horizon cannot be told by deltas to it: then there is none, and tombstones stay.
        let base_timestamp = new_horizon.filter(|&at| self.can_be_based_on(header, data, at));
        if kept.all && base_timestamp.is_none() {
            out.extend_from_slice(batch.bytes());
            return Ok(Filtered::Same);
        }
        let mut new = *header;
        new.record_count = kept.count as i32;
        if header.timestamp_type() == TimestampType::CreateTime {
            new.max_timestamp = kept.max_timestamp;
        }
        if let Some(base) = base_timestamp {
            new.base_timestamp = base;
            new.attributes |= DELETE_HORIZON_BIT;
        }
        self.write(&new, header.base_timestamp, data, out)?;
        Ok(Filtered::Rewritten { records: kept.count })
    }

    fn choose(
        &mut self,
        header: &BatchHeader,
        count: usize,
        data: &[u8],
        keep: &mut impl FnMut(&Record<'_>) -> bool,
    ) -> Result<Kept, BatchError> {
        self.kept.clear();
        let mut kept = Kept { count: 0, all: true, tombstones: false, max_timestamp: NO_TIMESTAMP };
        let mut rest = Cursor::new(data);
        for index in 0..count {
            let from = data.len() - rest.left();
            let record = read_record(header, &mut rest)
                .map_err(|reason| BatchError::InvalidRecord { index, reason })?;
            if !keep(&record) {
                kept.all = false;
                continue;
            }
            kept.max_timestamp =
                if kept.count == 0 { record.timestamp } else { kept.max_timestamp.max(record.timestamp) };
            kept.count += 1;
            kept.tombstones |= record.value.is_none();
            let to = data.len() - rest.left();
            match self.kept.last_mut() {
                Some(last) if last.1 == from => last.1 = to,
                Some(_) | None => self.kept.push((from, to)),
            }
        }
        match rest.left() {
            0 => Ok(kept),
            left => Err(BatchError::TrailingBytes(left)),
        }
    }

    fn can_be_based_on(&self, header: &BatchHeader, data: &[u8], base: i64) -> bool {
        let shift = header.base_timestamp.checked_sub(base);
        let mut deltas = self.kept.iter().flat_map(|&(from, to)| Deltas(Cursor::new(&data[from..to])));
        shift.is_some_and(|shift| deltas.all(|(delta, _)| delta.checked_add(shift).is_some()))
    }

    /// Writes the records that stay under `header`, whose length and checksum are set.
    fn write(
        &mut self,
        header: &BatchHeader,
        base_before: i64,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), BatchError> {
        let codec = header.compression()?;
        let at = out.len();
        out.resize(at + BatchHeader::LEN, 0);
        let mut records = std::mem::take(&mut self.records);
        records.clear();
        let packed = codec != Compression::None;
        {
            let into = if packed { &mut records } else { &mut *out };
            for &(from, to) in &self.kept {
                match header.base_timestamp == base_before {
                    true => into.extend_from_slice(&data[from..to]),
                    false => rebase(&data[from..to], base_before - header.base_timestamp, into),
                }
            }
        }
        if packed {
            codec::compress(codec, &records, out);
        }
        self.records = records;
        seal(header, &mut out[at..])
    }
}

/// Appends to `out` the batch of `header` without any records: what it says of its producer and of its last offset stays.
pub fn put_emptied_batch(header: &BatchHeader, out: &mut Vec<u8>) {
    let emptied = BatchHeader {
        length: BatchHeader::LENGTH_MIN,
        attributes: header.attributes & (LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT),
        base_timestamp: NO_TIMESTAMP,
        record_count: 0,
        ..*header
    };
    let at = out.len();
    out.extend_from_slice(&emptied.encode());
    crc::seal(&mut out[at..]);
}

fn seal(header: &BatchHeader, batch: &mut [u8]) -> Result<(), BatchError> {
    let length = batch.len() - (BatchHeader::LEN - BatchHeader::LENGTH_MIN as usize);
    let length = i32::try_from(length).map_err(|_| BatchError::OutputTooLarge { cap: i32::MAX as usize })?;
    batch[..BatchHeader::LEN].copy_from_slice(&BatchHeader { length, ..*header }.encode());
    crc::seal(batch);
    Ok(())
}

/// The timestamp deltas of records that were checked before, each with the record's attributes and what follows the delta.
struct Deltas<'a>(Cursor<'a>);

impl<'a> Iterator for Deltas<'a> {
    type Item = (i64, (u8, &'a [u8]));

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::try_from(self.0.varint()?).ok()?;
        let mut body = Cursor::new(self.0.take(length)?);
        let attributes = body.byte()?;
        let delta = body.varlong()?;
        Some((delta, (attributes, body.rest())))
    }
}

/// Appends records with their timestamp deltas moved by `shift`.
fn rebase(records: &[u8], shift: i64, out: &mut Vec<u8>) {
    let mut delta_bytes = Vec::with_capacity(10);
    for (delta, (attributes, rest)) in Deltas(Cursor::new(records)) {
        delta_bytes.clear();
        put_varlong(&mut delta_bytes, delta.wrapping_add(shift));
        // A record lies in a batch, whose size fits 31 bits.
        put_varint(out, (1 + delta_bytes.len() + rest.len()) as i32);
        out.push(attributes);
        out.extend_from_slice(&delta_bytes);
        out.extend_from_slice(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BatchBuilder;

    type Shown = (i64, i64, Vec<u8>, Option<Vec<u8>>);

    fn batch(codec: Compression) -> Vec<u8> {
        let mut builder =
            BatchBuilder::new().compression(codec).base_offset(70).leader_epoch(3).producer(9, 2, 5);
        let headers: [(&[u8], Option<&[u8]>); 1] = [(b"h", Some(b"v"))];
        for i in 0..6i64 {
            let value = [i as u8; 30];
            let value = (i != 2).then_some(&value[..]);
            builder.push(1000 + (i * 7) % 5, Some(&[i as u8]), value, &headers).unwrap();
        }
        builder.build()
    }

    fn shown(bytes: &[u8]) -> Vec<Shown> {
        let batch = BatchView::parse(bytes).unwrap();
        batch.check_crc().unwrap();
        let records = batch.records(1 << 20).unwrap();
        let shown = records.iter().map(|record| {
            let r = record.unwrap();
            assert_eq!(r.headers.len(), 1);
            (r.offset, r.timestamp, r.key.unwrap().to_vec(), r.value.map(<[u8]>::to_vec))
        });
        shown.collect()
    }

    fn filter(bytes: &[u8], horizon: Horizon, keep: impl Fn(i64) -> bool) -> (Filtered, Vec<u8>) {
        let mut out = b"before".to_vec();
        let view = BatchView::parse(bytes).unwrap();
        let came =
            BatchFilter::default().filter(&view, 1 << 20, horizon, |r| keep(r.offset), &mut out).unwrap();
        (came, out.split_off(6))
    }

    #[test]
    fn what_stays_is_what_it_was_in_every_codec() {
        for codec in Compression::ALL {
            let bytes = batch(codec);
            let before = shown(&bytes);
            let (same, out) = filter(&bytes, Horizon::Leave, |_| true);
            assert_eq!((same, &out), (Filtered::Same, &bytes));
            assert_eq!(filter(&bytes, Horizon::Set(5), |_| false), (Filtered::Nothing, vec![]));
            for horizon in [Horizon::Leave, Horizon::ForTombstones(5_000_000), Horizon::Set(7)] {
                let (came, out) = filter(&bytes, horizon, |offset| offset % 2 == 0);
                assert_eq!(came, Filtered::Rewritten { records: 3 });
                let expected: Vec<Shown> = before.iter().filter(|r| r.0 % 2 == 0).cloned().collect();
                assert_eq!(shown(&out), expected, "{codec} {horizon:?}");
                let (old, new) = (BatchHeader::parse(&bytes).unwrap(), BatchHeader::parse(&out).unwrap());
                assert_eq!(new.max_timestamp, expected.iter().map(|r| r.1).max().unwrap());
                let horizon = match horizon {
                    Horizon::Leave => None,
                    Horizon::ForTombstones(at) | Horizon::Set(at) => Some(at),
                };
                assert_eq!(new.delete_horizon(), horizon);
                assert_eq!(new.compression(), Ok(codec));
                let same = |h: &BatchHeader| {
                    (
                        h.base_offset,
                        h.last_offset_delta,
                        h.partition_leader_epoch,
                        h.producer_id,
                        h.base_sequence,
                    )
                };
                assert_eq!(same(&old), same(&new));
            }
        }
    }

    #[test]
    fn a_horizon_is_for_tombstones_and_is_set_once() {
        let bytes = batch(Compression::Lz4);
        let (came, _) = filter(&bytes, Horizon::ForTombstones(1), |offset| offset != 72);
        assert_eq!(came, Filtered::Rewritten { records: 5 });
        let (came, once) = filter(&bytes, Horizon::ForTombstones(99), |_| true);
        assert_eq!(came, Filtered::Rewritten { records: 6 });
        assert_eq!(BatchHeader::parse(&once).unwrap().delete_horizon(), Some(99));
        let (came, twice) = filter(&once, Horizon::ForTombstones(500), |_| true);
        assert_eq!((came, &twice), (Filtered::Same, &once));
        assert_eq!(shown(&twice), shown(&bytes));
    }

    #[test]
    fn timestamps_out_of_reach_of_the_horizon_leave_the_batch_alone() {
        let mut builder = BatchBuilder::new();
        builder.push(i64::MIN + 5, Some(b"k"), None, &[]).unwrap();
        let bytes = builder.build();
        let (came, out) = filter(&bytes, Horizon::ForTombstones(i64::MAX), |_| true);
        assert_eq!((came, out), (Filtered::Same, bytes));
    }

    #[test]
    fn an_emptied_batch_keeps_its_producer_and_its_last_offset() {
        let bytes = batch(Compression::Zstd);
        let mut out = Vec::new();
        let before = BatchHeader::parse(&bytes).unwrap();
        put_emptied_batch(&before, &mut out);
        let view = BatchView::parse(&out).unwrap();
        view.check_crc().unwrap();
        let header = view.header();
        assert_eq!((header.size(), header.record_count), (BatchHeader::LEN, 0));
        assert_eq!(
            (header.last_offset(), header.last_sequence()),
            (before.last_offset(), before.last_sequence())
        );
        assert_eq!(view.records(10).unwrap().iter().count(), 0);
        assert_eq!(header.compression(), Ok(Compression::None));
    }

    #[test]
    fn damaged_records_are_an_error() {
        let mut bytes = batch(Compression::None);
        bytes[BatchHeader::LEN] = 0x7f;
        let view = BatchView::parse(&bytes).unwrap();
        let mut out = Vec::new();
        let came = BatchFilter::default().filter(&view, 1 << 20, Horizon::Leave, |_| true, &mut out);
        assert!(matches!(came, Err(BatchError::InvalidRecord { .. })), "{came:?}");
    }
}
