//! `weir-coordinator`: one coordinator of groups as a process.

use std::process::ExitCode;

fn main() -> ExitCode {
    coordinator::process::run()
}
