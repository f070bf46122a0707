//! Three storage nodes, three controllers and a coordinator under stock clients, while processes die and stand still, networks are
//! cut, disks are full and power fails. `cargo xtask chaos-replication --minutes 20` does the same for longer.
//!
//! The clusters live in network namespaces; on a machine that does not let us have any, faults are signals only, and the test
//! says so. Each test has the machine for itself: what takes how long matters here.

mod choice;
mod disturbed_paths;
mod one_way_cuts;
#[path = "../raw_connection/mod.rs"]
mod raw_connection;
mod stalled_disk;
mod stands_still;

use std::sync::{Mutex, MutexGuard, PoisonError};

use cluster_tests::chaos::Verdict;
use cluster_tests::netns::NetworkError;

static MACHINE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn assert_clean(verdict: Result<Verdict, NetworkError>) -> Verdict {
    let verdict = verdict.unwrap_or_else(|error| panic!("{error}"));
    eprintln!("{verdict}");
    assert!(verdict.is_clean(), "see above");
    verdict
}
