//! A network element in userspace: the kernel hands it the packets that come to a host, or leave it, and it hands them back as a
//! [`Disturbance`] wants: later, in another order, twice, damaged.
//!
//! The packets come through a queue of the packet filter (`NFQUEUE`), which the host's namespace has of its own. If the element
//! ends, the filter lets them pass.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nfq::{Message, Queue, Verdict};
use socket2::{Domain, Protocol, Socket, Type};

use super::disturbance::{Disturbance, Path, destination};
use super::{Host, NetworkError, run};
use crate::clock::Stopwatch;

/// Which packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Those to a host.
    To,
    /// Those from a host.
    From,
}

/// Packets that wait in the kernel at once; what comes then is lost, as in any element.
const HELD_MAX: u32 = 20_000;
/// More than a packet of the bridge, whose MTU is 1,500. The kernel cuts what it carries as one into such packets before.
const PACKET_MAX: u16 = 2_048;
/// How exact the element is.
const TICK: Duration = Duration::from_millis(1);
/// Distinguishes copies, which pass the filter of outgoing packets as well.
const COPY_MARK: u32 = 0x77_65_69_72;
/// `IPPROTO_RAW`: packets with their IP headers.
const RAW: i32 = 255;

/// What an element has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Packets that came by.
    pub packets: u64,
    /// Of these: later than at once.
    pub late: u64,
    /// Others could overtake it.
    pub held_back: u64,
    /// Twice.
    pub doubled: u64,
    /// Damaged.
    pub damaged: u64,
}

/// An element at work.
#[derive(Debug)]
pub(super) struct Element {
    host: Host,
    way: Way,
    disturbance: Arc<Mutex<Disturbance>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<Counts>>>,
}

impl Way {
    fn queue(self) -> u16 {
        match self {
            Way::To => 1,
            Way::From => 2,
        }
    }

    /// Chain and condition. Not in the table `filter`: packets that a queue accepts skip the rest of its chain, and the cuts and
    /// losses there shall go on.
    fn rule(self) -> [&'static str; 3] {
        match self {
            Way::To => ["INPUT", "-i", "eth0"],
            Way::From => ["OUTPUT", "-o", "eth0"],
        }
    }

    fn filter(self, host: &Host, change: &str) -> Result<(), NetworkError> {
        let [chain, side, link] = self.rule();
        let queue = self.queue().to_string();
        let rule = ["-w", "-t", "mangle", change, chain, side, link, "-j", "NFQUEUE", "--queue-num", &queue];
        run(host.command("iptables").args(rule).arg("--queue-bypass"))
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::To => "to",
            Way::From => "from",
        })
    }
}

impl Element {
    /// Puts an element into a path of a host.
    pub(super) fn start(
        host: &Host,
        way: Way,
        disturbance: Disturbance,
        seed: u64,
    ) -> Result<Element, NetworkError> {
        let (queue, copies) = host.inside(|| open(way.queue()))?;
        let disturbance = Arc::new(Mutex::new(disturbance));
        let stop = Arc::new(AtomicBool::new(false));
        let work = Work {
            queue,
            copies,
            path: Path::new(seed),
            disturbance: Arc::clone(&disturbance),
            watch: Stopwatch::start(),
            held: BTreeMap::new(),
            number: 0,
            counts: Counts::default(),
        };
        let until = Arc::clone(&stop);
        let thread = std::thread::spawn(move || work.run(&until));
        let element = Element { host: host.clone(), way, disturbance, stop, thread: Some(thread) };
        // Only now, so that no packet comes while the queue is made.
        way.filter(host, "-A")?;
        Ok(element)
    }

    pub(super) fn is_at(&self, host: &Host, way: Way) -> bool {
        self.host == *host && self.way == way
    }

    /// Does this as well.
    pub(super) fn add(&self, more: Disturbance) {
        let mut disturbance = self.disturbance.lock().unwrap_or_else(PoisonError::into_inner);
        *disturbance = disturbance.and(more);
    }

    /// Lets everything that waits pass, and takes the element out.
    pub(super) fn finish(mut self) -> Result<Counts, NetworkError> {
        self.way.filter(&self.host, "-D")?;
        let failed = |error: io::Error| {
            NetworkError(format!("the element {} {} failed: {error}", self.way, self.host.address))
        };
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is taken only here and by drop");
        let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("it panicked")));
        ended.map_err(failed)
    }
}

impl Drop for Element {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

/// The queue of the namespace that the thread is in, and a socket for copies.
fn open(number: u16) -> io::Result<(Queue, Socket)> {
    let mut queue = Queue::open()?;
    queue.bind(number)?;
    queue.set_copy_range(number, PACKET_MAX)?;
    queue.set_queue_max_len(number, HELD_MAX)?;
    queue.set_nonblocking(true);
    let copies = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(RAW)))?;
    copies.set_mark(COPY_MARK)?;
    // Copies on their way wait for verdicts of the very thread that sends them.
    copies.set_nonblocking(true)?;
    Ok((queue, copies))
}

enum Parcel {
    Packet(Message),
    Copy(Vec<u8>),
}

struct Work {
    queue: Queue,
    copies: Socket,
    path: Path,
    disturbance: Arc<Mutex<Disturbance>>,
    watch: Stopwatch,
    /// By the time at which they go on, then by the order in which they came. The kernel's queue bounds them.
    held: BTreeMap<(Duration, u64), Parcel>,
    number: u64,
    counts: Counts,
}

impl Work {
    fn run(mut self, stop: &AtomicBool) -> io::Result<Counts> {
        loop {
            let stops = stop.load(Ordering::Relaxed);
            self.receive()?;
            self.send(if stops { Duration::MAX } else { self.watch.elapsed() })?;
            if stops {
                return Ok(self.counts);
            }
            std::thread::sleep(TICK);
        }
    }

    /// Takes all that has come.
    fn receive(&mut self) -> io::Result<()> {
        loop {
            match self.queue.recv() {
                Ok(packet) => self.hold(packet),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn hold(&mut self, mut packet: Message) {
        let now = self.watch.elapsed();
        let bytes = packet.get_payload();
        // Of one that the kernel hands over in part, the rest is not known.
        if packet.get_nfmark() == COPY_MARK || packet.get_original_len() > bytes.len() {
            self.put(now, Parcel::Packet(packet));
            return;
        }
        let disturbance = *self.disturbance.lock().unwrap_or_else(PoisonError::into_inner);
        let fate = self.path.fate(now, &disturbance, bytes);
        self.counts.packets += 1;
        self.counts.late += u64::from(fate.at > now);
        self.counts.held_back += u64::from(fate.held_back);
        if let Some(again_at) = fate.again_at {
            self.counts.doubled += 1;
            self.put(again_at, Parcel::Copy(bytes.to_vec()));
        }
        if let Some(damaged) = fate.damaged {
            self.counts.damaged += 1;
            packet.set_payload(damaged);
        }
        self.put(fate.at, Parcel::Packet(packet));
    }

    fn put(&mut self, at: Duration, parcel: Parcel) {
        self.number += 1;
        self.held.insert((at, self.number), parcel);
    }

    /// Lets those go on whose time has come.
    fn send(&mut self, now: Duration) -> io::Result<()> {
        while let Some(first) = self.held.first_entry().filter(|first| first.key().0 <= now) {
            match first.remove() {
                Parcel::Packet(mut packet) => {
                    packet.set_verdict(Verdict::Accept);
                    self.queue.verdict(packet)?;
                }
                Parcel::Copy(bytes) => {
                    // A copy that the host does not take, since it was unplugged or its buffers are full, is lost.
                    let _lost = destination(&bytes)
                        .map(|to| self.copies.send_to(&bytes, &SocketAddrV4::new(to, 0).into()));
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { packets, late, held_back, doubled, damaged } = self;
        write!(
            f,
            "{packets} packets, of which {late} late, {held_back} overtaken, {doubled} twice, {damaged} damaged"
        )
    }
}
