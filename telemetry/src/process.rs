//! Memory, CPU time, descriptors and start time of this process, read from `/proc` when somebody asks.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::fs;

/// Shows the process in a registry, under the names that Prometheus' own clients use.
#[derive(Debug)]
pub struct ProcessCollector(());

impl ProcessCollector {
    /// Adds the process to `registry`. Once per registry, on its top level.
    pub fn register(registry: &mut Registry) {
        registry.register_collector(Box::new(Self(())));
    }
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        // What cannot be read (another /proc, a sandbox) is left out rather than shown as zero.
        let Some(process) = Process::read() else {
            return Ok(());
        };
        let mut put = |name: &str, help: &str, metric: &dyn Shown| {
            let encoder = encoder.encode_descriptor(name, help, None::<&Unit>, metric.metric_type())?;
            metric.show(encoder)
        };
        put("process_cpu_seconds", "User and system CPU time", &ConstCounter::new(process.cpu_seconds))?;
        put(
            "process_resident_memory_bytes",
            "Resident memory",
            &ConstGauge::new(process.resident_bytes as f64),
        )?;
        put("process_open_fds", "Open file descriptors", &ConstGauge::new(process.open_fds as f64))?;
        put("process_threads", "Threads", &ConstGauge::new(process.threads as f64))?;
        let started = &ConstGauge::new(process.start_seconds);
        put("process_start_time_seconds", "Start, seconds since the Unix epoch", started)
    }
}

/// The part of `EncodeMetric` that works through a reference.
trait Shown {
    fn metric_type(&self) -> prometheus_client::metrics::MetricType;
    fn show(&self, encoder: prometheus_client::encoding::MetricEncoder<'_>) -> fmt::Result;
}

impl<M: EncodeMetric> Shown for M {
    fn metric_type(&self) -> prometheus_client::metrics::MetricType {
        EncodeMetric::metric_type(self)
    }

    fn show(&self, encoder: prometheus_client::encoding::MetricEncoder<'_>) -> fmt::Result {
        self.encode(encoder)
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Process {
    cpu_seconds: f64,
    resident_bytes: u64,
    open_fds: u64,
    threads: u64,
    start_seconds: f64,
}

impl Process {
    fn read() -> Option<Self> {
        let stat = Stat::parse(&fs::read_to_string("/proc/self/stat").ok()?)?;
        let booted = boot_seconds(&fs::read_to_string("/proc/stat").ok()?)?;
        let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
        // The descriptor that lists the directory is one of those that it lists.
        let open_fds = (fs::read_dir("/proc/self/fd").ok()?.count() as u64).saturating_sub(1);
        Some(Self {
            cpu_seconds: stat.cpu_ticks as f64 / ticks_per_second,
            resident_bytes: stat.resident_pages * rustix::param::page_size() as u64,
            open_fds,
            threads: stat.threads,
            start_seconds: booted as f64 + stat.start_ticks as f64 / ticks_per_second,
        })
    }
}

/// The fields of `/proc/<pid>/stat` that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    threads: u64,
    start_ticks: u64,
    resident_pages: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The second field is the program's name in parentheses, which may hold anything, even parentheses.
        let (_, rest) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // `fields[0]` is field 3 of the manual page.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: number(14)?.checked_add(number(15)?)?,
            threads: number(20)?,
            start_ticks: number(22)?,
            resident_pages: number(24)?,
        })
    }
}

/// When the machine was booted, in seconds since the Unix epoch, from `/proc/stat`.
fn boot_seconds(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let text = "17 (a) b (c) R 1 2 3 4 5 6 7 8 9 10 300 45 0 0 20 0 12 0 9876 1000000 2500 1844";
        let expected = Stat { cpu_ticks: 345, threads: 12, start_ticks: 9876, resident_pages: 2500 };
        assert_eq!(Stat::parse(text), Some(expected));
        assert_eq!(Stat::parse("17 (a"), None);
        assert_eq!(Stat::parse("17 (a) R 1 2"), None);
        assert_eq!(boot_seconds("cpu 1 2\nbtime 1700000000\nprocesses 3\n"), Some(1_700_000_000));
        assert_eq!(boot_seconds(""), None);
    }

    #[test]
    fn this_process_is_shown() {
        let mut registry = Registry::default();
        ProcessCollector::register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("encodes");
        let value = |name: &str| -> f64 {
            let line = text.lines().find(|line| line.split(' ').next() == Some(name));
            let line = line.unwrap_or_else(|| panic!("{name} is missing in\n{text}"));
            line.split(' ').nth(1).expect("value").parse().expect("number")
        };
        assert!(value("process_resident_memory_bytes") > 100_000.0);
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_threads") >= 1.0);
        assert!(value("process_cpu_seconds_total") >= 0.0);
        assert!(value("process_start_time_seconds") > 1_600_000_000.0);
    }
}
