//! Runs programs in the root of the source tree and says what failed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// Why a command of `cargo xtask` failed: a sentence for a person.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The root of the source tree.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the package lies one folder below the root").to_path_buf()
}

/// Where cargo builds: `CARGO_TARGET_DIR`, else `target`.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A program to be run in the root of the source tree.
pub(crate) fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root());
    command
}

/// The `cargo` that started us, in the root of the source tree.
pub(crate) fn cargo() -> Command {
    let mut command = cargo_here();
    command.current_dir(root());
    command
}

/// The `cargo` that started us, in the folder of the caller (whose arguments may name files).
pub(crate) fn cargo_here() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs a command with our input and output; fails if it does.
pub(crate) fn run(mut command: Command) -> Result<(), Failure> {
    let status =
        command.status().map_err(|error| Failure(format!("cannot start {}: {error}", line(&command))))?;
    check(status, &command)
}

/// Runs a command and returns what it printed; its errors go to ours.
pub(crate) fn output(mut command: Command) -> Result<String, Failure> {
    command.stderr(Stdio::inherit());
    let output =
        command.output().map_err(|error| Failure(format!("cannot start {}: {error}", line(&command))))?;
    check(output.status, &command)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a program can be started (with an argument that makes it end at once).
pub(crate) fn is_installed(name: &str, harmless: &str) -> bool {
    let mut command = program(name);
    command.arg(harmless).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok()
}

pub(crate) fn check(status: ExitStatus, command: &Command) -> Result<(), Failure> {
    if status.success() { Ok(()) } else { Err(Failure(format!("failed ({status}): {}", line(command)))) }
}

/// The command as one would type it.
pub(crate) fn line(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or_else(|| command.get_program());
    let mut words = vec![name.to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|arg| arg.to_string_lossy().into_owned()));
    words.join(" ")
}
