//! Which findings are meant: tables with a verdict in each row, like "What a client of raw bytes sees" of `docs/differences.md`.
//!
//! The first cell of a row holds patterns in backticks, matched against the name of a finding; `*` stands for any text.

use std::fs;

use super::record::Difference;
use crate::workspace;

const HEADING: &str = "## What a client of raw bytes sees";

/// The patterns of all rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    patterns: Vec<String>,
}

impl Verdicts {
    /// Reads `docs/differences.md`.
    pub fn load() -> Result<Verdicts, String> {
        Verdicts::in_section("docs/differences.md", HEADING)
    }

    /// Reads the table below a heading of a document, by its path in the tree.
    pub fn in_section(document: &str, heading: &str) -> Result<Verdicts, String> {
        let path = workspace::root().join(document);
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Verdicts::parse(&text, heading).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn parse(document: &str, heading: &str) -> Result<Verdicts, String> {
        let (_, rest) = document.split_once(heading).ok_or_else(|| format!("no heading `{heading}`"))?;
        let section = rest.split("\n#").next().unwrap_or(rest);
        let cells = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
        let patterns = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned);
        Ok(Verdicts { patterns: patterns.collect() })
    }

    /// The differences that no row covers.
    pub fn without_verdict<'a>(&self, differences: &'a [Difference]) -> Vec<&'a Difference> {
        differences.iter().filter(|difference| !self.covers(&difference.name)).collect()
    }

    /// Whether a row covers the finding of this name.
    pub fn covers(&self, name: &str) -> bool {
        self.patterns.iter().any(|pattern| matches(pattern, name))
    }

    /// The patterns that cover nothing any more.
    pub fn stale(&self, differences: &[Difference]) -> Vec<&str> {
        let used = |pattern: &&String| differences.iter().any(|d| matches(pattern, &d.name));
        self.patterns.iter().filter(|pattern| !used(pattern)).map(String::as_str).collect()
    }
}

/// Whether `text` is `pattern` with something in place of each `*`.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(first) else { return false };
    (0..=text.len()).filter(|at| text.is_char_boundary(*at)).any(|at| matches(rest, &text[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(name: &str) -> Difference {
        let text = String::new;
        Difference { name: name.to_owned(), versions: text(), kafka: text(), other: text() }
    }

    #[test]
    fn patterns_cover_differences() {
        let document = "# x\n\n## What a client of raw bytes sees\n\ntext\n\n| probe | Kafka |\n|---|---|\n\
            | `Fetch/*: responses[].code`, `A/b: *` | x `not this` |\n\n## Next\n| `Z/z` | x |\n";
        let verdicts = Verdicts::parse(document, HEADING).unwrap();
        assert_eq!(verdicts.patterns, ["Fetch/*: responses[].code", "A/b: *"]);
        let found = [difference("Fetch/at the end: responses[].code"), difference("A/c: d")];
        let open: Vec<&str> = verdicts.without_verdict(&found).into_iter().map(|d| d.name.as_str()).collect();
        assert_eq!(open, ["A/c: d"]);
        assert_eq!(verdicts.stale(&found), ["A/b: *"]);
        assert!(Verdicts::parse("nothing", HEADING).is_err());
    }

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, text, expected) in [
            ("a*c", "abbc", true),
            ("a*", "a", true),
            ("*b*", "abc", true),
            ("a", "ab", false),
            ("*x", "xy", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
