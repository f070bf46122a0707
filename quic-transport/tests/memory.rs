//! The network in memory: loss, partition and crash, decided by the seed.

use bytes::Bytes;
use quic_transport::memory::{MemoryEndpoint, MemoryNetwork, MemoryNetworkConfig};
use quic_transport::testing::TestCluster;
use quic_transport::{
    CallError, FrameError, Limits, MessageKind, Peer, PeerTarget, Role, Roles, Router, Transport,
    TransportMetrics,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::time::Instant;

const CALL: MessageKind = MessageKind::Controller;
const FEED: MessageKind = MessageKind::MetadataFeed;
const SECOND: Duration = Duration::from_secs(1);

fn address(node_id: u64) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, node_id as u16))
}

fn endpoint(network: &MemoryNetwork, node_id: u64) -> MemoryEndpoint {
    let everybody = Roles::of(&Role::ALL);
    let router = Router::builder()
        .call(CALL, everybody, |call| async move {
            if &call.body[..] == b"slow" {
                tokio::time::sleep(SECOND * 10).await;
            }
            Ok(call.body)
        })
        .stream(FEED, everybody, |_call, mut sender, mut receiver| async move {
            while let Ok(Some(frame)) = receiver.recv().await {
                if sender.send(frame).await.is_err() {
                    return;
                }
            }
        })
        .build();
    let identity = TestCluster::new("memory").identity(Role::Controller, node_id);
    let metrics = TransportMetrics::unregistered();
    network.endpoint(identity, address(node_id), router, Limits::default(), metrics).expect("valid limits")
}

fn peer(from: &MemoryEndpoint, node_id: u64) -> Peer {
    let identity = TestCluster::new("memory").identity(Role::Controller, node_id);
    from.peer(PeerTarget::new(address(node_id), identity))
}

/// What becomes of 200 calls on a bad network, with the time of each.
async fn story(seed: u64) -> Vec<(Duration, bool)> {
    let config = MemoryNetworkConfig {
        seed,
        delay_min: Duration::from_millis(1),
        delay_max: Duration::from_millis(50),
        loss: 0.1,
        ..MemoryNetworkConfig::default()
    };
    let network = MemoryNetwork::new(config);
    let (one, _two) = (endpoint(&network, 1), endpoint(&network, 2));
    let peer = peer(&one, 2);
    let begun = Instant::now();
    let mut calls = Vec::new();
    for _ in 0..200 {
        let answer = peer.call(CALL, Bytes::new(), SECOND).await;
        assert!(matches!(answer, Ok(_) | Err(CallError::Timeout)), "{answer:?}");
        calls.push((begun.elapsed(), answer.is_ok()));
    }
    calls
}

#[tokio::test(start_paused = true)]
async fn the_seed_decides_delay_and_loss() {
    let first = story(1).await;
    assert_eq!(first, story(1).await);
    assert_ne!(first, story(2).await);
    let lost = first.iter().filter(|(_, answered)| !answered).count();
    // Two ways per call, one in ten lost on each.
    assert!((15..65).contains(&lost), "{lost} of 200 lost");
}

#[tokio::test(start_paused = true)]
async fn a_partition_cuts_calls_and_streams_until_it_heals() {
    let network = MemoryNetwork::new(MemoryNetworkConfig::default());
    let (one, _two, _three) = (endpoint(&network, 1), endpoint(&network, 2), endpoint(&network, 3));
    let (to_two, to_three) = (peer(&one, 2), peer(&one, 3));
    let (_sender, mut receiver) = to_two.open_stream(FEED, Bytes::new(), SECOND).await.expect("opened");
    let slow = to_two.clone();
    let slow = tokio::spawn(async move { slow.call(CALL, "slow".into(), SECOND * 20).await });
    tokio::time::sleep(SECOND).await;
    network.partition(address(2), address(1));
    assert!(matches!(receiver.recv().await, Err(FrameError::Closed { .. })));
    assert_eq!(slow.await.expect("no panic"), Err(CallError::Timeout), "its reply does not come back");
    let error = to_two.call(CALL, Bytes::new(), SECOND).await.expect_err("cut");
    assert!(matches!(error, CallError::Unreachable { .. }), "{error:?}");
    assert!(to_three.call(CALL, Bytes::new(), SECOND).await.is_ok());
    let waiting = to_two.clone();
    let waiting = tokio::spawn(async move { waiting.call(CALL, Bytes::new(), SECOND * 5).await });
    tokio::time::sleep(SECOND).await;
    network.heal(address(1), address(2));
    assert_eq!(waiting.await.expect("no panic"), Ok(Bytes::new()));
}

#[tokio::test(start_paused = true)]
async fn a_crash_ends_what_is_in_progress_and_a_new_endpoint_takes_over() {
    let network = MemoryNetwork::new(MemoryNetworkConfig::default());
    let (one, _two) = (endpoint(&network, 1), endpoint(&network, 2));
    let peer = peer(&one, 2);
    let (mut sender, mut receiver) = peer.open_stream(FEED, Bytes::new(), SECOND).await.expect("opened");
    sender.send("x".into()).await.expect("sent");
    assert_eq!(receiver.recv().await, Ok(Some("x".into())));
    let slow = peer.clone();
    let slow = tokio::spawn(async move { slow.call(CALL, "slow".into(), SECOND * 20).await });
    tokio::time::sleep(SECOND).await;
    network.crash(address(2));
    assert!(matches!(slow.await.expect("no panic"), Err(CallError::Closed { .. })));
    assert!(matches!(receiver.recv().await, Err(FrameError::Closed { .. })));
    let error = peer.call(CALL, Bytes::new(), SECOND).await.expect_err("nobody there");
    assert!(matches!(error, CallError::Unreachable { .. }), "{error:?}");
    let _again = endpoint(&network, 2);
    assert_eq!(peer.call(CALL, Bytes::new(), SECOND).await, Ok(Bytes::new()));
}
