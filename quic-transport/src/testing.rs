//! For tests of this crate and of others: certificates at once, and the contract of a transport.
//!
//! [`contract`] is one list of checks that every [`Transport`](crate::Transport) must pass; the crate's own tests run it
//! over QUIC on loopback and over the network in memory.

pub mod contract;

use crate::config::{EndpointConfig, Limits};
use crate::identity::{Identity, Role};
use crate::node_keys::NodeKeys;
use crate::pki::{CertificateAuthority, Credentials, Validity};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime};

/// A cluster's authority, made without files or clock.
pub struct TestCluster {
    authority: CertificateAuthority,
}

impl TestCluster {
    /// A cluster with certificates good from 1970 to 2169.
    pub fn new(cluster_id: &str) -> Self {
        let authority = CertificateAuthority::create(cluster_id, Self::validity());
        Self { authority: authority.expect("a cluster id of a test is well-formed") }
    }

    /// From 1970 to 2169.
    pub fn validity() -> Validity {
        let not_before = SystemTime::UNIX_EPOCH;
        Validity { not_before, not_after: not_before + Duration::from_hours(24 * 365 * 199) }
    }

    /// Names a daemon of the cluster.
    pub fn identity(&self, role: Role, node_id: u64) -> Identity {
        Identity::new(self.authority.cluster_id(), role, node_id).expect("the authority's own cluster")
    }

    /// Certificate and key for a daemon.
    pub fn credentials(&self, role: Role, node_id: u64) -> Credentials {
        let issued = self.authority.issue(&self.identity(role, node_id), Self::validity());
        issued.expect("the authority issues to its own cluster")
    }

    /// Config of an endpoint on a free loopback port.
    pub fn config(&self, role: Role, node_id: u64, limits: Limits) -> EndpointConfig {
        let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let keys = NodeKeys::random().endpoint("test");
        EndpointConfig { limits, ..EndpointConfig::new(bind, self.credentials(role, node_id), keys) }
    }
}
