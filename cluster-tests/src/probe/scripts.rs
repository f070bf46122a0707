//! What takes several steps on a connection: order, silence, halves, logins, sessions, producers, the life of a topic.

use std::collections::BTreeSet;
use std::time::Duration;

use kafka_wire_core::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use kafka_wire_core::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use kafka_wire_core::messages::fetch::{FetchRequest, ForgottenTopic};
use kafka_wire_core::messages::find_coordinator::FindCoordinatorRequest;
use kafka_wire_core::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use kafka_wire_core::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use kafka_wire_core::messages::sasl_authenticate::SaslAuthenticateRequest;
use kafka_wire_core::messages::sasl_handshake::SaslHandshakeRequest;
use kafka_wire_core::{ApiKey, ErrorCode, Request};
use uuid::Uuid;

use super::Lines;
use super::answer;
use super::record::Findings;
use super::requests::fetch_request;
use super::wire::{Outcome, Received, Wire, framed};
use super::world::{self, GROUP, MANY, READ, WRITE, WRITER, World, batch, produce_request};
use super::{scripts_of_epochs, scripts_of_groups};
use crate::clock::{Stopwatch, wait_until};

const READY_LIMIT: Duration = Duration::from_secs(30);

/// Plays every script that needs no restart.
pub(super) fn observe(world: &World, findings: &mut Findings) {
    type Play = fn(&mut Script<'_>);
    let plays: [(&str, Play); 13] = [
        ("pipelining", pipelining),
        ("acks=0", acks_zero),
        ("frames in pieces", frames_in_pieces),
        ("lengths", lengths),
        ("SASL without a login", sasl),
        ("fetch sessions", fetch_sessions),
        ("idempotent producer", idempotent_producer),
        ("waiting fetch", waiting_fetch),
        ("life of a topic", life_of_a_topic),
        ("creation on first use", creation_on_first_use),
        ("group with one member", scripts_of_groups::one_member),
        ("static member", scripts_of_groups::static_member),
        ("group with two members", scripts_of_groups::two_members),
    ];
    for (name, play) in plays {
        note(world, findings, name, play);
    }
}

/// Plays the script that the node restarts in the middle of.
pub(super) fn observe_restart(world: &World, restart: impl FnOnce(), findings: &mut Findings) {
    note(world, findings, "leader epochs", |script| scripts_of_epochs::after_a_restart(script, restart));
}

fn note(world: &World, findings: &mut Findings, name: &str, play: impl FnOnce(&mut Script<'_>)) {
    let mut script = Script { world, lines: Lines::new() };
    play(&mut script);
    findings.note(&format!("script/{name}"), 0, script.lines);
}

/// Collects what happens, step by step.
pub(super) struct Script<'a> {
    pub(super) world: &'a World,
    lines: Lines,
}

impl Script<'_> {
    /// Asks on `wire` and notes all of the answer under `step`.
    pub(super) fn ask<R: Request>(
        &mut self,
        wire: &mut Wire,
        step: &str,
        version: i16,
        request: &R,
    ) -> Option<R::Response> {
        let outcome = wire.exchange(&world::frame(request, version, Some("probe")));
        self.answered::<R>(step, version, outcome)
    }

    /// Notes all of the answer to a request of this kind under `step`.
    pub(super) fn answered<R: Request>(
        &mut self,
        step: &str,
        version: i16,
        outcome: Outcome,
    ) -> Option<R::Response> {
        let lines =
            answer::lines(self.world, &outcome, |world, frame| answer::read::<R>(world, frame, version));
        for (path, value) in lines {
            self.note(&format!("{step}: {path}"), value);
        }
        let Outcome::Answered(frame, _) = outcome else { return None };
        answer::decode::<R>(&frame, version).ok().map(|(response, _)| response)
    }

    pub(super) fn note(&mut self, step: &str, value: impl Into<String>) {
        self.lines.insert(step.to_owned(), value.into());
    }

    /// Takes back what was noted under paths of `step` that begin like this.
    pub(super) fn forget(&mut self, step: &str, path: &str) {
        let forgotten = format!("{step}: {path}");
        self.lines.retain(|path, _| !path.starts_with(&forgotten));
    }
}

fn numbered<R: Request>(request: &R, version: i16, correlation_id: i32) -> Vec<u8> {
    let frame =
        request.to_frame(version, correlation_id, Some("probe".into())).expect("the version can say it");
    frame.into_bytes().expect("requests hold bytes only").to_vec()
}

/// Requests that take different times, in one write: answers come in the order of the requests.
fn pipelining(script: &mut Script<'_>) {
    let world = script.world;
    let metadata = MetadataRequest { topics: Some(Vec::new()), ..MetadataRequest::default() };
    let produce = |acks| {
        let batch = batch(1).producer(WRITER, 0, 0).build();
        produce_request(WRITE, world.topic_id(WRITE), 0, acks, batch)
    };
    let offsets = ListOffsetsRequest {
        topics: vec![ListOffsetsTopic {
            name: READ.into(),
            partitions: vec![ListOffsetsPartition { timestamp: -3, ..ListOffsetsPartition::default() }],
        }],
        ..ListOffsetsRequest::default()
    };
    let coordinator = FindCoordinatorRequest { key: GROUP.into(), ..FindCoordinatorRequest::default() };
    let all = [
        numbered(&fetch_request(world, READ, &[(0, 4)], 200), 12, 1),
        numbered(&metadata, 12, 2),
        numbered(&produce(-1), 9, 3),
        numbered(&produce(0), 9, 4),
        numbered(&produce(1), 9, 5),
        numbered(&offsets, 7, 6),
        numbered(&coordinator, 3, 7),
        numbered(&fetch_request(world, READ, &[(0, 0)], 200), 12, 8),
        numbered(&metadata, 4, 9),
    ];
    let mut wire = world.open();
    wire.send(&all.concat());
    let order: Vec<String> = (0..all.len() - 1).map(|_| correlation_id(&wire.receive())).collect();
    script.note("answers", order.join(","));
}

fn correlation_id(received: &Received) -> String {
    match received {
        Received::Frame(frame) if frame.len() >= 4 => {
            i32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]).to_string()
        }
        Received::Frame(_) => "none".to_owned(),
        Received::Closed => "closed".to_owned(),
        Received::Nothing => "nothing".to_owned(),
    }
}

/// Nobody waits for an answer to acks=0: success is silent, failure hangs up.
fn acks_zero(script: &mut Script<'_>) {
    let world = script.world;
    let mut wire = world.open();
    let fresh = || batch(1).producer(4720, 0, 0).build();
    let request =
        |topic: &str, partition| produce_request(topic, world.topic_id(topic), partition, 0, fresh());
    for version in [3, 9, 12, 13] {
        let outcome = wire.exchange(&world::frame(&request(WRITE, 0), version, None));
        script.note(&format!("good, version {version}"), outcome.word());
    }
    let mut mixed = request(WRITE, 0);
    mixed.topic_data.extend(request(MANY, 9).topic_data);
    for (what, request) in [
        ("unknown topic", request("probe-nowhere", 0)),
        ("unknown partition", request(MANY, 9)),
        ("good and bad", mixed),
        ("bad batch", produce_request(WRITE, world.topic_id(WRITE), 0, 0, vec![1, 2, 3])),
    ] {
        for version in [3, 13] {
            let outcome = world.open().exchange(&world::frame(&request, version, None));
            script.note(&format!("{what}, version {version}"), outcome.word());
        }
    }
}

/// A frame that comes in pieces is a frame; half of one gets no answer, and its connection may go away.
fn frames_in_pieces(script: &mut Script<'_>) {
    let world = script.world;
    let whole = numbered(&MetadataRequest { topics: Some(Vec::new()), ..MetadataRequest::default() }, 9, 5);
    let mut wire = world.open();
    for piece in whole.chunks(3) {
        wire.send(piece);
    }
    script.note("pieces of three bytes", correlation_id(&wire.receive()));
    let (first, rest) = whole.split_at(whole.len() / 2);
    wire.send(&[&whole[..], first].concat());
    script.note("one and a half", correlation_id(&wire.receive()));
    // The server serves others meanwhile.
    script.note("others meanwhile", world.open().exchange(&whole).word());
    wire.send(rest);
    script.note("the other half", correlation_id(&wire.receive()));
}

/// Lengths that cannot be.
fn lengths(script: &mut Script<'_>) {
    for (what, bytes) in [
        ("negative", vec![0xff, 0xff, 0xff, 0xff]),
        ("zero", vec![0, 0, 0, 0]),
        ("above socket.request.max.bytes", (100 * 1024 * 1024 + 1_u32).to_be_bytes().to_vec()),
        ("largest", vec![0x7f, 0xff, 0xff, 0xff]),
        ("of another protocol", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()),
        ("one byte", framed(&[0])),
        ("four bytes", framed(&[0, 3, 0, 9])),
    ] {
        script.note(what, script.world.open().exchange(&bytes).word());
    }
}

/// A listener without SASL: requests are served before, between and after attempts to log in.
fn sasl(script: &mut Script<'_>) {
    let mut wire = script.world.open();
    let metadata = MetadataRequest { topics: Some(Vec::new()), ..MetadataRequest::default() };
    let note = |script: &mut Script<'_>, wire: &mut Wire, step: &str| {
        let word = wire.exchange(&world::frame(&metadata, 9, None)).word();
        script.note(step, word);
    };
    note(script, &mut wire, "metadata before");
    let handshake = SaslHandshakeRequest { mechanism: "PLAIN".into() };
    script.ask(&mut wire, "handshake 0", 0, &handshake);
    note(script, &mut wire, "metadata after handshake 0");
    script.ask(&mut wire, "handshake 1", 1, &handshake);
    script.ask(&mut wire, "handshake 1 again", 1, &handshake);
    let token = SaslAuthenticateRequest { auth_bytes: bytes::Bytes::from_static(b"\0user\0password") };
    script.ask(&mut wire, "authenticate", 2, &token);
    note(script, &mut wire, "metadata after authenticate");
    // What follows handshake 0 elsewhere is a token without any header.
    let mut wire = script.world.open();
    script.ask(&mut wire, "handshake for a bare token", 0, &handshake);
    script.note("bare token", wire.exchange(&framed(b"\0user\0password")).word());
}

/// KIP-227: a session holds the partitions; only what changed is told.
fn fetch_sessions(script: &mut Script<'_>) {
    let world = script.world;
    let mut wire = world.open();
    const VERSION: i16 = 12;
    let full = fetch_request(world, MANY, &[(0, 0), (1, 1), (2, 1)], 20);
    let first = FetchRequest { session_epoch: 0, ..full.clone() };
    let Some(opened) = script.ask(&mut wire, "1 opened", VERSION, &first) else { return };
    let session_id = opened.session_id;
    let next = |session_epoch, request: FetchRequest| FetchRequest { session_id, session_epoch, ..request };
    let nothing = FetchRequest { topics: Vec::new(), ..full };
    script.ask(&mut wire, "2 what is left", VERSION, &next(1, nothing.clone()));
    script.ask(&mut wire, "3 same epoch again", VERSION, &next(1, nothing.clone()));
    script.ask(&mut wire, "4 epoch in the future", VERSION, &next(9, nothing.clone()));
    script.ask(&mut wire, "5 moved on", VERSION, &next(2, fetch_request(world, MANY, &[(0, 1)], 20)));
    let forgotten =
        ForgottenTopic { topic: MANY.into(), partitions: vec![0, 1], ..ForgottenTopic::default() };
    let forget = FetchRequest { forgotten_topics_data: vec![forgotten], ..nothing.clone() };
    script.ask(&mut wire, "6 forgotten", VERSION, &next(3, forget));
    script.ask(&mut wire, "7 bad partition", VERSION, &next(4, fetch_request(world, MANY, &[(9, 0)], 20)));
    script.ask(&mut wire, "8 bad partition still there", VERSION, &next(5, nothing.clone()));
    let other = next(6, nothing.clone());
    script.ask(&mut world.open(), "9 on another connection", VERSION, &other);
    script.ask(&mut wire, "10 with topic ids", 13, &next(7, nothing.clone()));
    script.ask(&mut wire, "11 closed", VERSION, &next(-1, nothing.clone()));
    script.ask(&mut wire, "12 after the end", VERSION, &next(8, nothing));
}

/// The window of five batches, gaps, epochs.
fn idempotent_producer(script: &mut Script<'_>) {
    let world = script.world;
    let mut wire = world.open();
    let mut send = |script: &mut Script<'_>, step: &str, epoch: i16, sequence: i32, records: i64| {
        let bytes = batch(records).producer(4730, epoch, sequence).build();
        let request = produce_request(world::EMPTY, world.topic_id(world::EMPTY), 0, -1, bytes);
        script.ask(&mut wire, step, 9, &request);
    };
    for sequence in 0..6 {
        send(script, &format!("1.{sequence} in order"), 0, sequence, 1);
    }
    send(script, "2 last again", 0, 5, 1);
    send(script, "3 fifth from the end again", 0, 1, 1);
    send(script, "4 sixth from the end again", 0, 0, 1);
    send(script, "5 gap", 0, 8, 1);
    send(script, "6 two that overlap", 0, 5, 2);
    send(script, "7 next epoch in the middle", 1, 6, 1);
    send(script, "8 next epoch", 1, 0, 1);
    send(script, "9 old epoch", 0, 6, 1);
    send(script, "10 next epoch goes on", 1, 1, 2);
    send(script, "11 and on", 1, 3, 1);
}

/// A fetch that finds nothing waits as long as it was told to.
fn waiting_fetch(script: &mut Script<'_>) {
    const WAIT_MS: i32 = 400;
    let world = script.world;
    let watch = Stopwatch::start();
    script.ask(&mut world.open(), "nothing", 12, &fetch_request(world, READ, &[(0, 4)], WAIT_MS));
    let waited = watch.elapsed() >= Duration::from_millis(350);
    script.note("waited", waited.to_string());
    // An error is told at once, whatever else there is to wait for.
    let watch = Stopwatch::start();
    script.ask(&mut world.open(), "error", 12, &fetch_request(world, READ, &[(9, 0)], 15_000));
    script.note("error waited", (watch.elapsed() > Duration::from_secs(12)).to_string());
    let impatient = FetchRequest { min_bytes: 0, ..fetch_request(world, READ, &[(0, 4)], 15_000) };
    let watch = Stopwatch::start();
    script.ask(&mut world.open(), "no bytes wanted", 12, &impatient);
    script.note("no bytes waited", (watch.elapsed() > Duration::from_secs(12)).to_string());
}

/// A topic that is deleted and made again under its name is another topic.
fn life_of_a_topic(script: &mut Script<'_>) {
    const NAME: &str = "probe-life";
    let world = script.world;
    let mut wire = world.open();
    let create = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: NAME.into(),
            num_partitions: 2,
            replication_factor: 1,
            ..CreatableTopic::default()
        }],
        timeout_ms: 30_000,
        ..CreateTopicsRequest::default()
    };
    let first = created(script, &mut wire, "1 created", &create, "first id");
    script.ask(&mut wire, "2 created again", 7, &create);
    let append = |id| produce_request(NAME, id, 0, -1, batch(1).build());
    script.ask(&mut wire, "3 appended", 13, &append(first));
    let delete = DeleteTopicsRequest {
        topics: vec![DeleteTopicState { name: None, topic_id: first }],
        timeout_ms: 30_000,
        ..DeleteTopicsRequest::default()
    };
    script.ask(&mut wire, "4 deleted", 6, &delete);
    script.ask(&mut wire, "5 deleted again", 6, &delete);
    script.ask(&mut wire, "6 appended to the old id", 13, &append(first));
    let second = created(script, &mut wire, "7 made again", &create, "second id");
    script.ask(&mut wire, "8 appended to the old id", 13, &append(first));
    script.ask(&mut wire, "9 appended to the new id", 13, &append(second));
    let mut read = fetch_request(world, NAME, &[(0, 0)], 20);
    read.topics[0].topic_id = first;
    script.ask(&mut wire, "10 read by the old id", 13, &read);
    read.topics[0].topic_id = second;
    script.ask(&mut wire, "11 read by the new id", 13, &read);
    script.note("ids differ", (first != second).to_string());
}

/// Metadata that creates what it asks for: what the first answer says, and the one when there is a leader.
fn creation_on_first_use(script: &mut Script<'_>) {
    let world = script.world;
    let mut wire = world.open();
    for version in [1, 4, 12] {
        let topic = MetadataRequestTopic {
            name: Some(format!("probe-first-use-{version}").into()),
            ..MetadataRequestTopic::default()
        };
        let ask = MetadataRequest { topics: Some(vec![topic]), ..MetadataRequest::default() };
        let creating = MetadataRequest { allow_auto_topic_creation: true, ..ask.clone() };
        let looking = MetadataRequest { allow_auto_topic_creation: version < 4, ..ask };
        if version >= 4 {
            script.ask(&mut wire, &format!("version {version}, 1 not allowed"), version, &looking);
        }
        script.ask(&mut wire, &format!("version {version}, 2 first"), version, &creating);
        let mut meanwhile = BTreeSet::new();
        let led = wait_until(READY_LIMIT, || {
            let topic = world.call(&looking, version).topics.remove(0);
            let partitions = topic.partitions.iter().map(|partition| partition.error_code);
            let error = partitions.chain([topic.error_code]).find(|error| *error != ErrorCode::None);
            error.map(|error| meanwhile.insert(error.code())).is_none().then_some(())
        });
        script.note(&format!("version {version}, 3 led"), led.is_some().to_string());
        // How often it is asked before it is there is chance; another answer than one of these is not.
        for allowed in [ErrorCode::UnknownTopicOrPartition, ErrorCode::LeaderNotAvailable] {
            meanwhile.remove(&allowed.code());
        }
        script.note(&format!("version {version}, 3 other errors meanwhile"), format!("{meanwhile:?}"));
        script.ask(&mut wire, &format!("version {version}, 4 when it is led"), version, &creating);
    }
}

/// Creates the topic, learns its id, and waits until it can be written to.
fn created(
    script: &mut Script<'_>,
    wire: &mut Wire,
    step: &str,
    create: &CreateTopicsRequest,
    name: &str,
) -> Uuid {
    let response = script.world.call(create, 7);
    let topic = &response.topics[0];
    script.note(&format!("{step}: error"), topic.error_code.name());
    script.world.learn(format!("{:?}", topic.topic_id), name);
    let ask = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic { name: Some(topic.name.clone()), ..Default::default() }]),
        ..MetadataRequest::default()
    };
    let led = wait_until(READY_LIMIT, || {
        let response = script.world.call(&ask, 12);
        let topic = &response.topics[0];
        let led = topic.partitions.iter().all(|partition| partition.error_code == ErrorCode::None);
        (topic.error_code == ErrorCode::None && led).then_some(())
    });
    script.note(&format!("{step}: led"), led.is_some().to_string());
    let key = ApiKey::Metadata.name();
    script.note(&format!("{step}: {key}"), wire.exchange(&world::frame(&ask, 12, None)).word());
    topic.topic_id
}
