//! `weir produce`: lines in, records out, through librdkafka.
//!
//! A keyed record goes where Java's default partitioner would put it (murmur2 of the key), one without key to partitions in
//! turn. With acks=all the producer is idempotent: what is retried is there once, in order. The first record that the
//! cluster refuses stops the reading; the summary says how many are acknowledged.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header as KafkaHeader, Message, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use serde_json::json;

use crate::cli::{Global, seconds};
use crate::clock::monotonic_now;
use crate::failure::Failure;
use crate::input_record::{Header, InputRecord, LineFormat, unescape};
use crate::offsets::find_topic;
use crate::output::{Format, Output, printable, thousands};

/// Longest line. A broker refuses records of far less, with a message that names its limit.
const LINE_BYTES_MAX: usize = 64 << 20;
/// Bytes of records that wait for their acknowledgement.
const QUEUE_KIB_MAX: usize = 64 << 10;
/// Pause while that many wait.
const QUEUE_FULL_PAUSE: Duration = Duration::from_millis(2);
/// Between two lines of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// After Ctrl-C, for records that are under way.
const INTERRUPT_FLUSH_MAX: Duration = Duration::from_secs(10);

/// Arguments of `produce`.
#[derive(Debug, clap::Args)]
pub(crate) struct ProduceArgs {
    /// The topic to send to
    topic: String,
    /// Read from this file; `-` or nothing is standard input
    #[arg(long, short, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Lines are KEY, this separator, VALUE; \t \n \0 \xHH are understood
    #[arg(long, value_name = "TEXT", value_parser = separator, conflicts_with_all = ["key_field", "input"])]
    key_separator: Option<Separator>,
    /// Lines are JSON objects, and this field of theirs is the key (null where it is missing)
    #[arg(long, value_name = "FIELD", conflicts_with = "input")]
    key_field: Option<String>,
    /// `json`: lines are records as `weir consume --output json` writes them
    #[arg(long, value_enum, default_value = "lines", value_name = "FORM")]
    input: InputForm,
    /// A header of all records, may be repeated
    #[arg(long = "header", short = 'H', value_name = "NAME=VALUE")]
    headers: Vec<Header>,
    /// Send all records to this partition instead of choosing by key
    #[arg(long, short, value_parser = clap::value_parser!(i32).range(0..))]
    partition: Option<i32>,
    /// Compression of batches
    #[arg(long, value_enum, default_value = "none")]
    codec: Codec,
    /// Who must have a record before it counts: nobody, the leader, or all replicas in sync (idempotent)
    #[arg(long, value_enum, default_value = "all")]
    acks: Acks,
    /// Milliseconds to wait for more records of a batch
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u32).range(0..=60_000))]
    linger_ms: u32,
    /// Seconds until a record that is not acknowledged counts as failed
    #[arg(long, default_value = "120", value_parser = seconds, value_name = "SECONDS")]
    delivery_timeout: Duration,
    /// Tell the progress even if standard error is no terminal
    #[arg(long)]
    progress: bool,
}

/// What a line holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum InputForm {
    Lines,
    Json,
}

/// Compression of batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Codec {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

/// Kafka's acks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Acks {
    #[value(name = "0")]
    None,
    #[value(name = "1")]
    Leader,
    #[value(name = "all", alias = "-1")]
    All,
}

/// Bytes between key and value.
#[derive(Debug, Clone)]
struct Separator(Vec<u8>);

fn separator(text: &str) -> Result<Separator, String> {
    unescape(text).map(Separator)
}

impl ProduceArgs {
    fn line_format(&self) -> LineFormat {
        match (&self.key_separator, &self.key_field, self.input) {
            (Some(separator), _, _) => LineFormat::KeySeparator(separator.0.clone()),
            (None, Some(field), _) => LineFormat::KeyField(field.clone()),
            (None, None, InputForm::Json) => LineFormat::Record,
            (None, None, InputForm::Lines) => LineFormat::Value,
        }
    }

    fn open(&self) -> Result<Box<dyn BufRead + Send>, Failure> {
        match self.file.as_deref() {
            Some(path) if path != "-" => {
                let file = File::open(path)
                    .map_err(|error| Failure::usage(format!("cannot open {}: {error}", path.display())))?;
                Ok(Box::new(BufReader::with_capacity(256 << 10, file)))
            }
            _ => Ok(Box::new(BufReader::with_capacity(256 << 10, io::stdin()))),
        }
    }

    fn reads_terminal(&self) -> bool {
        let from_stdin = self.file.as_deref().is_none_or(|path| path == "-");
        from_stdin && io::stdin().is_terminal()
    }
}

/// librdkafka's settings for these arguments.
fn producer_config(bootstrap: &str, args: &ProduceArgs) -> ClientConfig {
    let codec = match args.codec {
        Codec::None => "none",
        Codec::Gzip => "gzip",
        Codec::Snappy => "snappy",
        Codec::Lz4 => "lz4",
        Codec::Zstd => "zstd",
    };
    let acks = match args.acks {
        Acks::None => "0",
        Acks::Leader => "1",
        Acks::All => "all",
    };
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", bootstrap)
        .set("client.id", "weir")
        // Where Java puts a key, with the same choice for records without one.
        .set("partitioner", "murmur2_random")
        .set("acks", acks)
        .set("enable.idempotence", (args.acks == Acks::All).to_string())
        .set("compression.codec", codec)
        .set("linger.ms", args.linger_ms.to_string())
        .set("message.timeout.ms", args.delivery_timeout.as_millis().to_string())
        .set("message.max.bytes", LINE_BYTES_MAX.to_string())
        .set("queue.buffering.max.kbytes", QUEUE_KIB_MAX.to_string())
        .set("socket.nagle.disable", "true")
        .set("allow.auto.create.topics", "false");
    config
}

/// What became of the records that were sent.
#[derive(Debug, Default)]
struct Deliveries {
    acknowledged: AtomicU64,
    bytes: AtomicU64,
    failed: AtomicU64,
    first_failure: Mutex<Option<String>>,
    /// The last trouble with the cluster, which explains a record that timed out.
    trouble: Mutex<Option<String>>,
    /// Per partition the number of records and the first and last offset.
    partitions: Mutex<BTreeMap<i32, (u64, i64, i64)>>,
}

impl Deliveries {
    fn on_acknowledged(&self, partition: i32, offset: i64, bytes: usize) {
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let mut partitions = self.partitions.lock();
        let entry = partitions.entry(partition).or_insert((0, offset, offset));
        entry.0 += 1;
        entry.2 = entry.2.max(offset);
    }

    fn on_failed(&self, line: usize, partition: i32, error: &KafkaError) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let mut first = self.first_failure.lock();
        if first.is_none() {
            let trouble = match error.rdkafka_error_code() {
                Some(RDKafkaErrorCode::MessageTimedOut) => self.trouble.lock().clone(),
                _ => None,
            };
            let trouble = trouble.map_or_else(String::new, |trouble| format!("; {trouble}"));
            let cause = error.rdkafka_error_code().map_or_else(|| error.to_string(), |code| code.to_string());
            *first = Some(format!("line {line}, partition {partition}: {cause}{trouble}"));
        }
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed) > 0
    }
}

struct Context(Arc<Deliveries>);

impl ClientContext for Context {
    fn error(&self, _error: KafkaError, reason: &str) {
        *self.0.trouble.lock() = Some(printable(reason));
    }
}

impl ProducerContext for Context {
    /// The number of the line.
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, line: usize) {
        match result {
            Ok(message) => {
                let bytes = message.key_len() + message.payload_len();
                self.0.on_acknowledged(message.partition(), message.offset(), bytes);
            }
            Err((error, message)) => self.0.on_failed(line, message.partition(), error),
        }
    }
}

type LineProducer = ThreadedProducer<Context>;

pub(crate) async fn run(global: &Global, args: ProduceArgs, output: &mut Output<'_>) -> Result<(), Failure> {
    check_topic(global, &args).await?;
    let input = args.open()?;
    if args.reads_terminal() {
        output.note("one record per line; Ctrl-D ends")?;
    }
    let deliveries = Arc::new(Deliveries::default());
    let producer: LineProducer = producer_config(&global.bootstrap_list(), &args)
        .create_with_context(Context(Arc::clone(&deliveries)))
        .map_err(|error| Failure::failed(format!("cannot start the producer: {error}")))?;
    let sender = Arc::new(Sender {
        producer,
        deliveries,
        topic: args.topic.clone(),
        format: args.line_format(),
        headers: args.headers.clone(),
        partition: args.partition,
        stop: AtomicBool::new(false),
    });
    let start = monotonic_now();
    let sent = drive(&sender, input, args.progress, output).await;
    let summary = Summary::of(&sender.deliveries, monotonic_now().saturating_duration_since(start));
    summary.show(&args.topic, output)?;
    summary.check(&sender.deliveries)?;
    sent
}

/// Finds out what would otherwise show as records that time out after minutes.
async fn check_topic(global: &Global, args: &ProduceArgs) -> Result<(), Failure> {
    let client = global.connect().await?;
    let topic = match find_topic(&client, &args.topic).await {
        Err(failure) if failure.is_not_found() => {
            let create = format!("create it: weir topic create {} --partitions 3", printable(&args.topic));
            return Err(failure.hint(create));
        }
        found => found?,
    };
    let count = topic.partitions.len();
    match args.partition {
        Some(partition) if !topic.partitions.iter().any(|p| p.partition_index == partition) => {
            Err(Failure::not_found(format!(
                "topic {} has no partition {partition}; it has {count}",
                printable(&args.topic)
            )))
        }
        _ => Ok(()),
    }
}

/// Runs the sender on a thread, tells its progress, and stops it on Ctrl-C.
async fn drive(
    sender: &Arc<Sender>,
    input: Box<dyn BufRead + Send>,
    progress: bool,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let sending = Arc::clone(sender);
    let mut thread = tokio::task::spawn_blocking(move || sending.send_all(input));
    let mut ticks = tokio::time::interval(PROGRESS_INTERVAL);
    ticks.tick().await;
    let mut told = false;
    let result = loop {
        tokio::select! {
            joined = &mut thread => break joined.unwrap_or_else(|error| {
                Err(Failure::failed(format!("the sending thread ended: {error}")))
            }),
            _ = ticks.tick() => {
                let acknowledged = sender.deliveries.acknowledged.load(Ordering::Relaxed);
                let text = format!("{} records acknowledged", thousands(acknowledged));
                if output.notes_to_terminal {
                    told = true;
                    output.progress(&text)?;
                } else if progress {
                    output.note(&text)?;
                }
            }
            interrupt = tokio::signal::ctrl_c() => {
                interrupt.map_err(|error| Failure::failed(format!("cannot wait for Ctrl-C: {error}")))?;
                sender.stop.store(true, Ordering::Relaxed);
                // The thread may wait for a line that never comes; what it has sent is flushed here.
                let flushed = tokio::task::block_in_place(|| sender.producer.flush(INTERRUPT_FLUSH_MAX));
                break flushed.map_err(|error| Failure::failed(format!("interrupted: {error}")));
            }
        }
    };
    if told {
        output.progress("")?;
    }
    result
}

/// Reads lines and sends them.
struct Sender {
    producer: LineProducer,
    deliveries: Arc<Deliveries>,
    topic: String,
    format: LineFormat,
    headers: Vec<Header>,
    partition: Option<i32>,
    stop: AtomicBool,
}

impl Sender {
    /// Sends all lines and waits until each is acknowledged or failed.
    fn send_all(&self, mut input: Box<dyn BufRead + Send>) -> Result<(), Failure> {
        let read = self.send_lines(&mut *input);
        // Ends at the latest when the last record times out.
        while self.producer.in_flight_count() > 0 {
            // A time-out here is no news; each record reports its own end.
            drop(self.producer.flush(PROGRESS_INTERVAL));
        }
        read
    }

    fn send_lines(&self, input: &mut dyn BufRead) -> Result<(), Failure> {
        let blank_is_skipped = matches!(self.format, LineFormat::KeyField(_) | LineFormat::Record);
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let read = input
                .take(LINE_BYTES_MAX as u64 + 1)
                .read_until(b'\n', &mut line)
                .map_err(|error| Failure::failed(format!("cannot read line {number}: {error}")))?;
            if read == 0 || self.stop.load(Ordering::Relaxed) || self.deliveries.has_failed() {
                break;
            }
            if line.last() == Some(&b'\n') {
                line.pop();
            } else if read > LINE_BYTES_MAX {
                let limit = thousands(LINE_BYTES_MAX as u64);
                return Err(Failure::usage(format!("line {number} is longer than {limit} bytes")));
            }
            if blank_is_skipped && line.trim_ascii().is_empty() {
                continue;
            }
            let record =
                self.format.read(&line).map_err(|error| Failure::usage(format!("line {number}: {error}")))?;
            self.send(number, &record)?;
        }
        Ok(())
    }

    fn send(&self, number: usize, input: &InputRecord) -> Result<(), Failure> {
        let mut record: BaseRecord<'_, [u8], [u8], usize> = BaseRecord::with_opaque_to(&self.topic, number);
        record.key = input.key.as_deref();
        record.payload = input.value.as_deref();
        record.partition = input.partition.or(self.partition);
        record.timestamp = input.timestamp_ms;
        let mut headers = self.headers.iter().chain(&input.headers).peekable();
        if headers.peek().is_some() {
            let all = headers.fold(OwnedHeaders::new(), |all, header| {
                all.insert(KafkaHeader { key: &header.name, value: header.value.as_ref() })
            });
            record.headers = Some(all);
        }
        loop {
            match self.producer.send(record) {
                Ok(()) => return Ok(()),
                Err((error, refused)) => match error.rdkafka_error_code() {
                    Some(RDKafkaErrorCode::QueueFull) if !self.stop.load(Ordering::Relaxed) => {
                        record = refused;
                        std::thread::sleep(QUEUE_FULL_PAUSE);
                    }
                    code => {
                        let cause = code.map_or_else(|| error.to_string(), |code| code.to_string());
                        return Err(Failure::failed(format!("cannot send line {number}: {cause}")));
                    }
                },
            }
        }
    }
}

/// The end of the story.
struct Summary {
    acknowledged: u64,
    failed: u64,
    bytes: u64,
    elapsed: Duration,
    partitions: BTreeMap<i32, (u64, i64, i64)>,
}

impl Summary {
    fn of(deliveries: &Deliveries, elapsed: Duration) -> Self {
        Self {
            acknowledged: deliveries.acknowledged.load(Ordering::Relaxed),
            failed: deliveries.failed.load(Ordering::Relaxed),
            bytes: deliveries.bytes.load(Ordering::Relaxed),
            elapsed,
            partitions: deliveries.partitions.lock().clone(),
        }
    }

    fn show(&self, topic: &str, output: &mut Output<'_>) -> Result<(), Failure> {
        match output.format {
            Format::Json => {
                let partition = |(partition, (records, first, last)): (&i32, &(u64, i64, i64))| json!({ "partition": partition, "records": records, "first": first, "last": last });
                output.json(&json!({
                    "topic": topic,
                    "records": self.acknowledged,
                    "failed": self.failed,
                    "bytes": self.bytes,
                    "seconds": self.elapsed.as_secs_f64(),
                    "partitions": self.partitions.iter().map(partition).collect::<serde_json::Value>(),
                }))
            }
            Format::Table => {
                let seconds = self.elapsed.as_secs_f64().max(0.001);
                #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
                let (per_second, mb) = (self.acknowledged as f64 / seconds, self.bytes as f64 / 1e6);
                output.line(&format!(
                    "{} records to {} partitions of {} in {seconds:.1} s ({per_second:.0} records/s, {:.1} MB/s)",
                    thousands(self.acknowledged),
                    self.partitions.len(),
                    printable(topic),
                    mb / seconds
                ))
            }
        }
    }

    /// Fails if a record did.
    fn check(&self, deliveries: &Deliveries) -> Result<(), Failure> {
        match deliveries.first_failure.lock().as_deref() {
            None => Ok(()),
            Some(first) => Err(Failure::failed(format!(
                "{} records were not acknowledged; the first: {first}",
                thousands(self.failed)
            ))
            .hint("records after the first one may be there; a repeated run would send all again")),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use rdkafka::mocking::MockCluster;

    use super::*;
    use crate::cli::{Cli, Command};

    fn arguments(line: &str) -> ProduceArgs {
        match Cli::try_parse_from(line.split(' ')).unwrap().command {
            Command::Produce(args) => args,
            other => panic!("{other:?}"),
        }
    }

    /// Kafka's own test values of murmur2, and the partitions of a hundred that follow from them.
    #[test]
    fn keys_go_where_java_puts_them() {
        let known: [(&str, i32); 6] = [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ];
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("t", 100, 1).unwrap();
        let deliveries = Arc::new(Deliveries::default());
        let config = producer_config(&cluster.bootstrap_servers(), &arguments("weir produce t"));
        for (key, hash) in known {
            let producer: LineProducer =
                config.create_with_context(Context(Arc::clone(&deliveries))).unwrap();
            let sender = Sender {
                producer,
                deliveries: Arc::clone(&deliveries),
                topic: "t".to_owned(),
                format: LineFormat::KeySeparator(b":".to_vec()),
                headers: vec!["a=b".parse().unwrap()],
                partition: None,
                stop: AtomicBool::new(false),
            };
            deliveries.partitions.lock().clear();
            let line = format!("{key}:value\n");
            sender.send_all(Box::new(io::Cursor::new(line.into_bytes()))).unwrap();
            let used: Vec<i32> = deliveries.partitions.lock().keys().copied().collect();
            assert_eq!(used, [(hash & i32::MAX) % 100], "{key}");
        }
        assert_eq!(deliveries.acknowledged.load(Ordering::Relaxed), 6);
        assert_eq!(deliveries.bytes.load(Ordering::Relaxed), 2 + 6 + 24 + 26 + 48 + 3 + 6 * 5);
    }

    #[test]
    fn a_bad_line_is_named_and_what_came_before_is_sent() {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("t", 1, 1).unwrap();
        let deliveries = Arc::new(Deliveries::default());
        let config = producer_config(&cluster.bootstrap_servers(), &arguments("weir produce t --acks 1"));
        let sender = Sender {
            producer: config.create_with_context(Context(Arc::clone(&deliveries))).unwrap(),
            deliveries: Arc::clone(&deliveries),
            topic: "t".to_owned(),
            format: LineFormat::KeySeparator(b":".to_vec()),
            headers: Vec::new(),
            partition: Some(0),
            stop: AtomicBool::new(false),
        };
        let failure = sender.send_all(Box::new(io::Cursor::new(b"a:1\nb:2\nc\nd:4\n".to_vec()))).unwrap_err();
        assert_eq!(failure.to_string(), "error: line 3: the key separator \":\" is missing\n");
        assert_eq!(failure.exit_code(), 2);
        assert_eq!(*deliveries.partitions.lock(), BTreeMap::from([(0, (2, 0, 1))]));
    }
}
