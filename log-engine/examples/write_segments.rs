//! Writes a partition directory with many segments, for tools that read Kafka's files.
//!
//! `cargo run -p log-engine --example write_segments -- DIRECTORY [BATCHES]` makes a data directory with one log of all
//! codecs, several producers and leader epochs, closes it cleanly, and prints the path of the partition.

use std::path::Path;
use std::sync::Arc;

use log_engine::{DataDir, DataDirOptions, Log, LogConfig, LogName, RealDisk};
use records::{BatchBuilder, BatchHeader, Compression};
use uuid::Uuid;

#[expect(clippy::print_stdout, reason = "the path is the answer of this program")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("usage: write_segments DIRECTORY [BATCHES]")?;
    let batches: i64 = arguments.next().map_or(Ok(2000), |n| n.parse())?;
    let options = DataDirOptions {
        cluster_id: "example".into(),
        node_id: 1,
        new_directory_id: Uuid::new_v4(),
        descriptors_max: 100,
    };
    let data = DataDir::open(Arc::new(RealDisk), Path::new(&directory), &options)?;
    let name = LogName::new(Uuid::new_v4(), 0);
    let config =
        LogConfig { segment_bytes: 64 << 10, index_entries_in_memory_max: 8, ..LogConfig::default() };
    let now = 1_700_000_000_000;
    let (mut log, _) = Log::open(&data, name, config, now)?;
    let mut sequences = [0i32; 3];
    for i in 0..batches {
        let producer = (i % 4) as usize;
        let records = 1 + (i % 5) as i32;
        let mut builder = BatchBuilder::new()
            .compression(Compression::ALL[(i % 5) as usize])
            .base_offset(log.end())
            .leader_epoch((i / 500) as i32);
        if let Some(sequence) = sequences.get_mut(producer) {
            builder = builder.producer(1000 + producer as i64, 0, *sequence);
            *sequence += records;
        }
        for record in 0..records {
            // Times that run forward with steps back, so that the time index has something to say.
            let timestamp = now + i * 10 - i64::from(record) * 7 - (i % 3) * 20;
            let value = format!("{{\"batch\":{i},\"record\":{record},\"filler\":\"{:0>60}\"}}", i);
            builder.push(
                timestamp,
                Some(format!("key-{}", i % 50).as_bytes()),
                Some(value.as_bytes()),
                &[],
            )?;
        }
        let bytes = builder.build();
        let header = BatchHeader::parse(&bytes)?;
        log.append(&bytes, &[header], now + i)?;
    }
    log.close()?;
    data.close_clean()?;
    println!("{}", data.path().join(name.to_string()).display());
    Ok(())
}
