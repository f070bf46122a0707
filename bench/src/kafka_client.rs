//! One librdkafka producer and one consumer, the same for every broker.

use crate::Failure;
use crate::clock;
use crate::cpu::cpu_seconds;
use crate::floor::Cost;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::time::Duration;

const RECORD: usize = 1024;
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn config(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("broker.address.family", "v4");
    config
}

/// Creates a topic with one partition and one copy of it.
pub(crate) fn create_topic(bootstrap: &str, topic: &str) -> Result<(), Failure> {
    create_topic_with(bootstrap, topic, 1, 1)
}

/// Creates a topic; with three copies, two of them must be in sync for a record to be acknowledged.
pub(crate) fn create_topic_with(
    bootstrap: &str,
    topic: &str,
    partitions: i32,
    copies: i32,
) -> Result<(), Failure> {
    let admin: AdminClient<DefaultClientContext> = config(bootstrap).create()?;
    let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(copies));
    if copies >= 3 {
        new = new.set("min.insync.replicas", "2");
    }
    let topics = [new];
    let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for result in runtime.block_on(admin.create_topics(&topics, &options))? {
        result.map_err(|(name, code)| format!("create topic {name}: {code}"))?;
    }
    Ok(())
}

/// Produces `bytes` of 1 KiB records; the cost is the broker's (process `broker`).
pub(crate) fn produce(
    bootstrap: &str,
    topic: &str,
    acks: &str,
    bytes: u64,
    broker: u32,
) -> Result<Cost, Failure> {
    produce_to(bootstrap, topic, 1, acks, bytes, &[broker])
}

/// Sends one record and waits for it: the topic is there and has leaders.
pub(crate) fn warm_up(bootstrap: &str, topic: &str) -> Result<(), Failure> {
    let producer: ThreadedProducer<DefaultProducerContext> = config(bootstrap).set("acks", "all").create()?;
    let record: BaseRecord<'_, (), str> = BaseRecord::to(topic).partition(0).payload("warm");
    producer.send(record).map_err(|(error, _)| error)?;
    Ok(producer.flush(PATIENCE)?)
}

/// Produces `bytes` of 1 KiB records to all partitions in turn; the cost is that of all `brokers`.
pub(crate) fn produce_to(
    bootstrap: &str,
    topic: &str,
    partitions: i32,
    acks: &str,
    bytes: u64,
    brokers: &[u32],
) -> Result<Cost, Failure> {
    let producer: ThreadedProducer<DefaultProducerContext> = config(bootstrap)
        .set("acks", acks)
        .set("batch.size", "1000000")
        .set("linger.ms", "5")
        .set("queue.buffering.max.kbytes", "131072")
        .create()?;
    let payload: Vec<u8> = (0..RECORD).map(|i| (i * 31 % 251) as u8).collect();
    let count = bytes / RECORD as u64;
    let (cpu, start) = (all_cpu_seconds(brokers)?, clock::now());
    for partition in (0..partitions).cycle().zip(0..count).map(|(partition, _)| partition) {
        let mut record: BaseRecord<'_, (), [u8]> =
            BaseRecord::to(topic).partition(partition).payload(&payload);
        loop {
            match producer.send(record) {
                Ok(()) => break,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                    record = back;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err((error, _)) => return Err(error.into()),
            }
        }
    }
    producer.flush(PATIENCE)?;
    Ok(Cost::of(count * RECORD as u64, start.elapsed().as_secs_f64(), all_cpu_seconds(brokers)? - cpu))
}

fn all_cpu_seconds(processes: &[u32]) -> Result<f64, Failure> {
    processes.iter().map(|id| cpu_seconds(*id)).sum()
}

/// Consumes `bytes` of 1 KiB records from the beginning; the cost is the broker's (process `broker`).
pub(crate) fn consume(bootstrap: &str, topic: &str, bytes: u64, broker: u32) -> Result<Cost, Failure> {
    let consumer: BaseConsumer = config(bootstrap)
        .set("group.id", "bench")
        .set("enable.auto.commit", "false")
        .set("fetch.message.max.bytes", "1048576")
        .set("queued.max.messages.kbytes", "65536")
        .create()?;
    let mut assignment = TopicPartitionList::new();
    assignment.add_partition_offset(topic, 0, Offset::Beginning)?;
    let count = bytes / RECORD as u64;
    let (cpu, start) = (cpu_seconds(broker)?, clock::now());
    consumer.assign(&assignment)?;
    let mut seen = 0;
    while seen < count {
        let message = consumer.poll(PATIENCE).ok_or("no record within the time-out")??;
        if message.payload().map(<[u8]>::len) != Some(RECORD) {
            return Err("a record of another size".into());
        }
        seen += 1;
    }
    Ok(Cost::of(count * RECORD as u64, start.elapsed().as_secs_f64(), cpu_seconds(broker)? - cpu))
}
