//! What an endpoint counts. Register once per endpoint in a registry that carries the daemon's prefix.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use proto_types::message_kind::MessageKind;
use std::time::Duration;

/// Which end of a call or connection we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    const fn as_str(self) -> &'static str {
        match self {
            Side::Client => "client",
            Side::Server => "server",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct KindLabels {
    side: &'static str,
    kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    side: &'static str,
    kind: String,
    error: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SideLabels {
    side: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabels {
    direction: &'static str,
}

/// Counters of one endpoint. Cheap to clone; all clones count together.
#[derive(Clone)]
pub struct TransportMetrics {
    calls: Family<KindLabels, Counter>,
    errors: Family<ErrorLabels, Counter>,
    seconds: Family<KindLabels, Histogram, fn() -> Histogram>,
    bytes: Family<DirectionLabels, Counter>,
    connections: Family<SideLabels, Gauge>,
    streams: Family<KindLabels, Gauge>,
    connects: Counter,
    connect_failures: Counter,
    reconnects: Counter,
    retries: Counter,
    refused_connections: Counter,
}

impl TransportMetrics {
    /// Counters that nobody reads, for tests and tools.
    pub fn unregistered() -> Self {
        Self {
            calls: Family::default(),
            errors: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_1, 4.0, 10))),
            bytes: Family::default(),
            connections: Family::default(),
            streams: Family::default(),
            connects: Counter::default(),
            connect_failures: Counter::default(),
            reconnects: Counter::default(),
            retries: Counter::default(),
            refused_connections: Counter::default(),
        }
    }

    /// Counters in `registry`. Names begin with `transport_`; hand in a sub-registry with the prefix `weir_<daemon>`, and a
    /// label for the endpoint if the daemon has several.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::unregistered();
        registry.register("transport_calls", "Calls begun", metrics.calls.clone());
        registry.register("transport_errors", "Calls and streams that failed", metrics.errors.clone());
        registry.register("transport_call_seconds", "Time from request to reply", metrics.seconds.clone());
        registry.register("transport_bytes", "Bytes of bodies and frames", metrics.bytes.clone());
        registry.register("transport_connections", "Open connections", metrics.connections.clone());
        registry.register("transport_streams", "Open long-lived streams", metrics.streams.clone());
        registry.register("transport_connects", "Connections made", metrics.connects.clone());
        registry.register(
            "transport_connect_failures",
            "Attempts to connect that failed",
            metrics.connect_failures.clone(),
        );
        registry.register(
            "transport_reconnects",
            "Connections made to a peer that was connected before",
            metrics.reconnects.clone(),
        );
        registry.register(
            "transport_retries",
            "Attempts to connect that had to prove their address first",
            metrics.retries.clone(),
        );
        registry.register(
            "transport_refused_connections",
            "Attempts to connect that were refused",
            metrics.refused_connections.clone(),
        );
        metrics
    }

    pub(crate) fn call_begun(&self, side: Side, kind: u16) {
        self.calls.get_or_create(&labels(side, kind)).inc();
    }

    pub(crate) fn call_ended(&self, side: Side, kind: u16, took: Duration, error: Option<&'static str>) {
        self.seconds.get_or_create(&labels(side, kind)).observe(took.as_secs_f64());
        if let Some(error) = error {
            self.failed(side, kind, error);
        }
    }

    pub(crate) fn failed(&self, side: Side, kind: u16, error: &'static str) {
        let labels = ErrorLabels { side: side.as_str(), kind: kind_name(kind), error };
        self.errors.get_or_create(&labels).inc();
    }

    pub(crate) fn sent(&self) -> Counter {
        self.bytes.get_or_create(&DirectionLabels { direction: "sent" }).clone()
    }

    pub(crate) fn received(&self) -> Counter {
        self.bytes.get_or_create(&DirectionLabels { direction: "received" }).clone()
    }

    pub(crate) fn connection(&self, side: Side) -> GaugeGuard {
        GaugeGuard::new(self.connections.get_or_create(&SideLabels { side: side.as_str() }).clone())
    }

    pub(crate) fn stream(&self, side: Side, kind: u16) -> GaugeGuard {
        GaugeGuard::new(self.streams.get_or_create(&labels(side, kind)).clone())
    }

    pub(crate) fn connected(&self, again: bool) {
        self.connects.inc();
        if again {
            self.reconnects.inc();
        }
    }

    pub(crate) fn retried(&self) {
        self.retries.inc();
    }

    pub(crate) fn connection_refused(&self) {
        self.refused_connections.inc();
    }

    pub(crate) fn connect_failed(&self) {
        self.connect_failures.inc();
    }
}

/// One more as long as it lives.
#[derive(Debug)]
pub(crate) struct GaugeGuard(Gauge);

impl GaugeGuard {
    fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn labels(side: Side, kind: u16) -> KindLabels {
    KindLabels { side: side.as_str(), kind: kind_name(kind) }
}

/// Known kinds by name; all that a peer might invent share one label.
fn kind_name(kind: u16) -> String {
    MessageKind::from_number(kind).map_or_else(|| "unknown".to_owned(), |kind| format!("{kind:?}"))
}

pub(crate) fn refusal_label(refusal: &crate::Refusal) -> &'static str {
    use crate::Refusal;
    match refusal {
        Refusal::UnknownKind => "unknown_kind",
        Refusal::WrongShape => "wrong_shape",
        Refusal::Forbidden => "forbidden",
        Refusal::UnsupportedVersion { .. } => "unsupported_version",
        Refusal::Malformed(_) => "malformed",
        Refusal::TooLarge { .. } => "too_large",
        Refusal::Busy => "busy",
        Refusal::DeadlinePassed => "deadline_passed",
        Refusal::ShuttingDown => "shutting_down",
        Refusal::Failed(_) => "failed",
    }
}

pub(crate) fn error_label(error: &crate::CallError) -> &'static str {
    use crate::CallError;
    match error {
        CallError::Timeout => "timeout",
        CallError::Unreachable { .. } => "unreachable",
        CallError::Refused { refusal } => refusal_label(refusal),
        CallError::TooLarge { .. } => "too_large",
        CallError::Closed { .. } => "closed",
        CallError::Remote(_) => "remote",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_has_the_documented_names() {
        let mut registry = Registry::default();
        let metrics = TransportMetrics::register(registry.sub_registry_with_prefix("weir_test"));
        metrics.call_begun(Side::Client, 1);
        metrics.call_ended(Side::Client, 1, Duration::from_millis(2), Some("timeout"));
        metrics.failed(Side::Server, 60_000, "unknown_kind");
        metrics.sent().inc_by(10);
        metrics.connected(true);
        metrics.connect_failed();
        let guard = metrics.connection(Side::Server);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("encodes");
        for line in [
            r#"weir_test_transport_calls_total{side="client",kind="Controller"} 1"#,
            r#"weir_test_transport_errors_total{side="client",kind="Controller",error="timeout"} 1"#,
            r#"weir_test_transport_errors_total{side="server",kind="unknown",error="unknown_kind"} 1"#,
            r#"weir_test_transport_call_seconds_count{side="client",kind="Controller"} 1"#,
            r#"weir_test_transport_bytes_total{direction="sent"} 10"#,
            r#"weir_test_transport_connections{side="server"} 1"#,
            "weir_test_transport_connects_total 1",
            "weir_test_transport_connect_failures_total 1",
            "weir_test_transport_reconnects_total 1",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is missing in\n{text}");
        }
        drop(guard);
        text.clear();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("encodes");
        assert!(text.contains(r#"weir_test_transport_connections{side="server"} 0"#));
    }
}
