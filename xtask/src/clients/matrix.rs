//! What the programs printed, as a table client × capability.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use super::CAPABILITIES;

/// The cells of one client.
pub(super) struct Row {
    name: &'static str,
    cells: BTreeMap<&'static str, Cell>,
    took: Duration,
}

struct Cell {
    result: Outcome,
    detail: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Pass,
    Fail,
    NotApplicable,
}

impl Row {
    /// Reads the lines of a program. What it did not print failed, by `ending` if the program ended badly; a program that
    /// printed everything and ended badly fails in its last cell.
    pub(super) fn parse(name: &'static str, text: &str, ending: Option<String>, took: Duration) -> Row {
        let mut cells = BTreeMap::new();
        for line in text.lines() {
            if let Some((capability, cell)) = parse_line(line) {
                cells.insert(capability, cell);
            }
        }
        let missing = ending.clone().unwrap_or_else(|| "the program did not print it".to_owned());
        for capability in CAPABILITIES {
            let absent = || Cell { result: Outcome::Fail, detail: missing.clone() };
            cells.entry(capability).or_insert_with(absent);
        }
        if let Some(detail) = ending {
            let last = CAPABILITIES[CAPABILITIES.len() - 1];
            cells.insert(last, Cell { result: Outcome::Fail, detail });
        }
        Row { name, cells, took }
    }

    /// Number of cells that failed.
    pub(super) fn failures(&self) -> usize {
        self.cells.values().filter(|cell| cell.result == Outcome::Fail).count()
    }
}

fn parse_line(line: &str) -> Option<(&'static str, Cell)> {
    let json: serde_json::Value = serde_json::from_str(line).ok()?;
    let capability = CAPABILITIES.into_iter().find(|known| json["capability"] == *known)?;
    let result = match json["result"].as_str()? {
        "pass" => Outcome::Pass,
        "n/a" => Outcome::NotApplicable,
        _ => Outcome::Fail,
    };
    Some((capability, Cell { result, detail: json["detail"].as_str().unwrap_or_default().to_owned() }))
}

/// The matrix, then a line for each cell that is not `pass`.
pub(super) fn text(rows: &[Row]) -> String {
    let mut text = format!("{:16}", "client");
    for capability in CAPABILITIES {
        let _ = write!(text, "{capability:>7}");
    }
    text.push_str("  seconds\n");
    for row in rows {
        let _ = write!(text, "{:16}", row.name);
        for capability in CAPABILITIES {
            let word = match row.cells[capability].result {
                Outcome::Pass => "pass",
                Outcome::Fail => "FAIL",
                Outcome::NotApplicable => "n/a",
            };
            let _ = write!(text, "{word:>7}");
        }
        let _ = writeln!(text, "{:>9.1}", row.took.as_secs_f64());
    }
    text.push('\n');
    for row in rows {
        for (capability, cell) in &row.cells {
            match cell.result {
                Outcome::Pass => {}
                Outcome::Fail => {
                    let _ = writeln!(text, "FAIL {} {capability}: {}", row.name, cell.detail);
                }
                Outcome::NotApplicable => {
                    let _ = writeln!(text, "n/a  {} {capability}: {}", row.name, cell.detail);
                }
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(result: &str) -> String {
        let line = |capability| {
            format!("{{\"capability\":\"{capability}\",\"result\":\"{result}\",\"detail\":\"d\"}}\n")
        };
        CAPABILITIES.into_iter().map(line).collect()
    }

    #[test]
    fn cells_are_counted_and_shown() {
        let good = Row::parse("one", &all("pass"), None, Duration::from_millis(1500));
        let lacking = Row::parse("two", &all("n/a"), None, Duration::ZERO);
        let bad = Row::parse("three", &all("fail"), None, Duration::ZERO);
        assert_eq!([good.failures(), lacking.failures(), bad.failures()], [0, 0, CAPABILITIES.len()]);
        let text = text(&[good, lacking, bad]);
        assert!(text.contains("FAIL three reset: d"), "{text}");
        assert!(text.contains("n/a  two reset: d"), "{text}");
        assert!(!text.contains("one reset"), "{text}");
    }

    #[test]
    fn what_is_missing_or_unknown_has_failed() {
        let silent = Row::parse("silent", "not json\n", None, Duration::ZERO);
        assert_eq!(silent.failures(), CAPABILITIES.len());
        let odd = Row::parse("odd", &all("maybe"), None, Duration::ZERO);
        assert_eq!(odd.failures(), CAPABILITIES.len());
        let crashed = Row::parse("crashed", &all("pass"), Some("it ended with 1".to_owned()), Duration::ZERO);
        assert_eq!(crashed.failures(), 1);
    }
}
