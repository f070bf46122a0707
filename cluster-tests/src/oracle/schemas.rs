//! Prints a message of Kafka's protocol field by field for one version or for all, from the descriptions that Kafka ships
//! inside its clients jar.

pub mod defaults;

use std::fmt::Write;
use std::fs;
use std::ops::RangeInclusive;

use serde_json::Value;

use super::{OracleError, jars};

/// The request and the response of `api` (`Fetch`), or the one message of that exact name (`FetchRequest`,
/// `ConsumerProtocolSubscription`), for `version` or every version.
pub fn describe(api: &str, version: Option<i16>) -> Result<String, OracleError> {
    jars::require()?;
    let names = [format!("{api}Request"), format!("{api}Response"), api.to_owned()];
    let mut text = String::new();
    for name in names {
        let path = jars::messages_dir().join(format!("{name}.json"));
        if path.is_file() {
            let json =
                fs::read_to_string(&path).map_err(OracleError::io(format!("read {}", path.display())))?;
            text.push_str(&describe_message(&name, &json, version)?);
        }
    }
    if text.is_empty() {
        return Err(OracleError::UnknownMessage { name: api.to_owned(), known: known_apis()?.join(", ") });
    }
    Ok(text)
}

/// Names that [`describe`] takes, without `Request` and `Response`.
pub fn known_apis() -> Result<Vec<String>, OracleError> {
    let dir = jars::messages_dir();
    let entries = fs::read_dir(&dir).map_err(OracleError::io(format!("list {}", dir.display())))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok()?.strip_suffix(".json").map(str::to_owned))
        .map(|name| {
            let short = name.strip_suffix("Request").or_else(|| name.strip_suffix("Response"));
            short.unwrap_or(&name).to_owned()
        })
        .collect();
    names.sort();
    names.dedup();
    Ok(names)
}

fn describe_message(name: &str, json: &str, version: Option<i16>) -> Result<String, OracleError> {
    let message: Value =
        serde_json::from_str(&without_comments(json)).map_err(|error| bad(name, error.to_string()))?;
    let valid = text_of(&message, "validVersions").unwrap_or("none");
    let flexible = text_of(&message, "flexibleVersions").unwrap_or("none");
    let mut text = String::new();
    let mut head = name.to_owned();
    if let Some(key) = message.get("apiKey") {
        let _ = write!(head, ", API key {key}");
    }
    let _ = write!(head, ", versions {valid}, flexible {flexible}");
    if let Some(unstable) = message.get("latestVersionUnstable") {
        let _ = write!(head, ", latest version unstable: {unstable}");
    }
    let _ = writeln!(text, "{head}");
    let Some(range) = parse_versions(valid) else {
        let _ = writeln!(text, "  (no valid version)\n");
        return Ok(text);
    };
    let structs = message.get("commonStructs").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for v in range.filter(|v| version.is_none_or(|wanted| wanted == *v)) {
        let kind = if is_in(flexible, v) { " (flexible)" } else { "" };
        let _ = writeln!(text, "  v{v}{kind}");
        describe_fields(&mut text, fields_of(&message), structs, v, 2);
    }
    text.push('\n');
    Ok(text)
}

fn bad(name: &str, reason: String) -> OracleError {
    OracleError::BadSchema { file: format!("{name}.json"), reason }
}

fn describe_fields(text: &mut String, fields: &[Value], structs: &[Value], version: i16, depth: usize) {
    for field in fields {
        if !is_in(text_of(field, "versions").unwrap_or("0+"), version) {
            continue;
        }
        let name = text_of(field, "name").unwrap_or("?");
        let kind = text_of(field, "type").unwrap_or("?");
        let _ = write!(text, "{:width$}{name}: {kind}", "", width = depth * 2);
        if text_of(field, "nullableVersions").is_some_and(|range| is_in(range, version)) {
            text.push_str(", nullable");
        }
        if let (Some(tag), Some(range)) = (field.get("tag"), text_of(field, "taggedVersions"))
            && is_in(range, version)
        {
            let _ = write!(text, ", tag {tag}");
        }
        if let Some(default) = field.get("default") {
            let shown = match default.as_str().filter(|_| kind != "string") {
                Some(bare) => bare.to_owned(),
                None => default.to_string(),
            };
            let _ = write!(text, ", default {shown}");
        }
        if field.get("ignorable").and_then(Value::as_bool) == Some(true) {
            text.push_str(", ignorable");
        }
        text.push('\n');
        let inner = fields_of(field);
        let inner = if inner.is_empty() { common_struct(structs, kind) } else { inner };
        describe_fields(text, inner, structs, version, depth + 1);
    }
}

fn common_struct<'a>(structs: &'a [Value], kind: &str) -> &'a [Value] {
    let wanted = kind.trim_start_matches("[]");
    structs.iter().find(|s| text_of(s, "name") == Some(wanted)).map_or(&[], fields_of)
}

fn fields_of(value: &Value) -> &[Value] {
    value.get("fields").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text_of<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

fn is_in(range: &str, version: i16) -> bool {
    parse_versions(range).is_some_and(|range| range.contains(&version))
}

/// `3`, `0-4` or `2+`; `none` gives nothing.
fn parse_versions(text: &str) -> Option<RangeInclusive<i16>> {
    if let Some(from) = text.strip_suffix('+') {
        return Some(from.parse().ok()?..=i16::MAX);
    }
    match text.split_once('-') {
        Some((from, to)) => Some(from.parse().ok()?..=to.parse().ok()?),
        None => text.parse().ok().map(|only| only..=only),
    }
}

/// Kafka's descriptions are JSON with `//` comments.
fn without_comments(json: &str) -> String {
    let mut clean = String::with_capacity(json.len());
    for line in json.lines() {
        let mut in_string = false;
        let mut previous = ' ';
        let mut end = line.len();
        for (at, c) in line.char_indices() {
            match c {
                '"' if previous != '\\' => in_string = !in_string,
                '/' if previous == '/' && !in_string => {
                    end = at - 1;
                    break;
                }
                _ => {}
            }
            previous = c;
        }
        clean.push_str(&line[..end]);
        clean.push('\n');
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"// a comment
    { "apiKey": 9, "type": "request", "name": "SampleRequest",
      // another "with a quote
      "validVersions": "1-2", "flexibleVersions": "2+",
      "commonStructs": [ { "name": "Item", "versions": "0+", "fields": [
        { "name": "Link", "type": "string", "versions": "0+", "default": "http://x" } ] } ],
      "fields": [
        { "name": "Old", "type": "int8", "versions": "0-1" }, // gone later
        { "name": "Items", "type": "[]Item", "versions": "1+", "nullableVersions": "2+" },
        { "name": "Extra", "type": "int64", "versions": "2+", "taggedVersions": "2+", "tag": 3, "ignorable": true } ] }"#;

    #[test]
    fn each_version_shows_its_own_fields() {
        let all = describe_message("SampleRequest", SAMPLE, None).expect("readable");
        assert!(all.starts_with("SampleRequest, API key 9, versions 1-2, flexible 2+\n"), "{all}");
        let first = describe_message("SampleRequest", SAMPLE, Some(1)).expect("readable");
        assert!(
            first.contains(
                "  v1\n    Old: int8\n    Items: []Item\n      Link: string, default \"http://x\"\n"
            ),
            "{first}"
        );
        let second = describe_message("SampleRequest", SAMPLE, Some(2)).expect("readable");
        assert!(!second.contains("Old"), "{second}");
        assert!(second.contains("v2 (flexible)\n    Items: []Item, nullable\n"), "{second}");
        assert!(second.contains("    Extra: int64, tag 3, ignorable\n"), "{second}");
    }

    #[test]
    fn version_ranges() {
        assert_eq!(parse_versions("3"), Some(3..=3));
        assert_eq!(parse_versions("0-4"), Some(0..=4));
        assert_eq!(parse_versions("2+"), Some(2..=i16::MAX));
        assert_eq!(parse_versions("none"), None);
    }
}
