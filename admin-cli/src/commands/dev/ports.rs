//! Ports for a cluster on loopback: those that were asked for, else the usual ones where they are free, else free ones.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

use quic_transport::Role;

use super::{DevArgs, KAFKA_PORT};
use crate::commands::cluster::layout::Daemon;
use crate::failure::Failure;

/// Hands out ports that nobody listens on, each once.
#[derive(Debug)]
pub(super) struct Ports {
    /// The next one for Kafka clients; none for free ones.
    kafka: Option<u16>,
    /// The next one of HTTP; none for the usual or free ones.
    http: Option<u16>,
    /// Whether the usual ports may be taken.
    usual: bool,
    /// Held until all ports are chosen, so that none is chosen twice.
    held: Held,
}

#[derive(Debug, Default)]
struct Held {
    tcp: Vec<TcpListener>,
    udp: Vec<UdpSocket>,
}

impl Ports {
    pub(super) fn choose(args: &DevArgs) -> Result<Self, Failure> {
        let given = |port: u16| (port != 0).then_some(port);
        let kafka = given(args.kafka_port.unwrap_or(KAFKA_PORT));
        let usual = kafka.is_some() && args.http_port != Some(0);
        Ok(Self { kafka, http: args.http_port.and_then(given), usual, held: Held::default() })
    }

    /// Gives every daemon its ports.
    pub(super) fn give(mut self, daemons: &mut [Daemon]) -> Result<(), Failure> {
        for daemon in daemons {
            let client = match (daemon.role, self.kafka) {
                (Role::StorageNode, Some(port)) => {
                    self.kafka = port.checked_add(1);
                    Some(self.held.tcp(port).ok_or_else(|| taken(port, "--kafka-port"))?)
                }
                (Role::StorageNode, None) => Some(self.held.free_tcp()?),
                _ => None,
            };
            let usual = daemon.http_port();
            let http = match self.http {
                Some(port) => {
                    self.http = port.checked_add(1);
                    self.held.tcp(port).ok_or_else(|| taken(port, "--http-port"))?
                }
                None => match self.usual.then(|| self.held.tcp(usual)).flatten() {
                    Some(port) => port,
                    None => self.held.free_tcp()?,
                },
            };
            let usual = daemon.control_port();
            let control = match self.usual.then(|| self.held.udp(usual)).flatten() {
                Some(port) => port,
                None => self.held.free_udp()?,
            };
            daemon.set_ports(client, control, http);
            if let Some(usual) = daemon.data_port() {
                let data = match self.usual.then(|| self.held.udp(usual)).flatten() {
                    Some(port) => port,
                    None => self.held.free_udp()?,
                };
                daemon.set_data_port(data);
            }
        }
        Ok(())
    }
}

fn taken(port: u16, option: &str) -> Failure {
    Failure::failed(format!("port {port} of 127.0.0.1 is taken by another process")).hint(format!(
        "stop it, or give other ports by {option}: each daemon takes the next one; 0 takes free ones"
    ))
}

impl Held {
    fn tcp(&mut self, port: u16) -> Option<u16> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
        let port = listener.local_addr().ok().as_ref().map(SocketAddr::port)?;
        self.tcp.push(listener);
        Some(port)
    }

    fn udp(&mut self, port: u16) -> Option<u16> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
        let port = socket.local_addr().ok().as_ref().map(SocketAddr::port)?;
        self.udp.push(socket);
        Some(port)
    }

    fn free_tcp(&mut self) -> Result<u16, Failure> {
        self.tcp(0).ok_or_else(|| Failure::failed("no TCP port of 127.0.0.1 is free"))
    }

    fn free_udp(&mut self) -> Result<u16, Failure> {
        self.udp(0).ok_or_else(|| Failure::failed("no UDP port of 127.0.0.1 is free"))
    }
}
