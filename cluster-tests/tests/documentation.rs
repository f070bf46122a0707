//! What the documents list is what the programs do.

use std::collections::BTreeSet;
use std::fs;

use cluster_tests::workspace;
use proto_types::config_schema::{ConfigDef, NODE_CONFIGS, TOPIC_CONFIGS};

fn document(path: &str) -> String {
    fs::read_to_string(workspace::root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The names in backticks in the first column of tables under a heading.
fn names_under(document: &str, heading: &str) -> BTreeSet<String> {
    let (_, rest) = document.split_once(heading).unwrap_or_else(|| panic!("no heading {heading}"));
    let section = rest.split("\n#").next().unwrap_or(rest);
    let cells = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

fn not_enforced(configs: &[ConfigDef]) -> BTreeSet<String> {
    configs.iter().filter(|config| !config.enforced).map(|config| config.name.to_owned()).collect()
}

#[test]
fn configs_that_are_not_enforced_yet_are_listed() {
    let differences = document("docs/differences.md");
    for (heading, configs) in [("### Of topics", TOPIC_CONFIGS), ("### Of storage nodes", NODE_CONFIGS)] {
        let (listed, found) = (names_under(&differences, heading), not_enforced(configs));
        let missing: Vec<&String> = found.difference(&listed).collect();
        let stale: Vec<&String> = listed.difference(&found).collect();
        assert!(missing.is_empty() && stale.is_empty(), "{heading}: missing {missing:?}, stale {stale:?}");
    }
}
