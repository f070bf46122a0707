//! What `weir` makes of a cluster that is new: its id, its authority, the folders that only the owner reads.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

use quic_transport::pki::{CertificateAuthority, CredentialFiles, PkiError, Validity};
use quic_transport::{Identity, IdentityError};
use uuid::Uuid;

use crate::clock::wall_time;

/// A data directory outlives its reason; certificates that end would only surprise.
const VALIDITY: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Why the files of a cluster could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MakeError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// A new id in the form of Kafka's: 16 random bytes in base64 for URLs.
pub(crate) fn new_cluster_id() -> String {
    crate::output::id_text(Uuid::new_v4())
}

/// Makes folders, with those above them, that only the owner may look into.
pub(crate) fn private_directories() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder
}

/// Makes the authority of a new cluster and keeps it in `directory`.
pub(crate) fn make_authority(directory: &Path, cluster_id: &str) -> Result<CertificateAuthority, MakeError> {
    let authority = CertificateAuthority::create(cluster_id, validity())?;
    private_directories().create(directory)?;
    authority.store(directory)?;
    Ok(authority)
}

/// Issues a daemon's certificate into `directory`.
pub(crate) fn issue(
    authority: &CertificateAuthority,
    directory: &Path,
    identity: &Identity,
) -> Result<(), MakeError> {
    private_directories().create(directory)?;
    authority.issue(identity, validity())?.store(&CredentialFiles::in_directory(directory))?;
    Ok(())
}

fn validity() -> Validity {
    Validity::starting(wall_time(), VALIDITY)
}
