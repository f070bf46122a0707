//! A producer that goes on through failures, and the check of what it was promised.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clients::{ReadRecord, java_command};
use crate::clock::wait_until;

/// How long the producer may take until the next acknowledgement, a restart of the broker included.
const PROGRESS_LIMIT: Duration = Duration::from_secs(60);
const FINISH_LIMIT: Duration = Duration::from_secs(150);

/// Kafka's Java producer with acks=all and idempotence, sending the numbers 0, 1, 2 … to each partition.
#[derive(Debug)]
pub struct Load {
    child: Child,
    // Closing it tells the producer to finish.
    stdin: Option<ChildStdin>,
    reader: Option<JoinHandle<()>>,
    answers: Arc<Mutex<Answers>>,
}

/// What the producer was told.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// By partition: number → offset.
    pub acknowledged: BTreeMap<i32, BTreeMap<u64, i64>>,
    /// Lines about records that failed for good.
    pub failed: Vec<String>,
    /// How many records were sent; known at the end.
    pub sent: Option<u64>,
}

impl Answers {
    fn count(&self) -> usize {
        self.acknowledged.values().map(BTreeMap::len).sum()
    }

    fn take_line(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["ack", partition, number, offset] => {
                let parsed = (partition.parse(), number.parse(), offset.parse());
                let (Ok(partition), Ok(number), Ok(offset)) = parsed else {
                    panic!("not an answer: {line}");
                };
                let old = self.acknowledged.entry(partition).or_default().insert(number, offset);
                assert_eq!(old, None, "the client acknowledged a record twice: {line}");
            }
            ["sent", count] => self.sent = count.parse().ok(),
            _ => self.failed.push(line.to_owned()),
        }
    }
}

impl Load {
    /// Starts sending to `topic`.
    pub fn start(bootstrap: &str, topic: &str, partitions: u32, in_flight: u32) -> Load {
        let args = [bootstrap, topic, &partitions.to_string(), &in_flight.to_string()];
        let mut command = java_command("ProduceUntilStopped", &args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("java is installed");
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("the output was asked to be a pipe");
        let answers = Arc::new(Mutex::new(Answers::default()));
        let shared = Arc::clone(&answers);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                lock(&shared).take_line(&line);
            }
        });
        Load { child, stdin, reader: Some(reader), answers }
    }

    /// How many records were acknowledged so far.
    pub fn acknowledged(&self) -> usize {
        lock(&self.answers).count()
    }

    /// Waits until `more` records beyond `before` are acknowledged.
    pub fn wait_for_progress(&self, before: usize, more: usize) {
        let moved = wait_until(PROGRESS_LIMIT, || (self.acknowledged() >= before + more).then_some(()));
        if moved.is_none() {
            let answers = lock(&self.answers);
            panic!(
                "{} acknowledged, {} expected; failed: {:?}",
                answers.count(),
                before + more,
                answers.failed
            );
        }
    }

    /// Ends the sending and waits until every record is answered.
    pub fn finish(mut self) -> Answers {
        drop(self.stdin.take());
        let status = wait_until(FINISH_LIMIT, || self.child.try_wait().transpose());
        let status = status.expect("the producer ends").expect("the producer can be waited for");
        let reader = self.reader.take().expect("the reader is joined once");
        reader.join().expect("the answers are well formed");
        assert!(status.success(), "the producer failed: {status}");
        lock(&self.answers).clone()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // It is our own child; if it cannot be ended it has ended.
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

fn lock(answers: &Mutex<Answers>) -> std::sync::MutexGuard<'_, Answers> {
    answers.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Fails unless every acknowledged record was read once, at its offset, and in the order of sending; and nothing else was.
pub fn check_promises(answers: &Answers, read: &[ReadRecord]) {
    assert_eq!(answers.failed, Vec::<String>::new(), "the producer goes on through failures");
    assert_eq!(answers.sent, Some(answers.count() as u64), "every record is answered");
    let mut by_partition: BTreeMap<i32, BTreeMap<u64, i64>> = BTreeMap::new();
    let mut last: BTreeMap<i32, (u64, i64)> = BTreeMap::new();
    for record in read {
        let number: u64 = record.value.parse().unwrap_or_else(|_| panic!("not a number: {record:?}"));
        if let Some((before, offset)) = last.insert(record.partition, (number, record.offset)) {
            assert!(
                number > before,
                "partition {}: {number} comes after {before} at offset {offset}",
                record.partition
            );
        }
        let old = by_partition.entry(record.partition).or_default().insert(number, record.offset);
        assert_eq!(old, None, "partition {}: {number} is there twice", record.partition);
    }
    for (partition, acknowledged) in &answers.acknowledged {
        let found = by_partition.get(partition).expect("each partition has records");
        for (number, offset) in acknowledged {
            assert_eq!(found.get(number), Some(offset), "partition {partition}, record {number}");
        }
        assert_eq!(found.len(), acknowledged.len(), "partition {partition} has records that were never sent");
    }
}
