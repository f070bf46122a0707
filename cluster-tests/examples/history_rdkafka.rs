//! A producer and a consumer on librdkafka that write down what they did and saw (`cluster_tests::history`): what
//! `HistoryProducer.java` and `HistoryConsumer.java` are on Kafka's own library. With `keyed` in front the records have keys, some
//! delete their key, and the topic is compacted (`cluster_tests::keyed`).

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cluster_tests::clock::monotonic_us;
use cluster_tests::history::{parse_payload, payload};
use cluster_tests::keyed;
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, DeliveryResult, Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

const USAGE: &str = "\
usage: history-rdkafka [keyed] produce BOOTSTRAP TOPIC PARTITIONS CLIENT RECORDS-PER-SECOND FILE
       history-rdkafka [keyed] follow|final BOOTSTRAP TOPIC PARTITIONS FILE";
/// Longer than any time-out of the library.
const PATIENCE: Duration = Duration::from_secs(180);

/// So large are values of records with keys, so that segments fill and are compacted.
const KEYED_VALUE_BYTES: usize = 4_000;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let (keyed, words) = match words.split_first() {
        Some((&"keyed", rest)) => (true, rest),
        _ => (false, words.as_slice()),
    };
    match words {
        ["produce", bootstrap, topic, partitions, client, rate, file] => {
            let topic = Topic { name: topic, partitions: partitions.parse()?, keyed };
            produce(bootstrap, topic, client.parse()?, rate.parse()?, History::create(file)?)
        }
        [mode @ ("follow" | "final"), bootstrap, topic, partitions, file] => {
            let topic = Topic { name: topic, partitions: partitions.parse()?, keyed };
            consume(bootstrap, topic, *mode == "follow", &History::create(file)?)
        }
        _ => Err(USAGE.into()),
    }
}

/// What is written or read.
#[derive(Clone, Copy)]
struct Topic<'a> {
    name: &'a str,
    partitions: u16,
    keyed: bool,
}

/// The file; the library calls back on threads of its own.
#[derive(Clone)]
struct History(Arc<Mutex<BufWriter<File>>>);

impl History {
    fn create(path: &str) -> Result<History, Failure> {
        Ok(History(Arc::new(Mutex::new(BufWriter::new(File::create(path)?)))))
    }

    fn note(&self, kind: char, rest: &str) {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(file, "{kind} {}{rest}", monotonic_us()).expect("the history can be written");
    }

    fn flush(&self) {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.flush().expect("the history can be written");
    }
}

/// Set when the input ends.
fn stop_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let mut rest = Vec::new();
            // An error is the same as the end.
            let _ = std::io::stdin().read_to_end(&mut rest);
            stop.store(true, Ordering::Relaxed);
        }
    });
    stop
}

fn config(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("broker.address.family", "v4");
    config
}

/// Writes down what the library says of each record.
struct Noter(History);

impl ClientContext for Noter {}

impl ProducerContext for Noter {
    /// The value of the record.
    type DeliveryOpaque = Box<u64>;

    fn delivery(&self, result: &DeliveryResult<'_>, value: Box<u64>) {
        match result {
            Ok(message) => {
                self.0.note('o', &format!(" {} {value} {}", message.partition(), message.offset()));
            }
            Err((error, message)) => {
                let refused = matches!(
                    error.rdkafka_error_code(),
                    Some(RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::TopicAuthorizationFailed)
                );
                let kind = if refused { 'x' } else { 'u' };
                self.0.note(kind, &format!(" {} {value} {error}", message.partition()));
            }
        }
    }
}

fn produce(
    bootstrap: &str,
    topic: Topic<'_>,
    client: u64,
    rate: u64,
    history: History,
) -> Result<(), Failure> {
    let producer: ThreadedProducer<Noter> = config(bootstrap)
        .set("acks", "all")
        .set("enable.idempotence", "true")
        .set("linger.ms", "5")
        .set("message.timeout.ms", "120000")
        .set("socket.timeout.ms", "5000")
        .create_with_context(Noter(history.clone()))?;
    let stop = stop_flag();
    let mut begin = monotonic_us();
    let mut number = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let (due, now) = (begin + number * 1_000_000 / rate, monotonic_us());
        if due > now {
            std::thread::sleep(Duration::from_micros(due - now));
        } else if now - due > 1_000_000 {
            // After a pause of the cluster: no burst of what could not be sent.
            begin += now - due;
        }
        let partition = u16::try_from(number % u64::from(topic.partitions))?;
        let value = client << 40 | number;
        history.note('s', &format!(" {partition} {value}"));
        // Whatever of it is read, it is known who sent it, though this process may be killed at any moment.
        history.flush();
        send(&producer, topic, partition, value)?;
        number += 1;
    }
    producer.flush(PATIENCE)?;
    // Its threads write the last answers.
    drop(producer);
    history.note('c', "");
    history.flush();
    Ok(())
}

fn send(
    producer: &ThreadedProducer<Noter>,
    topic: Topic<'_>,
    partition: u16,
    value: u64,
) -> Result<(), Failure> {
    let (mut payload, key) = (payload(value, partition), keyed::key_text(value));
    let mut record: BaseRecord<'_, String, String, Box<u64>> =
        BaseRecord::with_opaque_to(topic.name, Box::new(value)).partition(partition.into());
    if topic.keyed {
        record = record.key(&key);
    }
    if topic.keyed && keyed::deletes(value) {
        let header = Header { key: keyed::HEADER, value: Some(&payload) };
        record = record.headers(OwnedHeaders::new().insert(header));
    } else {
        if topic.keyed {
            payload.push(' ');
            payload.extend(std::iter::repeat_n('x', KEYED_VALUE_BYTES));
        }
        record = record.payload(&payload);
    }
    loop {
        match producer.send(record) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                record = back;
                std::thread::sleep(Duration::from_millis(10));
            }
            Err((error, _)) => return Err(error.into()),
        }
    }
}

/// Value and checksum of a record, if a producer of the run can have written it.
fn written(message: &BorrowedMessage<'_>, keyed: bool) -> Option<(u64, u64)> {
    if !keyed {
        return parse_payload(message.payload()?);
    }
    let deleted = || {
        let headers = message.headers()?;
        let header = headers.iter().find(|header| header.key == keyed::HEADER)?;
        parse_payload(header.value?)
    };
    let (value, sum) = message.payload().map_or_else(deleted, parse_payload)?;
    let is_whole = message.payload().is_none() == keyed::deletes(value)
        && message.key() == Some(keyed::key_text(value).as_bytes());
    is_whole.then_some((value, sum))
}

fn consume(bootstrap: &str, topic: Topic<'_>, follow: bool, history: &History) -> Result<(), Failure> {
    let Topic { name, partitions, keyed } = topic;
    let consumer: BaseConsumer = config(bootstrap)
        .set("group.id", "history")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "error")
        .set("fetch.wait.max.ms", "100")
        // At the end of a compacted partition there need not be a record.
        .set("enable.partition.eof", if keyed { "true" } else { "false" })
        .create()?;
    let mut ends = Vec::new();
    let mut assignment = TopicPartitionList::new();
    for partition in 0..partitions {
        if !follow {
            ends.push(consumer.fetch_watermarks(name, partition.into(), PATIENCE)?.1);
        }
        assignment.add_partition_offset(name, partition.into(), Offset::Offset(0))?;
        history.note('a', &format!(" {partition} 0"));
    }
    consumer.assign(&assignment)?;
    let stop = stop_flag();
    let mut next = vec![0_i64; usize::from(partitions)];
    while if follow {
        !stop.load(Ordering::Relaxed)
    } else {
        next.iter().zip(&ends).any(|(at, end)| at < end)
    } {
        match consumer.poll(Duration::from_millis(200)) {
            None => history.flush(),
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                let (next, end) =
                    (&mut next[usize::try_from(partition)?], ends.get(usize::try_from(partition)?));
                *next = (*next).max(end.copied().unwrap_or_default());
            }
            // A broker that is away comes back; an offset that is out of range never does.
            Some(Err(error)) if is_passing(&error) => eprintln!("{error}"),
            Some(Err(error)) => return Err(error.into()),
            Some(Ok(message)) => {
                let (partition, offset) = (message.partition(), message.offset());
                match written(&message, keyed) {
                    Some((value, sum)) => {
                        history.note('r', &format!(" {partition} {offset} {value} {sum:016x}"));
                    }
                    None => history.note('m', &format!(" {partition} {offset}")),
                }
                next[usize::try_from(partition)?] = offset + 1;
            }
        }
    }
    for (partition, end) in ends.iter().enumerate() {
        history.note('e', &format!(" {partition} {end}"));
    }
    history.note('c', "");
    history.flush();
    Ok(())
}

fn is_passing(error: &KafkaError) -> bool {
    !matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::OffsetOutOfRange | RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::Fatal
        )
    )
}
