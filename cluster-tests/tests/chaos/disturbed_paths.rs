//! Late, overtaken, doubled and damaged packets: that the network element does it, and that the cluster bears it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use cluster_tests::chaos::faults::Fault;
use cluster_tests::chaos::{Plan, run};
use cluster_tests::clock::{Stopwatch, wait_until};
use cluster_tests::netns::{Disturbance, Host, Network, Way};
use cluster_tests::run_dir::RunDir;

use crate::choice::seed;
use crate::{alone, assert_clean};

/// The four kinds have their turn once.
const DURATION: Duration = Duration::from_secs(16);
const DATAGRAMS: u16 = 400;
const DELAY: Duration = Duration::from_millis(60);
const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn disturbed_paths_lose_nothing() {
    let _alone = alone();
    let dir = RunDir::new("chaos-disturbed-paths");
    let faults = vec![Fault::Delay, Fault::Reorder, Fault::Duplicate, Fault::Corrupt];
    let seed = seed();
    eprintln!("seed {seed}: WEIR_SEED={seed} cargo xtask test -p cluster-tests --test chaos disturbed_paths");
    let verdict = run(dir.path(), &Plan { faults, ..Plan::new(seed, DURATION) });
    if let Err(error) = &verdict
        && error.0.contains("none of the chosen faults is possible")
    {
        eprintln!("NO DISTURBED PATHS ON THIS MACHINE");
        return;
    }
    assert_clean(verdict);
}

/// Two hosts, if this machine has them and lets us disturb their packets.
fn two_hosts(dir: &RunDir) -> Option<(Network, Host, Host)> {
    let made = Network::new(&dir.path().join("mounts")).and_then(|mut network| {
        let (one, two) = (network.add_host()?, network.add_host()?);
        Ok((network, one, two))
    });
    match made {
        Ok(hosts) => hosts.0.can_disturb().then_some(hosts),
        Err(error) => {
            eprintln!("NO DISTURBED PATHS ON THIS MACHINE, because {error}");
            None
        }
    }
}

/// Sends numbered datagrams from one host to another, until `enough` have come; with each the time since it was sent.
fn exchange(
    one: &Host,
    two: &Host,
    enough: impl Fn(&[(Vec<u8>, Duration)]) -> bool,
) -> Vec<(Vec<u8>, Duration)> {
    let bind = |host: &Host| host.inside(|| UdpSocket::bind((host.address, 0))).expect("a port is free");
    let (sender, receiver) = (bind(one), bind(two));
    receiver.set_nonblocking(true).expect("a socket option");
    let to = receiver.local_addr().expect("it is bound");
    let watch = Stopwatch::start();
    let (mut sent_at, mut got) = (Vec::new(), Vec::new());
    for number in 0..DATAGRAMS {
        sent_at.push(watch.elapsed());
        sender.send_to(&datagram(number), to).expect("the bridge takes it");
        // What is sent at once would be held back at once.
        std::thread::sleep(Duration::from_micros(500));
        receive(&receiver, &mut got, &watch, &sent_at);
    }
    let done = wait_until(LIMIT, || {
        receive(&receiver, &mut got, &watch, &sent_at);
        enough(&got).then_some(())
    });
    assert!(done.is_some(), "{} datagrams came", got.len());
    got
}

/// Takes all that has come.
fn receive(from: &UdpSocket, got: &mut Vec<(Vec<u8>, Duration)>, watch: &Stopwatch, sent_at: &[Duration]) {
    let mut bytes = [0; 100];
    loop {
        match from.recv(&mut bytes) {
            Ok(length) => {
                let number = usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
                let sent = sent_at.get(number).copied().unwrap_or_default();
                got.push((bytes[..length].to_vec(), watch.elapsed().saturating_sub(sent)));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => panic!("{error}"),
        }
    }
}

fn datagram(number: u16) -> Vec<u8> {
    number.to_be_bytes().into_iter().cycle().take(64).collect()
}

fn numbers(got: &[(Vec<u8>, Duration)]) -> Vec<u16> {
    got.iter().map(|(bytes, _)| u16::from_be_bytes([bytes[0], bytes[1]])).collect()
}

#[test]
fn an_element_delays_reorders_doubles_and_damages() {
    let _alone = alone();
    let dir = RunDir::new("network-element");
    let Some((network, one, two)) = two_hosts(&dir) else { return };
    let all = usize::from(DATAGRAMS);
    for way in [Way::To, Way::From] {
        // The receiver's or the sender's element: the datagrams go through it either way.
        let host = if way == Way::To { &two } else { &one };
        let disturb = |disturbance| network.disturb(host, way, disturbance, 7).expect("it can be disturbed");
        let calm = || network.calm().expect("it can be undone");

        disturb(Disturbance { delay: DELAY, ..Disturbance::default() });
        let late = exchange(&one, &two, |got| got.len() >= all);
        assert_eq!(numbers(&late), (0..DATAGRAMS).collect::<Vec<_>>(), "{way:?}: their order stays");
        assert!(late.iter().all(|(_, took)| *took >= DELAY), "{way:?}");
        assert!(calm().iter().all(|counts| counts.late >= DATAGRAMS.into()), "{way:?}");

        let held_for = Duration::from_millis(50);
        disturb(Disturbance { held_back: 2_000, held_for, ..Disturbance::default() });
        let mixed = numbers(&exchange(&one, &two, |got| got.len() >= all));
        assert!(!mixed.is_sorted(), "{way:?}");

        disturb(Disturbance { doubled: 2_000, held_back: 0, ..Disturbance::default() });
        let doubled = exchange(&one, &two, |got| {
            let numbers = numbers(got);
            numbers.len() > all + all / 10 && (0..DATAGRAMS).all(|number| numbers.contains(&number))
        });
        assert!(doubled.len() < 2 * all, "{way:?}");
        calm();

        disturb(Disturbance { damaged: 2_000, ..Disturbance::default() });
        let whole = |bytes: &[u8]| datagram(u16::from_be_bytes([bytes[0], bytes[1]])) == bytes;
        let damaged = exchange(&one, &two, |got| got.len() >= all);
        let broken = damaged.iter().filter(|(bytes, _)| !whole(bytes)).count();
        let counts = calm();
        assert_eq!(counts.iter().map(|counts| counts.damaged).sum::<u64>(), broken as u64, "{way:?}");
        assert!(broken > all / 10, "{way:?}: {broken} passed the kernel's checksum");

        let calm_again = exchange(&one, &two, |got| got.len() >= all);
        assert!(calm_again.iter().all(|(bytes, _)| whole(bytes)), "{way:?}");
    }
}

/// Damage of TCP is what its checksum is for: a stream comes whole.
#[test]
fn a_stream_through_an_element_comes_whole() {
    let _alone = alone();
    let dir = RunDir::new("network-element-tcp");
    let Some((network, one, two)) = two_hosts(&dir) else { return };
    let disturbance = Disturbance {
        damaged: 300,
        doubled: 300,
        held_back: 300,
        held_for: DELAY / 3,
        ..Disturbance::default()
    };
    network.disturb(&two, Way::To, disturbance, 8).expect("it can be disturbed");
    let listener = two.inside(|| TcpListener::bind((two.address, 0))).expect("a port is free");
    let to: SocketAddr = listener.local_addr().expect("it is bound");
    let sent: Vec<u8> = (0..500_000_u32).map(|at| (at % 251).to_le_bytes()[0]).collect();
    let got = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut got = Vec::new();
            let (mut stream, _) = listener.accept()?;
            stream.set_read_timeout(Some(LIMIT))?;
            stream.read_to_end(&mut got).map(|_| got)
        });
        let mut client = one.inside(|| TcpStream::connect(to)).expect("it listens");
        client.write_all(&sent).expect("it reads");
        drop(client);
        server.join().expect("it does not panic")
    });
    assert!(got.expect("the stream comes to its end") == sent, "the stream comes whole");
    let counts = network.calm().expect("it can be undone");
    assert!(counts.iter().all(|counts| counts.damaged > 0 && counts.doubled > 0), "{counts:?}");
}
