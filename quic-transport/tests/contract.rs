//! The contract of a transport, over QUIC on loopback and over the network in memory.

use quic_transport::memory::{MemoryNetwork, MemoryNetworkConfig};
use quic_transport::testing::TestCluster;
use quic_transport::testing::contract::World;
use quic_transport::{Endpoint, Limits, PathProfile, Role, Router, Transport, TransportMetrics};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

struct Quic {
    cluster: TestCluster,
    path: PathProfile,
}

impl Quic {
    fn new(path: PathProfile) -> Self {
        Self { cluster: TestCluster::new("contract"), path }
    }
}

impl World for Quic {
    async fn endpoint(&self, role: Role, node_id: u64, router: Router, limits: Limits) -> Arc<dyn Transport> {
        let mut config = self.cluster.config(role, node_id, limits);
        config.path = self.path;
        let endpoint = Endpoint::bind(config, router, TransportMetrics::unregistered());
        Arc::new(endpoint.expect("binds"))
    }

    fn dead_address(&self) -> SocketAddr {
        // Bound, but nobody reads: stays ours until the process ends.
        let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("binds");
        let address = socket.local_addr().expect("bound");
        std::mem::forget(socket);
        address
    }
}

struct Memory {
    cluster: TestCluster,
    network: MemoryNetwork,
    next_port: AtomicU16,
}

impl Memory {
    fn new(config: MemoryNetworkConfig) -> Self {
        let network = MemoryNetwork::new(config);
        Self { cluster: TestCluster::new("contract"), network, next_port: AtomicU16::new(1) }
    }
}

impl World for Memory {
    async fn endpoint(&self, role: Role, node_id: u64, router: Router, limits: Limits) -> Arc<dyn Transport> {
        let address = self.dead_address();
        let identity = self.cluster.identity(role, node_id);
        let metrics = TransportMetrics::unregistered();
        Arc::new(self.network.endpoint(identity, address, router, limits, metrics).expect("valid limits"))
    }

    fn dead_address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.next_port.fetch_add(1, Ordering::Relaxed)))
    }
}

mod over_quic_with_the_loopback_profile {
    use super::*;
    quic_transport::transport_contract!(Quic::new(PathProfile::LOOPBACK));
}

mod over_quic_with_the_lan_profile {
    use super::*;
    quic_transport::transport_contract!(Quic::new(PathProfile::LAN));
}

mod in_memory {
    use super::*;
    quic_transport::transport_contract!(Memory::new(MemoryNetworkConfig::default()));
}

mod in_memory_with_delay {
    use super::*;
    quic_transport::transport_contract!(Memory::new(MemoryNetworkConfig {
        seed: 3,
        delay_min: Duration::from_millis(1),
        delay_max: Duration::from_millis(5),
        ..MemoryNetworkConfig::default()
    }));
}
