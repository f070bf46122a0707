//! Apache Kafka beside us: the broker, tools and Java clients that `oracle/pom.xml` names, run from their jars.
//!
//! What Kafka does in doubt is looked up by running it. [`jars`] fetches, [`tools`] runs a stock tool against any broker,
//! [`broker`] starts Kafka on loopback, [`schemas`] prints the messages of the protocol version by version.

pub mod broker;
pub mod jars;
pub mod schemas;
pub mod tools;

use std::io;
use std::path::PathBuf;

/// Why Apache Kafka or one of its tools could not be used.
#[derive(Debug, thiserror::Error)]
pub enum OracleError {
    /// The jars were never fetched, or are of another version than `oracle/pom.xml` states.
    #[error("the jars of Apache Kafka are not in {}: run `cargo xtask kafka-jars`", .0.display())]
    JarsMissing(PathBuf),
    /// A program that must be installed could not be started.
    #[error("cannot start `{program}`: {error}. Install it ({package}) and try again")]
    ProgramMissing {
        /// What was started.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// A program ended with an error.
    #[error("{what} failed:\n{output}")]
    Failed {
        /// What was being done.
        what: String,
        /// What the program wrote.
        output: String,
    },
    /// The broker did not answer in time.
    #[error("the Kafka broker at {address} did not answer within {seconds} s:\n{output}")]
    NotReady {
        /// Where it should have answered.
        address: String,
        /// How long it was waited for.
        seconds: u64,
        /// Its log.
        output: String,
    },
    /// No tool has this name.
    #[error("no tool is called `{name}`; known: {known}")]
    UnknownTool {
        /// The name asked for.
        name: String,
        /// All names.
        known: String,
    },
    /// No message has this name.
    #[error("no message is called `{name}`; known: {known}")]
    UnknownMessage {
        /// The name asked for.
        name: String,
        /// All names.
        known: String,
    },
    /// A message description could not be read.
    #[error("cannot read the message description {file}: {reason}")]
    BadSchema {
        /// The file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("{what}: {error}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system said.
        error: io::Error,
    },
}

impl OracleError {
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> OracleError {
        let what = what.into();
        move |error| OracleError::Io { what, error }
    }
}
