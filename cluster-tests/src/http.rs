//! The little of HTTP that it takes to ask a daemon for its health and its metrics.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const CONNECT_PATIENCE: Duration = Duration::from_secs(1);
/// A busy machine may have better things to do.
const READ_PATIENCE: Duration = Duration::from_secs(10);

/// Status and body of `GET path`; none if nobody answers soon.
pub fn get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, CONNECT_PATIENCE).ok()?;
    stream.set_read_timeout(Some(READ_PATIENCE)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let status = text.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let (_, body) = text.split_once("\r\n\r\n")?;
    Some((status, body.to_owned()))
}

/// The value of a metric without labels.
pub fn metric(address: SocketAddr, name: &str) -> Option<f64> {
    let (_, metrics) = get(address, "/metrics")?;
    metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}
