//! Brings the jars named by `oracle/pom.xml` into `target/kafka/libs`, and Kafka's message descriptions out of the clients
//! jar into `target/kafka/messages`. Does nothing when that was done before for the same pom.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::OracleError;
use crate::workspace;

/// The folder of all jars.
pub fn libs_dir() -> PathBuf {
    workspace::kafka_dir().join("libs")
}

/// The folder of Kafka's message descriptions (`FetchRequest.json` …).
pub fn messages_dir() -> PathBuf {
    workspace::kafka_dir().join("messages")
}

/// The class path of everything, if the jars of the stated version are there.
pub fn class_path() -> Result<String, OracleError> {
    require()?;
    Ok(format!("{}/*", libs_dir().display()))
}

/// Fails with the command to run if the jars are not there.
pub fn require() -> Result<(), OracleError> {
    if is_current()? { Ok(()) } else { Err(OracleError::JarsMissing(libs_dir())) }
}

/// Fetches the jars unless they are there; says whether it had to.
pub fn fetch() -> Result<bool, OracleError> {
    if is_current()? {
        return Ok(false);
    }
    let dir = workspace::kafka_dir();
    let fresh = dir.join("libs.new");
    remove_dir(&fresh)?;
    fs::create_dir_all(&fresh).map_err(OracleError::io(format!("create {}", fresh.display())))?;
    let mut maven = Command::new("mvn");
    maven.args(["--batch-mode", "--quiet", "--file"]).arg(pom_file());
    maven.args(["dependency:copy-dependencies", "-DincludeScope=runtime"]);
    maven.arg(format!("-DoutputDirectory={}", fresh.display()));
    run(maven, "mvn", "maven", "fetching the jars of Apache Kafka")?;

    remove_dir(&libs_dir())?;
    fs::rename(&fresh, libs_dir()).map_err(OracleError::io("rename the folder of new jars"))?;
    extract_messages()?;
    let pom = read(&pom_file())?;
    fs::write(stamp_file(), pom).map_err(OracleError::io("write the stamp of the jars"))?;
    Ok(true)
}

/// Unpacks the descriptions with the JDK's own `jar`, and drops the classes that lie in the same folder of the jar.
fn extract_messages() -> Result<(), OracleError> {
    let unpacked = workspace::kafka_dir().join("messages.new");
    remove_dir(&unpacked)?;
    fs::create_dir_all(&unpacked).map_err(OracleError::io(format!("create {}", unpacked.display())))?;
    let jar = clients_jar()?;
    let mut command = Command::new("jar");
    command.current_dir(&unpacked).args(["--extract", "--file"]).arg(jar).arg("common/message");
    run(command, "jar", "openjdk-17-jdk-headless", "unpacking Kafka's message descriptions")?;
    remove_dir(&messages_dir())?;
    fs::rename(unpacked.join("common/message"), messages_dir())
        .map_err(OracleError::io("rename the folder of message descriptions"))?;
    remove_dir(&unpacked)
}

/// The jar of the Java clients.
pub fn clients_jar() -> Result<PathBuf, OracleError> {
    let libs = libs_dir();
    let entries = fs::read_dir(&libs).map_err(OracleError::io(format!("list {}", libs.display())))?;
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with("kafka-clients-") {
            return Ok(entry.path());
        }
    }
    Err(OracleError::JarsMissing(libs))
}

fn is_current() -> Result<bool, OracleError> {
    let pom = read(&pom_file())?;
    Ok(fs::read_to_string(stamp_file()).is_ok_and(|stamp| stamp == pom) && libs_dir().is_dir())
}

fn pom_file() -> PathBuf {
    workspace::root().join("cluster-tests/oracle/pom.xml")
}

fn stamp_file() -> PathBuf {
    workspace::kafka_dir().join("fetched-pom.xml")
}

fn read(path: &Path) -> Result<String, OracleError> {
    fs::read_to_string(path).map_err(OracleError::io(format!("read {}", path.display())))
}

fn remove_dir(path: &Path) -> Result<(), OracleError> {
    if !path.exists() {
        return Ok(());
    }
    fs::remove_dir_all(path).map_err(OracleError::io(format!("remove {}", path.display())))
}

fn run(
    mut command: Command,
    program: &'static str,
    package: &'static str,
    what: &str,
) -> Result<(), OracleError> {
    let output = command.output().map_err(|error| OracleError::ProgramMissing { program, package, error })?;
    if output.status.success() {
        return Ok(());
    }
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Err(OracleError::Failed { what: what.to_owned(), output: text })
}
