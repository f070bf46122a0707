//! Free loopback ports, one after another, below the range from which the kernel picks ports for outgoing connections.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A port that is free for TCP and for UDP on 127.0.0.1 right now, and that this process has not handed out before (until
/// it has gone once round the range).
pub fn free_port() -> u16 {
    for _ in 0..COUNT {
        // Processes that run side by side start at different places of the range.
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(FIRST + (std::process::id().wrapping_mul(131).wrapping_add(step)) % COUNT)
            .expect("the range lies below 65536");
        let address = (Ipv4Addr::LOCALHOST, port);
        if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
            return port;
        }
    }
    panic!("no free port between {FIRST} and {}", FIRST + COUNT);
}
