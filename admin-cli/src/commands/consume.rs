//! `weir consume`: records of all or some partitions through librdkafka.
//!
//! Without `--group` every partition is assigned with its own start offset, so nothing is stored and nobody else is disturbed;
//! reading as a member of a group stands in `consume/membership.rs`. Offsets by
//! time come from ListOffsets. What is damaged on the way is noticed (CRC checks are on).

mod membership;

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
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{Global, seconds};
use crate::clock::{monotonic_now, wall_ms};
use crate::failure::Failure;
use crate::input_record::unescape;
use crate::offsets::{self, EARLIEST, LATEST, find_topic};
use crate::output::{Format, Output, printable};
use crate::record_text::{Field, ReadRecord, TextLayout, append_json};
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
    /// Read as a member of this group: members share the partitions and go on where the group has committed. What has been
    /// written out is committed
    #[arg(long, short, value_name = "GROUP", conflicts_with_all = ["partition", "offset", "since"])]
    group: Option<String>,
    /// Begin with the first record that is there (in a group: where it has committed nothing); the default is what comes
    /// from now on
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
    /// Stop where the partitions ended when the command began, instead of waiting for more
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
    if let Some(group) = &args.group {
        let ends = offsets::all(&client, &topic, LATEST).await?;
        return membership::run(global, group, &args, separator, ends, output);
    }
    select_partitions(&mut topic, &args)?;
    let extents = extents(&client, &topic, &args).await?;
    let consumer = start_consumer(&global.bootstrap_list(), &args)?;
    assign(&consumer, &args.topic, &extents)?;
    let stop = stopped_by_signals();
    let reading = Reading {
        layout: TextLayout::new(args.print, separator),
        count: args.count,
        until_end: args.until_end,
        idle: args.idle,
        unfinished: extents.iter().filter(|(_, e)| e.start < e.end).map(|(p, e)| (*p, e.end)).collect(),
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

/// The offsets of a partition when the command began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    /// The first record to read.
    start: i64,
    /// One after the last record that was there.
    end: i64,
}

/// Where each partition begins, and where it ends now.
async fn extents(
    client: &Client,
    topic: &MetadataResponseTopic,
    args: &ConsumeArgs,
) -> Result<BTreeMap<i32, Extent>, Failure> {
    let ends = offsets::all(client, topic, LATEST).await?;
    let starts = match (args.from_beginning, args.offset, &args.since) {
        (true, _, _) => offsets::all(client, topic, EARLIEST).await?,
        (_, Some(offset), _) => {
            let firsts = offsets::all(client, topic, EARLIEST).await?;
            let start = |(partition, first): (i32, i64)| {
                let end = ends.get(&partition).copied().unwrap_or(first);
                let start = start_at(&args.topic, partition, offset, Extent { start: first, end })?;
                Ok((partition, start))
            };
            firsts.into_iter().map(start).collect::<Result<_, Failure>>()?
        }
        (_, _, Some(time)) => {
            let timestamp = time_text::parse(time, wall_ms()).map_err(Failure::usage)?;
            offsets::all(client, topic, timestamp.max(0)).await?
        }
        (_, _, None) => ends.clone(),
    };
    let extent = |(partition, end): (i32, i64)| {
        // No record is that young: what comes from now on is.
        let start = starts.get(&partition).copied().filter(|start| *start >= 0).unwrap_or(end);
        (partition, Extent { start, end })
    };
    Ok(ends.into_iter().map(extent).collect())
}

/// The offset that `--offset` means in a partition; refuses one that the partition does not have.
fn start_at(topic: &str, partition: i32, offset: i64, there: Extent) -> Result<i64, Failure> {
    if offset < 0 {
        return Ok(there.end.saturating_add(offset).max(there.start));
    }
    if (there.start..=there.end).contains(&offset) {
        return Ok(offset);
    }
    let message = format!(
        "offset {offset} is not in {}-{partition}, which begins at {} and ends at {}",
        printable(topic),
        there.start,
        there.end
    );
    Err(Failure::not_found(message)
        .hint("--from-beginning reads all that is there, --offset -N the last N, --partition one alone"))
}

/// Becomes true with Ctrl-C, or SIGTERM.
fn stopped_by_signals() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    // Without a handler a signal ends the process at once, which is as good where no group waits for us.
    if let Ok(mut terminate) = signal(SignalKind::terminate()) {
        tokio::spawn(async move {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            stopped.store(true, Ordering::Relaxed);
        });
    }
    stop
}

fn start_consumer(bootstrap: &str, args: &ConsumeArgs) -> Result<BaseConsumer, Failure> {
    consumer_config(bootstrap, args)
        // librdkafka wants a name even though partitions are assigned by hand and nothing is committed.
        .set("group.id", "weir-consume")
        .set("auto.offset.reset", "error")
        .create()
        .map_err(|error| Failure::failed(format!("cannot start the consumer: {error}")))
}

/// What every consumer of this command is set to.
fn consumer_config(bootstrap: &str, args: &ConsumeArgs) -> ClientConfig {
    let isolation = match args.isolation {
        Isolation::Committed => "read_committed",
        Isolation::Uncommitted => "read_uncommitted",
    };
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", bootstrap)
        .set("client.id", "weir")
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("enable.partition.eof", "true")
        .set("isolation.level", isolation)
        .set("check.crcs", "true")
        // How long the cluster may hold a fetch that finds nothing; it answers at once when something comes.
        .set("fetch.wait.max.ms", "250")
        .set("allow.auto.create.topics", "false")
        .set("socket.nagle.disable", "true");
    config
}

fn assign(consumer: &BaseConsumer, topic: &str, extents: &BTreeMap<i32, Extent>) -> Result<(), Failure> {
    let mut list = TopicPartitionList::with_capacity(extents.len());
    let added = extents.iter().try_for_each(|(partition, extent)| {
        list.add_partition_offset(topic, *partition, Offset::Offset(extent.start))
    });
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
    /// Partitions that are not read to the end that they had at the start, and that end.
    unfinished: BTreeMap<i32, i64>,
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
        while left > 0 && !self.is_at_end() && !stop.load(Ordering::Relaxed) {
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
                    if !self.is_wanted(&message) {
                        continue;
                    }
                    show(&self.layout, &message, &mut line, output)?;
                    left -= 1;
                    troubled = false;
                    if self.idle.is_some() {
                        last_record = monotonic_now();
                    }
                }
                // Also tells of an end behind which only marks of transactions come.
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    self.unfinished.remove(&partition);
                }
                Some(Err(error)) => {
                    if !troubled {
                        troubled = on_error(&error, false, output)?;
                    }
                }
                // A pipe whose reader has gone would be noticed by the next record only, which may never come.
                None if is_reader_gone() => break,
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

    fn is_at_end(&self) -> bool {
        self.until_end && self.unfinished.is_empty()
    }

    /// Keeps count of the ends; false for a record that came after its end had been fixed.
    fn is_wanted(&mut self, message: &BorrowedMessage<'_>) -> bool {
        if !self.until_end {
            return true;
        }
        let Some(end) = self.unfinished.get(&message.partition()).copied() else { return false };
        if message.offset() + 1 >= end {
            self.unfinished.remove(&message.partition());
        }
        message.offset() < end
    }
}

/// Writes one record.
fn show(
    layout: &TextLayout,
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
    line.clear();
    match output.format {
        Format::Json => append_json(&record, line)
            .map_err(|error| Failure::failed(format!("cannot write a record as JSON: {error}")))?,
        Format::Table => layout.append(&record, line),
    }
    output.bytes(line)
}

/// Tells trouble that passes (true: do not repeat it until a record has come), and ends on what does not pass.
fn on_error(error: &KafkaError, in_group: bool, output: &mut Output<'_>) -> Result<bool, Failure> {
    let text = printable(&error.to_string());
    let Some(code) = error.rdkafka_error_code() else {
        return Err(Failure::failed(format!("cannot read: {text}")));
    };
    match code {
        RDKafkaErrorCode::OffsetOutOfRange | RDKafkaErrorCode::AutoOffsetReset => {
            Err(Failure::not_found(format!("the next record is not there any more: {text}"))
                .hint("`weir topic describe` shows what is there; records may have been deleted meanwhile"))
        }
        RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic => {
            Err(Failure::not_found(format!("the topic is gone: {text}")))
        }
        RDKafkaErrorCode::AllBrokersDown
        | RDKafkaErrorCode::BrokerTransportFailure
        | RDKafkaErrorCode::Resolve
        | RDKafkaErrorCode::OperationTimedOut => {
            output.note(&format!("waiting for the cluster: {text}"))?;
            Ok(true)
        }
        RDKafkaErrorCode::CoordinatorNotAvailable
        | RDKafkaErrorCode::NotCoordinator
        | RDKafkaErrorCode::CoordinatorLoadInProgress
        | RDKafkaErrorCode::PollExceeded
            if in_group =>
        {
            output.note(&format!("waiting for the group: {text}"))?;
            Ok(true)
        }
        // No group is used, so it does not matter that nobody coordinates it.
        code if !in_group && is_about_groups(code) => Ok(false),
        _ => Err(Failure::failed(format!("cannot read: {text}"))),
    }
}

/// Whether standard output is a pipe that nobody reads any more.
fn is_reader_gone() -> bool {
    let stdout = std::io::stdout();
    let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut watched, Some(&now)).is_ok() && watched[0].revents().contains(PollFlags::ERR)
}

fn is_about_groups(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::CoordinatorNotAvailable
            | RDKafkaErrorCode::NotCoordinator
            | RDKafkaErrorCode::CoordinatorLoadInProgress
            | RDKafkaErrorCode::GroupAuthorizationFailed
            | RDKafkaErrorCode::InvalidGroupId
            // FindCoordinator's answer where groups are not served. Fetch and ListOffsets are negotiated.
            | RDKafkaErrorCode::UnsupportedVersion
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_taken_from_the_end_or_must_be_there() {
        let there = Extent { start: 10, end: 20 };
        for (offset, expected) in [(10, 10), (20, 20), (-1, 19), (-10, 10), (-99, 10)] {
            assert_eq!(start_at("t", 3, offset, there), Ok(expected), "{offset}");
        }
        for offset in [9, 21] {
            let failure = start_at("t", 3, offset, there).unwrap_err();
            assert_eq!(failure.exit_code(), 4);
            assert!(failure.to_string().contains("is not in t-3, which begins at 10 and ends at 20"));
        }
    }
}
