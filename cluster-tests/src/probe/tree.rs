//! Any message as paths and values, by way of its `Debug` text: the probe knows no field of any API by itself.
//!
//! Elements of lists are named by their `api_key`, `name`, `topic`, `group_id` or `topic_id` if these are unique
//! (`configs[retention.ms].value`), a resource of which nothing else is told by name and type, all others by position
//! (`partitions[0].error_code`): servers may list topics in any order.

use std::collections::BTreeSet;
use std::fmt::Debug;

/// Fields that name an element better than its position.
const NAMES: &[&str] = &["api_key", "name", "topic", "group_id", "topic_id"];
/// Values that name nothing.
const NOTHING: &[&str] = &["None", "\"\"", "00000000-0000-0000-0000-000000000000"];

enum Node {
    Leaf(String),
    Fields(Vec<(String, Node)>),
    Items(Vec<Node>),
}

/// A field of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    /// The path, e.g. `topics[0].name`.
    pub(super) path: String,
    /// The last field name on the path.
    pub(super) field: String,
    /// The value as Rust writes it.
    pub(super) value: String,
}

/// All fields of `message`, and the length of each list whose elements have no names as `path.len`. `rename` gives the name
/// that stands in a path for a value that names an element.
pub(super) fn leaves(message: &impl Debug, rename: &dyn Fn(&str) -> String) -> Vec<Leaf> {
    let text = format!("{message:#?}");
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let root = parse(first, &mut lines);
    let mut out = Vec::new();
    flatten(&root, "", "", rename, &mut out);
    out
}

fn parse<'a>(first: &str, lines: &mut impl Iterator<Item = &'a str>) -> Node {
    let first = first.trim();
    if first.ends_with(" {") {
        let mut fields = Vec::new();
        for_each_until_close(lines, |line, lines| {
            let (name, rest) = line.split_once(": ").unwrap_or(("", line));
            fields.push((name.to_owned(), parse(rest, lines)));
        });
        return Node::Fields(fields);
    }
    if first.ends_with('[') {
        let mut items = Vec::new();
        for_each_until_close(lines, |line, lines| items.push(parse(line, lines)));
        return Node::Items(items);
    }
    if first.ends_with('(') && !first.starts_with('"') {
        let mut inner = None;
        for_each_until_close(lines, |line, lines| inner = Some(parse(line, lines)));
        return inner.unwrap_or_else(|| Node::Leaf(String::new()));
    }
    match first.trim_end_matches(',') {
        "[]" => Node::Items(Vec::new()),
        value => Node::Leaf(value.to_owned()),
    }
}

/// Calls `each` with the first line of each part, up to the line that closes the whole.
fn for_each_until_close<'a, I: Iterator<Item = &'a str>>(lines: &mut I, mut each: impl FnMut(&str, &mut I)) {
    while let Some(line) = lines.next() {
        let line = line.trim();
        if matches!(line.trim_end_matches(','), "}" | "]" | ")") {
            return;
        }
        each(line, lines);
    }
}

fn flatten(node: &Node, path: &str, field: &str, rename: &dyn Fn(&str) -> String, out: &mut Vec<Leaf>) {
    match node {
        Node::Leaf(value) => {
            out.push(Leaf { path: path.to_owned(), field: field.to_owned(), value: value.clone() });
        }
        Node::Fields(fields) => {
            for (name, node) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                flatten(node, &format!("{path}{dot}{name}"), name, rename, out);
            }
        }
        Node::Items(items) => {
            let names = unique_names(items);
            if names.is_none() {
                let length = items.len().to_string();
                out.push(Leaf { path: format!("{path}.len"), field: "len".to_owned(), value: length });
            }
            for (index, node) in items.iter().enumerate() {
                let name = match &names {
                    Some(names) => rename(&names[index]),
                    None => index.to_string(),
                };
                flatten(node, &format!("{path}[{name}]"), field, rename, out);
            }
        }
    }
}

fn unique_names(items: &[Node]) -> Option<Vec<String>> {
    let names: Vec<String> = items.iter().map(element_name).collect::<Option<_>>()?;
    let unique: BTreeSet<&String> = names.iter().collect();
    (unique.len() == names.len() && !names.is_empty()).then_some(names)
}

fn element_name(node: &Node) -> Option<String> {
    let Node::Fields(fields) = node else { return None };
    if let [(a, Node::Leaf(name)), (b, Node::Leaf(kind))] = &fields[..]
        && (a.as_str(), b.as_str()) == ("resource_name", "resource_type")
    {
        return Some(format!("{} of type {kind}", name.trim_matches('"')));
    }
    NAMES.iter().find_map(|name| {
        let (_, node) = fields.iter().find(|(field, _)| field == name)?;
        match node {
            Node::Leaf(value) if !NOTHING.contains(&value.as_str()) => Some(value.clone()),
            Node::Leaf(_) | Node::Fields(_) | Node::Items(_) => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    #[expect(dead_code, reason = "read by Debug")]
    struct Inner {
        name: Option<&'static str>,
        ids: Vec<i32>,
    }

    #[derive(Debug)]
    #[expect(dead_code, reason = "read by Debug")]
    struct Outer {
        code: i16,
        text: &'static str,
        list: Vec<Inner>,
        nothing: Option<Inner>,
    }

    fn plain(value: &str) -> String {
        value.trim_matches('"').to_owned()
    }

    #[test]
    fn a_message_becomes_paths() {
        let inner = |name| Inner { name, ids: vec![7, 8] };
        let outer =
            Outer { code: 3, text: "a: b {", list: vec![inner(Some("x(")), inner(None)], nothing: None };
        let lines: Vec<String> = leaves(&outer, &plain)
            .into_iter()
            .map(|leaf| format!("{} = {}", leaf.path, leaf.value))
            .collect();
        let expected = [
            "code = 3",
            "text = \"a: b {\"",
            "list.len = 2",
            "list[0].name = \"x(\"",
            "list[0].ids.len = 2",
            "list[0].ids[0] = 7",
            "list[0].ids[1] = 8",
            "list[1].name = None",
            "list[1].ids.len = 2",
            "list[1].ids[0] = 7",
            "list[1].ids[1] = 8",
            "nothing = None",
        ];
        assert_eq!(lines, expected);
        let named =
            Outer { list: vec![inner(Some("a")), inner(Some("b"))], nothing: Some(inner(None)), ..outer };
        let paths: Vec<String> = leaves(&named, &plain).into_iter().map(|leaf| leaf.path).collect();
        assert!(paths.contains(&"list[b].ids[1]".to_owned()), "{paths:?}");
        assert!(paths.contains(&"nothing.ids[0]".to_owned()), "{paths:?}");
    }

    #[test]
    fn resources_are_named_with_their_type() {
        #[derive(Debug)]
        #[expect(dead_code, reason = "read by Debug")]
        struct Resource {
            resource_name: &'static str,
            resource_type: i8,
        }
        let resource = |resource_type| Resource { resource_name: "1", resource_type };
        let paths: Vec<String> =
            leaves(&[resource(4), resource(8)], &plain).into_iter().map(|leaf| leaf.path).collect();
        let of = |kind: &str| {
            [format!("[1 of type {kind}].resource_name"), format!("[1 of type {kind}].resource_type")]
        };
        assert_eq!(paths, [of("4"), of("8")].concat());
    }
}
