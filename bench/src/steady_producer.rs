//! A librdkafka producer that sends small records at a steady rate with acks=all and notes when each was acknowledged.

use crate::clock;
use crate::{Failure, kafka_client};
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);

/// What became of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) sent: Instant,
    pub(crate) answered: Instant,
    pub(crate) acknowledged: bool,
}

/// The running producer.
pub(crate) struct SteadyProducer {
    answers: Arc<Mutex<Vec<Answer>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), KafkaError>>>,
}

struct Noter {
    answers: Arc<Mutex<Vec<Answer>>>,
    talkative: bool,
}

impl ClientContext for Noter {
    /// What the library says of itself, with the time since the first line: only if it was asked to.
    fn log(&self, _level: RDKafkaLogLevel, context: &str, message: &str) {
        if !self.talkative {
            return;
        }
        static BEGUN: OnceLock<Instant> = OnceLock::new();
        let elapsed = BEGUN.get_or_init(clock::now).elapsed();
        eprintln!("client {:.3} {context} {message}", elapsed.as_secs_f64());
    }
}

impl ProducerContext for Noter {
    /// When the record was sent.
    type DeliveryOpaque = Box<Instant>;

    fn delivery(&self, result: &DeliveryResult<'_>, sent: Box<Instant>) {
        let answer = Answer { sent: *sent, answered: clock::now(), acknowledged: result.is_ok() };
        lock(&self.answers).push(answer);
    }
}

fn lock(answers: &Mutex<Vec<Answer>>) -> MutexGuard<'_, Vec<Answer>> {
    answers.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SteadyProducer {
    /// Sends `per_second` records of `size` bytes to partition 0 of `topic` until it is stopped.
    pub(crate) fn start(bootstrap: &str, topic: &str, per_second: u32, size: usize) -> Result<Self, Failure> {
        Self::start_with(bootstrap, topic, per_second, size, &[])
    }

    /// The same with some of the library's settings.
    pub(crate) fn start_with(
        bootstrap: &str,
        topic: &str,
        per_second: u32,
        size: usize,
        settings: &[(&str, String)],
    ) -> Result<Self, Failure> {
        let answers = Arc::<Mutex<Vec<Answer>>>::default();
        let mut config = kafka_client::config(bootstrap);
        config
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("linger.ms", "0")
            .set("message.timeout.ms", "120000");
        for (name, value) in settings {
            config.set(*name, value);
        }
        let talkative = settings.iter().any(|(name, _)| *name == "debug");
        if talkative {
            config.set_log_level(RDKafkaLogLevel::Debug);
        }
        let producer: ThreadedProducer<Noter> =
            config.create_with_context(Noter { answers: Arc::clone(&answers), talkative })?;
        let stop = Arc::<AtomicBool>::default();
        let thread = std::thread::spawn({
            let (stop, topic, payload) = (Arc::clone(&stop), topic.to_owned(), vec![b'x'; size]);
            move || send(&producer, &topic, &payload, Duration::from_secs(1) / per_second.max(1), &stop)
        });
        Ok(SteadyProducer { answers, stop, thread: Some(thread) })
    }

    /// When the first record that was sent after `moment` was acknowledged, if one was.
    pub(crate) fn first_sent_after(&self, moment: Instant) -> Option<Instant> {
        let answers = lock(&self.answers);
        let later = answers.iter().rev().take_while(|answer| answer.answered >= moment);
        later
            .filter(|answer| answer.acknowledged && answer.sent >= moment)
            .map(|answer| answer.answered)
            .min()
    }

    /// The answers so far.
    pub(crate) fn answers(&self) -> Vec<Answer> {
        lock(&self.answers).clone()
    }

    /// Stops sending and waits for every answer.
    pub(crate) fn finish(mut self) -> Result<Vec<Answer>, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().ok_or("stopped once")?;
        thread.join().map_err(|_| "the producer's thread failed")??;
        Ok(self.answers())
    }
}

impl Drop for SteadyProducer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn send(
    producer: &ThreadedProducer<Noter>,
    topic: &str,
    payload: &[u8],
    pause: Duration,
    stop: &AtomicBool,
) -> Result<(), KafkaError> {
    let mut due = clock::now();
    while !stop.load(Ordering::Relaxed) {
        let now = clock::now();
        if due > now {
            std::thread::sleep(due - now);
        }
        due = (due + pause).max(now);
        let record: BaseRecord<'_, (), [u8], Box<Instant>> =
            BaseRecord::with_opaque_to(topic, Box::new(clock::now())).partition(0).payload(payload);
        producer.send(record).map_err(|(error, _)| error)?;
    }
    producer.flush(PATIENCE)
}
