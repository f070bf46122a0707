//! `docs/differences.md` must name exactly the configs that are accepted but not yet enforced.

use proto_types::config_schema::{ConfigDef, NODE_CONFIGS, TOPIC_CONFIGS};
use std::collections::BTreeSet;

/// The names in the first column of the table that follows `heading`.
fn listed<'a>(text: &'a str, heading: &str) -> BTreeSet<&'a str> {
    let (_, after) =
        text.split_once(heading).unwrap_or_else(|| panic!("no {heading:?} in docs/differences.md"));
    let rows =
        after.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| row.split('|').nth(1))
        .flat_map(|names| names.split('`').skip(1).step_by(2))
        .collect()
}

fn not_enforced(table: &[ConfigDef]) -> BTreeSet<&str> {
    table.iter().filter(|def| !def.enforced).map(|def| def.name).collect()
}

#[test]
fn the_docs_name_what_is_not_enforced() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/differences.md");
    let text = std::fs::read_to_string(path).expect("docs/differences.md is there");
    let (_, text) =
        text.split_once("## Configs accepted but not yet enforced").expect("the section is there");
    assert_eq!(listed(text, "### Of topics"), not_enforced(TOPIC_CONFIGS));
    assert_eq!(listed(text, "### Of storage nodes"), not_enforced(NODE_CONFIGS));
}
