//! Apache Kafka's dump-log tool reads our segments, indexes and producer snapshots.

use std::fs;
use std::sync::Arc;

use cluster_tests::clients::{kafka_tool, kcat};
use cluster_tests::dump::{dump_partition, partition_dirs};
use cluster_tests::local_cluster::WeirDev;
use cluster_tests::run_dir::RunDir;
use cluster_tests::workspace;
use log_engine::{DataDir, DataDirOptions, Log, LogConfig, LogName, RealDisk};
use records::{BatchBuilder, BatchHeader, Compression};
use uuid::Uuid;

const DEPARTURES: usize = 30_000;

#[test]
fn files_of_a_real_run() {
    let mut dev = WeirDev::start("dump_log");
    let at = dev.bootstrap();
    let create = ["--create", "--topic", "dumped", "--partitions", "1", "--config", "segment.bytes=1048576"];
    kafka_tool("kafka-topics", &at, &create, b"");
    let table = fs::read_to_string(workspace::flights_file())
        .unwrap_or_else(|error| panic!("{error}: run `cargo xtask flights`"));
    let lines: Vec<&str> = table.lines().take(DEPARTURES).collect();
    let mut idempotent = vec!["-P", "-t", "dumped", "-X", "acks=all", "-X", "enable.idempotence=true"];
    // Batches of some kilobytes, so that segments have many of them.
    idempotent.extend(["-X", "batch.size=16000"]);
    // One half uncompressed, one half by each codec in turn.
    let (plain, packed) = lines.split_at(DEPARTURES / 2);
    kcat(&at, &[&idempotent[..], &["-z", "none"]].concat(), plain.join("\n").as_bytes());
    for (codec, part) in ["gzip", "snappy", "lz4", "zstd"].iter().zip(packed.chunks(packed.len() / 4)) {
        kcat(&at, &[&idempotent[..], &["-z", codec]].concat(), part.join("\n").as_bytes());
    }
    assert!(dev.stop().success());

    let dirs = partition_dirs(dev.data());
    assert_eq!(dirs.len(), 1, "{dirs:?}");
    let dump = dump_partition(&dirs[0]);
    assert_eq!(dump.first_offset, 0);
    assert!(dump.values == lines, "the tool reads the records that were sent");
    assert!(dump.segments >= 4, "{} segments", dump.segments);
    // An entry for every 4 KiB or every batch, whichever is more; batches are the larger ones here.
    assert!(dump.index_entries > 50, "{} index entries", dump.index_entries);
    assert!(dump.time_entries > 0);
    assert_eq!(dump.producers, 5);
}

/// Appends a batch of ten records and gives their values.
fn append_ten(log: &mut Log, number: i64, compression: Compression, epoch: i32) -> Vec<String> {
    let sequence = i32::try_from(number / 3 * 10).expect("small");
    let mut builder = BatchBuilder::new()
        .compression(compression)
        .base_offset(log.end())
        .leader_epoch(epoch)
        .producer(number % 3, 0, sequence);
    let values: Vec<String> =
        (0..10).map(|n| format!("record {n} of batch {number} {}", "x".repeat(100))).collect();
    for value in &values {
        builder.push(1_700_000_000_000 + number, Some(b"key"), Some(value.as_bytes()), &[]).expect("small");
    }
    let batch = builder.build();
    let header = BatchHeader::parse(&batch).expect("just built");
    log.append(&batch, &[header], 1_700_000_000_000 + number).expect("the disk works");
    values
}

#[test]
fn files_of_the_engine_alone() {
    let run_dir = RunDir::new("dump_engine");
    let options = DataDirOptions {
        cluster_id: "dump".to_owned(),
        node_id: 1,
        new_directory_id: Uuid::from_u128(1),
        descriptors_max: 8,
    };
    let open_dir =
        || DataDir::open(Arc::new(RealDisk), &run_dir.join("data"), &options).expect("a new folder");
    let config = LogConfig { segment_bytes: 16 * 1024, index_interval_bytes: 1024, ..LogConfig::default() };
    let name = LogName::new(Uuid::from_u128(77), 0);
    let codecs =
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
    let mut values = Vec::new();
    let mut number = 0;
    // Written in two lives: the second opens what the first has closed, under a new epoch.
    for epoch in [3, 4] {
        let data = open_dir();
        let (mut log, _) = Log::open(&data, name, config.clone(), 1_700_000_000_000).expect("a healthy log");
        log.begin_epoch(epoch);
        for _ in 0..300 {
            let codec = codecs[usize::try_from(number).expect("small") % codecs.len()];
            values.extend(append_ten(&mut log, number, codec, epoch));
            number += 1;
        }
        log.close().expect("the disk works");
    }

    let dirs = partition_dirs(&run_dir.join("data"));
    assert_eq!(dirs.len(), 1, "{dirs:?}");
    let dump = dump_partition(&dirs[0]);
    assert_eq!(dump.first_offset, 0);
    assert!(dump.values == values, "the tool reads the records that were appended");
    assert!(dump.segments > 10, "{} segments", dump.segments);
    assert!(dump.index_entries > 50, "{} index entries", dump.index_entries);
    assert!(dump.time_entries > 50, "{} time index entries", dump.time_entries);
    assert_eq!(dump.producers, 3);
    let epochs = fs::read_to_string(dirs[0].join("leader-epoch-checkpoint")).expect("it is there");
    assert_eq!(epochs, "0\n2\n3 0\n4 3000\n");
}
