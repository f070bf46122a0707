//! A ratchet, not a limit: a function over 70 lines or a file over 600 lines outside tests needs an entry with a reason in
//! `xtask/ratchet.toml`, and what is listed there may only shrink.

use std::collections::BTreeMap;

use super::Fault;
use super::source::SourceFile;
use crate::shell::Failure;

const FUNCTION_LINES: usize = 70;
const FILE_LINES: usize = 600;

/// Key (`path` or `path::function`) → lines allowed.
pub(crate) struct Ratchet {
    files: BTreeMap<String, usize>,
    functions: BTreeMap<String, usize>,
}

/// Reads entries of the form `"path" = { lines = 700, reason = "…" }` under `[files]` and `[functions]`.
pub(crate) fn parse_ratchet(text: &str) -> Result<Ratchet, Failure> {
    let table: toml::Table = text.parse().map_err(|error| Failure(format!("xtask/ratchet.toml: {error}")))?;
    Ok(Ratchet { files: parse_section(&table, "files")?, functions: parse_section(&table, "functions")? })
}

fn parse_section(table: &toml::Table, section: &str) -> Result<BTreeMap<String, usize>, Failure> {
    let mut entries = BTreeMap::new();
    let Some(section) = table.get(section).and_then(toml::Value::as_table) else { return Ok(entries) };
    for (key, entry) in section {
        let lines =
            entry.get("lines").and_then(toml::Value::as_integer).and_then(|n| usize::try_from(n).ok());
        let reason = entry.get("reason").and_then(toml::Value::as_str).unwrap_or_default();
        match lines {
            Some(lines) if !reason.is_empty() => entries.insert(key.clone(), lines),
            _ => return Err(Failure(format!("xtask/ratchet.toml: {key} needs `lines` and a `reason`"))),
        };
    }
    Ok(entries)
}

pub(crate) fn check(sources: &[SourceFile], ratchet: &Ratchet) -> Vec<Fault> {
    let mut faults = compare("file", FILE_LINES, &file_sizes(sources), &ratchet.files);
    faults.extend(compare("function", FUNCTION_LINES, &function_sizes(sources), &ratchet.functions));
    faults
}

fn compare(
    kind: &str,
    limit: usize,
    sizes: &BTreeMap<String, usize>,
    listed: &BTreeMap<String, usize>,
) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (key, &size) in sizes.iter().filter(|(_, size)| **size > limit) {
        match listed.get(key) {
            None => faults.push(format!(
                "size: {kind} {key} has {size} lines, more than {limit}: cut it, or list it in xtask/ratchet.toml with a reason"
            )),
            Some(&allowed) if size > allowed => faults.push(format!(
                "size: {kind} {key} grew from {allowed} to {size} lines; what xtask/ratchet.toml lists may only shrink"
            )),
            Some(&allowed) if size < allowed => faults.push(format!(
                "size: {kind} {key} shrank from {allowed} to {size} lines: `cargo xtask fix` lowers its entry in xtask/ratchet.toml"
            )),
            Some(_) => {}
        }
    }
    for key in listed.keys().filter(|key| sizes.get(*key).is_none_or(|&size| size <= limit)) {
        faults.push(format!("size: {kind} {key} needs no entry in xtask/ratchet.toml any more: remove it"));
    }
    faults
}

/// The text of the ratchet file with each number lowered to what the code has now.
pub(crate) fn lowered(text: &str, sources: &[SourceFile]) -> Result<String, Failure> {
    let ratchet = parse_ratchet(text)?;
    let mut sizes = file_sizes(sources);
    sizes.extend(function_sizes(sources));
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let key = line.strip_prefix('"').and_then(|rest| rest.split_once('"')).map(|(key, _)| key);
        let change = key.and_then(|key| {
            let old = *ratchet.files.get(key).or_else(|| ratchet.functions.get(key))?;
            let new = *sizes.get(key)?;
            (new < old).then(|| line.replacen(&format!("lines = {old}"), &format!("lines = {new}"), 1))
        });
        out.push_str(change.as_deref().unwrap_or(line));
        out.push('\n');
    }
    Ok(out)
}

fn file_sizes(sources: &[SourceFile]) -> BTreeMap<String, usize> {
    let product = sources.iter().filter(|file| !file.is_test_file());
    product.map(|file| (file.path.clone(), file.product_lines().count())).collect()
}

fn function_sizes(sources: &[SourceFile]) -> BTreeMap<String, usize> {
    let mut sizes = BTreeMap::new();
    for file in sources.iter().filter(|file| !file.is_test_file()) {
        for function in file.functions() {
            // Two of one name in one file: the longer one counts.
            let size = sizes.entry(format!("{}::{}", file.path, function.name)).or_insert(0);
            *size = function.lines.max(*size);
        }
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_with_function(lines: usize) -> Vec<SourceFile> {
        let body = "    work();\n".repeat(lines - 2);
        vec![SourceFile::new("a/src/b.rs", &format!("fn long() {{\n{body}}}\n"))]
    }

    fn ratchet(lines: usize) -> Ratchet {
        let text =
            format!("[functions]\n\"a/src/b.rs::long\" = {{ lines = {lines}, reason = \"a table\" }}\n");
        parse_ratchet(&text).expect("readable")
    }

    #[test]
    fn long_functions_need_an_entry_that_only_shrinks() {
        let none = parse_ratchet("").expect("readable");
        assert!(check(&file_with_function(70), &none).is_empty());
        assert_eq!(check(&file_with_function(71), &none).len(), 1);
        assert!(check(&file_with_function(80), &ratchet(80)).is_empty());
        assert!(check(&file_with_function(81), &ratchet(80))[0].contains("grew"));
        assert!(check(&file_with_function(79), &ratchet(80))[0].contains("shrank"));
        assert!(check(&file_with_function(60), &ratchet(80))[0].contains("remove"));
    }

    #[test]
    fn long_files_are_found_and_tests_do_not_count() {
        let none = parse_ratchet("").expect("readable");
        let long = SourceFile::new("a/src/c.rs", &"use x;\n".repeat(601));
        assert_eq!(check(&[long], &none).len(), 1);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "use x;\n".repeat(700));
        assert!(check(&[SourceFile::new("a/src/c.rs", &tests)], &none).is_empty());
    }

    #[test]
    fn fix_lowers_the_numbers_only() {
        let text = "# why\n[functions]\n\"a/src/b.rs::long\" = { lines = 90, reason = \"a table\" }\n";
        let after = lowered(text, &file_with_function(80)).expect("readable");
        assert_eq!(after, text.replace("lines = 90", "lines = 80"));
        assert_eq!(lowered(text, &file_with_function(95)).expect("readable"), text);
    }

    #[test]
    fn an_entry_without_a_reason_is_refused() {
        assert!(parse_ratchet("[files]\n\"a\" = { lines = 700 }\n").is_err());
    }
}
