//! The log: one line per event on standard error, as text or as JSON.

use crate::escape::EscapingWriter;
use std::io;
use std::sync::Mutex;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Shape of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// What is logged and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// Shape of a line.
    pub format: LogFormat,
    /// Levels by target, for example `info,quic_transport=debug`.
    pub filter: String,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::Text, filter: "info".to_owned() }
    }
}

/// The log cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter does not parse.
    #[error("log filter {filter:?}: {reason}")]
    Filter {
        /// As configured.
        filter: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Something else in this process has claimed the log.
    #[error("the log is set up already by something else: {0}")]
    Taken(String),
}

/// Whether this crate has set the process's log up.
static INITIALIZED: Mutex<bool> = Mutex::new(false);

/// Sets the log up. With several daemons in one process the first one decides; true if it was this call.
pub fn init_logging(config: &LogConfig) -> Result<bool, LogError> {
    let subscriber = subscriber(config, io::stderr)?;
    let mut initialized = INITIALIZED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if *initialized {
        return Ok(false);
    }
    tracing::subscriber::set_global_default(subscriber).map_err(|e| LogError::Taken(e.to_string()))?;
    *initialized = true;
    Ok(true)
}

fn subscriber<W>(
    config: &LogConfig,
    writer: W,
) -> Result<Box<dyn tracing::Subscriber + Send + Sync>, LogError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(&config.filter)
        .map_err(|e| LogError::Filter { filter: config.filter.clone(), reason: e.to_string() })?;
    let builder =
        tracing_subscriber::fmt().with_ansi(false).with_env_filter(filter).with_writer(Escaping(writer));
    Ok(match config.format {
        LogFormat::Text => Box::new(builder.finish()),
        LogFormat::Json => Box::new(builder.json().flatten_event(true).finish()),
    })
}

/// Puts the escaping between the subscriber and where it writes.
struct Escaping<M>(M);

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for Escaping<M> {
    type Writer = EscapingWriter<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        EscapingWriter::new(self.0.make_writer())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("not poisoned").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat, filter: &str, event: impl FnOnce()) -> String {
        let out = Captured::default();
        let writer = out.clone();
        let config = LogConfig { format, filter: filter.to_owned() };
        let subscriber = subscriber(&config, move || writer.clone()).expect("valid filter");
        tracing::subscriber::with_default(subscriber, event);
        String::from_utf8(out.0.lock().expect("not poisoned").clone()).expect("UTF-8")
    }

    #[test]
    fn a_hostile_string_stays_within_its_line() {
        let client = "x\n2026 INFO forged\u{1b}[2J\u{9b}";
        for format in [LogFormat::Text, LogFormat::Json] {
            let text = logged(format, "info", || tracing::info!(client, "hello {client}"));
            assert_eq!(text.lines().count(), 1, "{text}");
            assert!(text.ends_with('\n') && !text.trim_end().chars().any(char::is_control), "{text:?}");
        }
    }

    #[test]
    fn json_lines_are_json() {
        let text = logged(LogFormat::Json, "info", || tracing::warn!(id = 7, name = "a\u{9b}\"", "bad"));
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["level"], "WARN");
        assert_eq!(value["message"], "bad");
        assert_eq!(value["id"], 7);
        assert_eq!(value["name"], "a\u{9b}\"");
    }

    #[test]
    fn the_filter_decides() {
        let event = || {
            tracing::debug!("small");
            tracing::warn!("large");
        };
        let text = logged(LogFormat::Text, "warn", event);
        assert!(text.contains("large") && !text.contains("small"), "{text}");
        assert!(logged(LogFormat::Text, "debug", event).contains("small"));
    }

    #[test]
    fn set_up_twice_is_fine_and_a_bad_filter_is_named() {
        let bad = LogConfig { filter: "a=b=c".to_owned(), ..LogConfig::default() };
        let error = init_logging(&bad).expect_err("bad filter");
        assert!(error.to_string().contains("a=b=c"));
        assert!(init_logging(&LogConfig::default()).expect("first"));
        assert!(!init_logging(&LogConfig::default()).expect("second"));
    }
}
