//! Part of the client table with every change: kcat, Java, and one of the other clients, chosen by the day.
//!
//! The whole table is `cargo xtask clients`; what its cells mean is in `clients/README.md`.

use std::process::Command;

use cluster_tests::local_cluster::Subject;
use cluster_tests::workspace;

#[test]
fn three_clients_of_the_table_have_no_failed_cell() {
    let subject = Subject::start("clients_rotate");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // Offline: what a test needs is installed before (`cargo xtask setup`), and what is missing is said.
    command.args(["xtask", "clients", "--rotating", "--offline", "--bootstrap", &subject.bootstrap()]);
    let output = command.current_dir(workspace::root()).output().unwrap();
    let text = cluster_tests::clients::all_output(&output);
    assert!(output.status.success(), "{text}");
    println!("{text}");
}
