//! The UDP socket below an endpoint: a real one, or (feature `turmoil`) one of a simulated network.

use crate::config::{Limits, PathProfile};
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Runtime, TokioRuntime, UdpPoller};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A bound socket.
#[derive(Debug)]
pub struct DatagramSocket {
    pub(crate) socket: Arc<dyn AsyncUdpSocket>,
    /// Fixes the transport's own random choices. Only for simulations: they must not be guessable in the field.
    pub(crate) random_seed: Option<[u8; 32]>,
}

impl DatagramSocket {
    /// Opens a UDP socket with the buffers of `limits`.
    pub(crate) fn udp(address: SocketAddr, path: PathProfile, limits: &Limits) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv6() {
            // The wildcard address means both families, as everywhere else.
            socket.set_only_v6(!address.ip().is_unspecified())?;
        }
        // The system may grant less; it says so nowhere but in what it reports.
        socket.set_recv_buffer_size(limits.socket_buffer_bytes)?;
        socket.set_send_buffer_size(limits.socket_buffer_bytes)?;
        let granted = socket.recv_buffer_size()?;
        if granted < limits.socket_buffer_bytes {
            tracing::warn!(
                granted,
                wanted = limits.socket_buffer_bytes,
                "small UDP receive buffer; raise net.core.rmem_max"
            );
        }
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        let socket = TokioRuntime.wrap_udp_socket(socket.into())?;
        let socket: Arc<dyn AsyncUdpSocket> =
            if path.is_jumbo() { Arc::new(OneBuffer(socket)) } else { socket };
        Ok(Self { socket, random_seed: None })
    }
}

/// A socket that receives into one buffer per datagram slot. A batch of segments is at most 64 KiB, so with jumbo buffers
/// one holds a whole batch, and the endpoint's receive memory is 2 MiB instead of 134.
#[derive(Debug)]
struct OneBuffer(Arc<dyn AsyncUdpSocket>);

impl AsyncUdpSocket for OneBuffer {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.0).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.0.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_recv(cx, buffers, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.0.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        1
    }

    fn may_fragment(&self) -> bool {
        self.0.may_fragment()
    }
}
