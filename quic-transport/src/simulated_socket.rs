//! A socket of the simulated network `turmoil`, so that whole daemons run in one thread, by a seed.
//!
//! The simulated socket can only be awaited; a task per socket moves datagrams from it into a bounded queue, which drops
//! what does not fit, as a kernel would.

use crate::socket::DatagramSocket;
use parking_lot::Mutex;
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use turmoil::net::UdpSocket;

/// Datagrams that wait to be read.
const QUEUE_MAX: usize = 1024;
/// No datagram is longer.
const DATAGRAM_MAX: usize = 65_535;

impl DatagramSocket {
    /// Binds within the host that is running. `random_seed` fixes the transport's own random choices.
    pub async fn simulated(address: SocketAddr, random_seed: u64) -> io::Result<Self> {
        let socket = Arc::new(UdpSocket::bind(address).await?);
        let (tx, rx) = mpsc::channel(QUEUE_MAX);
        let local_addr = socket.local_addr()?;
        tokio::spawn(pump(Arc::clone(&socket), tx));
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&random_seed.to_le_bytes());
        let socket = Arc::new(SimulatedSocket { socket, local_addr, queue: Mutex::new(rx) });
        Ok(Self { socket, random_seed: Some(seed) })
    }
}

struct SimulatedSocket {
    socket: Arc<UdpSocket>,
    local_addr: SocketAddr,
    queue: Mutex<mpsc::Receiver<(Vec<u8>, SocketAddr)>>,
}

async fn pump(socket: Arc<UdpSocket>, tx: mpsc::Sender<(Vec<u8>, SocketAddr)>) {
    let mut buffer = vec![0; DATAGRAM_MAX];
    loop {
        tokio::select! {
            () = tx.closed() => return,
            received = socket.recv_from(&mut buffer) => match received {
                Ok((length, from)) => {
                    // A full queue loses the datagram.
                    let _lost = tx.try_send((buffer[..length].to_vec(), from));
                }
                Err(error) => {
                    tracing::debug!(%error, "simulated socket ended");
                    return;
                }
            },
        }
    }
}

impl fmt::Debug for SimulatedSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SimulatedSocket").field(&self.local_addr).finish()
    }
}

/// Sending never waits.
#[derive(Debug)]
struct AlwaysWritable;

impl UdpPoller for AlwaysWritable {
    fn poll_writable(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncUdpSocket for SimulatedSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(AlwaysWritable)
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let segment = transmit.segment_size.unwrap_or(transmit.contents.len()).max(1);
        for datagram in transmit.contents.chunks(segment) {
            match self.socket.try_send_to(datagram, transmit.destination) {
                Ok(_) => {}
                // A network without the destination is a network that loses the datagram.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut queue = self.queue.lock();
        let (Some(buffer), Some(meta)) = (buffers.first_mut(), meta.first_mut()) else {
            return Poll::Ready(Ok(0));
        };
        match queue.poll_recv(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            Poll::Ready(Some((datagram, from))) => {
                let length = datagram.len().min(buffer.len());
                buffer[..length].copy_from_slice(&datagram[..length]);
                *meta = RecvMeta { addr: from, len: length, stride: length, ecn: None, dst_ip: None };
                Poll::Ready(Ok(1))
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local_addr)
    }

    fn may_fragment(&self) -> bool {
        false
    }
}
