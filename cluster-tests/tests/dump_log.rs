//! Apache Kafka's dump-log tool reads our segments, indexes and producer snapshots.

use std::fs;

use cluster_tests::clients::{kafka_tool, kcat};
use cluster_tests::dump::{dump_partition, partition_dirs};
use cluster_tests::local_cluster::WeirDev;
use cluster_tests::workspace;

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
    let idempotent = ["-P", "-t", "dumped", "-X", "acks=all", "-X", "enable.idempotence=true"];
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
