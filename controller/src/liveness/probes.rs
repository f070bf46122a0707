//! The part of the watch that asks silent storage nodes whether their process is there at all; what the answers prove is
//! decided in [`controller_core::sessions`].
//!
//! A datagram goes from a connected socket to the node's data address. If nobody has that socket, the node's host says so
//! (ICMP port unreachable) and the socket reports it as a refused connection. One byte is no QUIC packet: a node that lives
//! throws it away.

use super::{Event, Task};
use controller_core::sessions::{Probe, ProbeAnswer, ProbeTarget};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::net::{UdpSocket, lookup_host};
use tokio::time::timeout;

/// Nodes that are asked at once; the others follow at the next look.
const PROBES_AT_ONCE: usize = 64;
/// How long a host may take to refuse.
const REFUSAL_MAX: Duration = Duration::from_millis(200);
/// How long a name may take to be looked up.
const LOOKUP_MAX: Duration = Duration::from_secs(1);
/// A dead node refuses each time.
const REFUSALS: usize = 2;
/// Between two times.
const PAUSE: Duration = Duration::from_millis(10);

impl Task {
    /// Asks those that are due. None if that is switched off: then the sessions name none.
    pub(super) fn probe_silent(&mut self) {
        let free = PROBES_AT_ONCE.saturating_sub(self.probes_open);
        let probes = self.sessions.lock().to_probe(self.clock.now(), &self.view.state(), free);
        for probe in probes {
            self.probes_open += 1;
            let events = self.events.clone();
            tokio::spawn(async move {
                let answer = ask(&probe.target).await;
                if let Some(events) = events.upgrade() {
                    // Fails only when the watch has ended with the process.
                    let _ended = events.send(Event::Probed { probe, answer }).await;
                }
            });
        }
    }

    /// Takes an answer; after the heartbeats that came before it.
    pub(super) fn take_probe(&mut self, probe: &Probe, answer: ProbeAnswer) {
        self.probes_open = self.probes_open.saturating_sub(1);
        tracing::debug!(node = %probe.node, target = ?probe.target, ?answer, "probed");
        let verdict = self.sessions.lock().probed(probe, answer, &self.view.state());
        if let Some(verdict) = verdict {
            self.metrics.death_proved();
            self.commit(verdict);
        }
    }
}

async fn ask(target: &ProbeTarget) -> ProbeAnswer {
    let address = match target {
        ProbeTarget::Known(address) => Some(*address),
        ProbeTarget::Registered(name) => match timeout(LOOKUP_MAX, lookup_host(name)).await {
            Ok(Ok(mut addresses)) => addresses.next(),
            Ok(Err(_)) | Err(_) => None,
        },
    };
    let Some(address) = address else { return ProbeAnswer::NotAsked };
    for round in 0..REFUSALS {
        if round > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        match is_refused(address).await {
            Ok(true) => {}
            Ok(false) => return ProbeAnswer::NotRefused(address),
            Err(error) => {
                tracing::debug!(%address, %error, "probe a node");
                return ProbeAnswer::NotAsked;
            }
        }
    }
    ProbeAnswer::Refused
}

/// Whether nobody has that socket, as its host says. The socket is a new one each time: what it reports is about this
/// datagram.
async fn is_refused(address: SocketAddr) -> std::io::Result<bool> {
    let any = match address {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(address).await?;
    socket.send(&[0]).await?;
    let heard = timeout(REFUSAL_MAX, socket.recv(&mut [0; 64])).await;
    Ok(matches!(heard, Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_that_is_there_does_not_refuse_and_one_that_is_gone_does() {
        let there = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bound");
        let address = there.local_addr().expect("bound");
        let named = ProbeTarget::Registered(address.to_string());
        assert_eq!(ask(&named).await, ProbeAnswer::NotRefused(address));
        drop(there);
        assert_eq!(ask(&ProbeTarget::Known(address)).await, ProbeAnswer::Refused);
        assert_eq!(ask(&named).await, ProbeAnswer::Refused);
    }

    #[tokio::test]
    async fn names_that_lead_nowhere_are_not_asked() {
        let nowhere = ProbeTarget::Registered("no port".to_owned());
        assert_eq!(ask(&nowhere).await, ProbeAnswer::NotAsked);
    }
}
