//! What connections cost in resident memory. One test at a time in a process of its own: others would be counted too.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use kafka_wire::Limits;
use kafka_wire_core::messages::fetch::FetchRequest;
use kafka_wire_core::messages::metadata::MetadataRequest;
use support::{Door, Raw, fetch_kind, fetch_request, open_door};
use tokio::sync::Mutex;

static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Connections of this many clients are measured; both ends are in this process.
const CONNECTIONS: usize = 200;

async fn connect_all(door: &Door) -> Vec<Raw> {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(Raw::connect(door.address).await);
    }
    door.wait_open(CONNECTIONS.try_into().unwrap()).await;
    connections
}

#[tokio::test]
async fn announced_sizes_cost_no_memory() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let door = open_door(Limits { connections_max: CONNECTIONS + 1, ..Limits::default() });
    let before = resident_bytes();
    let mut connections = connect_all(&door).await;
    for raw in &mut connections {
        raw.send_bytes(&[0x06, 0x00, 0x00, 0x00, 1, 2, 3]).await;
    }
    // Served after all others have been read.
    door.assert_alive().await;
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{CONNECTIONS} connections that announce 96 MiB each took {grown} bytes");
}

#[tokio::test]
async fn an_idle_connection_costs_at_most_16_kib() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let door = open_door(Limits::default());
    let before = resident_bytes();
    let mut connections = connect_all(&door).await;
    for (id, raw) in (0..).zip(&mut connections) {
        raw.send(&MetadataRequest::default(), 12, id).await;
        raw.receive::<MetadataRequest>(12, id).await;
        raw.send(&fetch_request(fetch_kind::REGION, 100_000), 12, id).await;
        drop(raw.receive::<FetchRequest>(12, id).await);
    }
    let each = resident_bytes().saturating_sub(before) / CONNECTIONS;
    assert!(each <= 16 << 10, "an idle connection holds {each} bytes, its client included");
    println!("an idle connection holds {each} bytes, its client included");
}
