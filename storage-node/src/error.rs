//! Why a node does not start, and why a running one gives up.

use std::path::PathBuf;

/// A node that could not start. Each says what was wrong, where, and where it helps, what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration cannot be used.
    #[error("{0}")]
    Config(#[from] crate::config::ConfigError),
    /// Certificate, key or authority cannot be used.
    #[error("certificates: {0}")]
    Certificates(#[from] quic_transport::pki::PkiError),
    /// The certificate names somebody else.
    #[error(
        "the certificate {path} is for {found}, but this node is {expected}: issue a certificate for this node, or correct cluster_id and node_id"
    )]
    WrongCertificate {
        /// The certificate's file.
        path: PathBuf,
        /// Whom it names.
        found: String,
        /// Whom the configuration names.
        expected: String,
    },
    /// A name that cannot stand in a certificate.
    #[error("cluster_id: {0}")]
    Identity(#[from] quic_transport::IdentityError),
    /// A data directory is foreign, in use or damaged.
    #[error("data directory: {0}")]
    DataDir(#[from] log_engine::DataDirError),
    /// The secret of the QUIC endpoint cannot be read or made.
    #[error("{0}")]
    NodeKeys(#[from] quic_transport::NodeKeysError),
    /// The internal endpoint cannot be opened.
    #[error("control endpoint: {0}")]
    Control(#[from] quic_transport::BindError),
    /// The endpoint for replication cannot be opened.
    #[error("data endpoint: {0}")]
    Data(quic_transport::BindError),
    /// A Kafka listener cannot be opened.
    #[error("{0}")]
    Listener(#[from] kafka_wire::BindError),
    /// The HTTP endpoint cannot be opened.
    #[error("{0}")]
    Http(#[from] telemetry::HttpError),
    /// A thread cannot be started.
    #[error("cannot start the thread {name}: {error}")]
    Thread {
        /// The thread.
        name: &'static str,
        /// What the system said.
        error: std::io::Error,
    },
}

/// A node that started and cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeFailure {
    /// The cluster refuses the node: another cluster's directory, an id that is taken, a newer incarnation.
    #[error("the cluster refuses this node: {0}")]
    Refused(String),
    /// The door could not be opened.
    #[error("{0}")]
    Door(String),
    /// The node is stopping or has stopped.
    #[error("the node is stopping")]
    Stopped,
}
