//! Why a controller does not start.

use crate::data_dir::DataDirError;
use quic_transport::pki::PkiError;
use quic_transport::{BindError, ConfigError, Identity, NodeKeysError};

/// A controller could not be started. Each says what is wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Settings that contradict themselves, all of them.
    #[error("the config is not usable: {}", .0.join("; "))]
    Config(Vec<String>),
    /// The data directory.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The certificate, its key or the authority.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// The keys that outlive restarts.
    #[error(transparent)]
    Keys(#[from] NodeKeysError),
    /// The certificate is somebody else's.
    #[error("the certificate is {found}, but this is {expected}; issue a certificate for this controller")]
    WrongCertificate {
        /// Who the certificate names.
        found: Identity,
        /// Who we are.
        expected: String,
    },
    /// The socket.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Settings of the transport.
    #[error(transparent)]
    Transport(#[from] ConfigError),
    /// Raft did not start on what it found on disk.
    #[error("the quorum cannot be started: {0}")]
    Raft(String),
}
