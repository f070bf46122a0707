//! Counts open connections, in total and per address, and refuses those over the limit.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// Why a connection was refused; also its metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// `connections_max` are open.
    Total,
    /// `connections_per_ip_max` are open from this address.
    PerIp,
}

impl Refusal {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::PerIp => "per_ip",
        }
    }
}

/// The shared count. Its map holds only addresses with open connections, so it is bounded by `total_max`.
#[derive(Debug)]
pub(crate) struct ConnectionSlots {
    total_max: usize,
    per_ip_max: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    total: usize,
    per_ip: HashMap<IpAddr, usize>,
}

impl ConnectionSlots {
    pub(crate) fn new(total_max: usize, per_ip_max: usize) -> Arc<Self> {
        Arc::new(Self { total_max, per_ip_max, open: Mutex::default() })
    }

    /// Takes a slot for a connection from `ip`, given back when the slot is dropped.
    pub(crate) fn take(self: &Arc<Self>, ip: IpAddr) -> Result<ConnectionSlot, Refusal> {
        let ip = ip.to_canonical();
        let mut open = self.open.lock();
        if open.total >= self.total_max {
            return Err(Refusal::Total);
        }
        let from_ip = open.per_ip.get(&ip).copied().unwrap_or(0);
        if from_ip >= self.per_ip_max {
            return Err(Refusal::PerIp);
        }
        open.per_ip.insert(ip, from_ip + 1);
        open.total += 1;
        Ok(ConnectionSlot { slots: Arc::clone(self), ip })
    }
}

/// The right to one open connection.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    ip: IpAddr,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut open = self.slots.open.lock();
        open.total -= 1;
        if let Some(count) = open.per_ip.get_mut(&self.ip) {
            *count -= 1;
            if *count == 0 {
                open.per_ip.remove(&self.ip);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_bounded_and_come_back() {
        let slots = ConnectionSlots::new(3, 2);
        let a: IpAddr = "127.0.0.1".parse().unwrap();
        let mapped: IpAddr = "::ffff:127.0.0.1".parse().unwrap();
        let b: IpAddr = "::1".parse().unwrap();
        let first = slots.take(a).unwrap();
        let _second = slots.take(mapped).unwrap();
        assert_eq!(slots.take(a).unwrap_err(), Refusal::PerIp);
        let _third = slots.take(b).unwrap();
        assert_eq!(slots.take(b).unwrap_err(), Refusal::Total);
        drop(first);
        let _again = slots.take(a).unwrap();
        assert_eq!(slots.open.lock().per_ip.len(), 2);
    }
}
