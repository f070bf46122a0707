//! Part of other people's suites with every change: the quick ones whole, and a share of one other suite, or the witness, chosen
//! by the day.
//!
//! All of them are `cargo xtask conformance`; what passes is in `conformance/`.

use std::process::Command;

use cluster_tests::workspace;

#[test]
fn the_share_of_the_day_passes_what_the_lists_say() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // Offline: what a test needs is installed before (`cargo xtask setup`), and what is missing is said.
    command.args(["xtask", "conformance", "--rotating", "--offline"]);
    let output = command.current_dir(workspace::root()).output().unwrap();
    let text = cluster_tests::clients::all_output(&output);
    assert!(output.status.success(), "{text}");
    println!("{text}");
}
