//! Where the time of a producer with `acks=all` goes: one histogram for each leg of the way from the request to its answer.
//!
//! The legs follow one after the other and add up to the whole. A request with batches for several partitions is answered when
//! the last of them is committed, so its legs are those of that batch. Counted are requests of which every batch was appended
//! and committed; each leg counts each of them once.

use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::partition::BatchTimes;

/// Seconds, from a few system calls to a request's usual time limit; close to each other where quantiles are read from.
const BUCKETS: [f64; 30] = [
    0.00002, 0.00003, 0.00005, 0.00007, 0.0001, 0.00015, 0.0002, 0.0003, 0.0005, 0.0007, 0.001, 0.0015,
    0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 5.0,
    30.0,
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LegLabel {
    leg: &'static str,
}

/// The histograms, looked up once.
#[derive(Debug)]
pub(crate) struct ProduceLegs {
    family: Family<LegLabel, Histogram, fn() -> Histogram>,
    whole: Histogram,
    receive: Histogram,
    queue: Histogram,
    append: Histogram,
    flush: Histogram,
    followers: Histogram,
    answer: Histogram,
}

impl Default for ProduceLegs {
    fn default() -> Self {
        let new: fn() -> Histogram = || Histogram::new(BUCKETS);
        let family = Family::new_with_constructor(new);
        let leg = |leg| Histogram::clone(&family.get_or_create(&LegLabel { leg }));
        Self {
            whole: new(),
            receive: leg("receive"),
            queue: leg("queue"),
            append: leg("append"),
            flush: leg("flush"),
            followers: leg("followers"),
            answer: leg("answer"),
            family,
        }
    }
}

impl ProduceLegs {
    /// Registers them.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "produce",
            "Produce requests with acks=all whose batches were committed, from the whole request to the response on the socket",
            Unit::Seconds,
            self.whole.clone(),
        );
        registry.register_with_unit(
            "produce_leg",
            "The same time, leg by leg",
            Unit::Seconds,
            self.family.clone(),
        );
    }

    /// A request that `arrived` then was answered at `written`; `last` is its batch that was committed last.
    pub(crate) fn observe(&self, arrived: Instant, last: &BatchTimes, written: Instant) {
        let BatchTimes { offered, taken, appended, flushed, committed } = *last;
        let mut from = arrived;
        for (leg, to) in [
            (&self.receive, offered),
            (&self.queue, taken),
            (&self.append, appended),
            (&self.flush, flushed),
            (&self.followers, committed),
            (&self.answer, written),
        ] {
            leg.observe(to.saturating_duration_since(from).as_secs_f64());
            from = to;
        }
        self.whole.observe(written.saturating_duration_since(arrived).as_secs_f64());
    }
}
