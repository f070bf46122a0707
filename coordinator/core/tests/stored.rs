//! The records of `__consumer_offsets`: golden bytes, Kafka's own classes, every version, damage.
//!
//! Needs a JVM and Kafka's jars, which `cargo xtask kafka-jars` fetches.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use bytes::Bytes;
use coordinator_core::stored::{
    GroupMetadataKey, GroupMetadataValue, MemberMetadata, OffsetCommitKey, OffsetCommitValue, Record,
    Unreadable,
};
use coordinator_core::{Replayed, State};
use kafka_wire_core::sample::{Sample, Sampler};
use kafka_wire_core::{Message, Str, Writer};
use uuid::Uuid;

const SAMPLES: usize = 200;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Bytes {
    let text: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pairs = text.chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn offset_key() -> OffsetCommitKey {
    OffsetCommitKey { group: "g".into(), topic: "ads".into(), partition: 3 }
}

fn offset_value() -> OffsetCommitValue {
    OffsetCommitValue {
        offset: 42,
        leader_epoch: 7,
        metadata: "m".into(),
        commit_timestamp: 1_700_000_000_000,
        expire_timestamp: -1,
        topic_id: Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
    }
}

fn group_value() -> GroupMetadataValue {
    GroupMetadataValue {
        protocol_type: "consumer".into(),
        generation: 5,
        protocol: Some("range".into()),
        leader: Some("m1".into()),
        current_state_timestamp: 1_700_000_000_000,
        members: vec![MemberMetadata {
            member_id: "m1".into(),
            group_instance_id: Some("i".into()),
            client_id: "c".into(),
            client_host: "/127.0.0.1".into(),
            rebalance_timeout: 60_000,
            session_timeout: 10_000,
            subscription: Bytes::from_static(b"sub"),
            assignment: Bytes::from_static(b"part"),
        }],
    }
}

/// Is written as these bytes and read from them.
#[track_caller]
fn golden(record: &Record, key: &str, value: Option<&str>) {
    let (key, value) = (unhex(key), value.map(unhex));
    let (our_key, our_value) = record.encode();
    assert_eq!((hex(&our_key), our_value.as_deref().map(hex)), (hex(&key), value.as_deref().map(hex)));
    assert_eq!(Record::decode(&key, value.as_ref()).as_ref(), Ok(record));
}

#[test]
fn bytes_never_change() {
    let key = "0001 000167 0003616473 00000003";
    let value = "0004 000000000000002a 00000007 026d 0000018bcfe56800 \
                 01 00 10 0102030405060708090a0b0c0d0e0f10";
    golden(&Record::Offset(offset_key(), Some(offset_value())), key, Some(value));
    golden(&Record::Offset(offset_key(), None), key, None);
    let expiring = OffsetCommitValue {
        leader_epoch: -1,
        topic_id: Uuid::nil(),
        expire_timestamp: 1_700_000_000_001,
        ..offset_value()
    };
    let value = "0001 000000000000002a 00016d 0000018bcfe56800 0000018bcfe56801";
    golden(&Record::Offset(offset_key(), Some(expiring)), key, Some(value));

    let key = "0002 000167";
    let value = "0003 0008636f6e73756d6572 00000005 000572616e6765 00026d31 0000018bcfe56800 00000001 \
                 00026d31 000169 000163 000a2f3132372e302e302e31 0000ea60 00002710 00000003737562 \
                 0000000470617274";
    golden(&Record::Group(GroupMetadataKey { group: "g".into() }, Some(group_value())), key, Some(value));
    golden(&Record::Group(GroupMetadataKey { group: "g".into() }, None), key, None);
}

/// Lets Kafka's classes answer `lines`.
fn ask_kafka(lines: String) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let jars = folder.join("../../target/kafka/libs");
    assert!(jars.exists(), "no jars in {}: run `cargo xtask kafka-jars` first", jars.display());
    let mut java = Command::new("java")
        .args([
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
            "-cp",
        ])
        .arg(format!("{}/*", jars.display()))
        .arg(folder.join("tests/java/StoredRecords.java"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("`java` starts: a JDK 17 or newer must be installed");
    let mut input = java.stdin.take().unwrap();
    // Written beside the reading, else both ends wait for each other once the pipe is full.
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = java.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    writer.join().unwrap().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// A question, and the only right answer.
type Question = (String, String);

fn records(sampler: &mut Sampler, questions: &mut Vec<Question>) {
    let mut ask = |record: &Record| {
        let (key, value) = record.encode();
        let text = format!("{} {}", hex(&key), value.as_deref().map_or_else(|| "-".to_owned(), hex));
        questions.push((format!("record {text}"), text));
    };
    for _ in 0..SAMPLES {
        let group: GroupMetadataKey = sampler.message(0).unwrap();
        let value = sampler.message(3);
        ask(&Record::Group(group.clone(), value));
        ask(&Record::Group(group, None));
        let key: OffsetCommitKey = sampler.message(0).unwrap();
        let mut value: OffsetCommitValue = sampler.message(4).unwrap();
        value.expire_timestamp = -1;
        ask(&Record::Offset(key.clone(), Some(value)));
        let mut value: OffsetCommitValue = sampler.message(1).unwrap();
        value.expire_timestamp = value.expire_timestamp.max(0);
        ask(&Record::Offset(key.clone(), Some(value)));
        ask(&Record::Offset(key, None));
    }
}

fn values<M: Message + Sample>(sampler: &mut Sampler, kind: &str, questions: &mut Vec<Question>) {
    for version in M::VERSIONS {
        for _ in 0..SAMPLES {
            let message: M = sampler.message(version).unwrap();
            let mut writer = Writer::new();
            message.encode(&mut writer, version).unwrap();
            let bytes = writer.finish().into_bytes().unwrap();
            assert_eq!(M::decode_exact(bytes.clone(), version).unwrap(), message);
            let text = hex(&bytes);
            questions.push((format!("value {kind} {version} {text}"), text));
        }
    }
}

#[test]
fn kafka_reads_and_writes_the_same() {
    let seed = std::env::var("WEIR_SEED").map_or(20_260, |text| text.parse().unwrap());
    eprintln!("repeat with: WEIR_SEED={seed} cargo test -p coordinator-core --test stored");
    let mut sampler = Sampler::new(seed);
    let mut questions = Vec::new();
    records(&mut sampler, &mut questions);
    values::<OffsetCommitValue>(&mut sampler, "offset", &mut questions);
    values::<GroupMetadataValue>(&mut sampler, "group", &mut questions);
    let offset = Record::Offset(offset_key(), None).encode().0;
    let group = Record::Group(GroupMetadataKey { group: "g".into() }, None).encode().0;
    questions.push(("tombstones g ads 3".to_owned(), format!("{} {}", hex(&offset), hex(&group))));
    let answers = ask_kafka(questions.iter().map(|(question, _)| format!("{question}\n")).collect());
    assert_eq!(answers.len(), questions.len());
    for ((question, expected), answer) in questions.iter().zip(&answers) {
        assert_eq!(answer, expected, "{question}");
    }
}

#[test]
fn what_is_newer_is_passed_over_and_what_is_damaged_is_not() {
    let (key, value) = Record::Offset(offset_key(), Some(offset_value())).encode();
    let value = value.unwrap();
    let mut state = State::default();
    // A kind that a newer release writes; a value in a newer version; then one of ours.
    assert_eq!(state.replay(&unhex("0063 aabb"), Some(&value)), Ok(Replayed::Skipped));
    assert_eq!(state.replay(&key, Some(&unhex("0005 00"))), Ok(Replayed::Skipped));
    assert_eq!(state.replay(&key, Some(&value)), Ok(Replayed::Applied));
    // The key of Kafka before 0.9 names the same offset.
    let legacy = unhex("0000 000167 0003616473 00000003");
    assert_eq!(state.replay(&legacy, None), Ok(Replayed::Applied));
    assert_eq!(state, State::default());
    for length in 0..value.len() {
        let damaged = state.replay(&key, Some(&value.slice(..length)));
        assert!(matches!(damaged, Err(Unreadable::Damaged(_))), "{length}: {damaged:?}");
    }
    for length in 0..key.len() {
        let damaged = state.replay(&key.slice(..length), None);
        assert!(matches!(damaged, Err(Unreadable::Damaged(_))), "{length}: {damaged:?}");
    }
    assert!(matches!(state.replay(&unhex("ffff"), None), Err(Unreadable::Damaged(_))));
    assert_eq!(state, State::default());
}

/// Any records in any order: no panic, and never more than was put in.
#[test]
fn any_order_of_records_is_replayed() {
    let mut sampler = Sampler::new(7);
    for _ in 0..200 {
        let mut state = State::default();
        for _ in 0..50 {
            let group: Str = ["a", "b"][sampler.below(2)].into();
            let keep = sampler.one_in(2);
            let record = if sampler.one_in(2) {
                let value = keep.then(|| sampler.message(3).unwrap());
                Record::Group(GroupMetadataKey { group }, value)
            } else {
                let partition = sampler.below(3) as i32;
                let value = keep.then(|| sampler.message(4).unwrap());
                Record::Offset(OffsetCommitKey { group, topic: "t".into(), partition }, value)
            };
            let (key, value) = record.encode();
            state.replay(&key, value.as_ref()).unwrap();
            let noise = Bytes::from(sampler.bytes(20));
            let _ = state.replay(&noise, Some(&noise));
        }
    }
}
