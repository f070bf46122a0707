//! Clients that mean ill or are broken: each loses its own connection, and nobody else notices.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::time::Duration;

use kafka_wire::Limits;
use kafka_wire_core::ApiKey;
use kafka_wire_core::messages::fetch::FetchRequest;
use kafka_wire_core::messages::metadata::MetadataRequest;
use kafka_wire_core::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use kafka_wire_core::{Records, Str};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use support::{Raw, fetch_kind, fetch_request, frame, open_door, produce_request};
use tokio::io::AsyncWriteExt;

#[tokio::test]
async fn impossible_sizes_close_at_once() {
    let door = open_door(Limits { frame_bytes_max: 1 << 20, ..Limits::default() });
    for size in [(1 << 20) + 1, i32::MAX, -1, i32::MIN] {
        let mut raw = Raw::connect(door.address).await;
        raw.send_bytes(&size.to_be_bytes()).await;
        raw.expect_closed().await;
    }
    door.assert_alive().await;
}

#[tokio::test]
async fn garbage_unknown_keys_and_unknown_versions_close() {
    let door = open_door(Limits::default());
    let header = |key: i16, version: i16| {
        let mut bytes = vec![0, 0, 0, 10];
        bytes.extend_from_slice(&key.to_be_bytes());
        bytes.extend_from_slice(&version.to_be_bytes());
        bytes.extend_from_slice(&[0, 0, 0, 1, 0xff, 0xff]);
        bytes
    };
    let cases: &[Vec<u8>] = &[
        header(ApiKey::Metadata.code(), 99),
        header(ApiKey::Metadata.code(), -1),
        header(ApiKey::JoinGroup.code(), 5),
        header(9999, 0),
        header(10_001, 0),
        header(-7, 0),
        // A body that ends early. (One that goes on too long is served: Kafka ignores the rest.)
        header(ApiKey::Fetch.code(), 4),
        vec![0, 0, 0, 0],
        vec![0, 0, 0, 3, 1, 2, 3],
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        [&[0x16, 0x03, 0x01, 0x02, 0x00][..], &[0x01; 600]].concat(),
    ];
    for (index, case) in cases.iter().enumerate() {
        let mut raw = Raw::connect(door.address).await;
        raw.send_bytes(case).await;
        assert_eq!(raw.receive_frame().await, None, "case {index}");
    }
    door.assert_alive().await;
}

#[tokio::test]
async fn what_came_before_garbage_is_answered_first() {
    let door = open_door(Limits::default());
    let mut raw = Raw::connect(door.address).await;
    let mut bytes = frame(&MetadataRequest::default(), 12, 1).to_vec();
    bytes.extend_from_slice(&[0xff; 4]);
    raw.send_bytes(&bytes).await;
    raw.receive::<MetadataRequest>(12, 1).await;
    raw.expect_closed().await;
}

#[tokio::test]
async fn half_a_frame_is_no_request() {
    let door = open_door(Limits::default());
    let whole = frame(&MetadataRequest::default(), 12, 1);
    for length in 0..whole.len() {
        let mut raw = Raw::connect(door.address).await;
        raw.send_bytes(&whole[..length]).await;
        raw.0.shutdown().await.unwrap();
        raw.expect_closed().await;
    }
    assert_eq!(*door.fake.steps.borrow(), Vec::<String>::new());
    // The same frame, byte by byte, is one.
    let mut raw = Raw::connect(door.address).await;
    for byte in whole {
        raw.send_bytes(&[byte]).await;
    }
    raw.receive::<MetadataRequest>(12, 1).await;
}

#[tokio::test]
async fn a_frame_that_drips_is_closed() {
    let door = open_door(Limits { frame_read_max: Duration::from_millis(150), ..Limits::default() });
    let mut silent = Raw::connect(door.address).await;
    silent.send_bytes(&[0, 0, 1]).await;
    let mut dripping = Raw::connect(door.address).await;
    dripping.send_bytes(&[0, 0, 100, 0]).await;
    let drip = async {
        // The write fails once the server has closed.
        while dripping.0.write_all(&[0]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(support::PATIENCE, drip).await.unwrap();
    silent.expect_closed().await;
    let mut large = Raw::connect(door.address).await;
    large.send_bytes(&[0, 0x10, 0, 0]).await;
    large.send_bytes(&[0; 100_000]).await;
    large.expect_closed().await;
    door.wait_open(0).await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_but_not_one_that_waits_for_its_answer() {
    let door = open_door(Limits { idle_max: Duration::from_millis(100), ..Limits::default() });
    let mut waiting = Raw::connect(door.address).await;
    waiting.send(&produce_request(-1), 9, 1).await;
    door.fake.saw("queued 1").await;
    let mut idle = Raw::connect(door.address).await;
    idle.expect_closed().await;
    door.fake.release(1);
    waiting.receive::<ProduceRequest>(9, 1).await;
    waiting.expect_closed().await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_closed() {
    let limits = Limits { write_stall_max: Duration::from_millis(200), ..Limits::default() };
    let door = open_door(limits);
    for kind in [fetch_kind::BYTES, fetch_kind::REGION] {
        let mut raw = Raw::connect(door.address).await;
        for id in 0..20 {
            raw.send(&fetch_request(kind, 4 << 20), 12, id).await;
        }
        door.wait_open(0).await;
    }
}

#[tokio::test]
async fn responses_that_nobody_reads_hold_the_next_request_back() {
    let limits = Limits { response_backlog_bytes_max: 100_000, ..Limits::default() };
    let door = open_door(limits);
    let mut raw = Raw::connect(door.address).await;
    for id in 0..40 {
        raw.send(&fetch_request(fetch_kind::BYTES, 4 << 20), 12, id).await;
        raw.send(&MetadataRequest::default(), 12, 1000 + id).await;
    }
    for id in 0..40 {
        let ahead = format!("begin {}", 1000 + id + 8);
        assert!(!door.fake.steps.borrow().contains(&ahead), "request {id} is not yet read");
        raw.receive::<FetchRequest>(12, id).await;
        raw.receive::<MetadataRequest>(12, 1000 + id).await;
    }
}

fn large_produce(bytes: usize) -> ProduceRequest {
    ProduceRequest {
        topic_data: vec![TopicProduceData {
            name: Str::from("t"),
            partition_data: vec![PartitionProduceData {
                records: Some(Records::Bytes(vec![0; bytes].into())),
                ..PartitionProduceData::default()
            }],
            ..TopicProduceData::default()
        }],
        ..produce_request(-1)
    }
}

#[tokio::test]
async fn requests_wait_for_memory_and_the_wait_is_bounded() {
    let limits = Limits {
        frame_bytes_max: 1 << 20,
        request_memory_bytes_max: 1 << 20,
        memory_wait_max: Duration::from_millis(200),
        ..Limits::default()
    };
    let door = open_door(limits);
    let mut holder = Raw::connect(door.address).await;
    holder.send(&large_produce(900_000), 9, 1).await;
    door.fake.saw("queued 1").await;
    let mut refused = Raw::connect(door.address).await;
    let late = frame(&large_produce(900_000), 9, 2);
    // The server reads the beginning only; the rest waits in the sockets, and may be refused with a reset.
    drop(refused.0.write_all(&late).await);
    refused.expect_closed().await;
    assert!(!door.fake.steps.borrow().contains(&"queued 2".to_owned()));
    door.fake.release(1);
    holder.receive::<ProduceRequest>(9, 1).await;
    holder.send(&large_produce(900_000), 9, 3).await;
    door.fake.saw("queued 3").await;
    door.fake.release(3);
    holder.receive::<ProduceRequest>(9, 3).await;
}

#[tokio::test]
async fn connections_over_a_limit_are_closed_at_once() {
    let door = open_door(Limits { connections_per_ip_max: 2, ..Limits::default() });
    let first = Raw::connect(door.address).await;
    let _second = Raw::connect(door.address).await;
    door.wait_open(2).await;
    Raw::connect(door.address).await.expect_closed().await;
    drop(first);
    door.wait_open(1).await;
    door.assert_alive().await;
}

/// Bytes of one hostile client: noise, noise in frames, requests with noise for bodies, damaged requests.
fn hostile_stream(rng: &mut StdRng) -> Vec<u8> {
    let metadata = MetadataRequest { topics: Some(Vec::new()), ..MetadataRequest::default() };
    let mut bytes = Vec::new();
    for _ in 0..rng.random_range(1..20) {
        let mut noise = vec![0; rng.random_range(0..600)];
        rng.fill(&mut noise[..]);
        match rng.random_range(0..4) {
            0 => bytes.extend_from_slice(&noise),
            1 => {
                bytes.extend_from_slice(&u32::try_from(noise.len()).unwrap().to_be_bytes());
                bytes.extend_from_slice(&noise);
            }
            2 => {
                let key = [ApiKey::Produce, ApiKey::Fetch, ApiKey::Metadata, ApiKey::ApiVersions]
                    [rng.random_range(0..4)];
                bytes.extend_from_slice(&u32::try_from(noise.len() + 8).unwrap().to_be_bytes());
                bytes.extend_from_slice(&key.code().to_be_bytes());
                bytes.extend_from_slice(&rng.random_range(-1..15_i16).to_be_bytes());
                bytes.extend_from_slice(&rng.random::<i32>().to_be_bytes());
                bytes.extend_from_slice(&noise);
            }
            _ => {
                let mut request = frame(&metadata, rng.random_range(0..13), 1).to_vec();
                let at = rng.random_range(0..request.len());
                request[at] ^= 1 << rng.random_range(0..8);
                bytes.extend_from_slice(&request);
            }
        }
    }
    bytes
}

#[tokio::test]
async fn hostile_streams_never_stop_the_server() {
    let fixed = std::env::var("WEIR_SEED").ok().map(|seed| seed.parse::<u64>().unwrap());
    let limits = Limits { frame_read_max: Duration::from_millis(500), ..Limits::default() };
    let door = open_door(limits);
    let mut witness = Raw::connect(door.address).await;
    for seed in fixed.map_or(0..100, |seed| seed..seed + 1) {
        let stream = hostile_stream(&mut StdRng::seed_from_u64(seed));
        let mut raw = Raw::connect(door.address).await;
        // It may be closed before all is written; answers to what happens to be valid are thrown away.
        let (mut from, mut to) = raw.0.split();
        let write = async {
            drop(to.write_all(&stream).await);
            drop(to.shutdown().await);
        };
        let mut nowhere = tokio::io::sink();
        let read = tokio::io::copy(&mut from, &mut nowhere);
        let both = async { tokio::join!(write, read) };
        let repeat = format!("repeat with WEIR_SEED={seed} cargo test -p kafka-wire hostile_streams");
        assert!(tokio::time::timeout(support::PATIENCE, both).await.is_ok(), "the end is missing: {repeat}");
        witness.send(&MetadataRequest::default(), 12, 7).await;
        witness.receive::<MetadataRequest>(12, 7).await;
        assert_eq!(door.metrics.handler_panics(), 0, "{repeat}");
    }
}
