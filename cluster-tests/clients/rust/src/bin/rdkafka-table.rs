//! The row of rdkafka (librdkafka for Rust).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use client_table::{
    CODECS, COUNT, Ending, Error, GROUP_PARTITIONS, HALF, PATIENCE, Seen, Table, key, value, wait_for,
};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

const POLL: Duration = Duration::from_millis(200);

fn main() {
    let mut table = Table::of_arguments();
    table.row("create", None, |table| done(create(table)));
    for codec in CODECS {
        table.row(codec, None, |table| done(one_codec(table, codec)));
    }
    let seen = Arc::new(Seen::default());
    table.row("group", None, |table| Ok(share(table, &seen)?));
    table.row("lag", Some("group"), |table| done(check_lag(table, COUNT - seen.len())));
    table.row("resume", Some("group"), |table| {
        let before = seen.len();
        read_rest(table, "g", &seen)?;
        Ok(format!("{} more records after the restart", seen.len() - before))
    });
    table.row("replay", Some("group"), |table| done(read_rest(table, "g2", &Seen::default())));
    table.row("reset", None, |_| Err(Ending::Lacking("the admin client of rdkafka cannot change offsets")));
}

fn done(result: Result<(), Error>) -> Result<String, Ending> {
    Ok(result.map(|()| String::new())?)
}

fn config(table: &Table) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &table.bootstrap);
    config
}

fn create(table: &Table) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let admin: AdminClient<DefaultClientContext> = config(table).create()?;
    let topic = table.name("create");
    let wanted = NewTopic::new(&topic, 3, TopicReplication::Fixed(1));
    let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
    for created in runtime.block_on(admin.create_topics([&wanted], &options))? {
        created.map_err(|(topic, code)| format!("{topic}: {code}"))?;
    }
    wait_for("the topic's three partitions", || {
        let metadata = admin.inner().fetch_metadata(Some(&topic), PATIENCE)?;
        Ok(metadata.topics().iter().any(|found| found.partitions().len() == 3))
    })
}

fn produce(table: &Table, topic: &str, codec: &str) -> Result<(), Error> {
    let mut config = config(table);
    config.set("compression.type", codec).set("enable.idempotence", "true").set("linger.ms", "5");
    config.set("partitioner", "murmur2_random");
    let producer: BaseProducer = config.create()?;
    for n in 0..COUNT {
        let (key, value) = (key(n), value(n));
        let mut record = BaseRecord::to(topic).key(&key).payload(&value);
        while let Err((error, back)) = producer.send(record) {
            if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
                return Err(error.into());
            }
            producer.poll(POLL);
            record = back;
        }
        producer.poll(Duration::ZERO);
    }
    Ok(producer.flush(PATIENCE)?)
}

fn consumer(table: &Table, group: &str) -> Result<BaseConsumer, Error> {
    let mut config = config(table);
    config.set("group.id", table.name(group)).set("enable.auto.commit", "false");
    config.set("auto.offset.reset", "earliest");
    Ok(config.create()?)
}

/// Takes what is there; 0 if nothing came for a moment.
fn read(consumer: &BaseConsumer, seen: &Seen) -> Result<usize, Error> {
    let mut got = 0;
    for _ in 0..500 {
        let Some(message) = consumer.poll(POLL) else { break };
        let message = message?;
        let (key, value) = (message.key().unwrap_or_default(), message.payload().unwrap_or_default());
        got += usize::from(seen.add(message.partition(), message.offset(), key, value));
    }
    Ok(got)
}

fn read_all(consumer: &BaseConsumer, seen: &Seen) -> Result<(), Error> {
    wait_for("all records", || Ok(read(consumer, seen)? == 0 && seen.len() >= COUNT))?;
    seen.check_complete()
}

fn one_codec(table: &Table, codec: &str) -> Result<(), Error> {
    let topic = table.name(codec);
    produce(table, &topic, codec)?;
    let consumer = consumer(table, "assigned")?;
    let mut partitions = TopicPartitionList::new();
    for partition in 0..3 {
        partitions.add_partition_offset(&topic, partition, Offset::Beginning)?;
    }
    consumer.assign(&partitions)?;
    read_all(&consumer, &Seen::default())
}

/// Commits what was processed of the partitions that this member has.
fn commit(consumer: &BaseConsumer, topic: &str, seen: &Seen) -> Result<(), Error> {
    let mine = consumer.assignment()?;
    let mut offsets = TopicPartitionList::new();
    for (partition, position) in seen.positions() {
        if mine.find_partition(topic, partition).is_some() {
            offsets.add_partition_offset(topic, partition, Offset::Offset(position))?;
        }
    }
    Ok(consumer.commit(&offsets, CommitMode::Sync)?)
}

#[derive(Default)]
struct Member {
    assigned: AtomicUsize,
    got: AtomicUsize,
    failed: AtomicBool,
}

impl Member {
    fn run(
        &self,
        consumer: BaseConsumer,
        topic: &str,
        seen: &Seen,
        stop: &AtomicBool,
        end: &Barrier,
    ) -> Result<(), Error> {
        let reading = || -> Result<(), Error> {
            consumer.subscribe(&[topic])?;
            while !stop.load(Ordering::SeqCst) {
                self.got.fetch_add(read(&consumer, seen)?, Ordering::SeqCst);
                self.assigned.store(consumer.assignment()?.count(), Ordering::SeqCst);
            }
            commit(&consumer, topic, seen)
        };
        let ended = reading();
        self.failed.store(ended.is_err(), Ordering::SeqCst);
        // Both have committed before one leaves.
        end.wait();
        ended
    }
}

fn share(table: &Table, seen: &Arc<Seen>) -> Result<String, Error> {
    let topic = table.name("group");
    seen.half_only(true);
    let stop = AtomicBool::new(false);
    let end = Barrier::new(2);
    let members = [Member::default(), Member::default()];
    let consumers = [consumer(table, "g")?, consumer(table, "g")?];
    let failed = || members.iter().any(|member| member.failed.load(Ordering::SeqCst));
    let pause = || thread::sleep(Duration::from_millis(20));
    let half = GROUP_PARTITIONS as usize / 2;
    thread::scope(|scope| {
        let threads: Vec<_> = members
            .iter()
            .zip(consumers)
            .map(|(member, consumer)| scope.spawn(|| member.run(consumer, &topic, seen, &stop, &end)))
            .collect();
        let steps = || -> Result<(), Error> {
            wait_for("two partitions for each member", || {
                pause();
                Ok(failed() || members.iter().all(|member| member.assigned.load(Ordering::SeqCst) == half))
            })?;
            produce(table, &topic, "none")?;
            wait_for("half of the records", || {
                pause();
                Ok(failed() || seen.len() >= HALF)
            })
        };
        let result = steps();
        stop.store(true, Ordering::SeqCst);
        for thread in threads {
            thread.join().map_err(|_| "a member panicked")??;
        }
        result
    })?;
    seen.half_only(false);
    seen.check()?;
    let got = members.each_ref().map(|member| member.got.load(Ordering::SeqCst));
    if got.contains(&0) {
        Err(format!("{got:?}: one member got nothing").into())
    } else {
        Ok(format!("{got:?} records by two members"))
    }
}

fn read_rest(table: &Table, group: &str, seen: &Seen) -> Result<(), Error> {
    let topic = table.name("group");
    let consumer = consumer(table, group)?;
    consumer.subscribe(&[&topic])?;
    read_all(&consumer, seen)?;
    commit(&consumer, &topic, seen)
}

fn check_lag(table: &Table, expected: usize) -> Result<(), Error> {
    let topic = table.name("group");
    let consumer = consumer(table, "g")?;
    let mut partitions = TopicPartitionList::new();
    partitions.add_partition_range(&topic, 0, GROUP_PARTITIONS - 1);
    let mut lag = 0;
    for committed in consumer.committed_offsets(partitions, PATIENCE)?.elements() {
        let (_, end) = consumer.fetch_watermarks(&topic, committed.partition(), PATIENCE)?;
        lag += end - committed.offset().to_raw().ok_or("a partition has no committed offset")?;
    }
    if lag == expected as i64 { Ok(()) } else { Err(format!("lag is {lag} and should be {expected}").into()) }
}
