//! What clients rely on at the door: order, staged requests, silence, addresses, file regions, draining.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::time::Duration;

use kafka_wire::{Client, ClientConfig, HostPort, Limits};
use kafka_wire_core::messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use kafka_wire_core::messages::describe_group_offsets::DescribeGroupOffsetsRequest;
use kafka_wire_core::messages::fetch::FetchRequest;
use kafka_wire_core::messages::metadata::MetadataRequest;
use kafka_wire_core::messages::produce::ProduceRequest;
use kafka_wire_core::{ApiKey, ErrorCode, Message, Request, Str};
use support::{Raw, fetch_kind, fetch_request, frame, open_door, open_door_at, produce_request, records_of};

#[tokio::test]
async fn pipelined_requests_run_one_by_one_and_are_answered_in_order() {
    let door = open_door(Limits::default());
    let mut raw = Raw::connect(door.address).await;
    let mut burst = Vec::new();
    for id in 0..200 {
        burst.extend_from_slice(&frame(&MetadataRequest::default(), 1, id));
    }
    raw.send_bytes(&burst).await;
    for id in 0..200 {
        raw.receive::<MetadataRequest>(1, id).await;
    }
    let expected: Vec<_> = (0..200).flat_map(|id| [format!("begin {id}"), format!("end {id}")]).collect();
    assert_eq!(*door.fake.steps.borrow(), expected);
}

#[tokio::test]
async fn staged_requests_are_queued_while_others_wait_and_are_answered_in_order() {
    let door = open_door(Limits::default());
    let mut raw = Raw::connect(door.address).await;
    for id in 1..=3 {
        raw.send(&produce_request(-1), 9, id).await;
    }
    raw.send(&MetadataRequest::default(), 12, 4).await;
    // All are through before the first is answered.
    door.fake.saw("end 4").await;
    for id in [3, 2] {
        door.fake.release(id);
        door.fake.saw(&format!("answered {id}")).await;
    }
    door.fake.release(1);
    for id in 1..=3 {
        assert_eq!(raw.receive::<ProduceRequest>(9, id).await.throttle_time_ms, id);
    }
    raw.receive::<MetadataRequest>(12, 4).await;
    let queued: Vec<_> =
        door.fake.steps.borrow().iter().filter(|s| s.starts_with("queued")).cloned().collect();
    assert_eq!(queued, ["queued 1", "queued 2", "queued 3"]);
}

#[tokio::test]
async fn no_more_requests_are_taken_than_may_be_in_flight() {
    let door = open_door(Limits { requests_in_flight_max: 2, ..Limits::default() });
    let mut raw = Raw::connect(door.address).await;
    for id in 1..=4 {
        raw.send(&produce_request(1), 9, id).await;
    }
    for id in 1..=4 {
        door.fake.saw(&format!("queued {id}")).await;
        let ahead = format!("queued {}", id + 2);
        assert!(!door.fake.steps.borrow().contains(&ahead), "request {} waits for request {id}", id + 2);
        door.fake.release(id);
        raw.receive::<ProduceRequest>(9, id).await;
    }
}

#[tokio::test]
async fn acks_0_is_silent_and_its_error_closes() {
    let door = open_door(Limits::default());
    let mut raw = Raw::connect(door.address).await;
    raw.send(&produce_request(0), 9, 1).await;
    raw.send(&MetadataRequest::default(), 12, 2).await;
    raw.receive::<MetadataRequest>(12, 2).await;
    let mut failing = produce_request(0);
    failing.transactional_id = Some(Str::from("fail"));
    raw.send(&failing, 9, 3).await;
    raw.expect_closed().await;
    door.assert_alive().await;
}

#[tokio::test]
async fn an_observer_is_told_once_the_answer_is_written_in_its_turn() {
    let door = open_door(Limits::default());
    let mut raw = Raw::connect(door.address).await;
    raw.send(&produce_request(-1), 9, 1).await;
    let mut observed = produce_request(-1);
    observed.transactional_id = Some(Str::from("observe"));
    raw.send(&observed, 9, 2).await;
    door.fake.saw("queued 2").await;
    door.fake.release(2);
    door.fake.saw("answered 2").await;
    // The first request's answer goes before it.
    assert!(!door.fake.steps.borrow().contains(&"written 2".to_owned()));
    door.fake.release(1);
    for id in 1..=2 {
        assert_eq!(raw.receive::<ProduceRequest>(9, id).await.throttle_time_ms, id);
    }
    door.fake.saw("written 2").await;
}

#[tokio::test]
async fn too_new_api_versions_are_answered_in_version_0() {
    let door = open_door(Limits::default());
    let mut raw = Raw::connect(door.address).await;
    for version in [99_i16, -1] {
        let mut request = vec![0, 18];
        request.extend_from_slice(&version.to_be_bytes());
        request.extend_from_slice(&[0, 0, 0, 9, 0xff, 0xff]);
        request.extend_from_slice(if version > 0 { &[0, 0xde, 0xad] } else { &[] });
        raw.send_bytes(&u32::try_from(request.len()).unwrap().to_be_bytes()).await;
        raw.send_bytes(&request).await;
        let max = u8::try_from(*ApiVersionsRequest::VERSIONS.end()).unwrap();
        let expected = [0, 0, 0, 9, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, max];
        assert_eq!(raw.receive_frame().await.unwrap(), &expected[..], "version {version}");
    }
    // The connection goes on.
    raw.send(&MetadataRequest::default(), 12, 1).await;
    raw.receive::<MetadataRequest>(12, 1).await;
}

fn api_versions_request(name: &str) -> ApiVersionsRequest {
    ApiVersionsRequest {
        client_software_name: Str::from(name),
        client_software_version: Str::from("1.0"),
        ..ApiVersionsRequest::default()
    }
}

#[tokio::test]
async fn api_versions_come_from_the_table() {
    let door = open_door(Limits::default());
    let mut raw = Raw::connect(door.address).await;
    for version in [0, 1, 2, 3, 4] {
        let request = if version < 3 { ApiVersionsRequest::default() } else { api_versions_request("a-b.c") };
        raw.send(&request, version, 5).await;
        let response: ApiVersionsResponse = raw.receive::<ApiVersionsRequest>(version, 5).await;
        let ranges: Vec<_> =
            response.api_keys.iter().map(|k| (k.api_key, k.min_version, k.max_version)).collect();
        let own_max = *ApiVersionsRequest::VERSIONS.end();
        assert_eq!(ranges, [(0, 0, 13), (1, 4, 17), (3, 0, 13), (18, 0, own_max)]);
    }
    raw.send(&MetadataRequest::default(), 12, 6).await;
    let response = raw.receive::<MetadataRequest>(12, 6).await;
    assert_eq!(response.cluster_id.as_deref(), Some("a-b.c"), "the software's name is kept");
}

#[tokio::test]
async fn own_apis_are_told_to_own_clients_alone() {
    let door = open_door(Limits::default());
    let mut raw = Raw::connect(door.address).await;
    let key = DescribeGroupOffsetsRequest::KEY.code();
    let ask = DescribeGroupOffsetsRequest { group_id: "g".into() };
    for (name, told) in [("apache-kafka-java", false), ("weir", true), ("weird", false)] {
        raw.send(&api_versions_request(name), 4, 5).await;
        let response = raw.receive::<ApiVersionsRequest>(4, 5).await;
        assert_eq!(response.api_keys.iter().any(|entry| entry.api_key == key), told, "{name}");
    }
    // Without a name there is none.
    raw.send(&ApiVersionsRequest::default(), 0, 6).await;
    let response = raw.receive::<ApiVersionsRequest>(0, 6).await;
    assert!(response.api_keys.iter().all(|entry| entry.api_key < ApiKey::OWN_MIN));
    let client = Client::connect(ClientConfig::new(vec![HostPort::new("127.0.0.1", door.address.port())]))
        .await
        .unwrap();
    assert_eq!(client.call(&ask).await.unwrap().topics[0].name, "g");
}

#[tokio::test]
async fn a_bad_software_name_is_an_invalid_request() {
    let door = open_door(Limits::default());
    let mut raw = Raw::connect(door.address).await;
    raw.send(&api_versions_request("bad name"), 3, 5).await;
    let response = raw.receive::<ApiVersionsRequest>(3, 5).await;
    assert_eq!((response.error_code, response.api_keys.len()), (ErrorCode::InvalidRequest, 0));
}

#[tokio::test]
async fn a_client_that_means_another_node_is_sent_away() {
    let door = open_door(Limits::default());
    let mut raw = Raw::connect(door.address).await;
    let cases = [
        (Some("cluster"), 1, ErrorCode::None),
        (None, 7, ErrorCode::None),
        (Some("cluster"), 7, ErrorCode::RebootstrapRequired),
        (Some("other"), 1, ErrorCode::RebootstrapRequired),
    ];
    for (cluster_id, node_id, expected) in cases {
        let request = ApiVersionsRequest {
            cluster_id: cluster_id.map(Str::from),
            node_id,
            ..api_versions_request("a")
        };
        raw.send(&request, 5, 5).await;
        assert_eq!(raw.receive::<ApiVersionsRequest>(5, 5).await.error_code, expected);
    }
}

#[tokio::test]
async fn features_are_told_in_versions_that_understand_them() {
    let door = open_door(Limits::default());
    let mut raw = Raw::connect(door.address).await;
    for (version, supported, epoch) in [(2, 0, -1), (3, 1, 7), (4, 2, 7)] {
        raw.send(&api_versions_request("a"), version, 5).await;
        let response = raw.receive::<ApiVersionsRequest>(version, 5).await;
        assert_eq!(response.supported_features.len(), supported);
        assert_eq!(response.finalized_features_epoch, epoch);
    }
}

#[tokio::test]
async fn announced_produce_versions_below_the_table_close_the_connection() {
    let door = open_door(Limits::default());
    let mut raw = Raw::connect(door.address).await;
    let key = ApiKey::Produce.code().to_be_bytes();
    raw.send_bytes(&[0, 0, 0, 10, key[0], key[1], 0, 2, 0, 0, 0, 1, 0xff, 0xff]).await;
    raw.expect_closed().await;
}

#[tokio::test]
async fn each_listener_tells_its_own_address_on_ipv4_and_ipv6() {
    let mut named = support::listener("NAMED", "127.0.0.1:0");
    named.advertised = Some(HostPort::new("broker.example", 19092));
    let listeners = [support::listener("V4", "127.0.0.1:0"), support::listener("V6", "[::1]:0"), named];
    let door = open_door_at(Limits::default(), &listeners);
    let expected = ["127.0.0.1", "::1", "broker.example"];
    for (info, host) in door.server.listeners().iter().zip(expected) {
        let mut raw = Raw::connect(info.bound).await;
        raw.send(&MetadataRequest::default(), 12, 1).await;
        let response = raw.receive::<MetadataRequest>(12, 1).await;
        assert_eq!(&*response.brokers[0].host, host);
        let port = if host == "broker.example" { 19092 } else { info.bound.port() };
        assert_eq!(response.brokers[0].port, i32::from(port));
    }
}

#[tokio::test]
async fn regions_are_sent_as_the_bytes_of_the_file() {
    let door = open_door(Limits::default());
    let mut raw = Raw::connect(door.address).await;
    for (id, len) in (0..).zip([0, 1, 25, 65_536, 262_144, 262_145, 3_000_001]) {
        let expected = &door.fake.file_bytes[1000..1000 + len];
        let kinds: &[i32] = if len >= 25 { &[0, 1, 2] } else { &[0, 1] };
        for kind in kinds {
            raw.send(&fetch_request(*kind, len), 12, id).await;
            let response = raw.receive::<FetchRequest>(12, id).await;
            assert!(records_of(&response) == expected, "kind {kind}, {len} bytes");
        }
    }
}

#[tokio::test]
async fn cold_regions_are_read_by_a_thread_first() {
    let door = open_door(Limits::default());
    door.fake.file.sync_all().unwrap();
    rustix::fs::fadvise(&*door.fake.file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut raw = Raw::connect(door.address).await;
    raw.send(&fetch_request(fetch_kind::REGION, 3_000_000), 12, 1).await;
    let response = raw.receive::<FetchRequest>(12, 1).await;
    assert!(records_of(&response) == &door.fake.file_bytes[1000..3_001_000]);
    assert!(door.metrics.cold_reads() > 0, "the build directory must be on a disk for this test");
}

#[tokio::test]
async fn a_file_that_is_too_short_closes_the_connection() {
    let door = open_door(Limits::default());
    for kind in [fetch_kind::SHORT_FILE, fetch_kind::NOT_A_FILE, fetch_kind::CANNOT_ENCODE] {
        let mut raw = Raw::connect(door.address).await;
        raw.send(&fetch_request(kind, 1000), 12, 1).await;
        raw.expect_closed().await;
    }
    door.assert_alive().await;
}

#[tokio::test]
async fn the_largest_budget_of_request_memory_can_be_served() {
    let door = open_door(Limits { request_memory_bytes_max: usize::MAX, ..Limits::default() });
    door.assert_alive().await;
}

#[tokio::test]
async fn a_panic_ends_its_own_connection_only() {
    let door = open_door(Limits::default());
    let mut other = Raw::connect(door.address).await;
    let mut raw = Raw::connect(door.address).await;
    raw.send(&fetch_request(fetch_kind::PANIC, 0), 12, 1).await;
    raw.expect_closed().await;
    assert_eq!(door.metrics.handler_panics(), 1);
    other.send(&MetadataRequest::default(), 12, 1).await;
    other.receive::<MetadataRequest>(12, 1).await;
}

#[tokio::test]
async fn a_long_poll_ends_when_its_client_is_gone() {
    let limits = Limits { half_closed_grace: Duration::from_millis(50), ..Limits::default() };
    let door = open_door(limits);
    let mut raw = Raw::connect(door.address).await;
    raw.send(&fetch_request(fetch_kind::FOREVER, 0), 12, 1).await;
    // Requests behind it must not be taken for the end of the client.
    raw.send(&MetadataRequest::default(), 12, 2).await;
    door.fake.saw("polling 1").await;
    assert!(!door.fake.steps.borrow().iter().any(|step| step == "dropped 1"));
    drop(raw);
    door.fake.saw("dropped 1").await;
    door.wait_open(0).await;
}

#[tokio::test]
async fn what_was_sent_before_the_client_closed_its_side_is_answered() {
    let door = open_door(Limits::default());
    let mut raw = Raw::connect(door.address).await;
    raw.send(&produce_request(1), 9, 1).await;
    raw.send(&MetadataRequest::default(), 12, 2).await;
    tokio::io::AsyncWriteExt::shutdown(&mut raw.0).await.unwrap();
    door.fake.saw("end 2").await;
    door.fake.release(1);
    raw.receive::<ProduceRequest>(9, 1).await;
    raw.receive::<MetadataRequest>(12, 2).await;
    raw.expect_closed().await;
}

#[tokio::test]
async fn a_drain_answers_what_is_in_flight() {
    let door = open_door(Limits::default());
    let mut polling = Raw::connect(door.address).await;
    polling.send(&fetch_request(fetch_kind::UNTIL_DRAIN, 0), 12, 1).await;
    let mut producing = Raw::connect(door.address).await;
    producing.send(&produce_request(-1), 9, 2).await;
    let mut idle = Raw::connect(door.address).await;
    door.fake.saw("polling 1").await;
    door.fake.saw("queued 2").await;
    door.wait_open(3).await;
    let stopping = tokio::spawn(door.server.shutdown());
    polling.receive::<FetchRequest>(12, 1).await;
    polling.expect_closed().await;
    idle.expect_closed().await;
    door.fake.release(2);
    producing.receive::<ProduceRequest>(9, 2).await;
    producing.expect_closed().await;
    stopping.await.unwrap();
    assert!(tokio::net::TcpStream::connect(door.address).await.is_err(), "nothing listens any more");
}

#[tokio::test]
async fn a_drain_is_bounded() {
    let door = open_door(Limits { drain_max: Duration::from_millis(50), ..Limits::default() });
    let mut raw = Raw::connect(door.address).await;
    raw.send(&produce_request(-1), 9, 1).await;
    door.fake.saw("queued 1").await;
    tokio::time::timeout(support::PATIENCE, door.server.shutdown()).await.unwrap();
    raw.expect_closed().await;
    assert_eq!(door.metrics.connections_open(), 0);
}

#[tokio::test]
async fn the_client_negotiates_calls_and_finds_nodes() {
    let door = open_door(Limits::default());
    let address = HostPort::new("127.0.0.1", door.address.port());
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = ClientConfig::new(vec![HostPort::new("127.0.0.1", nobody), address.clone()]);
    let client = Client::connect(config).await.unwrap();
    assert_eq!(client.any().await.unwrap().version::<MetadataRequest>().unwrap(), 13);
    assert_eq!(client.controller().await.unwrap(), 1);
    let nodes = client.cluster_nodes().await.unwrap();
    assert_eq!((nodes[0].id, &nodes[0].address), (1, &address));
    let response = client.call_node(1, &MetadataRequest::default()).await.unwrap();
    assert_eq!(response.cluster_id.as_deref(), Some("weir"));
    let unknown = client.call_node(7, &MetadataRequest::default()).await.unwrap_err();
    assert_eq!(unknown.to_string(), "node 7 is not in the cluster");
    let lost = client.leader("t", 0).await.unwrap_err();
    assert_eq!(lost.to_string(), "find the leader of t-0: UNKNOWN_TOPIC_OR_PARTITION");
    let error =
        Client::connect(ClientConfig::new(vec![HostPort::new("127.0.0.1", nobody)])).await.unwrap_err();
    assert!(error.is_unreachable(), "{error}");
}

#[tokio::test]
async fn a_client_call_that_times_out_gives_its_connection_up() {
    let door = open_door(Limits::default());
    let mut config = ClientConfig::new(vec![HostPort::new("127.0.0.1", door.address.port())]);
    config.request_timeout = Duration::from_secs(2);
    let client = Client::connect(config).await.unwrap();
    let error = client.call(&fetch_request(fetch_kind::FOREVER, 0)).await.unwrap_err();
    assert!(error.to_string().contains("did not answer Fetch within 2s"), "{error}");
    // The next call takes a new connection; it must not see the late answer.
    client.call(&MetadataRequest::default()).await.unwrap();
}
