//! Where results go: aligned tables for people, JSON for programs, notes to standard error.

use std::io::{BufWriter, Write};

use serde_json::Value;
use uuid::Uuid;

use crate::failure::Failure;

/// How results are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Aligned text.
    Table,
    /// JSON; one document, or one per line for streams of records.
    Json,
}

/// The writer of a command.
pub(crate) struct Output<'a> {
    pub(crate) format: Format,
    /// Whether notes are read by a person now.
    pub(crate) notes_to_terminal: bool,
    out: BufWriter<Box<dyn Write + 'a>>,
    notes: Box<dyn Write + Send + 'a>,
}

impl<'a> Output<'a> {
    pub(crate) fn new(
        format: Format,
        out: impl Write + 'a,
        notes: impl Write + Send + 'a,
        notes_to_terminal: bool,
    ) -> Self {
        let out = BufWriter::with_capacity(64 << 10, Box::new(out) as Box<dyn Write>);
        Self { format, notes_to_terminal, out, notes: Box::new(notes) }
    }

    /// Writes one JSON document on a line of its own.
    pub(crate) fn json(&mut self, value: &Value) -> Result<(), Failure> {
        Ok(writeln!(self.out, "{value}")?)
    }

    /// Writes a line of text.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        Ok(writeln!(self.out, "{text}")?)
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.out.write_all(bytes)?)
    }

    /// Writes rows under a header, numbers to the right.
    pub(crate) fn table(&mut self, header: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
        let widths: Vec<usize> = (0..header.len())
            .map(|column| {
                let cells = rows.iter().map(|row| row[column].chars().count());
                cells.chain([header[column].chars().count()]).max().unwrap_or(0)
            })
            .collect();
        let numeric: Vec<bool> = (0..header.len())
            .map(|column| !rows.is_empty() && rows.iter().all(|row| is_number(&row[column])))
            .collect();
        let header = header.iter().map(|title| (*title).to_owned()).collect();
        for row in std::iter::once(&header).chain(rows) {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let padding = " ".repeat(widths[column] - cell.chars().count());
                let (before, after) = if numeric[column] { (&*padding, "") } else { ("", &*padding) };
                line.extend([before, cell, after, "  "]);
            }
            writeln!(self.out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    /// Writes a note for people, apart from the result.
    pub(crate) fn note(&mut self, text: &str) -> Result<(), Failure> {
        self.flush()?;
        writeln!(self.notes, "{text}")?;
        Ok(self.notes.flush()?)
    }

    /// Overwrites the last line of a terminal.
    pub(crate) fn progress(&mut self, text: &str) -> Result<(), Failure> {
        write!(self.notes, "\r\x1b[2K{text}")?;
        Ok(self.notes.flush()?)
    }

    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.out.flush()?)
    }
}

fn is_number(cell: &str) -> bool {
    cell == "-" || (cell.chars().any(|c| c.is_ascii_digit()) && cell.parse::<f64>().is_ok())
}

/// Text that is safe to print: control characters of names from the cluster are escaped.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let escaped = c.is_control().then(|| c.escape_default());
            let plain = (!c.is_control()).then_some(c);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}

/// A number with separators between thousands.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of things: `1 partition`, `2 partitions`.
pub(crate) fn count_of(number: usize, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

/// Node or replica ids as a list.
pub(crate) fn id_list(ids: &[i32]) -> String {
    if ids.is_empty() {
        return "-".to_owned();
    }
    ids.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
}

/// An id as Kafka's tools write it: the 16 bytes in base64 for URLs, without padding.
pub(crate) fn id_text(id: Uuid) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    // 22 digits of 6 bits: 128 bits and four of zero behind them.
    let number = id.as_u128();
    (0..22)
        .map(|index| {
            let shift = 122 - 6 * index;
            let bits = if shift >= 0 { number >> shift } else { number << -shift };
            char::from(DIGITS[usize::try_from(bits & 63).unwrap_or(0)])
        })
        .collect()
}

/// An output into memory, for tests of commands and their texts.
#[cfg(test)]
pub(crate) fn captured(format: Format, write: impl FnOnce(&mut Output<'_>)) -> String {
    let mut bytes = Vec::new();
    let mut output = Output::new(format, &mut bytes, std::io::sink(), false);
    write(&mut output);
    output.flush().expect("memory takes all");
    drop(output);
    String::from_utf8(bytes).expect("commands write UTF-8 here")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_align_text_left_and_numbers_right() {
        let rows = vec![
            vec!["ad-events".to_owned(), "3".to_owned(), "-".to_owned()],
            vec!["b".to_owned(), "12".to_owned(), "x y".to_owned()],
        ];
        let text = captured(Format::Table, |output| output.table(&["TOPIC", "PARTS", "C"], &rows).unwrap());
        assert_eq!(text, "TOPIC      PARTS  C\nad-events      3  -\nb             12  x y\n");
        let text = captured(Format::Table, |output| output.table(&["A", "B"], &[]).unwrap());
        assert_eq!(text, "A  B\n");
    }

    #[test]
    fn control_characters_are_escaped_and_thousands_are_grouped() {
        assert_eq!(printable("a\x1b[31m\nb ü"), "a\\u{1b}[31m\\nb ü");
        let grouped: Vec<_> = [0, 7, 999, 1000, 336_776, 1_234_567].map(thousands).into();
        assert_eq!([0, 1, 2].map(|number| count_of(number, "node")), ["0 nodes", "1 node", "2 nodes"]);
        assert_eq!(grouped, ["0", "7", "999", "1,000", "336,776", "1,234,567"]);
    }

    #[test]
    fn topic_ids_are_written_as_kafka_writes_them() {
        let id = |bytes| id_text(Uuid::from_bytes(bytes));
        assert_eq!(id([0; 16]), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(id([0xff; 16]), "_____________________w");
        let counting = *b"\x4f\x78\x7b\x07\xdc\x01\x4f\x78\x91\x0a\x4d\x08\xc9\xd1\xc4\x33";
        assert_eq!(id(counting), "T3h7B9wBT3iRCk0IydHEMw");
    }
}
