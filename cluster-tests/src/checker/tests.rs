//! Each rule catches its fault, and a history without fault passes.

use super::{Report, Violation, check};
use crate::history::{EventKind, History, checksum};

/// Sends `values` to partition 0 and has them acknowledged from offset 0 on.
fn produce(history: &mut History, name: &str, values: &[u64]) {
    let mut client = history.client(name);
    for (offset, value) in (0_i64..).zip(values) {
        client.event(10, 0, EventKind::Send { value: *value });
        client.event(20, 0, EventKind::Acknowledged { value: *value, offset });
    }
}

/// Reads `records` (offset, value) of partition 0 from offset 0 on.
fn consume(history: &mut History, name: &str, records: &[(i64, u64)]) {
    let mut client = history.client(name);
    client.event(5, 0, EventKind::Assigned { offset: 0 });
    for (offset, value) in records {
        let checksum = checksum(*value, 0);
        client.event(30, 0, EventKind::Polled { offset: *offset, value: *value, checksum });
    }
}

/// Judges the history of one producer and one reader.
fn judge(sent: &[u64], read: &[(i64, u64)]) -> Report {
    let mut history = History::default();
    produce(&mut history, "producer", sent);
    consume(&mut history, "reader", read);
    check(&history)
}

/// The rules that a report names, in the order of their names.
fn rules(report: &Report) -> Vec<&'static str> {
    report.broken.keys().copied().collect()
}

#[test]
fn a_good_history_is_clean() {
    let report = judge(&[7, 8, 9], &[(0, 7), (1, 8), (2, 9)]);
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.counts.sent, report.counts.acknowledged, report.counts.polled), (3, 3, 3));
    assert_eq!(report.read_lag_us_max, 10);
}

#[test]
fn a_lost_record_is_found_by_whoever_read_beyond_it() {
    let report = judge(&[7, 8, 9], &[(0, 7), (2, 9)]);
    assert_eq!(rules(&report), ["lost", "skipped"]);
    assert!(report.violations.contains(&Violation::Lost { partition: 0, value: 8, offset: 1 }));
    let skipped =
        Violation::Skipped { client: "reader".to_owned(), partition: 0, from: 1, to: 2, skipped: 1 };
    assert!(report.violations.contains(&skipped));
}

#[test]
fn a_lost_tail_is_unseen() {
    let report = judge(&[7, 8, 9], &[(0, 7), (1, 8)]);
    assert_eq!(rules(&report), ["unseen"]);
    assert_eq!(report.violations, [Violation::Unseen { partition: 0, value: 9, offset: 2, read_to: 1 }]);
}

#[test]
fn a_lost_record_whose_offset_was_given_again_is_inconsistent() {
    let mut history = History::default();
    produce(&mut history, "producer", &[7, 8]);
    history.client("other").event(11, 0, EventKind::Send { value: 5 });
    consume(&mut history, "reader", &[(0, 7), (1, 5)]);
    let report = check(&history);
    assert_eq!(rules(&report), ["inconsistent offset"]);
    let expected = Violation::InconsistentOffset { partition: 0, offset: 1, values: (5, 8) };
    assert_eq!(report.violations, [expected]);
}

#[test]
fn two_readers_that_saw_different_records_at_one_offset_are_found() {
    let mut history = History::default();
    let mut producer = history.client("producer");
    producer.event(1, 0, EventKind::Send { value: 7 }).event(1, 0, EventKind::Send { value: 8 });
    consume(&mut history, "one", &[(0, 7)]);
    consume(&mut history, "other", &[(0, 8)]);
    assert_eq!(rules(&check(&history)), ["inconsistent offset", "reordered"]);
}

#[test]
fn a_record_that_was_written_twice_is_a_duplicate() {
    let report = judge(&[7, 8], &[(0, 7), (1, 8), (2, 8)]);
    assert_eq!(rules(&report), ["duplicate"]);
    assert_eq!(report.violations, [Violation::Duplicate { partition: 0, value: 8, offsets: (1, 2) }]);
}

#[test]
fn an_acknowledgement_with_another_offset_than_the_record_has_is_found() {
    let mut history = History::default();
    let mut producer = history.client("producer");
    producer.event(1, 0, EventKind::Send { value: 7 });
    producer.event(2, 0, EventKind::Acknowledged { value: 7, offset: 3 });
    consume(&mut history, "reader", &[(0, 7)]);
    assert!(rules(&check(&history)).contains(&"duplicate"));
}

#[test]
fn records_in_another_order_than_they_were_sent_are_found() {
    let mut history = History::default();
    let mut producer = history.client("producer");
    producer.event(1, 0, EventKind::Send { value: 7 }).event(1, 0, EventKind::Send { value: 8 });
    producer.event(2, 0, EventKind::Acknowledged { value: 7, offset: 1 });
    // Nobody knows what became of the other, but it is there, in front.
    producer.event(2, 0, EventKind::Unknown { value: 8 });
    consume(&mut history, "reader", &[(0, 8), (1, 7)]);
    let report = check(&history);
    assert_eq!(rules(&report), ["reordered"]);
    assert_eq!(report.counts.unknown_but_read, 1);
}

#[test]
fn phantoms_are_found() {
    let mut history = History::default();
    produce(&mut history, "producer", &[7]);
    let mut reader = history.client("reader");
    reader.event(30, 0, EventKind::Polled { offset: 0, value: 7, checksum: checksum(7, 0) });
    reader.event(30, 0, EventKind::Polled { offset: 1, value: 99, checksum: checksum(99, 0) });
    reader.event(30, 0, EventKind::Polled { offset: 2, value: 7, checksum: 1 });
    reader.event(30, 0, EventKind::Malformed { offset: 3 });
    reader.event(30, 1, EventKind::Polled { offset: 0, value: 7, checksum: checksum(7, 1) });
    let report = check(&history);
    let reasons: Vec<&str> = report
        .violations
        .iter()
        .filter_map(|violation| match violation {
            Violation::Phantom { reason, .. } => Some(*reason),
            _ => None,
        })
        .collect();
    assert_eq!(
        reasons,
        [
            "nobody sent this value",
            "its checksum is wrong",
            "no client writes such bytes",
            "it was sent to another partition"
        ]
    );
}

#[test]
fn a_record_that_was_refused_must_not_be_read() {
    let mut history = History::default();
    let mut producer = history.client("producer");
    producer.event(1, 0, EventKind::Send { value: 7 }).event(2, 0, EventKind::Refused { value: 7 });
    consume(&mut history, "reader", &[(0, 7)]);
    assert_eq!(rules(&check(&history)), ["refused but read"]);
}

#[test]
fn a_record_of_which_nobody_knows_may_be_there_or_not() {
    let mut history = History::default();
    let mut producer = history.client("producer");
    for value in [7, 8] {
        producer.event(1, 0, EventKind::Send { value }).event(2, 0, EventKind::Unknown { value });
    }
    consume(&mut history, "reader", &[(0, 8)]);
    let report = check(&history);
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.counts.unknown, report.counts.unknown_but_read), (2, 1));
}

#[test]
fn a_record_that_was_acknowledged_without_an_offset_must_be_somewhere() {
    let mut history = History::default();
    let mut producer = history.client("producer");
    for value in [7, 8] {
        producer.event(1, 0, EventKind::Send { value });
        producer.event(2, 0, EventKind::AcknowledgedSomewhere { value });
    }
    consume(&mut history, "reader", &[(0, 7)]);
    let report = check(&history);
    assert_eq!(report.violations, [Violation::Nowhere { partition: 0, value: 8 }]);
}

#[test]
fn a_reader_that_goes_backwards_is_found_unless_it_was_told_to() {
    let report = judge(&[7, 8], &[(0, 7), (1, 8), (0, 7)]);
    assert_eq!(rules(&report), ["backwards"]);
    let mut history = History::default();
    produce(&mut history, "producer", &[7, 8]);
    consume(&mut history, "reader", &[(0, 7), (1, 8)]);
    let mut again = history.client("again");
    for _ in 0..2 {
        again.event(40, 0, EventKind::Assigned { offset: 0 });
        again.event(41, 0, EventKind::Polled { offset: 0, value: 7, checksum: checksum(7, 0) });
    }
    assert!(check(&history).is_clean());
}

#[test]
fn a_reader_that_skips_what_another_one_saw_is_found() {
    let mut history = History::default();
    produce(&mut history, "producer", &[7, 8, 9]);
    consume(&mut history, "good", &[(0, 7), (1, 8), (2, 9)]);
    consume(&mut history, "late", &[(1, 8), (2, 9)]);
    let report = check(&history);
    assert_eq!(rules(&report), ["skipped"]);
    let expected = Violation::Skipped { client: "late".to_owned(), partition: 0, from: 0, to: 1, skipped: 0 };
    assert_eq!(report.violations, [expected]);
}

#[test]
fn a_reader_that_was_told_of_an_end_beyond_its_last_record_skipped_the_rest() {
    let mut history = History::default();
    produce(&mut history, "producer", &[7, 8]);
    consume(&mut history, "good", &[(0, 7), (1, 8)]);
    consume(&mut history, "final", &[(0, 7)]);
    history.events.push(crate::history::Event {
        client: 2,
        time_us: 50,
        partition: 0,
        kind: EventKind::End { offset: 2 },
    });
    assert_eq!(rules(&check(&history)), ["skipped"]);
}

#[test]
fn an_offset_without_a_record_is_a_gap() {
    let mut history = History::default();
    let mut producer = history.client("producer");
    for (value, offset) in [(7, 0), (8, 2)] {
        producer.event(1, 0, EventKind::Send { value });
        producer.event(2, 0, EventKind::Acknowledged { value, offset });
    }
    consume(&mut history, "reader", &[(0, 7), (2, 8)]);
    let report = check(&history);
    assert_eq!(report.violations, [Violation::Gap { partition: 0, from: 1, to: 2 }]);
}

#[test]
fn partitions_and_clients_are_judged_apart() {
    let mut history = History::default();
    for partition in 0..3_u16 {
        let mut client = history.client(format!("producer-{partition}"));
        let value = |n: u64| u64::from(partition) << 32 | n;
        for n in 0..10_u64 {
            client.event(1, partition, EventKind::Send { value: value(n) });
            let offset = n.cast_signed();
            client.event(2, partition, EventKind::Acknowledged { value: value(n), offset });
        }
        let mut reader = history.client(format!("reader-{partition}"));
        reader.event(3, partition, EventKind::Assigned { offset: 0 });
        for n in 0..10_u64 {
            let (offset, value) = (n.cast_signed(), value(n));
            let checksum = checksum(value, partition);
            reader.event(4, partition, EventKind::Polled { offset, value, checksum });
        }
    }
    let report = check(&history);
    assert!(report.is_clean(), "{report}");
}

#[test]
fn one_fault_among_a_million_operations_is_found() {
    const RECORDS: u64 = 300_000;
    let mut history = History::default();
    let values: Vec<u64> = (0..RECORDS).map(|n| n * 7 + 1).collect();
    produce(&mut history, "producer", &values);
    let mut records: Vec<(i64, u64)> = (0_i64..).zip(values).collect();
    consume(&mut history, "good", &records);
    assert!(check(&history).is_clean());
    records.remove(123_456);
    consume(&mut history, "skips", &records);
    assert!(history.events.len() > 1_000_000);
    let report = check(&history);
    assert_eq!(report.broken.into_iter().collect::<Vec<_>>(), [("skipped", 1)]);
}
