//! Installs the clients into `target/clients`, at the versions that the files beside the programs pin.
//!
//! What is fetched once is kept with a copy of the file that named its versions; another text there fetches anew. Go and
//! Rust have caches of their own. Offline nothing is fetched, and what is missing is a failure that says what to run.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Client, Program, installed, sources};
use crate::kafka;
use crate::shell::{self, Failure, is_installed, program};

const HOW: &str = "run `cargo xtask clients --install-only` (or `cargo xtask setup` for the tests' choice)";

/// Fails with the names of the Debian packages that the chosen clients need and that are not there.
pub(super) fn require_programs(clients: &[&Client]) -> Result<(), Failure> {
    let mut missing = Vec::new();
    // The topics are made by Java.
    let mut needed = vec![("java", "-version", "openjdk-17-jdk-headless"), ("mvn", "--version", "maven")];
    for client in clients {
        match client.program {
            Program::Java | Program::Java3 => {}
            Program::Script(script) => {
                needed.push(("python3", "--version", "python3"));
                if script == "kcat.py" {
                    needed.push(("kcat", "-V", "kcat"));
                }
            }
            Program::Python(_) => needed.push(("python3", "--version", "python3-venv")),
            Program::Go(_) => needed.push(("go", "version", "golang-go")),
            Program::Node(_) => {
                needed.extend([("node", "--version", "nodejs"), ("npm", "--version", "npm")]);
            }
            Program::Rust(_) => needed.push(("cmake", "--version", "cmake")),
        }
    }
    needed.sort_unstable();
    needed.dedup();
    for (name, harmless, package) in needed {
        if !is_installed(name, harmless) {
            missing.push(format!("`{name}` is not installed: apt-get install {package}"));
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(Failure(missing.join("\n"))) }
}

/// Brings what the chosen clients need; with `offline`, only looks whether it is there and builds.
pub(super) fn install(clients: &[&Client], offline: bool) -> Result<(), Failure> {
    let any = |wanted: fn(Program) -> bool| clients.iter().any(|client| wanted(client.program));
    kafka::fetch_jars()?;
    if any(|program| program == Program::Java3) {
        java_3(offline)?;
    }
    if any(|program| matches!(program, Program::Python(_))) {
        python(offline)?;
    }
    if any(|program| matches!(program, Program::Node(_))) {
        node(offline)?;
    }
    if any(|program| matches!(program, Program::Go(_))) {
        go(offline)?;
    }
    if any(|program| matches!(program, Program::Rust(_))) {
        rust(offline)?;
    }
    Ok(())
}

fn java_3(offline: bool) -> Result<(), Failure> {
    let pom = sources().join("java/pom.xml");
    let dir = installed().join("java-3");
    once("the Java client of Kafka 3", &pom, &dir, offline, || {
        let mut mvn = program("mvn");
        mvn.args(["--quiet", "--batch-mode", "--file"]).arg(&pom).arg("dependency:copy-dependencies");
        mvn.arg(format!("-DoutputDirectory={}", dir.join("libs").display()));
        shell::run(mvn)
    })
}

fn python(offline: bool) -> Result<(), Failure> {
    let requirements = sources().join("python/requirements.txt");
    let dir = installed().join("python");
    once("the Python clients", &requirements, &dir, offline, || {
        let mut venv = program("python3");
        venv.args(["-m", "venv"]).arg(&dir);
        shell::run(venv)?;
        let mut pip = program(&dir.join("bin/pip").to_string_lossy());
        pip.args(["install", "--quiet", "--only-binary", ":all:", "--requirement"]).arg(&requirements);
        shell::run(pip)
    })
}

/// Node finds packages beside the script: the scripts are copied to where the packages are, each time.
fn node(offline: bool) -> Result<(), Failure> {
    let lock = sources().join("node/package-lock.json");
    let dir = installed().join("node");
    let copy = || {
        let files = fs::read_dir(sources().join("node")).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let copied = files.and_then(|files| {
            fs::create_dir_all(&dir)?;
            files.iter().try_for_each(|file| fs::copy(file.path(), dir.join(file.file_name())).map(drop))
        });
        copied.map_err(|error| Failure(format!("copy the Node programs to {}: {error}", dir.display())))
    };
    once("the Node clients", &lock, &dir, offline, || {
        copy()?;
        let mut npm = program("npm");
        npm.args(["ci", "--silent", "--no-audit", "--no-fund"]).current_dir(&dir);
        shell::run(npm)
    })?;
    copy()
}

fn go(offline: bool) -> Result<(), Failure> {
    let mut go = program("go");
    go.args(["build", "-o"]).arg(installed().join("go/")).arg("./...").current_dir(sources().join("go"));
    build("the Go clients", go, offline, ("GOPROXY", "off"))
}

/// Into the folder of our own builds, so that librdkafka is built once.
fn rust(offline: bool) -> Result<(), Failure> {
    let mut cargo = shell::cargo();
    cargo.args(["build", "--quiet", "--locked", "--manifest-path"]).arg(sources().join("rust/Cargo.toml"));
    cargo.arg("--target-dir").arg(shell::target_dir());
    build("the Rust clients", cargo, offline, ("CARGO_NET_OFFLINE", "true"))
}

fn build(what: &str, mut command: Command, offline: bool, no_network: (&str, &str)) -> Result<(), Failure> {
    if offline {
        command.env(no_network.0, no_network.1);
    }
    shell::run(command).map_err(|failure| {
        let hint = if offline { format!("\nIf {what} were never fetched, {HOW}.") } else { String::new() };
        Failure(format!("{failure}{hint}"))
    })
}

/// Fetches into `dir`, from nothing, unless it was fetched by the same text of `pins`.
fn once(
    what: &str,
    pins: &Path,
    dir: &Path,
    offline: bool,
    fetch: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let wanted = fs::read(pins).map_err(|error| Failure(format!("read {}: {error}", pins.display())))?;
    shell::once(what, &wanted, dir, offline.then_some(HOW), fetch)
}
