//! Certificates of a cluster: its authority, and what the authority issues to daemons.
//!
//! One authority per cluster. It issues to each daemon a certificate whose only name is the daemon's
//! [`Identity`]. Keys are Ed25519; private keys are written with mode 0600 and refused when others may read them.
//! Nothing here reads a clock: the validity comes from the caller.

use crate::identity::{Identity, IdentityError};
use crate::private_file;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use x509_parser::prelude::{FromDer, X509Certificate};

/// File of the authority's certificate inside its directory.
pub const AUTHORITY_CERTIFICATE_FILE: &str = "ca.pem";
/// File of the authority's private key inside its directory.
pub const AUTHORITY_KEY_FILE: &str = "ca.key";

const AUTHORITY_NAME_PREFIX: &str = "weir authority ";
const CERTIFICATES_MAX: usize = 16;

/// Certificates could not be made, read or written.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A private key is readable by others.
    #[error("{}: private key may be read by others (mode {mode:o}); run chmod 600 on it", path.display())]
    KeyTooOpen {
        /// The key's file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A file holds no usable certificate or key.
    #[error("{what} is not usable: {reason}")]
    Malformed {
        /// Which certificate or key.
        what: &'static str,
        /// Why not.
        reason: String,
    },
    /// The certificate names no daemon, or not properly.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The authority issues for its own cluster only.
    #[error("the authority of cluster {authority} does not issue to {identity}")]
    OtherCluster {
        /// The authority's cluster.
        authority: String,
        /// Who asked.
        identity: Identity,
    },
    /// The library refused to make the certificate.
    #[error("certificate could not be made: {0}")]
    Generate(#[from] rcgen::Error),
}

/// From when to when a certificate is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// First moment.
    pub not_before: SystemTime,
    /// Last moment.
    pub not_after: SystemTime,
}

impl Validity {
    /// From an hour before `now` (clocks of nodes differ) until `length` after it.
    pub fn starting(now: SystemTime, length: Duration) -> Self {
        Self {
            not_before: now.checked_sub(Duration::from_hours(1)).unwrap_or(SystemTime::UNIX_EPOCH),
            not_after: now + length,
        }
    }
}

/// A cluster's certificate authority, with its private key.
pub struct CertificateAuthority {
    cluster_id: String,
    certificate_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl CertificateAuthority {
    /// Makes the authority of a new cluster.
    pub fn create(cluster_id: &str, validity: Validity) -> Result<Self, PkiError> {
        // The same rule as for the identities that it will issue.
        Identity::new(cluster_id, crate::Role::Admin, 0)?;
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
        let mut parameters = authority_parameters(cluster_id);
        parameters.not_before = validity.not_before.into();
        parameters.not_after = validity.not_after.into();
        let certificate_pem = parameters.self_signed(&key)?.pem();
        let issuer = Issuer::new(parameters, key);
        Ok(Self { cluster_id: cluster_id.to_owned(), certificate_pem, issuer })
    }

    /// Reads the authority that [`store`](Self::store) wrote into `directory`.
    pub fn load(directory: &Path) -> Result<Self, PkiError> {
        let certificate_pem = read_text(&directory.join(AUTHORITY_CERTIFICATE_FILE))?;
        let key_pem = read_private(&directory.join(AUTHORITY_KEY_FILE))?;
        let cluster_id = authority_cluster(&certificate_pem)?;
        let key = KeyPair::from_pem(&key_pem)?;
        let issuer = Issuer::new(authority_parameters(&cluster_id), key);
        Ok(Self { cluster_id, certificate_pem, issuer })
    }

    /// Writes certificate and private key (0600) into `directory`, which must exist.
    pub fn store(&self, directory: &Path) -> Result<(), PkiError> {
        let key = self.issuer.key().serialize_pem();
        write_private(&directory.join(AUTHORITY_KEY_FILE), key.as_bytes())?;
        write_public(&directory.join(AUTHORITY_CERTIFICATE_FILE), self.certificate_pem.as_bytes())
    }

    /// The cluster of this authority.
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// The authority's certificate, which every daemon of the cluster needs.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// Issues a certificate with a new key to a daemon of this cluster.
    pub fn issue(&self, identity: &Identity, validity: Validity) -> Result<Credentials, PkiError> {
        if identity.cluster_id() != self.cluster_id {
            return Err(PkiError::OtherCluster {
                authority: self.cluster_id.clone(),
                identity: identity.clone(),
            });
        }
        let mut parameters = CertificateParams::default();
        parameters.not_before = validity.not_before.into();
        parameters.not_after = validity.not_after.into();
        parameters.distinguished_name = common_name(&format!("{}-{}", identity.role(), identity.node_id()));
        parameters.subject_alt_names = vec![SanType::URI(identity.to_string().try_into()?)];
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        parameters.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
        let certificate = parameters.signed_by(&key, &self.issuer)?;
        Credentials::from_pem(certificate.pem(), key.serialize_pem(), self.certificate_pem.clone())
    }
}

/// Where a daemon's certificate, key and authority are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialFiles {
    /// The daemon's certificate (PEM), with intermediates after it if there are any.
    pub certificate: PathBuf,
    /// Its private key (PEM, 0600).
    pub key: PathBuf,
    /// Certificates of the authorities to trust (PEM).
    pub authority: PathBuf,
}

impl CredentialFiles {
    /// `node.pem`, `node.key` and `ca.pem` in `directory`.
    pub fn in_directory(directory: &Path) -> Self {
        Self {
            certificate: directory.join("node.pem"),
            key: directory.join("node.key"),
            authority: directory.join(AUTHORITY_CERTIFICATE_FILE),
        }
    }
}

/// What a daemon shows to its peers and what it trusts.
#[derive(Clone)]
pub struct Credentials {
    identity: Identity,
    certificate_pem: String,
    key_pem: String,
    authority_pem: String,
}

impl Credentials {
    /// Takes PEM texts and checks that they can be used together.
    pub fn from_pem(
        certificate_pem: String,
        key_pem: String,
        authority_pem: String,
    ) -> Result<Self, PkiError> {
        let chain = certificates("the node's certificate", &certificate_pem)?;
        certificates("the authority's certificate", &authority_pem)?;
        private_key(&key_pem)?;
        let identity = Identity::from_certificate(&chain[0])?;
        Ok(Self { identity, certificate_pem, key_pem, authority_pem })
    }

    /// Reads the files.
    pub fn load(files: &CredentialFiles) -> Result<Self, PkiError> {
        Self::from_pem(
            read_text(&files.certificate)?,
            read_private(&files.key)?,
            read_text(&files.authority)?,
        )
    }

    /// Writes the files, the key with mode 0600.
    pub fn store(&self, files: &CredentialFiles) -> Result<(), PkiError> {
        write_private(&files.key, self.key_pem.as_bytes())?;
        write_public(&files.certificate, self.certificate_pem.as_bytes())?;
        write_public(&files.authority, self.authority_pem.as_bytes())
    }

    /// Who the certificate says that this daemon is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn chain(&self) -> Result<Vec<CertificateDer<'static>>, PkiError> {
        certificates("the node's certificate", &self.certificate_pem)
    }

    pub(crate) fn authorities(&self) -> Result<Vec<CertificateDer<'static>>, PkiError> {
        certificates("the authority's certificate", &self.authority_pem)
    }

    pub(crate) fn key(&self) -> Result<PrivateKeyDer<'static>, PkiError> {
        private_key(&self.key_pem)
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("identity", &self.identity).finish_non_exhaustive()
    }
}

fn authority_parameters(cluster_id: &str) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = common_name(&format!("{AUTHORITY_NAME_PREFIX}{cluster_id}"));
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    parameters
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn authority_cluster(certificate_pem: &str) -> Result<String, PkiError> {
    let malformed = |reason: String| PkiError::Malformed { what: "the authority's certificate", reason };
    let chain = certificates("the authority's certificate", certificate_pem)?;
    let (_, certificate) = X509Certificate::from_der(&chain[0]).map_err(|e| malformed(e.to_string()))?;
    let name = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    name.and_then(|name| name.strip_prefix(AUTHORITY_NAME_PREFIX))
        .map(str::to_owned)
        .ok_or_else(|| malformed("its common name does not name a cluster".to_owned()))
}

fn certificates(what: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, PkiError> {
    let malformed = |reason: String| PkiError::Malformed { what, reason };
    let list = CertificateDer::pem_slice_iter(pem.as_bytes())
        .take(CERTIFICATES_MAX + 1)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| malformed(e.to_string()))?;
    match list.len() {
        0 => Err(malformed("no certificate in the file".to_owned())),
        1..=CERTIFICATES_MAX => Ok(list),
        _ => Err(malformed(format!("more than {CERTIFICATES_MAX} certificates in the file"))),
    }
}

fn private_key(pem: &str) -> Result<PrivateKeyDer<'static>, PkiError> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes())
        .map_err(|e| PkiError::Malformed { what: "the private key", reason: e.to_string() })
}

fn read_text(path: &Path) -> Result<String, PkiError> {
    std::fs::read_to_string(path).map_err(|source| PkiError::File { path: path.to_owned(), source })
}

fn read_private(path: &Path) -> Result<String, PkiError> {
    let at_path = |source| PkiError::File { path: path.to_owned(), source };
    let mode = private_file::mode(path).map_err(at_path)?;
    if mode & 0o077 != 0 {
        return Err(PkiError::KeyTooOpen { path: path.to_owned(), mode });
    }
    read_text(path)
}

fn write_private(path: &Path, bytes: &[u8]) -> Result<(), PkiError> {
    private_file::write(path, bytes, 0o600).map_err(|source| PkiError::File { path: path.to_owned(), source })
}

fn write_public(path: &Path, bytes: &[u8]) -> Result<(), PkiError> {
    private_file::write(path, bytes, 0o644).map_err(|source| PkiError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Role;
    use crate::testing::TestCluster;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn an_authority_and_what_it_issues_survive_the_disk() {
        let directory = tempfile::tempdir().expect("temp dir");
        let authority = CertificateAuthority::create("c1", TestCluster::validity()).expect("made");
        authority.store(directory.path()).expect("stored");
        let again = CertificateAuthority::load(directory.path()).expect("loaded");
        assert_eq!(again.cluster_id(), "c1");
        let identity = Identity::new("c1", Role::StorageNode, 3).expect("valid");
        let credentials = again.issue(&identity, TestCluster::validity()).expect("issued");
        let files = CredentialFiles::in_directory(directory.path());
        credentials.store(&files).expect("stored");
        let loaded = Credentials::load(&files).expect("loaded");
        assert_eq!(loaded.identity(), &identity);
        for key in [files.key, directory.path().join(AUTHORITY_KEY_FILE)] {
            let mode = std::fs::metadata(&key).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", key.display());
        }
    }

    #[test]
    fn a_key_that_others_may_read_is_refused() {
        let directory = tempfile::tempdir().expect("temp dir");
        let authority = CertificateAuthority::create("c1", TestCluster::validity()).expect("made");
        let identity = Identity::new("c1", Role::Controller, 1).expect("valid");
        let files = CredentialFiles::in_directory(directory.path());
        authority.issue(&identity, TestCluster::validity()).expect("issued").store(&files).expect("stored");
        std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(0o640)).expect("chmod");
        assert!(matches!(Credentials::load(&files), Err(PkiError::KeyTooOpen { mode: 0o640, .. })));
    }

    #[test]
    fn other_clusters_and_bad_names_get_nothing() {
        let authority = CertificateAuthority::create("c1", TestCluster::validity()).expect("made");
        let stranger = Identity::new("c2", Role::Controller, 1).expect("valid");
        assert!(matches!(
            authority.issue(&stranger, TestCluster::validity()),
            Err(PkiError::OtherCluster { .. })
        ));
        assert!(CertificateAuthority::create("no spaces", TestCluster::validity()).is_err());
    }

    #[test]
    fn texts_without_certificates_are_refused() {
        let empty = Credentials::from_pem(String::new(), String::new(), String::new());
        assert!(matches!(empty, Err(PkiError::Malformed { .. })));
        // The authority's own certificate names no daemon.
        let authority = CertificateAuthority::create("c1", TestCluster::validity()).expect("made");
        let pem = authority.certificate_pem().to_owned();
        let key = authority.issuer.key().serialize_pem();
        assert!(matches!(
            Credentials::from_pem(pem.clone(), key, pem),
            Err(PkiError::Identity(IdentityError::NameCount(0)))
        ));
    }
}
