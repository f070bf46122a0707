use super::*;
use crate::replication::throttle::ThrottledReplicas;
use log_engine::LogConfig;
use records::BatchBuilder;
use storage_node_core::{FlushMode, ReplicaConfig};

const NOW: i64 = 1_700_000_000_000;

fn settings() -> TopicSettings {
    TopicSettings {
        compaction: crate::disk::cleaner::CompactionSettings::resolve(|_| String::new()),
        topic_name: "t".into(),
        batch_bytes_max: 1_048_588,
        segment_bytes: 1 << 30,
        compacted: false,
        retention: Default::default(),
        file_delete_delay_ms: 0,
        deletable: true,
        timestamp_type: TimestampType::CreateTime,
        timestamp_before_ms_max: i64::MAX,
        timestamp_after_ms_max: 3_600_000,
        unpacked_batch_bytes_max: 1 << 20,
        producer_expiration_ms: 86_400_000,
        leader_throttled: ThrottledReplicas::Nobody,
        follower_throttled: ThrottledReplicas::Nobody,
        replica: ReplicaConfig {
            min_insync: 1,
            flush: FlushMode::Ack,
            waiters_max: 10,
            replica_lag_ms_max: 30_000,
        },
        log: LogConfig::default(),
    }
}

fn batch_of(builder: BatchBuilder, records: &[(i64, Option<&[u8]>)]) -> Vec<u8> {
    let mut builder = builder;
    for &(timestamp, key) in records {
        builder.push(timestamp, key, Some(b"value"), &[]).unwrap();
    }
    builder.build()
}

fn batch() -> Vec<u8> {
    batch_of(BatchBuilder::new(), &[(NOW, Some(b"k")), (NOW, Some(b"l"))])
}

/// Changes bytes of a batch and makes the checksum right again.
fn patched(mut batch: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    batch[at..at + bytes.len()].copy_from_slice(bytes);
    let crc = records::compute_crc(&batch);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

fn check(settings: &TopicSettings, bytes: &[u8]) -> Result<(), InvalidBatch> {
    validate(settings, 9, bytes, NOW).map(|_| ())
}

fn malformed(result: Result<(), InvalidBatch>) -> String {
    match result {
        Err(InvalidBatch::Malformed(message)) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_good_batch_passes_with_every_codec() {
    for codec in Compression::ALL {
        let bytes = batch_of(BatchBuilder::new().compression(codec), &[(NOW, None)]);
        let header = validate(&settings(), 9, &bytes, NOW).unwrap();
        assert_eq!(header.compression(), Ok(codec));
    }
}

#[test]
fn exactly_one_whole_batch_of_format_two() {
    let good = batch();
    assert!(malformed(check(&settings(), &[])).contains("exactly one"));
    assert!(malformed(check(&settings(), &good[..good.len() - 1])).contains("exactly one"));
    assert!(malformed(check(&settings(), &[good.clone(), good.clone()].concat())).contains("exactly one"));
    for magic in [0, 1, 3] {
        let mut old = good.clone();
        old[16] = magic;
        assert!(malformed(check(&settings(), &old)).contains("magic version 2"));
    }
}

#[test]
fn damage_is_corruption() {
    let mut damaged = batch();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    assert!(matches!(
        check(&settings(), &damaged),
        Err(InvalidBatch::Corrupt(BatchError::CrcMismatch { .. }))
    ));
    let short = patched(batch(), 8, &10i32.to_be_bytes());
    assert!(matches!(check(&settings(), &short), Err(InvalidBatch::Corrupt(BatchError::InvalidLength(10)))));
    let codec = patched(batch(), 21, &7i16.to_be_bytes());
    assert!(matches!(
        check(&settings(), &codec),
        Err(InvalidBatch::Corrupt(BatchError::UnknownCompression(7)))
    ));
}

#[test]
fn fields_must_agree() {
    let cases: [(usize, Vec<u8>, &str); 6] = [
        (0, 5i64.to_be_bytes().to_vec(), "baseOffset"),
        (23, 7i32.to_be_bytes().to_vec(), "Inconsistent"),
        (23, (-1i32).to_be_bytes().to_vec(), "Invalid reported count"),
        (57, 0i32.to_be_bytes().to_vec(), "Invalid reported count"),
        (21, 0x20i16.to_be_bytes().to_vec(), "control"),
        (21, 0x40i16.to_be_bytes().to_vec(), "delete horizon"),
    ];
    for (at, bytes, message) in cases {
        let text = malformed(check(&settings(), &patched(batch(), at, &bytes)));
        assert!(text.contains(message), "{text}");
    }
    let no_sequence = batch_of(BatchBuilder::new().producer(5, 0, -1), &[(NOW, None)]);
    assert!(malformed(check(&settings(), &no_sequence)).contains("Invalid sequence"));
    let transactional = batch_of(BatchBuilder::new().producer(5, 0, 0).transactional(), &[(NOW, None)]);
    assert_eq!(check(&settings(), &transactional), Err(InvalidBatch::Transactional));
}

#[test]
fn no_more_records_are_claimed_than_fit() {
    let claims_many = patched(patched(batch(), 23, &49i32.to_be_bytes()), 57, &50i32.to_be_bytes());
    let error = InvalidBatch::Corrupt(BatchError::InvalidRecordCount(50));
    assert_eq!(check(&settings(), &claims_many), Err(error));
    // Of compressed records only what no codec could make of the bytes is known without a look.
    for codec in Compression::ALL {
        let packed = batch_of(BatchBuilder::new().compression(codec), &[(NOW, None)]);
        let last_delta = (i32::MAX - 1).to_be_bytes();
        let claims = patched(patched(packed, 23, &last_delta), 57, &i32::MAX.to_be_bytes());
        let error = InvalidBatch::Corrupt(BatchError::InvalidRecordCount(i32::MAX));
        assert_eq!(check(&settings(), &claims), Err(error), "{codec}");
    }
}

#[test]
fn sizes_are_bounded() {
    let bytes = batch();
    let small = TopicSettings { batch_bytes_max: bytes.len() - 1, ..settings() };
    let error = InvalidBatch::TooLarge { size: bytes.len(), max: bytes.len() - 1 };
    assert_eq!(check(&small, &bytes), Err(error));
    let exact = TopicSettings { batch_bytes_max: bytes.len(), ..settings() };
    assert_eq!(check(&exact, &bytes), Ok(()));
    let segment = TopicSettings { segment_bytes: 10, ..settings() };
    assert!(matches!(check(&segment, &bytes), Err(InvalidBatch::LargerThanSegment { .. })));
}

#[test]
fn zstd_needs_version_seven() {
    let bytes = batch_of(BatchBuilder::new().compression(Compression::Zstd), &[(NOW, None)]);
    assert_eq!(validate(&settings(), 6, &bytes, NOW), Err(InvalidBatch::Compression { version: 6 }));
    assert!(validate(&settings(), 7, &bytes, NOW).is_ok());
}

#[test]
fn compacted_topics_need_keys_and_name_the_records_without() {
    let compacted = TopicSettings { compacted: true, ..settings() };
    for codec in Compression::ALL {
        let builder = BatchBuilder::new().compression(codec);
        let bytes = batch_of(builder, &[(NOW, Some(b"k")), (NOW, None), (NOW, Some(b"")), (NOW, None)]);
        assert_eq!(check(&settings(), &bytes), Ok(()));
        let Err(InvalidBatch::Records(errors)) = check(&compacted, &bytes) else { panic!("{codec}") };
        assert_eq!(errors.iter().map(|error| error.index).collect::<Vec<_>>(), [1, 3]);
        assert!(errors[0].message.contains("without key"));
    }
}

#[test]
fn timestamps_are_bounded_on_both_sides() {
    let hour = 3_600_000;
    let late = batch_of(BatchBuilder::new(), &[(NOW, None), (NOW + hour + 1, None)]);
    let Err(InvalidBatch::Timestamps(errors)) = check(&settings(), &late) else { panic!() };
    assert_eq!(errors.iter().map(|error| error.index).collect::<Vec<_>>(), [1]);
    let edge = batch_of(BatchBuilder::new(), &[(NOW + hour, None), (-1, None)]);
    assert_eq!(check(&settings(), &edge), Ok(()));
    let bounded = TopicSettings { timestamp_before_ms_max: 1_000, ..settings() };
    let old = batch_of(BatchBuilder::new(), &[(NOW - 1_001, None), (NOW - 1_000, None)]);
    let Err(InvalidBatch::Timestamps(errors)) = check(&bounded, &old) else { panic!() };
    assert_eq!(errors.iter().map(|error| error.index).collect::<Vec<_>>(), [0]);
    let stamped = TopicSettings { timestamp_type: TimestampType::LogAppendTime, ..bounded };
    assert_eq!(check(&stamped, &old), Ok(()), "the broker's clock replaces them");
}

#[test]
fn producers_do_not_claim_append_time() {
    let bytes = batch_of(BatchBuilder::new().log_append_time(), &[(NOW, None)]);
    let Err(InvalidBatch::Timestamps(errors)) = check(&settings(), &bytes) else { panic!() };
    assert!(errors[0].message.contains("LogAppendTime"));
}

#[test]
fn unpacking_is_capped() {
    let mut builder = BatchBuilder::new().compression(Compression::Gzip);
    builder.push(NOW, Some(b"k"), Some(&vec![0; 2 << 20]), &[]).unwrap();
    let bytes = builder.build();
    let compacted = TopicSettings { compacted: true, ..settings() };
    assert!(matches!(check(&compacted, &bytes), Err(InvalidBatch::TooLarge { .. })));
    assert!(needs_unpacking(&compacted, &bytes, NOW));
    assert!(!needs_unpacking(&settings(), &bytes, NOW));
    assert_eq!(check(&settings(), &bytes), Ok(()), "opaque where nothing has to be known");
}

#[test]
fn records_that_contradict_their_offsets_are_refused() {
    // The second record claims offset delta 5.
    let mut bytes = batch_of(BatchBuilder::new(), &[(NOW, Some(b"k")), (NOW, Some(b"z"))]);
    let second = bytes.iter().rposition(|&byte| byte == b'z').unwrap() - 2;
    assert_eq!(bytes[second], 2);
    bytes[second] = 10;
    let compacted = TopicSettings { compacted: true, ..settings() };
    let bytes = patched(bytes, 0, &[]);
    let Err(InvalidBatch::Records(errors)) = check(&compacted, &bytes) else { panic!() };
    assert_eq!(errors[0].index, 1);
}
