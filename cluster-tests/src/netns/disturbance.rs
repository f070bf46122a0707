//! What a bad path does to a packet: nothing here but the decision, drawn from a seed.
//!
//! A packet may come late, be overtaken by those that were sent after it, come twice, or have bits of its payload turned over. The
//! damage of a UDP packet gets a checksum that fits, so that the kernel hands it on and QUIC must notice. TCP has nothing but its
//! checksum between the kernel and a plain Kafka connection, so its damage keeps the old one, and is a loss.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::moments::Moments;

/// What happens to the packets of a path; by default nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disturbance {
    /// Each packet comes so much later,
    pub delay: Duration,
    /// and up to this much more; their order stays.
    pub jitter: Duration,
    /// So many of ten thousand packets are overtaken by later ones,
    pub held_back: u16,
    /// which have up to this long for it.
    pub held_for: Duration,
    /// So many of ten thousand packets come twice, the second time up to [`COPY_WITHIN`] after the first.
    pub doubled: u16,
    /// So many of ten thousand packets are damaged.
    pub damaged: u16,
}

/// A copy follows its packet within this time.
pub const COPY_WITHIN: Duration = Duration::from_millis(20);

/// What happens to one packet. Times are since the beginning of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fate {
    /// When it arrives.
    pub at: Duration,
    /// Others may overtake it.
    pub held_back: bool,
    /// When it arrives once more, undamaged.
    pub again_at: Option<Duration>,
    /// What arrives instead of it.
    pub damaged: Option<Vec<u8>>,
}

/// Decides about one packet after the other.
#[derive(Debug)]
pub(super) struct Path {
    chance: Moments,
    /// When the last packet arrives that keeps its place.
    last: Duration,
}

impl Disturbance {
    /// Both at once.
    #[must_use]
    pub fn and(self, other: Disturbance) -> Disturbance {
        Disturbance {
            delay: self.delay.max(other.delay),
            jitter: self.jitter.max(other.jitter),
            held_back: self.held_back.max(other.held_back),
            held_for: self.held_for.max(other.held_for),
            doubled: self.doubled.max(other.doubled),
            damaged: self.damaged.max(other.damaged),
        }
    }
}

impl Path {
    /// A path of a seed.
    pub(super) fn new(seed: u64) -> Path {
        Path { chance: Moments::new(seed), last: Duration::ZERO }
    }

    /// What happens to an IPv4 packet that comes by at `now`. Every packet takes as many random numbers, so that what happens to
    /// the nth depends on the seed alone.
    pub(super) fn fate(&mut self, now: Duration, disturbance: &Disturbance, packet: &[u8]) -> Fate {
        let mut happens = |of_ten_thousand: u16| self.chance.next_number() % 10_000 < of_ten_thousand.into();
        let (held_back, doubled, damaged) =
            (happens(disturbance.held_back), happens(disturbance.doubled), happens(disturbance.damaged));
        let jitter = self.chance.within(disturbance.jitter);
        let held_for = self.chance.within(disturbance.held_for);
        let copy_after = self.chance.within(COPY_WITHIN);
        let mut of_damage = Moments::new(self.chance.next_number());
        let in_order = self.last.max(now + disturbance.delay + jitter);
        let at = if held_back { in_order + held_for } else { in_order };
        if !held_back {
            self.last = in_order;
        }
        Fate {
            at,
            held_back,
            again_at: doubled.then(|| at + copy_after),
            damaged: damaged.then(|| damage(packet, &mut of_damage)).flatten(),
        }
    }
}

const UDP: u8 = 17;
const TCP: u8 = 6;
const UDP_HEADER: usize = 8;
/// At most so many bits of a UDP packet are turned over. Of a TCP packet only one is: two can hide from its checksum.
const FLIPS_MAX: u64 = 3;

/// The same packet with bits turned over; none if it carries nothing that could be damaged.
fn damage(packet: &[u8], chance: &mut Moments) -> Option<Vec<u8>> {
    let header = usize::from(packet.first()? & 0xf) * 4;
    let end = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
    // The second half of a packet that was cut has no ports and no checksum.
    let is_whole = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x3fff == 0;
    let protocol = *packet.get(9)?;
    if packet[0] >> 4 != 4 || header < 20 || end > packet.len() || !is_whole {
        return None;
    }
    let (begin, flips) = match protocol {
        UDP => (header + UDP_HEADER, 1 + chance.next_number() % FLIPS_MAX),
        TCP => (header, 1),
        _ => return None,
    };
    let bits = u64::try_from(end.checked_sub(begin)?).ok()? * 8;
    if bits == 0 {
        return None;
    }
    let mut damaged = packet.to_vec();
    for _ in 0..flips {
        let bit = usize::try_from(chance.next_number() % bits).ok()?;
        damaged[begin + bit / 8] ^= 1 << (bit % 8);
    }
    if protocol == UDP {
        sign(&mut damaged[..end], header);
    }
    // Two of three flips may have met.
    (damaged != packet).then_some(damaged)
}

/// Writes the checksum that fits a UDP packet.
fn sign(packet: &mut [u8], header: usize) {
    let place = header + 6;
    // No checksum at all is allowed in IPv4.
    if packet[place..place + 2] == [0, 0] {
        return;
    }
    packet[place..place + 2].fill(0);
    let checksum = match checksum(packet, header) {
        0 => u16::MAX,
        other => other,
    };
    packet[place..place + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// RFC 1071 over the addresses, the protocol, the length and everything behind the IP header: 0 for a packet whose checksum fits.
fn checksum(packet: &[u8], header: usize) -> u16 {
    let words = |bytes: &[u8]| -> u32 {
        let pairs = bytes.chunks(2);
        pairs.map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low))).sum()
    };
    let body = &packet[header..];
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let mut sum = words(&packet[12..20]) + u32::from(packet[9]) + length + words(body);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

/// Where an IPv4 packet goes.
pub(super) fn destination(packet: &[u8]) -> Option<Ipv4Addr> {
    let address: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
    (packet[0] >> 4 == 4).then(|| address.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A packet with a checksum that fits.
    fn packet(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let header = if protocol == UDP { UDP_HEADER } else { 20 };
        let length = u16::try_from(20 + header + payload.len()).unwrap();
        let mut packet = vec![0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, protocol, 0, 0, 10, 70, 1, 1, 10, 70, 1, 2];
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        packet.resize(20 + header, 0x11);
        packet.extend(payload);
        let place = if protocol == UDP { 26 } else { 36 };
        packet[place..place + 2].fill(0);
        let sum = checksum(&packet, 20);
        packet[place..place + 2].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(checksum(&packet, 20), 0);
        packet
    }

    #[test]
    fn the_checksum_is_the_one_of_the_standard() {
        // 10.0.0.1:4660 to 10.0.0.2:22136, "hi!"; added up by hand below.
        let bytes = [
            0x45, 0, 0, 31, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x12, 0x34, 0x56, 0x78, 0,
            11, 0, 0, b'h', b'i', b'!',
        ];
        // 0x0a00 + 0x0001 + 0x0a00 + 0x0002 + 17 + 11 + 0x1234 + 0x5678 + 11 + 0x6869 + 0x2100 = 0x1063f, folded 0x0640.
        assert_eq!(checksum(&bytes, 20), !0x0640);
    }

    #[test]
    fn a_quiet_path_changes_nothing() {
        let mut path = Path::new(1);
        for at in 0..1_000 {
            let fate = path.fate(MS * at, &Disturbance::default(), &packet(UDP, b"payload"));
            assert_eq!(fate, Fate { at: MS * at, held_back: false, again_at: None, damaged: None });
        }
    }

    #[test]
    fn late_packets_keep_their_order() {
        let disturbance = Disturbance { delay: MS * 300, jitter: MS * 100, ..Disturbance::default() };
        let mut path = Path::new(2);
        let arrivals: Vec<Duration> =
            (0..1_000).map(|at| path.fate(MS * at, &disturbance, &packet(UDP, b"x")).at).collect();
        assert!(arrivals.is_sorted());
        for (sent, arrives) in (0..).zip(&arrivals) {
            assert!((MS * 300..MS * 400).contains(&(*arrives - MS * sent)), "{sent}: {arrives:?}");
        }
        let differences: Vec<Duration> = (0..).zip(&arrivals).map(|(sent, at)| *at - MS * sent).collect();
        assert!(differences.iter().max() > differences.iter().min(), "there is jitter");
    }

    #[test]
    fn held_back_packets_are_overtaken_and_others_not() {
        let disturbance =
            Disturbance { held_back: 1_000, held_for: MS * 50, doubled: 500, ..Disturbance::default() };
        let mut path = Path::new(3);
        let fates: Vec<Fate> =
            (0..10_000).map(|at| path.fate(MS * at, &disturbance, &packet(TCP, b"x"))).collect();
        let held = fates.iter().filter(|fate| fate.held_back).count();
        assert!((800..1_200).contains(&held), "{held}");
        assert!(fates.iter().filter(|fate| !fate.held_back).map(|fate| fate.at).is_sorted());
        assert!(!fates.iter().map(|fate| fate.at).is_sorted());
        let copies = fates.iter().filter_map(|fate| fate.again_at.map(|again| again - fate.at));
        assert!((350..650).contains(&copies.clone().count()), "{}", copies.count());
        assert!(copies.max() < Some(COPY_WITHIN));
    }

    #[test]
    fn a_seed_repeats_a_path() {
        let disturbance = Disturbance {
            delay: MS * 10,
            jitter: MS * 5,
            held_back: 2_000,
            held_for: MS * 20,
            doubled: 2_000,
            damaged: 2_000,
        };
        let fates = |seed| {
            let mut path = Path::new(seed);
            (0..500).map(|at| path.fate(MS * at, &disturbance, &packet(UDP, b"abc"))).collect::<Vec<_>>()
        };
        assert_eq!(fates(4), fates(4));
        assert_ne!(fates(4), fates(5));
    }

    #[test]
    fn damage_of_udp_has_a_checksum_that_fits_and_changes_the_payload_only() {
        for (seed, length) in (0..2_000).zip((1..60).cycle()) {
            let whole = packet(UDP, &vec![0xa5; length]);
            let Some(damaged) = damage(&whole, &mut Moments::new(seed)) else { continue };
            assert_eq!(checksum(&damaged, 20), 0, "seed {seed}");
            assert_eq!(damaged[..26], whole[..26]);
            let flipped: u32 =
                damaged[28..].iter().zip(&whole[28..]).map(|(a, b)| (a ^ b).count_ones()).sum();
            assert!((1..=3).contains(&flipped), "seed {seed}: {flipped} bits");
        }
    }

    #[test]
    fn damage_of_tcp_is_one_bit_and_never_hides_from_the_checksum() {
        for seed in 0..2_000 {
            let whole = packet(TCP, b"a request");
            let damaged = damage(&whole, &mut Moments::new(seed)).expect("there is something to damage");
            assert_eq!(damaged[..20], whole[..20]);
            assert_ne!(checksum(&damaged, 20), 0, "seed {seed}");
        }
    }

    #[test]
    fn what_cannot_be_damaged_stays_as_it_is() {
        let mut chance = Moments::new(6);
        let mut second_half = packet(UDP, b"abc");
        second_half[7] = 1;
        let mut too_long = packet(UDP, b"abc");
        too_long[3] += 1;
        let mut version_6 = packet(UDP, b"abc");
        version_6[0] = 0x65;
        let ping = packet(1, b"abc");
        for packet in [packet(UDP, b""), second_half, too_long, version_6, ping, Vec::new(), vec![0x45; 9]] {
            assert_eq!(damage(&packet, &mut chance), None, "{packet:?}");
        }
    }

    #[test]
    fn no_checksum_stays_none() {
        let mut whole = packet(UDP, b"abc");
        whole[26..28].fill(0);
        let damaged = (0..20).find_map(|seed| damage(&whole, &mut Moments::new(seed))).expect("damage");
        assert_eq!(damaged[26..28], [0, 0]);
    }

    #[test]
    fn of_two_disturbances_the_worse_counts() {
        let one = Disturbance { delay: MS, doubled: 5, ..Disturbance::default() };
        let two = Disturbance { delay: MS * 2, damaged: 7, ..Disturbance::default() };
        let both = Disturbance { delay: MS * 2, doubled: 5, damaged: 7, ..Disturbance::default() };
        assert_eq!(one.and(two), both);
    }
}
