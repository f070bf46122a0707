//! `weir-controller`: one controller of the metadata quorum as a process.

use std::process::ExitCode;

fn main() -> ExitCode {
    controller::process::run()
}
