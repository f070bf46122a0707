//! Keys that let a restarted node tell its old peers that their connections are dead.
//!
//! After a kill, peers go on sending to connections that the new process does not know. QUIC's answer is a stateless
//! reset, which the peer believes only if it is made with the key of the old process; and the endpoint looks at a packet
//! at all only if its connection id could be its own. Both keys are therefore derived from one secret that the node keeps
//! on disk (0600). Losing the file costs only speed: peers then wait out their idle time-out once.

use crate::private_file;
use aws_lc_rs::{hmac, rand};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"WEIRQK01";
const SECRET_LEN: usize = 32;

/// The file of keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NodeKeysError {
    /// It could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is not a file of keys. It may be deleted: a new one is made.
    #[error("{}: not a file of QUIC keys; delete it and a new one is made", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
    },
}

/// A node's secret, from which the keys of each of its endpoints are derived.
#[derive(Clone)]
pub struct NodeKeys {
    secret: Arc<[u8; SECRET_LEN]>,
}

impl NodeKeys {
    /// Reads the secret from `path`, or makes one and writes it there (0600).
    pub fn load_or_create(path: &Path) -> Result<Self, NodeKeysError> {
        let at_path = |source| NodeKeysError::File { path: path.to_owned(), source };
        match std::fs::read(path) {
            Ok(bytes) => match bytes.strip_prefix(MAGIC).map(<[u8; SECRET_LEN]>::try_from) {
                Some(Ok(secret)) => Ok(Self { secret: Arc::new(secret) }),
                Some(Err(_)) | None => Err(NodeKeysError::Malformed { path: path.to_owned() }),
            },
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let keys = Self::random();
                let bytes = [MAGIC.as_slice(), keys.secret.as_slice()].concat();
                private_file::write(path, &bytes, 0o600).map_err(at_path)?;
                Ok(keys)
            }
            Err(e) => Err(at_path(e)),
        }
    }

    /// A secret that lives only in this process, for tools that nobody connects to.
    pub fn random() -> Self {
        let mut secret = [0; SECRET_LEN];
        rand::fill(&mut secret).expect("the system's random source works, else nothing secret can be done");
        Self { secret: Arc::new(secret) }
    }

    /// The keys of one endpoint. Each endpoint of a node (control, data) has its own label, so that one's resets mean
    /// nothing to the other's peers.
    pub fn endpoint(&self, label: &str) -> EndpointKeys {
        let reset = self.derive("stateless-reset", label);
        let ids = self.derive("connection-id", label);
        let (connection_ids, _) = ids.as_ref().split_first_chunk().expect("a digest is longer than 8 bytes");
        EndpointKeys {
            reset: hmac::Key::new(hmac::HMAC_SHA256, reset.as_ref()),
            connection_ids: u64::from_be_bytes(*connection_ids),
        }
    }

    fn derive(&self, purpose: &str, label: &str) -> hmac::Tag {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.secret.as_slice());
        hmac::sign(&key, format!("weir quic {purpose} {label}").as_bytes())
    }
}

impl std::fmt::Debug for NodeKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeKeys").finish_non_exhaustive()
    }
}

/// See [`NodeKeys::endpoint`].
#[derive(Clone)]
pub struct EndpointKeys {
    pub(crate) reset: hmac::Key,
    pub(crate) connection_ids: u64,
}

impl std::fmt::Debug for EndpointKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndpointKeys").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_same_after_a_restart_and_differ_by_label() {
        let directory = tempfile::tempdir().expect("temp dir");
        let path = directory.path().join("quic.keys");
        let first = NodeKeys::load_or_create(&path).expect("created");
        let again = NodeKeys::load_or_create(&path).expect("loaded");
        assert_eq!(private_file::mode(&path).expect("there"), 0o600);
        let tag = |keys: &NodeKeys, label| {
            let keys = keys.endpoint(label);
            (hmac::sign(&keys.reset, b"x").as_ref().to_vec(), keys.connection_ids)
        };
        assert_eq!(tag(&first, "control"), tag(&again, "control"));
        assert_ne!(tag(&first, "control"), tag(&first, "data"));
        assert_ne!(tag(&first, "control"), tag(&NodeKeys::random(), "control"));
    }

    #[test]
    fn another_file_is_refused_by_name() {
        let directory = tempfile::tempdir().expect("temp dir");
        let path = directory.path().join("quic.keys");
        std::fs::write(&path, b"WEIRQK01short").expect("written");
        let error = NodeKeys::load_or_create(&path).expect_err("refused");
        assert!(matches!(error, NodeKeysError::Malformed { .. }));
        assert!(error.to_string().contains("quic.keys"));
    }
}
