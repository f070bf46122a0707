//! `weir consume --group`: reading as a member of a group.
//!
//! What has been written out, and nothing else, is committed: every second, before partitions are handed over, and at the end.
//! A record is therefore written again only if the process dies, or loses its partitions, within that second. The output must
//! be flushed before partitions are given up, which the callback of librdkafka cannot do; it only notes the wish, and the
//! loop hands over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;

use super::{ConsumeArgs, POLL_WAIT, consumer_config, is_reader_gone, on_error, show, stopped_by_signals};
use crate::cli::Global;
use crate::clock::monotonic_now;
use crate::failure::Failure;
use crate::output::{Output, id_list, printable};
use crate::record_text::TextLayout;

/// How often a commit is made while records come.
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);
/// What librdkafka takes for a time-out of requests beside long polls.
const REQUEST_TIMEOUT_MS: std::ops::RangeInclusive<u128> = 2_000..=300_000;

/// What the group has told this member.
#[derive(Debug, Default)]
struct Told {
    /// The partitions of this member; none before the first generation.
    assigned: Option<BTreeSet<i32>>,
    /// They changed since the loop looked.
    changed: bool,
    /// They are to be given up, and the group waits for it.
    revoked: bool,
    /// Nobody looks any more: give up at once.
    closing: bool,
}

#[derive(Debug, Default)]
struct Membership {
    told: Mutex<Told>,
}

impl ClientContext for Membership {}

impl ConsumerContext for Membership {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, kind: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let mut told = self.told.lock();
        let done = match kind {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => {
                told.assigned = Some(list.elements().iter().map(|element| element.partition()).collect());
                told.changed = true;
                consumer.assign(list)
            }
            _ if told.closing => consumer.unassign(),
            _ => {
                told.revoked = true;
                Ok(())
            }
        };
        // The group goes on without this member, which will hear of it.
        if let Err(error) = done {
            tracing::warn!(%error, "change the assignment");
        }
    }
}

/// Reads until told to stop, then leaves the group.
pub(super) fn run(
    global: &Global,
    group: &str,
    args: &ConsumeArgs,
    separator: Vec<u8>,
    ends: BTreeMap<i32, i64>,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let timeout_ms = global.timeout.as_millis().clamp(*REQUEST_TIMEOUT_MS.start(), *REQUEST_TIMEOUT_MS.end());
    let consumer: BaseConsumer<Membership> = consumer_config(&global.bootstrap_list(), args)
        .set("group.id", group)
        .set("auto.offset.reset", if args.from_beginning { "earliest" } else { "latest" })
        .set("socket.timeout.ms", timeout_ms.to_string())
        .create_with_context(Membership::default())
        .map_err(|error| Failure::failed(format!("cannot start the consumer: {error}")))?;
    consumer
        .subscribe(&[&args.topic])
        .map_err(|error| Failure::failed(format!("cannot join group {}: {error}", printable(group))))?;
    let reading = Reading {
        topic: &args.topic,
        group,
        layout: TextLayout::new(args.print.clone(), separator),
        left: args.count.unwrap_or(u64::MAX),
        idle: args.idle,
        join_limit: global.timeout,
        ends: Ends { fixed: args.until_end.then_some(ends), reached: BTreeSet::new() },
        written: BTreeMap::new(),
        last_commit: monotonic_now(),
    };
    let stop = stopped_by_signals();
    tokio::task::block_in_place(|| {
        let result = reading.read(&consumer, &stop, output);
        let waiting = {
            let mut told = consumer.context().told.lock();
            told.closing = true;
            told.revoked
        };
        if waiting {
            // The consumer is closed next; what this says of a broken one, closing says too.
            drop(consumer.unassign());
        }
        // Leaves the group.
        drop(consumer);
        result
    })
}

/// The ends of partitions for `--until-end`.
#[derive(Debug)]
struct Ends {
    /// Where the partitions ended when the command began; none if that does not matter.
    fixed: Option<BTreeMap<i32, i64>>,
    /// Partitions of this member that are read that far.
    reached: BTreeSet<i32>,
}

impl Ends {
    /// Keeps count; false for a record that came after its end had been fixed.
    fn is_wanted(&mut self, partition: i32, offset: i64) -> bool {
        let Some(fixed) = &self.fixed else { return true };
        // A partition that is younger than the command is empty for it.
        let end = fixed.get(&partition).copied().unwrap_or(0);
        if offset + 1 >= end {
            self.reached.insert(partition);
        }
        offset < end
    }

    fn are_reached(&self, assigned: Option<&BTreeSet<i32>>) -> bool {
        self.fixed.is_some() && assigned.is_some_and(|assigned| assigned.is_subset(&self.reached))
    }
}

/// The loop over records.
struct Reading<'a> {
    topic: &'a str,
    group: &'a str,
    layout: TextLayout,
    /// Records that are still asked for.
    left: u64,
    idle: Option<Duration>,
    /// How long joining may take before it counts as idle.
    join_limit: Duration,
    ends: Ends,
    /// The next offset of each partition of which records were written out since the last commit.
    written: BTreeMap<i32, i64>,
    last_commit: Instant,
}

impl Reading<'_> {
    fn read(
        mut self,
        consumer: &BaseConsumer<Membership>,
        stop: &AtomicBool,
        output: &mut Output<'_>,
    ) -> Result<(), Failure> {
        let mut line = Vec::new();
        let mut quiet_since = monotonic_now();
        let mut troubled = false;
        while self.left > 0 && !self.is_at_end(consumer) && !stop.load(Ordering::Relaxed) {
            // Output is written in large pieces while records are at hand, and at once when there are none.
            let polled = match consumer.poll(Duration::ZERO) {
                Some(polled) => Some(polled),
                None => {
                    output.flush()?;
                    consumer.poll(POLL_WAIT)
                }
            };
            if self.follow_group(consumer, output)? {
                quiet_since = monotonic_now();
            }
            match polled {
                Some(Ok(message)) => {
                    if !self.ends.is_wanted(message.partition(), message.offset()) {
                        continue;
                    }
                    show(&self.layout, &message, &mut line, output)?;
                    self.written.insert(message.partition(), message.offset() + 1);
                    self.left -= 1;
                    troubled = false;
                    quiet_since = monotonic_now();
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    self.ends.reached.insert(partition);
                }
                Some(Err(error)) if !troubled => troubled = on_error(&error, true, output)?,
                Some(Err(_)) => {}
                None if is_reader_gone() => break,
                None if self.is_idle(consumer, quiet_since) => break,
                None => {}
            }
            self.commit_if_due(consumer, output)?;
        }
        self.commit(consumer, output)?.map_err(|error| {
            Failure::failed(format!(
                "group {} could not commit what was written out last, and will read it again: {error}",
                printable(self.group)
            ))
        })
    }

    fn is_at_end(&self, consumer: &BaseConsumer<Membership>) -> bool {
        self.ends.are_reached(consumer.context().told.lock().assigned.as_ref())
    }

    /// Whether nothing has come for as long as `--idle` says; joining takes its own time.
    fn is_idle(&self, consumer: &BaseConsumer<Membership>, quiet_since: Instant) -> bool {
        let joined = consumer.context().told.lock().assigned.is_some();
        let limit = self.idle.map(|idle| if joined { idle } else { idle.max(self.join_limit) });
        limit.is_some_and(|limit| monotonic_now().saturating_duration_since(quiet_since) >= limit)
    }

    /// Takes note of new partitions (true), and hands over those that are to be given up.
    fn follow_group(
        &mut self,
        consumer: &BaseConsumer<Membership>,
        output: &mut Output<'_>,
    ) -> Result<bool, Failure> {
        let (changed, revoked) = {
            let mut told = consumer.context().told.lock();
            let assigned = std::mem::take(&mut told.changed).then(|| told.assigned.clone()).flatten();
            (assigned, std::mem::take(&mut told.revoked))
        };
        let is_new = changed.is_some();
        if let Some(assigned) = changed {
            self.ends.reached.clear();
            if output.notes_to_terminal {
                let partitions: Vec<i32> = assigned.into_iter().collect();
                let list = id_list(&partitions);
                output.note(&format!("group {}: partitions {list}", printable(self.group)))?;
            }
        }
        if !revoked {
            return Ok(is_new);
        }
        if consumer.assignment_lost() {
            output.note(
                "the group went on without this member; records since the last commit are read again",
            )?;
        } else if let Err(error) = self.commit(consumer, output)? {
            output.note(&format!("records since the last commit are read again: {error}"))?;
        }
        self.written.clear();
        consumer.context().told.lock().assigned = None;
        match consumer.unassign() {
            Ok(()) => Ok(is_new),
            Err(error) => Err(Failure::failed(format!("cannot give up partitions: {error}"))),
        }
    }

    fn commit_if_due(
        &mut self,
        consumer: &BaseConsumer<Membership>,
        output: &mut Output<'_>,
    ) -> Result<(), Failure> {
        if self.written.is_empty()
            || monotonic_now().saturating_duration_since(self.last_commit) < COMMIT_INTERVAL
        {
            return Ok(());
        }
        match self.commit(consumer, output)? {
            Ok(()) => Ok(()),
            // It is tried again with the next one.
            Err(error) => output.note(&format!("cannot commit now: {error}")),
        }
    }

    /// Commits what is written out. The outer failure is one of the output.
    fn commit(
        &mut self,
        consumer: &BaseConsumer<Membership>,
        output: &mut Output<'_>,
    ) -> Result<Result<(), KafkaError>, Failure> {
        output.flush()?;
        self.last_commit = monotonic_now();
        if self.written.is_empty() {
            return Ok(Ok(()));
        }
        let mut list = TopicPartitionList::with_capacity(self.written.len());
        let added = self.written.iter().try_for_each(|(partition, next)| {
            list.add_partition_offset(self.topic, *partition, Offset::Offset(*next))
        });
        let committed = added.and_then(|()| consumer.commit(&list, CommitMode::Sync));
        if committed.is_ok() {
            self.written.clear();
        }
        Ok(committed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_reached_by_all_partitions_of_the_member_together() {
        let mut ends = Ends { fixed: Some([(0, 5), (1, 0)].into()), reached: BTreeSet::new() };
        let assigned: BTreeSet<i32> = [0, 1].into();
        assert!(!ends.are_reached(None), "nothing is known before the first generation");
        assert!(
            ends.are_reached(Some(&BTreeSet::new())),
            "a member without partitions has nothing to wait for"
        );
        assert!(ends.is_wanted(0, 3) && !ends.are_reached(Some(&assigned)));
        assert!(ends.is_wanted(0, 4));
        assert!(!ends.is_wanted(0, 5), "it came later");
        assert!(!ends.are_reached(Some(&assigned)));
        assert!(!ends.is_wanted(1, 0));
        assert!(ends.are_reached(Some(&assigned)));
        let mut endless = Ends { fixed: None, reached: BTreeSet::new() };
        assert!(endless.is_wanted(0, 1 << 40) && !endless.are_reached(Some(&BTreeSet::new())));
    }
}
