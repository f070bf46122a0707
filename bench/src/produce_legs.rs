//! Where the time of requests with acks=all goes inside of Weir, from the histograms that its storage nodes serve.
//!
//! Quantiles are interpolated within the buckets, so they are as exact as those are narrow: up to half of the value. The means are
//! exact. Quantiles of legs do not add up to the quantile of the whole; means do.

use crate::Failure;
use crate::report::print_table;
use cluster_tests::http;
use cluster_tests::replicated_cluster::{ReplicatedCluster, Role};
use std::collections::BTreeMap;

const LEGS: [&str; 6] = ["receive", "queue", "append", "flush", "followers", "answer"];
const LEG_METRIC: &str = "weir_storage_node_produce_leg_seconds";
const WHOLE_METRIC: &str = "weir_storage_node_produce_seconds";
/// Name of the row for the whole way.
const WHOLE: &str = "whole";

/// One histogram, or the difference of two.
#[derive(Debug, Clone, Default, PartialEq)]
struct Histogram {
    /// Observations at or below each bound, in order of the bounds; the last bound is infinite.
    cumulative: Vec<(f64, f64)>,
    sum: f64,
}

/// The histograms of all storage nodes together.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProduceLegs(BTreeMap<String, Histogram>);

impl ProduceLegs {
    /// What was counted so far.
    pub(crate) fn scrape(cluster: &ReplicatedCluster) -> Result<Self, Failure> {
        let mut all = Self::default();
        for node in cluster.daemons().iter().filter(|daemon| daemon.role == Role::StorageNode) {
            let answer = http::get(node.http(), "/metrics");
            let (_, text) = answer.ok_or_else(|| format!("{} serves no metrics", node.name()))?;
            all.add(&text);
        }
        Ok(all)
    }

    fn add(&mut self, text: &str) {
        for line in text.lines() {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let (name, labels) = match series.split_once('{') {
                Some((name, labels)) => (name, labels.trim_end_matches('}')),
                None => (series, ""),
            };
            let Ok(value) = value.parse::<f64>() else { continue };
            let label = |wanted: &str| {
                let pairs = labels.split(',').filter_map(|pair| pair.split_once('='));
                pairs.filter(|(key, _)| *key == wanted).map(|(_, text)| text.trim_matches('"')).next()
            };
            let (kind, leg) = match (name.strip_prefix(LEG_METRIC), name.strip_prefix(WHOLE_METRIC)) {
                (Some(kind), _) => (kind, label("leg").unwrap_or_default()),
                (None, Some(kind)) => (kind, WHOLE),
                (None, None) => continue,
            };
            let histogram = self.0.entry(leg.to_owned()).or_default();
            match kind {
                "_sum" => histogram.sum += value,
                "_bucket" => histogram.add_bucket(label("le").unwrap_or_default(), value),
                _ => {}
            }
        }
    }

    /// What was counted between `before` and now, added to `sum`.
    pub(crate) fn add_since(&self, before: &Self, sum: &mut Self) {
        for (leg, now) in &self.0 {
            let target = sum.0.entry(leg.clone()).or_default();
            let nothing = Histogram::default();
            let earlier = before.0.get(leg).unwrap_or(&nothing);
            target.sum += now.sum - earlier.sum;
            for &(bound, count) in &now.cumulative {
                target.add_count(bound, count - earlier.at(bound));
            }
        }
    }

    /// Prints the legs in their order, under this title.
    pub(crate) fn print(&self, title: &str) {
        let head = [title, "requests", "mean ms", "p50 ms", "p99 ms"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for leg in LEGS.into_iter().chain([WHOLE]) {
            let Some(histogram) = self.0.get(leg) else { continue };
            let milliseconds = |seconds: f64| format!("{:.3}", seconds * 1e3);
            rows.push(vec![
                leg.to_owned(),
                format!("{}", histogram.count()),
                milliseconds(histogram.sum / histogram.count()),
                milliseconds(histogram.quantile(0.5)),
                milliseconds(histogram.quantile(0.99)),
            ]);
        }
        print_table(&rows);
    }
}

impl Histogram {
    fn add_bucket(&mut self, bound: &str, count: f64) {
        let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap_or(f64::NAN) };
        if !bound.is_nan() {
            self.add_count(bound, count);
        }
    }

    fn add_count(&mut self, bound: f64, count: f64) {
        match self.cumulative.binary_search_by(|(other, _)| other.total_cmp(&bound)) {
            Ok(at) => self.cumulative[at].1 += count,
            Err(at) => self.cumulative.insert(at, (bound, count)),
        }
    }

    fn at(&self, bound: f64) -> f64 {
        let found = self.cumulative.iter().find(|(other, _)| other.total_cmp(&bound).is_eq());
        found.map_or(0.0, |(_, count)| *count)
    }

    fn count(&self) -> f64 {
        self.cumulative.last().map_or(0.0, |(_, count)| *count)
    }

    /// The value below which this part of the observations lies, by a straight line through its bucket; the last bound there is
    /// for what lies above it.
    fn quantile(&self, part: f64) -> f64 {
        let wanted = part * self.count();
        let (mut low, mut below) = (0.0, 0.0);
        for &(bound, count) in &self.cumulative {
            if count >= wanted && count > below {
                let share = (wanted - below) / (count - below);
                return if bound.is_infinite() { low } else { low + (bound - low) * share };
            }
            (low, below) = (bound, count);
        }
        f64::NAN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP whatever is here.\n\
        weir_storage_node_produce_leg_seconds_sum{leg=\"flush\"} 1.5\n\
        weir_storage_node_produce_leg_seconds_count{leg=\"flush\"} 4\n\
        weir_storage_node_produce_leg_seconds_bucket{le=\"0.1\",leg=\"flush\"} 1\n\
        weir_storage_node_produce_leg_seconds_bucket{le=\"0.2\",leg=\"flush\"} 3\n\
        weir_storage_node_produce_leg_seconds_bucket{leg=\"flush\",le=\"+Inf\"} 4\n\
        weir_storage_node_produce_seconds_sum 2.5\n\
        weir_storage_node_produce_seconds_bucket{le=\"+Inf\"} 4\n\
        weir_storage_node_cold_reads_total 7\n";

    #[test]
    fn histograms_of_nodes_add_up_and_what_was_before_is_taken_off() {
        let (mut one, mut two, mut sum) =
            (ProduceLegs::default(), ProduceLegs::default(), ProduceLegs::default());
        one.add(TEXT);
        two.add(TEXT);
        two.add(TEXT);
        two.add_since(&one, &mut sum);
        two.add_since(&one, &mut sum);
        assert_eq!(sum.0, two.0, "twice what one scrape told");
        assert_eq!(sum.0.len(), 2);
        assert!((sum.0[WHOLE].sum - 5.0).abs() < 1e-9);
    }

    #[test]
    fn quantiles_lie_on_a_line_within_their_bucket() {
        let mut legs = ProduceLegs::default();
        legs.add(TEXT);
        let flush = &legs.0["flush"];
        assert!((flush.quantile(0.5) - 0.15).abs() < 1e-9, "{}", flush.quantile(0.5));
        assert!((flush.quantile(0.25) - 0.1).abs() < 1e-9);
        assert!((flush.quantile(0.99) - 0.2).abs() < 1e-9, "above the last bound");
        assert!(Histogram::default().quantile(0.5).is_nan());
    }
}
