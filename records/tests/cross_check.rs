//! Our builder and reader against the `kafka-protocol` crate's, in both directions and with every codec.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use bytes::{Bytes, BytesMut};
use kafka_protocol::indexmap::IndexMap;
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records as theirs;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use records::{BatchBuilder, Compression, batches};

#[derive(Debug, Clone, PartialEq)]
struct Plain {
    offset: i64,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

fn some_bytes(rng: &mut StdRng, max: usize) -> Option<Vec<u8>> {
    if rng.random_bool(0.2) {
        return None;
    }
    let len = rng.random_range(0..=max);
    let byte = rng.random::<u8>();
    Some((0..len).map(|_| if rng.random_bool(0.7) { byte } else { rng.random() }).collect())
}

fn some_records(rng: &mut StdRng) -> Vec<Plain> {
    let count = rng.random_range(1..40);
    let time = rng.random_range(0..1 << 42);
    (0..count)
        .map(|index| Plain {
            offset: 0,
            timestamp: time + rng.random_range(-5_000..5_000),
            key: some_bytes(rng, 30),
            value: some_bytes(rng, 3_000),
            headers: (0..rng.random_range(0..3))
                .map(|n| (format!("h{n}-{index}").into_bytes(), some_bytes(rng, 20)))
                .collect(),
        })
        .enumerate()
        .map(|(index, record)| Plain { offset: index as i64, ..record })
        .collect()
}

fn their_codec(codec: Compression) -> theirs::Compression {
    match codec {
        Compression::None => theirs::Compression::None,
        Compression::Gzip => theirs::Compression::Gzip,
        Compression::Snappy => theirs::Compression::Snappy,
        Compression::Lz4 => theirs::Compression::Lz4,
        Compression::Zstd => theirs::Compression::Zstd,
    }
}

fn to_theirs(record: &Plain) -> theirs::Record {
    let header = |(key, value): &(Vec<u8>, Option<Vec<u8>>)| {
        let key = StrBytes::from_string(String::from_utf8(key.clone()).unwrap());
        (key, value.clone().map(Bytes::from))
    };
    theirs::Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: 4,
        producer_id: 11,
        producer_epoch: 1,
        timestamp_type: theirs::TimestampType::Creation,
        offset: record.offset,
        sequence: 100 + record.offset as i32,
        timestamp: record.timestamp,
        key: record.key.clone().map(Bytes::from),
        value: record.value.clone().map(Bytes::from),
        headers: record.headers.iter().map(header).collect::<IndexMap<_, _>>(),
    }
}

fn from_theirs(record: &theirs::Record) -> Plain {
    Plain {
        offset: record.offset,
        timestamp: record.timestamp,
        key: record.key.as_ref().map(|key| key.to_vec()),
        value: record.value.as_ref().map(|value| value.to_vec()),
        headers: (record.headers.iter())
            .map(|(key, value)| (key.as_bytes().to_vec(), value.as_ref().map(|value| value.to_vec())))
            .collect(),
    }
}

fn build_ours(codec: Compression, records: &[Plain]) -> Vec<u8> {
    let mut builder = BatchBuilder::new().compression(codec).leader_epoch(4).producer(11, 1, 100);
    for record in records {
        let headers: Vec<_> =
            record.headers.iter().map(|(key, value)| (key.as_slice(), value.as_deref())).collect();
        builder.push(record.timestamp, record.key.as_deref(), record.value.as_deref(), &headers).unwrap();
    }
    builder.build()
}

fn read_ours(bytes: &[u8]) -> Vec<Plain> {
    let mut plain = Vec::new();
    for view in batches(bytes) {
        let view = view.unwrap();
        view.check_crc().unwrap();
        for record in view.records(1 << 24).unwrap().iter() {
            let record = record.unwrap();
            plain.push(Plain {
                offset: record.offset,
                timestamp: record.timestamp,
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
                headers: (record.headers.iter())
                    .map(|header| (header.key.to_vec(), header.value.map(<[u8]>::to_vec)))
                    .collect(),
            });
        }
    }
    plain
}

#[test]
fn they_read_what_we_write_and_we_read_what_they_write() {
    let seed = std::env::var("WEIR_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("repeat with: WEIR_SEED={seed} cargo test -p records --test cross_check");
    let mut rng = StdRng::seed_from_u64(seed);
    for round in 0..60 {
        let records = some_records(&mut rng);
        for codec in Compression::ALL {
            let ours = build_ours(codec, &records);
            let read = theirs::RecordBatchDecoder::decode(&mut Bytes::from(ours.clone())).unwrap();
            let read: Vec<_> = read.records.iter().map(from_theirs).collect();
            assert_eq!(read, records, "round {round}, {codec}: they read ours");
            assert_eq!(read_ours(&ours), records, "round {round}, {codec}: we read ours");

            let mut written = BytesMut::new();
            let options = theirs::RecordEncodeOptions { version: 2, compression: their_codec(codec) };
            let sent: Vec<_> = records.iter().map(to_theirs).collect();
            theirs::RecordBatchEncoder::encode(&mut written, &sent, &options).unwrap();
            assert_eq!(read_ours(&written), records, "round {round}, {codec}: we read theirs");
        }
    }
}

#[test]
fn uncompressed_batches_are_equal_byte_for_byte() {
    let mut rng = StdRng::seed_from_u64(7);
    for round in 0..200 {
        let mut records = some_records(&mut rng);
        // Their encoder takes the smallest timestamp as base, ours (like the Java client) the first one.
        let first = records.iter().map(|record| record.timestamp).min().unwrap();
        records[0].timestamp = first;
        let mut written = BytesMut::new();
        let options = theirs::RecordEncodeOptions { version: 2, compression: theirs::Compression::None };
        let sent: Vec<_> = records.iter().map(to_theirs).collect();
        theirs::RecordBatchEncoder::encode(&mut written, &sent, &options).unwrap();
        assert_eq!(build_ours(Compression::None, &records), written, "round {round}");
    }
}
