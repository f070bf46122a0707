//! One event, one line, whatever clients put into their strings.
//!
//! Names, ids and hosts that clients send end up in log lines. A line feed in one of them would forge a line, an escape
//! sequence would drive the reader's terminal. Every control character of an event is therefore written as an escape; only
//! the line feed at its end stays.

use std::io::{self, Write};

/// Writes one event per call, escaped, to `inner`.
pub(crate) struct EscapingWriter<W> {
    inner: W,
}

impl<W: Write> EscapingWriter<W> {
    pub(crate) fn new(inner: W) -> Self {
        Self { inner }
    }
}

impl<W: Write> Write for EscapingWriter<W> {
    /// The subscriber hands over a whole event at a time.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let (line, end) = match event.split_last() {
            Some((b'\n', line)) => (line, "\n"),
            Some(_) | None => (event, ""),
        };
        let text = String::from_utf8_lossy(line);
        if text.chars().any(char::is_control) {
            let mut escaped = escape(&text);
            escaped.push_str(end);
            self.inner.write_all(escaped.as_bytes())?;
        } else {
            self.inner.write_all(event)?;
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Control characters in the notation of JSON, so that a JSON event stays JSON.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            control if control.is_control() => {
                escaped.push_str(&format!("\\u{:04x}", u32::from(control)));
            }
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(event: &[u8]) -> String {
        let mut out = Vec::new();
        EscapingWriter::new(&mut out).write_all(event).expect("memory");
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn only_the_last_line_feed_stays() {
        assert_eq!(written(b"a\nb\r\x1b[31m\x7f\xc2\x9b\n"), "a\\nb\\r\\u001b[31m\\u007f\\u009b\n");
        assert_eq!(written("grün\n".as_bytes()), "grün\n");
        assert_eq!(written(b"no end"), "no end");
        assert_eq!(written(b"\n"), "\n");
    }
}
