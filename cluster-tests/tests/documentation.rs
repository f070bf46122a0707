//! What the documents list is what the programs do.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use cluster_tests::clients::all_output;
use cluster_tests::run_dir::RunDir;
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

/// The three nodes that the tour asks for, in a network and among processes of their own: `pkill` sees nobody else, and every
/// port is free. A busy machine needs longer than a reader would wait.
const BEFORE_THE_TOUR: &str = r#"
ip link set lo up
weir dev --nodes 3 > dev.log 2>&1 & dev=$!
tries=0
until grep -q 'Ctrl-C stops' dev.log; do
    tries=$((tries+1)); [ $tries -lt 180 ] || { echo "no cluster"; cat dev.log; exit 1; }; sleep 0.5
done
sleep() { command sleep 20; }
"#;

/// The five lines of the tour, as they stand in the README, say what it says of them.
#[test]
fn the_tour_shows_a_node_that_dies_and_comes_back() {
    let readme = document("README.md");
    let (_, section) =
        readme.split_once("## Three nodes, and one of them dies").expect("the section is there");
    let tour = section.split("```sh\n").nth(2).and_then(|block| block.split("```").next());
    let tour = tour.expect("the second block of commands is the tour");
    assert!(tour.contains("pkill") && tour.lines().count() == 5, "is this the tour?\n{tour}");
    let isolated = ["--net", "--pid", "--fork", "--mount-proc"];
    let probe = Command::new("unshare").args(isolated).args(["ip", "link", "set", "lo", "up"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        eprintln!(
            "NOT RUN: this machine does not let us have namespaces, and pkill would find other clusters"
        );
        return;
    }
    let run_dir = RunDir::new("tour");
    let programs = workspace::program("weir");
    let programs = programs.parent().expect("it lies in a folder").display();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
    let script = format!("{BEFORE_THE_TOUR}{tour}\nkill $dev; wait $dev; echo the end");
    let mut command = Command::new("unshare");
    command.args(isolated).args(["bash", "-c", &script]).current_dir(run_dir.path()).env("PATH", path);
    let said = all_output(&command.output().expect("it was there a moment ago"));
    let mut described = said.split("PARTITION").skip(1).map(|table| {
        let rows = table.lines().skip(1).take(3);
        rows.map(|row| row.split_whitespace().map(str::to_owned).collect()).collect::<Vec<Vec<String>>>()
    });
    let (Some(dead), Some(back)) = (described.next(), described.next()) else { panic!("{said}") };
    // PARTITION LEADER EPOCH REPLICAS ISR
    for row in &dead {
        assert!(row[1] != "2" && row[4].split(',').count() == 2 && !row[4].contains('2'), "{said}");
    }
    assert!(
        dead.len() == 3 && dead.iter().any(|row| row[2] != "0"),
        "what it led has a higher epoch: {said}"
    );
    for row in &back {
        assert_eq!(row[4].split(',').count(), 3, "{said}");
    }
    assert!(back.len() == 3 && said.contains("the end"), "{said}");
}
