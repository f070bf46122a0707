//! The row of rskafka, which has partitions and no groups.

use std::collections::BTreeMap;
use std::time::Duration;

use client_table::{CODECS, COUNT, Ending, Error, PATIENCE, Seen, Table, key, value};
use rskafka::chrono::DateTime;
use rskafka::client::partition::{Compression, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;

const NO_GROUPS: &str = "rskafka has no consumer groups";

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut table = Table::of_arguments();
    table.row("create", None, |table| {
        runtime.block_on(limited(create(table)))?;
        Ok(String::new())
    });
    for codec in CODECS {
        table.row(codec, None, |table| {
            runtime.block_on(limited(one_codec(table, codec)))?;
            Ok(String::new())
        });
    }
    for capability in ["group", "lag", "resume", "replay", "reset"] {
        table.row(capability, None, |_| Err(Ending::Lacking(NO_GROUPS)));
    }
}

async fn limited(step: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    tokio::time::timeout(PATIENCE, step).await.map_err(|_| format!("waited {} s", PATIENCE.as_secs()))?
}

async fn connect(table: &Table) -> Result<Client, Error> {
    Ok(ClientBuilder::new(vec![table.bootstrap.clone()]).build().await?)
}

async fn create(table: &Table) -> Result<(), Error> {
    let client = connect(table).await?;
    let topic = table.name("create");
    client.controller_client()?.create_topic(&topic, 3, 1, 10_000).await?;
    // The answer may come before every broker knows the topic, as in Kafka.
    loop {
        let topics = client.list_topics().await?;
        if topics.iter().any(|found| found.name == topic && found.partitions.len() == 3) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn one_codec(table: &Table, codec: &str) -> Result<(), Error> {
    let client = connect(table).await?;
    let topic = table.name(codec);
    let compression = match codec {
        "gzip" => Compression::Gzip,
        "snappy" => Compression::Snappy,
        "lz4" => Compression::Lz4,
        "zstd" => Compression::Zstd,
        _ => Compression::NoCompression,
    };
    let seen = Seen::default();
    for partition in 0..3 {
        let partition_client =
            client.partition_client(&topic, partition, UnknownTopicHandling::Retry).await?;
        produce(&partition_client, compression).await?;
        read(&partition_client, &seen).await?;
    }
    seen.check_complete()
}

/// Writes the records whose keys belong to this partition.
async fn produce(client: &PartitionClient, compression: Compression) -> Result<(), Error> {
    let mine = (0..COUNT).filter(|n| (n % 100) % 3 == client.partition() as usize);
    let records: Vec<Record> = mine
        .map(|n| Record {
            key: Some(key(n).into_bytes()),
            value: Some(value(n).into_bytes()),
            headers: BTreeMap::new(),
            timestamp: DateTime::from_timestamp_millis(1_700_000_000_000).expect("in range"),
        })
        .collect();
    for batch in records.chunks(500) {
        client.produce(batch.to_vec(), compression).await?;
    }
    Ok(())
}

async fn read(client: &PartitionClient, seen: &Seen) -> Result<(), Error> {
    let mut offset = 0;
    loop {
        let (records, end) = client.fetch_records(offset, 1..1_000_000, 500).await?;
        for found in &records {
            let record = &found.record;
            let (key, value) = (record.key.as_deref(), record.value.as_deref());
            seen.add(client.partition(), found.offset, key.unwrap_or_default(), value.unwrap_or_default());
            offset = found.offset + 1;
        }
        if offset >= end {
            return Ok(());
        }
    }
}
