//! `weir consume`: records of all or some partitions, without a group, through librdkafka.
//!
//! Every partition is assigned with its own start offset, so nothing is stored and nobody else is disturbed. Offsets by
//! time come from ListOffsets. What is damaged on the way is noticed (CRC checks are on).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kafka_wire::Client;
use kafka_wire_core::messages::metadata::MetadataResponseTopic;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::cli::{Global, seconds};
use crate::clock::{monotonic_now, wall_ms};
use crate::failure::Failure;
use crate::input_record::unescape;
use crate::offsets::{self, EARLIEST, LATEST, find_topic};
use crate::output::{Format, Output, printable};
use crate::record_text::{Field, ReadRecord, TextLayout, to_json};
use crate::time_text;

/// How long a poll waits; also how soon Ctrl-C is seen.
const POLL_WAIT: Duration = Duration::from_millis(100);

/// Arguments of `consume`.
#[derive(Debug, clap::Args)]
pub(crate) struct ConsumeArgs {
    /// The topic to read
    topic: String,
    /// Only these partitions, may be repeated or separated by commas
    #[arg(long, short, value_delimiter = ',', value_parser = clap::value_parser!(i32).range(0..))]
    partition: Vec<i32>,
    /// Begin with the first record that is there; the default is what comes from now on
    #[arg(long, group = "start")]
    from_beginning: bool,
    /// Begin with this offset; -N begins N records before the end
    #[arg(long, group = "start", allow_negative_numbers = true)]
    offset: Option<i64>,
    #[arg(long, group = "start", value_name = "TIME", help = since_help())]
    since: Option<String>,
    /// Stop after this many records
    #[arg(long, short)]
    count: Option<u64>,
    /// Stop at the end of each partition instead of waiting for more
    #[arg(long, short = 'e')]
    until_end: bool,
    /// Stop when nothing has come for this long
    #[arg(long, value_parser = seconds, value_name = "SECONDS")]
    idle: Option<Duration>,
    /// What to print before the value: topic, partition, offset, timestamp, key, headers; with `value` among them just these
    #[arg(long, value_delimiter = ',', value_name = "FIELDS")]
    print: Vec<Field>,
    /// What stands between printed fields; \t \n \0 \xHH are understood
    #[arg(long, default_value = "\\t", value_name = "TEXT")]
    separator: String,
    /// Which records of transactions to read
    #[arg(long, value_enum, default_value = "committed")]
    isolation: Isolation,
}

fn since_help() -> String {
    format!("Begin with the first record of this time or later: {}", time_text::FORMS)
}

/// Kafka's isolation levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Isolation {
    Committed,
    Uncommitted,
}

pub(crate) async fn run(global: &Global, args: ConsumeArgs, output: &mut Output<'_>) -> Result<(), Failure> {
    let separator =
        unescape(&args.separator).map_err(|error| Failure::usage(format!("--separator: {error}")))?;
    let client = global.connect().await?;
    let mut topic = find_topic(&client, &args.topic).await?;
    select_partitions(&mut topic, &args)?;
    let starts = start_offsets(&client, &topic, &args).await?;
    let consumer = start_consumer(&global.bootstrap_list(), &args)?;
    assign(&consumer, &args.topic, &starts)?;
    let stop = Arc::new(AtomicBool::new(false));
    let interrupted = Arc::clone(&stop);
    tokio::spawn(async move {
        // Without a handler Ctrl-C ends the process at once, which is as good.
        if tokio::signal::ctrl_c().await.is_ok() {
            interrupted.store(true, Ordering::Relaxed);
        }
    });
    let reading = Reading {
        layout: TextLayout::new(args.print, separator),
        count: args.count,
        until_end: args.until_end,
        idle: args.idle,
        unfinished: starts.keys().copied().collect(),
    };
    tokio::task::block_in_place(|| reading.read(&consumer, &stop, output))
}

/// Keeps the partitions that were asked for.
fn select_partitions(topic: &mut MetadataResponseTopic, args: &ConsumeArgs) -> Result<(), Failure> {
    let there: BTreeSet<i32> = topic.partitions.iter().map(|p| p.partition_index).collect();
    if let Some(missing) = args.partition.iter().find(|partition| !there.contains(partition)) {
        let name = printable(&args.topic);
        return Err(Failure::not_found(format!(
            "topic {name} has no partition {missing}; it has {}",
            there.len()
        )));
    }
    if !args.partition.is_empty() {
        topic.partitions.retain(|p| args.partition.contains(&p.partition_index));
    }
    Ok(())
}

/// Where each partition begins.
async fn start_offsets(
    client: &Client,
    topic: &MetadataResponseTopic,
    args: &ConsumeArgs,
) -> Result<BTreeMap<i32, Offset>, Failure> {
    let everywhere = |offset: Offset| topic.partitions.iter().map(|p| (p.partition_index, offset)).collect();
    match (args.from_beginning, args.offset, &args.since) {
        (true, _, _) => Ok(everywhere(Offset::Beginning)),
        (_, Some(offset), _) if offset < 0 => Ok(everywhere(Offset::OffsetTail(offset.saturating_neg()))),
        (_, Some(offset), _) => {
            check_offset(client, topic, offset).await?;
            Ok(everywhere(Offset::Offset(offset)))
        }
        (_, _, Some(time)) => {
            let timestamp = time_text::parse(time, wall_ms()).map_err(Failure::usage)?;
            let ends = offsets_at(client, topic, LATEST).await?;
            let mut starts = offsets_at(client, topic, timestamp.max(0)).await?;
            for (partition, start) in &mut starts {
                // Nothing is that young: what comes from now on is.
                if *start < 0 {
                    *start = ends.get(partition).copied().unwrap_or(0);
                }
            }
            Ok(starts.into_iter().map(|(partition, offset)| (partition, Offset::Offset(offset))).collect())
        }
        (_, _, None) => {
            let ends = offsets_at(client, topic, LATEST).await?;
            Ok(ends.into_iter().map(|(partition, end)| (partition, Offset::Offset(end))).collect())
        }
    }
}

/// Offsets of all partitions; one that does not answer is a failure.
async fn offsets_at(
    client: &Client,
    topic: &MetadataResponseTopic,
    timestamp: i64,
) -> Result<BTreeMap<i32, i64>, Failure> {
    let name = printable(topic.name.as_deref().unwrap_or_default());
    let found = offsets::list(client, topic, timestamp).await?;
    let offset = |(partition, offset): (i32, offsets::Found)| match offset {
        Ok(offset) => Ok((partition, offset)),
        Err(code) => Err(Failure::refused(format!("find an offset of {name}-{partition}"), code, None)),
    };
    found.into_iter().map(offset).collect()
}

/// Refuses an offset that a partition does not have.
async fn check_offset(client: &Client, topic: &MetadataResponseTopic, offset: i64) -> Result<(), Failure> {
    let name = printable(topic.name.as_deref().unwrap_or_default());
    let ends = offsets_at(client, topic, LATEST).await?;
    for (partition, first) in offsets_at(client, topic, EARLIEST).await? {
        let end = ends.get(&partition).copied().unwrap_or(first);
        if offset < first || offset > end {
            let message = format!(
                "offset {offset} is not in {name}-{partition}, which begins at {first} and ends at {end}"
            );
            return Err(Failure::not_found(message).hint(
                "--from-beginning reads all that is there, --offset -N the last N, --partition one alone",
            ));
        }
    }
    Ok(())
}

fn start_consumer(bootstrap: &str, args: &ConsumeArgs) -> Result<BaseConsumer, Failure> {
    let isolation = match args.isolation {
        Isolation::Committed => "read_committed",
        Isolation::Uncommitted => "read_uncommitted",
    };
    ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("client.id", "weir")
        // librdkafka wants a name even though partitions are assigned by hand and nothing is committed.
        .set("group.id", "weir-consume")
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "error")
        .set("enable.partition.eof", "true")
        .set("isolation.level", isolation)
        .set("check.crcs", "true")
        .set("allow.auto.create.topics", "false")
        .set("socket.nagle.disable", "true")
        .create()
        .map_err(|error| Failure::failed(format!("cannot start the consumer: {error}")))
}

fn assign(consumer: &BaseConsumer, topic: &str, starts: &BTreeMap<i32, Offset>) -> Result<(), Failure> {
    let mut list = TopicPartitionList::with_capacity(starts.len());
    let added = starts
        .iter()
        .try_for_each(|(partition, offset)| list.add_partition_offset(topic, *partition, *offset));
    added.and_then(|()| consumer.assign(&list)).map_err(|error| {
        Failure::failed(format!("cannot assign partitions of {}: {error}", printable(topic)))
    })
}

/// The loop over records.
struct Reading {
    layout: TextLayout,
    count: Option<u64>,
    until_end: bool,
    idle: Option<Duration>,
    /// Partitions whose end has not been seen.
    unfinished: BTreeSet<i32>,
}

impl Reading {
    fn read(
        mut self,
        consumer: &BaseConsumer,
        stop: &AtomicBool,
        output: &mut Output<'_>,
    ) -> Result<(), Failure> {
        let mut line = Vec::new();
        let mut left = self.count.unwrap_or(u64::MAX);
        let mut last_record = monotonic_now();
        let mut troubled = false;
        while left > 0 && !stop.load(Ordering::Relaxed) {
            // Output is written in large pieces while records are at hand, and at once when there are none.
            let polled = match consumer.poll(Duration::ZERO) {
                Some(polled) => Some(polled),
                None => {
                    output.flush()?;
                    consumer.poll(POLL_WAIT)
                }
            };
            match polled {
                Some(Ok(message)) => {
                    self.show(&message, &mut line, output)?;
                    left -= 1;
                    troubled = false;
                    if self.idle.is_some() {
                        last_record = monotonic_now();
                    }
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    self.unfinished.remove(&partition);
                    if self.until_end && self.unfinished.is_empty() {
                        break;
                    }
                }
                Some(Err(error)) => {
                    if !troubled {
                        troubled = Self::on_error(&error, output)?;
                    }
                }
                None => {
                    let idle = monotonic_now().saturating_duration_since(last_record);
                    if self.idle.is_some_and(|max| idle >= max) {
                        break;
                    }
                }
            }
        }
        output.flush()
    }

    fn show(
        &self,
        message: &BorrowedMessage<'_>,
        line: &mut Vec<u8>,
        output: &mut Output<'_>,
    ) -> Result<(), Failure> {
        let headers: Vec<_> = message
            .headers()
            .map(|headers| headers.iter().map(|header| (header.key, header.value)).collect())
            .unwrap_or_default();
        let record = ReadRecord {
            topic: message.topic(),
            partition: message.partition(),
            offset: message.offset(),
            timestamp_ms: message.timestamp().to_millis(),
            key: message.key(),
            value: message.payload(),
            headers: &headers,
        };
        match output.format {
            Format::Json => output.json(&to_json(&record)),
            Format::Table => {
                line.clear();
                self.layout.append(&record, line);
                output.bytes(line)
            }
        }
    }

    /// Tells trouble that passes (true: do not repeat it until a record has come), and ends on what does not pass.
    fn on_error(error: &KafkaError, output: &mut Output<'_>) -> Result<bool, Failure> {
        let text = printable(&error.to_string());
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::OffsetOutOfRange | RDKafkaErrorCode::AutoOffsetReset) => {
                Err(Failure::not_found(format!("the next record is not there any more: {text}")).hint(
                    "`weir topic describe` shows what is there; records may have been deleted meanwhile",
                ))
            }
            Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
                Err(Failure::not_found(format!("the topic is gone: {text}")))
            }
            Some(
                RDKafkaErrorCode::AllBrokersDown
                | RDKafkaErrorCode::BrokerTransportFailure
                | RDKafkaErrorCode::Resolve
                | RDKafkaErrorCode::OperationTimedOut,
            ) => {
                output.note(&format!("waiting for the cluster: {text}"))?;
                Ok(true)
            }
            // No group is used, so it does not matter that nobody coordinates it.
            Some(code) if is_about_groups(code) => Ok(false),
            _ => Err(Failure::failed(format!("cannot read: {text}"))),
        }
    }
}

fn is_about_groups(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::CoordinatorNotAvailable
            | RDKafkaErrorCode::NotCoordinator
            | RDKafkaErrorCode::CoordinatorLoadInProgress
            | RDKafkaErrorCode::GroupAuthorizationFailed
            | RDKafkaErrorCode::InvalidGroupId
    )
}
