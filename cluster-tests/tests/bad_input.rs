//! What no well-behaved client sends: the connection that sent it is closed or gets Kafka's error, and nobody else notices.

mod raw_connection;

use bytes::Bytes;
use cluster_tests::clients::{kafka_tool, kcat_read};
use cluster_tests::clock::unix_ms;
use cluster_tests::local_cluster::Subject;
use cluster_tests::moments::Moments;
use kafka_wire_core::messages::api_versions::ApiVersionsRequest;
use kafka_wire_core::messages::metadata::MetadataRequest;
use kafka_wire_core::messages::produce::{
    PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData,
};
use kafka_wire_core::{ErrorCode, Records};
use raw_connection::{RawConnection, frame};
use records::BatchBuilder;

/// Sends `bytes` on a connection of its own, which must be closed without an answer, while `witness` is served.
fn assert_closes(at: &str, witness: &mut RawConnection, what: &str, bytes: &[u8]) {
    let mut bad = RawConnection::open(at);
    bad.send(bytes);
    assert_eq!(bad.receive(), None, "{what} must close the connection");
    witness.assert_alive();
}

/// A frame with its length in front.
fn framed(body: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(body.len()).expect("small").to_be_bytes().to_vec();
    bytes.extend_from_slice(body);
    bytes
}

/// API key, version, correlation id, no client id; then whatever the test wants.
fn request(key: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut bytes = [&key.to_be_bytes()[..], &version.to_be_bytes(), &[0, 0, 0, 1], &[0xff, 0xff]].concat();
    bytes.extend_from_slice(body);
    framed(&bytes)
}

#[test]
fn malformed_frames_close_their_own_connection_only() {
    let subject = Subject::start("malformed_frames");
    let at = subject.bootstrap();
    let mut witness = RawConnection::open(&at);
    witness.assert_alive();

    assert_closes(&at, &mut witness, "a frame of 2 GiB", &[0x7f, 0xff, 0xff, 0xff, 0, 3]);
    assert_closes(&at, &mut witness, "a negative length", &[0xff, 0xff, 0xff, 0xff]);
    let too_large = (100 * 1024 * 1024 + 1_u32).to_be_bytes();
    assert_closes(&at, &mut witness, "a frame above socket.request.max.bytes", &too_large);
    assert_closes(&at, &mut witness, "an unknown API", &request(9_999, 0, &[]));
    assert_closes(&at, &mut witness, "an API of brokers only", &request(4, 0, &[0; 20]));
    assert_closes(&at, &mut witness, "an unknown version", &request(3, 99, &[0]));
    assert_closes(&at, &mut witness, "a negative version", &request(3, -1, &[0]));
    assert_closes(&at, &mut witness, "a header cut short", &framed(&[0, 3, 0]));
    // Metadata v1 announces 2,147,483,647 topics and sends none.
    assert_closes(&at, &mut witness, "an array that is not there", &request(3, 1, &[0x7f, 0xff, 0xff, 0xff]));
    // Produce v9 announces a compact array of 4 billion topics.
    let body = [0, 0, 0, 0xff, 0xff, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0x0f];
    assert_closes(&at, &mut witness, "a compact array that is not there", &request(0, 9, &body));
    assert_closes(&at, &mut witness, "another protocol", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

#[test]
fn random_bytes_harm_nobody() {
    let subject = Subject::start("random_bytes");
    let at = subject.bootstrap();
    let mut witness = RawConnection::open(&at);
    let mut random = Moments::from_env("random_bytes_harm_nobody");
    for _ in 0..60 {
        let length = usize::try_from(random.next_number() % 300).expect("small") + 8;
        let mut bytes: Vec<u8> = (0..length).map(|_| random.next_number().to_be_bytes()[0]).collect();
        // Half of them look like requests to an API that exists, so that they get further than the header.
        if random.next_number().is_multiple_of(2) {
            bytes = request(
                i16::try_from(random.next_number() % 61).expect("small"),
                i16::try_from(random.next_number() % 10).expect("small"),
                &bytes,
            );
        }
        // Some are by chance good requests, or the beginning of a long frame: answered, or waited for.
        RawConnection::open(&at).send(&bytes);
        witness.assert_alive();
    }
}

#[test]
fn half_frames_are_waited_for_and_cost_little() {
    let subject = Subject::start("half_frames");
    let at = subject.bootstrap();
    let mut witness = RawConnection::open(&at);
    let whole = frame(&MetadataRequest::default(), 9);
    let (first, rest) = whole.split_at(whole.len() / 2);
    let mut slow = RawConnection::open(&at);
    slow.send(first);
    // Two hundred clients announce 100 MiB each and send a few bytes of it. (Apache Kafka allocates what is announced, and
    // fails this test.)
    let announced = (100 * 1024 * 1024_u32).to_be_bytes();
    let waiting: Vec<RawConnection> = (0..200)
        .map(|_| {
            let mut connection = RawConnection::open(&at);
            connection.send(&[&announced[..], &[0, 3, 0, 9]].concat());
            connection
        })
        .collect();
    for _ in 0..20 {
        witness.assert_alive();
    }
    slow.send(rest);
    assert!(slow.receive().is_some(), "a frame in two pieces is a frame");
    drop(waiting);
    witness.assert_alive();
}

#[test]
fn a_client_from_the_future_learns_what_is_served() {
    let subject = Subject::start("future_client");
    let mut client = RawConnection::open(&subject.bootstrap());
    // ApiVersions v99: answered in version 0 with error 35 and the range of ApiVersions at least.
    client.send(&request(18, 99, &[0, 4, b'n', b'e', b'w', 2, b'1', 0]));
    let answer = client.receive().expect("ApiVersions is always answered");
    assert_eq!(&answer[..6], &[0, 0, 0, 1, 0, 35]);
    assert!(answer.len() >= 6 + 4 + 6, "{answer:?}");
    client.assert_alive();
    // Names that no client library has are refused, not logged as they are.
    let odd = ApiVersionsRequest {
        client_software_name: "bad\nname".into(),
        client_software_version: "1".into(),
        ..ApiVersionsRequest::default()
    };
    let response = client.call(&odd, 3).expect("answered");
    assert_eq!(response.error_code, ErrorCode::InvalidRequest);
}

fn create(at: &str, topic: &str) {
    kafka_tool("kafka-topics", at, &["--create", "--topic", topic, "--partitions", "1"], b"");
}

fn produce_request(topic: &str, acks: i16, batch: Vec<u8>) -> ProduceRequest {
    ProduceRequest {
        acks,
        timeout_ms: 10_000,
        topic_data: vec![TopicProduceData {
            name: topic.into(),
            partition_data: vec![PartitionProduceData {
                index: 0,
                records: Some(Records::Bytes(Bytes::from(batch))),
            }],
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    }
}

fn produce(client: &mut RawConnection, topic: &str, batch: Vec<u8>) -> PartitionProduceResponse {
    let mut response = client.call(&produce_request(topic, -1, batch), 9).expect("answered");
    response.responses.remove(0).partition_responses.remove(0)
}

fn batch(values: &[&str]) -> BatchBuilder {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.push(unix_ms(), Some(b"key"), Some(value.as_bytes()), &[]).expect("small");
    }
    builder
}

/// A good batch with one byte changed; the checksum is made right again if `reseal` says so.
fn changed(offset: usize, byte: u8, reseal: bool) -> Vec<u8> {
    let mut bytes = batch(&["one", "two"]).build();
    bytes[offset] ^= byte;
    if reseal {
        let crc = records::compute_crc(&bytes);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    }
    bytes
}

#[test]
fn bad_batches_get_kafkas_errors_and_leave_no_trace() {
    let subject = Subject::start("bad_batches");
    let at = subject.bootstrap();
    create(&at, "checked");
    let mut client = RawConnection::open(&at);
    let good = batch(&["one", "two"]).build();
    let mut cut = good.clone();
    cut.truncate(good.len() - 3);
    let twice = [good.clone(), good.clone()].concat();
    // Positions in a batch: length 8, magic 16, checksum 17, attributes 21, last offset delta 23, record count 57.
    let cases: Vec<(&str, Vec<u8>, ErrorCode)> = vec![
        ("a flipped bit in a record", changed(good.len() - 2, 1, false), ErrorCode::CorruptMessage),
        ("a flipped bit in the checksum", changed(18, 4, false), ErrorCode::CorruptMessage),
        ("a batch cut short", cut, ErrorCode::InvalidRecord),
        ("a length that is too small", changed(11, 0x70, false), ErrorCode::CorruptMessage),
        ("two batches", twice, ErrorCode::InvalidRecord),
        ("a last offset delta that is too large", changed(26, 4, true), ErrorCode::InvalidRecord),
        ("a record count that is too large", changed(60, 4, true), ErrorCode::InvalidRecord),
        ("a control batch", batch(&["one"]).control().build(), ErrorCode::InvalidRecord),
    ];
    let wrong: Vec<String> = cases
        .into_iter()
        .filter_map(|(what, bytes, expected)| {
            let response = produce(&mut client, "checked", bytes);
            let got = response.error_code;
            (got != expected).then(|| format!("{what}: {} instead of {}", got.name(), expected.name()))
        })
        .collect();
    assert_eq!(wrong, Vec::<String>::new());
    let response = produce(&mut client, "checked", good);
    assert_eq!(
        (response.error_code, response.base_offset),
        (ErrorCode::None, 0),
        "nothing was appended before"
    );
    let values: Vec<String> = kcat_read(&at, "checked").into_iter().map(|record| record.value).collect();
    assert_eq!(values, ["one", "two"]);
}

#[test]
fn produce_requests_that_make_no_sense_are_refused() {
    let subject = Subject::start("senseless_produce");
    let at = subject.bootstrap();
    create(&at, "refusing");
    let mut client = RawConnection::open(&at);
    let good = batch(&["one"]).build();

    let response = client.call(&produce_request("refusing", 5, good.clone()), 9).expect("answered");
    assert_eq!(response.responses[0].partition_responses[0].error_code, ErrorCode::InvalidRequiredAcks);
    let missing = produce(&mut client, "nowhere-to-be-found", good.clone());
    assert_eq!(missing.error_code, ErrorCode::UnknownTopicOrPartition);
    let large = batch(&["x".repeat(2 * 1024 * 1024).as_str()]).build();
    assert_eq!(produce(&mut client, "refusing", large).error_code, ErrorCode::MessageTooLarge);
    // An idempotent producer begins at sequence 0 of its epoch and leaves no gap.
    let first = batch(&["one"]).producer(77, 0, 0).build();
    assert_eq!(produce(&mut client, "refusing", first.clone()).error_code, ErrorCode::None);
    let again = produce(&mut client, "refusing", first);
    assert_eq!((again.error_code, again.base_offset), (ErrorCode::None, 0), "a retry gets the first answer");
    let gap = batch(&["three"]).producer(77, 0, 5).build();
    assert_eq!(produce(&mut client, "refusing", gap).error_code, ErrorCode::OutOfOrderSequenceNumber);
    let next = batch(&["two"]).producer(77, 1, 0).build();
    assert_eq!(produce(&mut client, "refusing", next).error_code, ErrorCode::None);
    let old_epoch = batch(&["late"]).producer(77, 0, 1).build();
    assert_eq!(produce(&mut client, "refusing", old_epoch).error_code, ErrorCode::InvalidProducerEpoch);
    // Nobody waits for an answer to acks=0, so the only way to report an error is to hang up.
    client.send(&frame(&produce_request("nowhere-to-be-found", 0, good), 9));
    assert_eq!(client.receive(), None);
    let values: Vec<String> = kcat_read(&at, "refusing").into_iter().map(|record| record.value).collect();
    assert_eq!(values, ["one", "two"]);
}
