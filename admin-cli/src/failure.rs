//! How a command fails: an exit code for programs, a sentence for people, and what to do about it.

use std::fmt;
use std::io;

use kafka_wire::ClientError;
use kafka_wire_core::ErrorCode;
use serde_json::{Value, json};

/// The text of the exit codes in `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  refused by the cluster, or failed half-way; the message says what was done
  2  wrong arguments or input
  3  no broker could be reached, or it did not answer in time
  4  a topic, partition, group or node that was named does not exist

Errors go to standard error, with --output json as one JSON object.";

/// What kind of failure it is; the number is the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Failed = 1,
    Usage = 2,
    Unreachable = 3,
    NotFound = 4,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::Unreachable => "unreachable",
            Self::NotFound => "not_found",
        }
    }
}

/// A failed command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    kind: Kind,
    message: String,
    hint: Option<String>,
    /// The reader of our output has gone, as `head` does: no error for anybody.
    closed_output: bool,
}

impl Failure {
    fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None, closed_output: false }
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(Kind::Failed, message)
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, message)
    }

    pub(crate) fn unreachable(message: impl Into<String>) -> Self {
        Self::new(Kind::Unreachable, message)
    }

    /// Adds what to do.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The cluster's refusal of `what`.
    pub(crate) fn refused(what: impl fmt::Display, code: ErrorCode, message: Option<&str>) -> Self {
        let detail = match message {
            Some(message) if !message.is_empty() => format!("{message} ({})", code.name()),
            _ => code.name().to_owned(),
        };
        let message = format!("cannot {what}: {detail}");
        match code {
            ErrorCode::UnknownTopicOrPartition | ErrorCode::UnknownTopicId => {
                Self::not_found(message).hint("`weir topic list` shows what is there")
            }
            ErrorCode::GroupIdNotFound => {
                Self::not_found(message).hint("`weir group list` shows which there are")
            }
            ErrorCode::TopicAlreadyExists => Self::failed(message)
                .hint("`weir topic describe` shows it; --if-not-exists makes this no error"),
            ErrorCode::InvalidReplicationFactor => {
                Self::failed(message).hint("`weir cluster status` shows how many nodes there are")
            }
            ErrorCode::InvalidConfig => {
                Self::failed(message).hint("`weir config describe --all` shows names and values")
            }
            ErrorCode::RequestTimedOut => {
                Self::unreachable(message).hint("the change may still happen; look before you repeat it")
            }
            _ => Self::failed(message),
        }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        self.kind as u8
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.kind == Kind::NotFound
    }

    pub(crate) fn is_closed_output(&self) -> bool {
        self.closed_output
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({ "error": { "kind": self.kind.name(), "message": self.message, "hint": self.hint } })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", self.message)?;
        match &self.hint {
            Some(hint) => writeln!(f, "  hint: {hint}"),
            None => Ok(()),
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Unreachable(_) | ClientError::NoAddress => Self::unreachable(error.to_string())
                .hint(
                    "is it running? `weir dev` starts a cluster here; --bootstrap-server or WEIR_BOOTSTRAP \
                 names another",
                ),
            ClientError::Kafka { what, code } => Self::refused(what, code, None),
            ClientError::UnknownNode(_) => {
                Self::not_found(error.to_string()).hint("`weir cluster status` shows the nodes")
            }
            ClientError::Io { .. } | ClientError::Closed { .. } | ClientError::Timeout { .. } => {
                Self::unreachable(error.to_string())
            }
            ClientError::UnsupportedVersion { .. }
            | ClientError::Decode { .. }
            | ClientError::Encode { .. }
            | ClientError::Protocol { .. } => Self::failed(error.to_string()),
        }
    }
}

/// A failed write of our own output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let closed_output = error.kind() == io::ErrorKind::BrokenPipe;
        Self { closed_output, ..Self::failed(format!("cannot write the output: {error}")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_why_and_what_to_do() {
        let failure = Failure::refused(
            "create topic a",
            ErrorCode::TopicAlreadyExists,
            Some("Topic 'a' already exists."),
        );
        assert_eq!(
            failure.to_string(),
            "error: cannot create topic a: Topic 'a' already exists. (TOPIC_ALREADY_EXISTS)\n  \
             hint: `weir topic describe` shows it; --if-not-exists makes this no error\n"
        );
        assert_eq!(failure.exit_code(), 1);
        let failure = Failure::refused("read topic b", ErrorCode::UnknownTopicOrPartition, None);
        assert_eq!(failure.exit_code(), 4);
        assert_eq!(failure.to_json()["error"]["kind"], "not_found");
    }

    #[test]
    fn nobody_there_is_code_3_and_a_closed_pipe_is_quiet() {
        assert_eq!(Failure::from(ClientError::NoAddress).exit_code(), 3);
        assert!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)).is_closed_output());
        assert!(!Failure::from(io::Error::from(io::ErrorKind::StorageFull)).is_closed_output());
    }
}
