//! Why a coordinator does not start, and why a running one gives up.

use quic_transport::pki::PkiError;
use quic_transport::{BindError, Identity, IdentityError, NodeKeysError};

/// A coordinator could not be started. Each says what is wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Settings that contradict themselves, all of them.
    #[error("the config is not usable: {}", .0.join("; "))]
    Config(Vec<String>),
    /// The certificate, its key or the authority.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// A name that cannot stand in a certificate.
    #[error("cluster_id: {0}")]
    Identity(#[from] IdentityError),
    /// The keys that outlive restarts.
    #[error(transparent)]
    Keys(#[from] NodeKeysError),
    /// The certificate is somebody else's.
    #[error("the certificate is {found}, but this is {expected}; issue a certificate for this coordinator")]
    WrongCertificate {
        /// Who the certificate names.
        found: Identity,
        /// Who we are.
        expected: Identity,
    },
    /// The socket.
    #[error(transparent)]
    Bind(#[from] BindError),
}

/// A coordinator that started and cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CoordinatorFailure {
    /// The cluster refuses it: another cluster, or a newer incarnation under the same id.
    #[error("the cluster refuses this coordinator: {0}")]
    Refused(String),
    /// It is stopping or has stopped.
    #[error("the coordinator is stopping")]
    Stopped,
}
