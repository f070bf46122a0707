//! A Rust source file as the rules see it: comments and the insides of strings blanked out, lines of tests known.

use std::ops::Range;

/// One file; line numbers begin at 1.
pub(crate) struct SourceFile {
    /// Relative to the root.
    pub(crate) path: String,
    /// The text with comments and strings replaced by spaces; same lines, same columns.
    code: Vec<String>,
    /// Indexes of lines inside `#[cfg(test)] mod … { … }`.
    tests: Vec<Range<usize>>,
}

/// A function with a body.
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) lines: usize,
}

impl SourceFile {
    pub(crate) fn new(path: &str, text: &str) -> SourceFile {
        let code: Vec<String> = blank(text).lines().map(str::to_owned).collect();
        let tests = test_modules(&code);
        SourceFile { path: path.to_owned(), code, tests }
    }

    /// Whether the whole file is test code: integration tests, examples, benches, or a module of tests of its own.
    pub(crate) fn is_test_file(&self) -> bool {
        let path = &self.path;
        ["/tests/", "/benches/", "/examples/", "/testing/"].iter().any(|folder| path.contains(folder))
            || ["/tests.rs", "/testing.rs", "_tests.rs", "_test.rs"].iter().any(|end| path.ends_with(end))
    }

    /// Line number and code of each line outside test modules.
    pub(crate) fn product_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let outside = self.code.iter().enumerate().filter(|(index, _)| !self.in_tests(*index));
        outside.map(|(index, line)| (index + 1, line.as_str()))
    }

    /// Functions outside test modules. A function inside another counts for both.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let mut functions = Vec::new();
        for (index, line) in self.code.iter().enumerate() {
            if self.in_tests(index) {
                continue;
            }
            if let Some(name) = function_name(line)
                && let Some(end) = body_end(&self.code, index)
            {
                functions.push(Function { name: name.to_owned(), lines: end - index + 1 });
            }
        }
        functions
    }

    fn in_tests(&self, index: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&index))
    }
}

/// The name in `fn name`, if this line begins a function item (not a `fn(…)` type).
fn function_name(line: &str) -> Option<&str> {
    let at = line.find("fn ").filter(|&at| at == 0 || line[..at].ends_with(' '))?;
    let before = line[..at].trim();
    let modifiers = ["", "pub", "const", "async", "unsafe", "extern", "default"];
    let known = before
        .split_whitespace()
        .all(|word| modifiers.contains(&word) || word.starts_with("pub(") || word.ends_with(')'));
    let rest = &line[at + 3..];
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    (known && end > 0).then(|| &rest[..end])
}

/// Index of the line that closes the first brace opened at or after `start`; none if a `;` comes first (no body).
fn body_end(code: &[String], start: usize) -> Option<usize> {
    let mut depth = 0_usize;
    // A `;` inside the brackets of `[u8; 4]` ends nothing.
    let mut brackets = 0_usize;
    for (index, line) in code.iter().enumerate().skip(start) {
        for c in line.chars() {
            match c {
                '[' | '(' => brackets += 1,
                ']' | ')' => brackets = brackets.saturating_sub(1),
                '{' => depth += 1,
                '}' => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return Some(index);
                    }
                }
                ';' if depth == 0 && brackets == 0 => return None,
                _ => {}
            }
        }
    }
    None
}

fn test_modules(code: &[String]) -> Vec<Range<usize>> {
    let mut modules = Vec::new();
    for (index, line) in code.iter().enumerate() {
        let condition = line.trim();
        if condition.starts_with("#[cfg(test)]") || condition.starts_with("#[cfg(all(test") {
            let end = body_end(code, index).unwrap_or(index);
            modules.push(index..end + 1);
        }
    }
    modules
}

/// Replaces comments and the insides of string and character literals by spaces, keeping line breaks.
fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = match chars[at] {
            '/' if chars.get(at + 1) == Some(&'/') => line_comment_end(&chars, at),
            '/' if chars.get(at + 1) == Some(&'*') => block_comment_end(&chars, at),
            '"' => string_end(&chars, at),
            'r' if !is_word_before(&chars, at) => raw_string_end(&chars, at),
            'b' if !is_word_before(&chars, at) && chars.get(at + 1) == Some(&'r') => {
                raw_string_end(&chars, at + 1)
            }
            '\'' => char_end(&chars, at),
            _ => at,
        };
        if end > at {
            out.extend(chars[at..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
            at = end;
        } else {
            out.push(chars[at]);
            at += 1;
        }
    }
    out
}

fn is_word_before(chars: &[char], at: usize) -> bool {
    at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_')
}

fn line_comment_end(chars: &[char], at: usize) -> usize {
    chars[at..].iter().position(|&c| c == '\n').map_or(chars.len(), |length| at + length)
}

fn block_comment_end(chars: &[char], start: usize) -> usize {
    let mut depth = 0;
    let mut at = start;
    while at + 1 < chars.len() {
        match (chars[at], chars[at + 1]) {
            ('/', '*') => {
                depth += 1;
                at += 2;
            }
            ('*', '/') => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    chars.len()
}

fn string_end(chars: &[char], start: usize) -> usize {
    let mut at = start + 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// `at` is the `r` of a possible `r"…"` or `r#"…"#`; gives `at` back if it is none.
fn raw_string_end(chars: &[char], at: usize) -> usize {
    let hashes = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
    if chars.get(at + 1 + hashes) != Some(&'"') {
        return at;
    }
    let mut end = at + 2 + hashes;
    while end < chars.len() {
        if chars[end] == '"' && chars[end + 1..].iter().take(hashes).filter(|&&c| c == '#').count() == hashes
        {
            return end + 1 + hashes;
        }
        end += 1;
    }
    chars.len()
}

/// A character literal ends soon; a lifetime (`'a`) is left as it is.
fn char_end(chars: &[char], at: usize) -> usize {
    match (chars.get(at + 1), chars.get(at + 2)) {
        (Some('\\'), Some(_)) => {
            chars[at + 3..].iter().position(|&c| c == '\'').map_or(at, |length| at + 3 + length + 1)
        }
        (Some(_), Some('\'')) => at + 3,
        _ => at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_blanked() {
        let text = "let a = \"} // \\\" {\"; // { here\nlet b = r#\"{ \" {\"#; /* { /* { */ */ let c = '{'; let d: &'a str;\n";
        let code = blank(text);
        assert!(!code.contains('{') && !code.contains('}') && !code.contains("here"), "{code}");
        assert!(code.contains("let c =") && code.contains("&'a str"), "{code}");
        assert_eq!(code.lines().count(), 2);
    }

    #[test]
    fn functions_have_names_and_lengths() {
        let text = "pub(crate) fn one(\n    x: [u8; 2],\n) -> u8 {\n    x[0]\n}\n\ntrait T {\n    fn none(&self);\n}\nstruct S {\n    f: fn(u8) -> u8,\n}\n";
        let file = SourceFile::new("a/src/b.rs", text);
        let functions = file.functions();
        assert_eq!(functions.len(), 1);
        assert_eq!((functions[0].name.as_str(), functions[0].lines), ("one", 5));
    }

    #[test]
    fn test_modules_are_left_out() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        let file = SourceFile::new("a/src/b.rs", text);
        let names: Vec<String> = file.functions().into_iter().map(|function| function.name).collect();
        assert_eq!(names, ["a", "c"]);
        assert_eq!(file.product_lines().count(), 2);
    }
}
