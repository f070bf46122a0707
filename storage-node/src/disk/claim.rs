//! The claim of a coordinator in the log of a shard: a control batch of our own type, which consumers skip and compaction
//! keeps. The newest one is the fence of the partition: appends of older coordinator epochs are refused.
//!
//! Key and value are laid out as Kafka's control records are. Persisted: never change, never reuse the type.

use std::io;

use log_engine::{FileError, LogReader, ReadError};
use proto_types::ids::CoordinatorEpoch;
use records::{BatchBuilder, BatchView, batches};

/// Version of key and value.
const VERSION: i16 = 0;
/// Type of the control record, far from Kafka's own.
const CLAIM_TYPE: i16 = 0x5745;
/// Bytes that are read at a time when a log is searched for its fence.
const SEARCH_BYTES: usize = 1 << 20;
/// Offsets that are searched first, from the log's end; doubled with each further step.
const SEARCH_OFFSETS: i64 = 1_000;
/// Bytes that a claim can unpack to; it is never compressed.
const CLAIM_BYTES_MAX: usize = 256;

/// The batch of a claim.
pub(crate) fn encode(epoch: CoordinatorEpoch, now_ms: i64) -> Vec<u8> {
    let key = [VERSION.to_be_bytes(), CLAIM_TYPE.to_be_bytes()].concat();
    let value = [&VERSION.to_be_bytes()[..], &epoch.0.to_be_bytes()[..]].concat();
    let mut builder = BatchBuilder::new().control();
    builder.push(now_ms, Some(&key), Some(&value), &[]).expect("a claim is small");
    builder.build()
}

/// The epoch, if the batch is a claim.
pub(crate) fn decode(batch: &BatchView<'_>) -> Option<CoordinatorEpoch> {
    if !batch.header().is_control() {
        return None;
    }
    let records = batch.records(CLAIM_BYTES_MAX).ok()?;
    let record = records.iter().next()?.ok()?;
    let (key, value) = (record.key?, record.value?);
    let is_claim = key.get(2..4)? == CLAIM_TYPE.to_be_bytes();
    let epoch = value.get(2..6)?.try_into().ok()?;
    is_claim.then_some(CoordinatorEpoch(i32::from_be_bytes(epoch)))
}

/// Searches a log for its newest claim, from the end. Waits for the disk, for all of a long log if there is none: `go_on` is
/// asked before each read, and ends the search with an error of the kind `Interrupted`.
pub(crate) fn newest(
    reader: &LogReader,
    (start, end): (i64, i64),
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Option<CoordinatorEpoch>, ReadError> {
    let (mut upper, mut step) = (end, SEARCH_OFFSETS);
    while upper > start {
        let lower = start.max(upper.saturating_sub(step));
        if let Some(found) = newest_in(reader, (lower, upper), go_on)? {
            return Ok(Some(found));
        }
        (upper, step) = (lower, step.saturating_mul(2));
    }
    Ok(None)
}

fn newest_in(
    reader: &LogReader,
    (lower, upper): (i64, i64),
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Option<CoordinatorEpoch>, ReadError> {
    let (mut at, mut found) = (lower, None);
    while at < upper {
        if !go_on() {
            return Err(read_error(reader, io::ErrorKind::Interrupted.into()));
        }
        let (bytes, next) = read(reader, at, SEARCH_BYTES, upper)?;
        if next <= at {
            break;
        }
        // What is read was checked.
        for batch in batches(&bytes).map_while(Result::ok) {
            found = decode(&batch).or(found);
        }
        at = next;
    }
    Ok(found)
}

/// Bytes of whole batches from the one that holds `offset` on, checked, and where to read on. Waits for the disk.
pub(crate) fn read(
    reader: &LogReader,
    offset: i64,
    bytes_max: usize,
    upper_bound: i64,
) -> Result<(Vec<u8>, i64), ReadError> {
    let slice = reader.read_checked(offset, bytes_max, upper_bound, true)?;
    let bytes = slice.to_bytes().map_err(|source| read_error(reader, source))?;
    Ok((bytes, slice.next_offset))
}

fn read_error(reader: &LogReader, source: io::Error) -> ReadError {
    ReadError::Io(FileError { action: "read", path: reader.name().to_string().into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use log_engine::{DataDir, DataDirOptions, Log, LogConfig, LogName, SimDisk};
    use records::BatchHeader;
    use std::path::Path;

    #[test]
    fn a_claim_is_a_control_batch_that_is_read_back() {
        let bytes = encode(CoordinatorEpoch(7), 1_000);
        let batch = BatchView::parse(&bytes).expect("whole");
        batch.check_crc().expect("sound");
        assert!(batch.header().is_control() && !batch.header().is_transactional());
        assert_eq!(decode(&batch), Some(CoordinatorEpoch(7)));
    }

    #[test]
    fn a_search_goes_back_to_the_newest_claim_unless_it_is_ended() {
        let options = DataDirOptions {
            cluster_id: "c".into(),
            node_id: 1,
            new_directory_id: uuid::Uuid::from_u128(1),
            descriptors_max: 10,
        };
        let data = DataDir::open(SimDisk::new(1), Path::new("data"), &options).expect("a new disk");
        let name = LogName { topic_id: uuid::Uuid::from_u128(2), partition: 0 };
        let (mut log, _) = Log::open(&data, name, LogConfig::default(), 0).expect("a new log");
        let mut append = |mut bytes: Vec<u8>| {
            records::set_base_offset(&mut bytes, log.end());
            let header = BatchHeader::parse(&bytes).expect("a batch");
            log.append(&bytes, &[header], 0).expect("there is room");
            log.end()
        };
        append(encode(CoordinatorEpoch(6), 0));
        append(encode(CoordinatorEpoch(7), 0));
        let mut end = 0;
        while end < 4 * SEARCH_OFFSETS {
            let mut data = BatchBuilder::new();
            (0..500).for_each(|_| data.push(0, None, Some(b"x"), &[]).expect("small"));
            end = append(data.build());
        }
        let reader = log.reader();
        let mut asked = 0;
        let mut search = |reads_max: usize| {
            asked = 0;
            newest(&reader, (0, end), &mut || {
                asked += 1;
                asked <= reads_max
            })
        };
        assert_eq!(search(usize::MAX).expect("it can be read"), Some(CoordinatorEpoch(7)));
        let error = search(2).expect_err("it was ended").to_string();
        assert!(error.contains("interrupted"), "{error}");
        assert_eq!(asked, 3, "once for each read");
    }

    #[test]
    fn golden_record() {
        let bytes = encode(CoordinatorEpoch(0x0102_0304), 0);
        let hex: String = bytes[61..].iter().map(|byte| format!("{byte:02x}")).collect();
        // length, attributes, timestamp delta, offset delta, key 0000 5745, value 0000 01020304, no headers
        assert_eq!(hex, "2000000008000057450c00000102030400");
    }

    #[test]
    fn other_batches_are_no_claims() {
        let mut marker = BatchBuilder::new().control().transactional().producer(1, 0, -1);
        marker.push(0, Some(&[0, 0, 0, 1]), Some(&[0; 6]), &[]).expect("small");
        let marker = marker.build();
        assert_eq!(decode(&BatchView::parse(&marker).expect("whole")), None);
        let mut data = BatchBuilder::new();
        data.push(0, Some(&[0, 0, 0x57, 0x45]), Some(&[0; 6]), &[]).expect("small");
        let data = data.build();
        assert_eq!(decode(&BatchView::parse(&data).expect("whole")), None);
    }
}
