//! Who a daemon is: cluster, role and number, as its certificate says.
//!
//! The certificate carries exactly one URI subject alternative name of the form
//! `weir://<cluster-id>/<role>/<node-id>`. Both sides check the other's chain to the cluster's authority and then this
//! name; nothing that a peer says about itself in a message counts.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

const SCHEME: &str = "weir://";
const CLUSTER_ID_MAX: usize = 64;

/// What a daemon does in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// A voter of the metadata quorum.
    Controller,
    /// A node that holds partitions and serves Kafka clients.
    StorageNode,
    /// A node that runs group and transaction shards.
    Coordinator,
    /// An operator's tool.
    Admin,
}

impl Role {
    /// All roles.
    pub const ALL: [Role; 4] = [Role::Controller, Role::StorageNode, Role::Coordinator, Role::Admin];

    /// The role as it stands in a certificate.
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Controller => "controller",
            Role::StorageNode => "storage-node",
            Role::Coordinator => "coordinator",
            Role::Admin => "admin",
        }
    }

    const fn bit(self) -> u8 {
        match self {
            Role::Controller => 1,
            Role::StorageNode => 2,
            Role::Coordinator => 4,
            Role::Admin => 8,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of roles: one cell row of the table role × message kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles(u8);

impl Roles {
    /// The roles of `list`.
    pub const fn of(list: &[Role]) -> Self {
        let mut bits = 0;
        let mut at = 0;
        while at < list.len() {
            bits |= list[at].bit();
            at += 1;
        }
        Self(bits)
    }

    /// Whether `role` is in the set.
    pub const fn contains(self, role: Role) -> bool {
        self.0 & role.bit() != 0
    }
}

/// A daemon's name in certificates: cluster, role, number within the role. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    cluster_id: Arc<str>,
    role: Role,
    node_id: u64,
}

/// The text or certificate does not name a daemon.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// A cluster id is 1 to 64 characters of `A-Z a-z 0-9 _ -`.
    #[error("cluster id {0:?} is not 1 to 64 characters of A-Z a-z 0-9 _ -")]
    ClusterId(String),
    /// Not `weir://<cluster-id>/<role>/<node-id>`.
    #[error("{0:?} is not of the form weir://<cluster-id>/<role>/<node-id>")]
    Uri(String),
    /// The certificate cannot be parsed.
    #[error("certificate cannot be parsed: {0}")]
    Certificate(String),
    /// The certificate carries no `weir://` name, or more than one.
    #[error("certificate carries {0} weir:// names where exactly one is expected")]
    NameCount(usize),
}

impl Identity {
    /// Names a daemon. `node_id` is unique within cluster and role.
    pub fn new(cluster_id: &str, role: Role, node_id: u64) -> Result<Self, IdentityError> {
        let allowed = |c: u8| c.is_ascii_alphanumeric() || c == b'_' || c == b'-';
        let length_fits = (1..=CLUSTER_ID_MAX).contains(&cluster_id.len());
        if !length_fits || !cluster_id.bytes().all(allowed) {
            return Err(IdentityError::ClusterId(cluster_id.chars().take(CLUSTER_ID_MAX).collect()));
        }
        Ok(Self { cluster_id: cluster_id.into(), role, node_id })
    }

    /// Reads the name out of a certificate (DER). Does not check the chain.
    pub fn from_certificate(der: &[u8]) -> Result<Self, IdentityError> {
        let (rest, certificate) =
            X509Certificate::from_der(der).map_err(|e| IdentityError::Certificate(e.to_string()))?;
        if !rest.is_empty() {
            return Err(IdentityError::Certificate(format!("{} bytes left over", rest.len())));
        }
        let names =
            certificate.subject_alternative_name().map_err(|e| IdentityError::Certificate(e.to_string()))?;
        let uris: Vec<&str> = names
            .iter()
            .flat_map(|extension| &extension.value.general_names)
            .filter_map(|name| match name {
                GeneralName::URI(uri) if uri.starts_with(SCHEME) => Some(*uri),
                _ => None,
            })
            .collect();
        match uris.as_slice() {
            [uri] => uri.parse(),
            other => Err(IdentityError::NameCount(other.len())),
        }
    }

    /// The cluster.
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// The role in it.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The number within the role.
    pub fn node_id(&self) -> u64 {
        self.node_id
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}/{}", self.cluster_id, self.role, self.node_id)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let malformed = || IdentityError::Uri(text.chars().take(128).collect());
        let mut parts = text.strip_prefix(SCHEME).ok_or_else(malformed)?.split('/');
        let (Some(cluster), Some(role), Some(number), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed());
        };
        let role = Role::ALL.into_iter().find(|known| known.as_str() == role).ok_or_else(malformed)?;
        let node_id: u64 = number.parse().map_err(|_| malformed())?;
        // One name, one spelling: "+7" and "07" are not 7.
        if node_id.to_string() != number {
            return Err(malformed());
        }
        Self::new(cluster, role, node_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_reads_back() {
        for role in Role::ALL {
            let identity = Identity::new("qX_9-a", role, 7).expect("valid");
            assert_eq!(identity.to_string(), format!("weir://qX_9-a/{role}/7"));
            assert_eq!(identity.to_string().parse(), Ok(identity));
        }
    }

    #[test]
    fn other_spellings_are_refused() {
        for text in [
            "",
            "weir://",
            "weir://c/controller",
            "weir://c/controller/07",
            "weir://c/controller/+7",
            "weir://c/controller/7/",
            "weir://c/Controller/7",
            "weir:///controller/7",
            "weir://c d/controller/7",
            "http://c/controller/7",
            "weir://c/controller/18446744073709551616",
            "weir://c/controller/-1",
        ] {
            assert!(text.parse::<Identity>().is_err(), "{text:?} was accepted");
        }
        assert!(Identity::new(&"x".repeat(65), Role::Admin, 0).is_err());
    }

    #[test]
    fn garbage_is_no_certificate() {
        assert!(matches!(Identity::from_certificate(b"\x30\x03abc"), Err(IdentityError::Certificate(_))));
        assert!(matches!(Identity::from_certificate(b""), Err(IdentityError::Certificate(_))));
    }

    #[test]
    fn a_role_set_holds_what_it_was_given() {
        let roles = Roles::of(&[Role::Controller, Role::Admin]);
        let held: Vec<Role> = Role::ALL.into_iter().filter(|role| roles.contains(*role)).collect();
        assert_eq!(held, [Role::Controller, Role::Admin]);
    }
}
