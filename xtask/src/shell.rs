//! Runs programs in the root of the source tree and says what failed.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use crate::clock::Stopwatch;

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

/// Makes a file, with the folders above it.
pub(crate) fn create(path: &Path) -> Result<File, Failure> {
    let dir = path.parent().unwrap_or(path);
    fs::create_dir_all(dir)
        .and_then(|()| File::create(path))
        .map_err(|error| Failure(format!("create {}: {error}", path.display())))
}

/// Waits for a process that was started as a group of its own. `None` if it had to be killed, with all that it started.
pub(crate) fn wait_at_most(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>, Failure> {
    let watch = Stopwatch::start();
    let wait = |error| Failure(format!("wait for a client: {error}"));
    while watch.elapsed() < limit {
        if let Some(status) = child.try_wait().map_err(wait)? {
            return Ok(Some(status));
        }
        thread::sleep(Duration::from_millis(50));
    }
    let mut kill = program("kill");
    kill.args(["-KILL", "--", &format!("-{}", child.id())]);
    run(kill)?;
    child.wait().map_err(wait)?;
    Ok(None)
}

/// Makes `dir` by `fetch`, from nothing, unless it was made for the same `wanted`. Offline it is a failure that says `how` to
/// get it.
pub(crate) fn once(
    what: &str,
    wanted: &[u8],
    dir: &Path,
    offline: Option<&str>,
    fetch: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let stamp = dir.join("installed-by");
    if fs::read(&stamp).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    if let Some(how) = offline {
        return Err(Failure(format!("{what} are not in {}: {how}", dir.display())));
    }
    println!("fetching {what}");
    let remade = if dir.exists() { fs::remove_dir_all(dir) } else { Ok(()) };
    remade
        .and_then(|()| fs::create_dir_all(dir))
        .map_err(|error| Failure(format!("make {} anew: {error}", dir.display())))?;
    fetch()?;
    fs::write(&stamp, wanted).map_err(|error| Failure(format!("write {}: {error}", stamp.display())))
}

/// Where a package that the manifest's lock names lies in cargo's cache: the path of its manifest, and its version.
pub(crate) fn dependency(name: &str, manifest: &Path) -> Result<(PathBuf, String), Failure> {
    let mut metadata = cargo();
    metadata.args(["metadata", "--format-version", "1", "--locked", "--manifest-path"]).arg(manifest);
    let metadata: serde_json::Value = serde_json::from_str(&output(metadata)?)
        .map_err(|error| Failure(format!("read what cargo metadata prints: {error}")))?;
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let package = packages.iter().find(|package| package["name"] == name);
    let text = |key: &str| package.and_then(|package| package[key].as_str());
    match (text("manifest_path"), text("version")) {
        (Some(path), Some(version)) => Ok((PathBuf::from(path), version.to_owned())),
        _ => Err(Failure(format!("{} does not depend on {name}", manifest.display()))),
    }
}
