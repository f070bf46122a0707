use super::*;
use bytes::Bytes;
use kafka_wire_core::Records;

const LIMITS: FetchSessionLimits =
    FetchSessionLimits { sessions_max: 2, partitions_max: 10, eviction_ms: 1_000 };

fn key(partition: i32) -> PartitionKey {
    PartitionKey { topic: TopicKey::name("t".into()), partition }
}

fn wanted(fetch_offset: i64) -> Wanted {
    Wanted { current_leader_epoch: -1, fetch_offset, last_fetched_epoch: -1, bytes_max: 100 }
}

fn data(partition: i32, high_watermark: i64, records: &'static [u8]) -> (PartitionKey, PartitionData) {
    let data = PartitionData {
        partition_index: partition,
        high_watermark,
        log_start_offset: 0,
        records: Some(Records::Bytes(Bytes::from_static(records))),
        ..PartitionData::default()
    };
    (key(partition), data)
}

fn request(session_id: i32, session_epoch: i32, partitions: &[(i32, i64)]) -> SessionRequest {
    SessionRequest {
        session_id,
        session_epoch,
        by_id: false,
        wanted: partitions.iter().map(|&(partition, offset)| (key(partition), wanted(offset))).collect(),
        forgotten: Vec::new(),
    }
}

fn indexes<T>(partitions: &[(PartitionKey, T)]) -> Vec<i32> {
    partitions.iter().map(|(key, _)| key.partition).collect()
}

/// A session over `partitions`, each at high watermark 5.
fn session(sessions: &FetchSessions, now: i64, partitions: &[i32]) -> i32 {
    let asked: Vec<_> = partitions.iter().map(|&partition| (partition, 0)).collect();
    let context = sessions.begin(Millis(now), request(0, 0, &asked)).unwrap();
    assert_eq!(indexes(&context.partitions), partitions);
    let outcome = partitions.iter().map(|&partition| data(partition, 5, b"")).collect();
    let sent = sessions.finish(Millis(now), context, outcome);
    assert_eq!(sent.partitions.len(), partitions.len(), "a full answer names all");
    sent.session_id
}

#[test]
fn a_sessionless_fetch_remembers_nothing() {
    let sessions = FetchSessions::new(LIMITS);
    let context = sessions.begin(Millis(0), request(0, -1, &[(1, 0), (0, 0)])).unwrap();
    assert_eq!(indexes(&context.partitions), [1, 0]);
    let sent = sessions.finish(Millis(0), context, vec![data(1, 5, b""), data(0, 5, b"")]);
    assert_eq!((sent.session_id, sessions.len()), (0, 0));
    assert_eq!(indexes(&sent.partitions), [1, 0]);
}

#[test]
fn a_partition_that_is_named_again_is_read_once_as_named_last() {
    let sessions = FetchSessions::new(LIMITS);
    for epoch in [INITIAL_EPOCH, FINAL_EPOCH] {
        let asked = request(0, epoch, &[(1, 10), (0, 20), (1, 30)]);
        let context = sessions.begin(Millis(0), asked).unwrap();
        let read: Vec<_> =
            context.partitions.iter().map(|(key, wanted)| (key.partition, wanted.fetch_offset)).collect();
        assert_eq!(read, [(1, 30), (0, 20)]);
    }
}

#[test]
fn incremental_answers_carry_only_what_is_new() {
    let sessions = FetchSessions::new(LIMITS);
    let id = session(&sessions, 0, &[0, 1, 2]);
    assert!(id > 0);
    let context = sessions.begin(Millis(1), request(id, 1, &[])).unwrap();
    assert_eq!(indexes(&context.partitions), [0, 1, 2]);
    let sent = sessions.finish(Millis(1), context, vec![data(0, 5, b""), data(1, 6, b""), data(2, 5, b"x")]);
    assert_eq!(indexes(&sent.partitions), [1, 2]);
    assert_eq!(sent.session_id, id);
    let context = sessions.begin(Millis(2), request(id, 2, &[])).unwrap();
    let sent = sessions.finish(Millis(2), context, vec![data(0, 5, b""), data(1, 6, b""), data(2, 5, b"")]);
    assert!(sent.partitions.is_empty());
}

#[test]
fn who_got_data_is_read_last_next_time() {
    let sessions = FetchSessions::new(LIMITS);
    let id = session(&sessions, 0, &[0, 1, 2]);
    let context = sessions.begin(Millis(1), request(id, 1, &[])).unwrap();
    sessions.finish(Millis(1), context, vec![data(0, 5, b"x"), data(1, 5, b""), data(2, 5, b"")]);
    let context = sessions.begin(Millis(2), request(id, 2, &[(1, 9)])).unwrap();
    assert_eq!(indexes(&context.partitions), [1, 2, 0]);
    assert_eq!(context.partitions[0].1, wanted(9), "a changed partition keeps its place");
}

#[test]
fn partitions_are_added_and_forgotten() {
    let sessions = FetchSessions::new(LIMITS);
    let id = session(&sessions, 0, &[0, 1]);
    let mut change = request(id, 1, &[(7, 3)]);
    change.forgotten = vec![key(0), key(99)];
    let context = sessions.begin(Millis(1), change).unwrap();
    assert_eq!(indexes(&context.partitions), [1, 7]);
    let mut forget_all = request(id, 2, &[]);
    forget_all.forgotten = vec![key(1), key(7)];
    let context = sessions.begin(Millis(2), forget_all).unwrap();
    assert_eq!(sessions.finish(Millis(2), context, vec![]).session_id, 0);
    assert_eq!(sessions.len(), 0);
}

#[test]
fn an_error_is_told_and_what_follows_it_too() {
    let sessions = FetchSessions::new(LIMITS);
    let id = session(&sessions, 0, &[0]);
    let mut failed = data(0, -1, b"");
    failed.1.error_code = ErrorCode::NotLeaderOrFollower;
    let context = sessions.begin(Millis(1), request(id, 1, &[])).unwrap();
    assert_eq!(sessions.finish(Millis(1), context, vec![failed]).partitions.len(), 1);
    let context = sessions.begin(Millis(2), request(id, 2, &[])).unwrap();
    assert_eq!(sessions.finish(Millis(2), context, vec![data(0, 5, b"")]).partitions.len(), 1);
}

#[test]
fn wrong_ids_and_epochs_are_told_apart() {
    let sessions = FetchSessions::new(LIMITS);
    let id = session(&sessions, 0, &[0]);
    let begin = |request| sessions.begin(Millis(1), request).map(|_| ()).unwrap_err();
    assert_eq!(begin(request(id ^ 1, 1, &[])), ErrorCode::FetchSessionIdNotFound);
    assert_eq!(begin(request(id, 2, &[])), ErrorCode::InvalidFetchSessionEpoch);
    let by_id = SessionRequest { by_id: true, ..request(id, 1, &[]) };
    assert_eq!(begin(by_id), ErrorCode::FetchSessionTopicIdError);
    sessions.begin(Millis(1), request(id, -1, &[])).unwrap();
    assert_eq!(begin(request(id, 1, &[])), ErrorCode::FetchSessionIdNotFound);
}

#[test]
fn sessions_are_bounded_and_the_idle_go_first() {
    let sessions = FetchSessions::new(LIMITS);
    let first = session(&sessions, 0, &[0, 1]);
    let second = session(&sessions, 0, &[0, 1, 2]);
    assert_eq!(session(&sessions, 500, &[0]), 0, "nobody has had its time");
    sessions.begin(Millis(900), request(first, 1, &[])).unwrap();
    let third = session(&sessions, 1_500, &[0]);
    assert!(third > 0, "the second was idle");
    assert!(sessions.begin(Millis(1_500), request(second, 1, &[])).is_err());
    assert!(sessions.begin(Millis(1_500), request(first, 2, &[])).is_ok());
    assert!(session(&sessions, 1_600, &[0, 1, 2, 3]) > 0, "a larger one takes the place of a smaller");
    assert_eq!(sessions.len(), 2);
    assert_eq!(session(&sessions, 9_999, &(0..11).collect::<Vec<_>>()), 0, "too large to be remembered");
}

#[test]
fn epochs_wrap_to_one() {
    assert_eq!((next_epoch(0), next_epoch(i32::MAX)), (1, 1));
}

#[test]
fn a_session_hears_of_nearer_replicas_and_of_logs_that_part() {
    let sessions = FetchSessions::new(LIMITS);
    let id = session(&sessions, 0, &[0, 1, 2]);
    let context = sessions.begin(Millis(1), request(id, 1, &[])).unwrap();
    let mut outcome = vec![data(0, 5, b""), data(1, 5, b""), data(2, 5, b"")];
    outcome[1].1.preferred_read_replica = 2;
    outcome[2].1.diverging_epoch.epoch = 3;
    let sent = sessions.finish(Millis(1), context, outcome);
    assert_eq!(indexes(&sent.partitions), [1, 2]);
}

#[test]
fn a_session_that_empties_itself_and_one_that_makes_room_do_not_wait_for_each_other() {
    let sessions = std::sync::Arc::new(FetchSessions::new(LIMITS));
    let (done, ended) = std::sync::mpsc::channel();
    // Both slots are taken, so whoever begins looks at all sessions.
    session(&sessions, 0, &[0]);
    for emptying in [true, false] {
        let (sessions, done) = (std::sync::Arc::clone(&sessions), done.clone());
        std::thread::spawn(move || {
            for round in 0..5_000 {
                // Long after the others, which may be pushed out.
                let id = session(&sessions, round * 10_000, &[0, 1]);
                if emptying && id != 0 {
                    let forgotten = vec![key(0), key(1)];
                    // Pushed out by the other thread: as good.
                    _ = sessions.begin(Millis(round), SessionRequest { forgotten, ..request(id, 1, &[]) });
                }
            }
            // Nobody waits any more only where the test has failed.
            done.send(()).ok();
        });
    }
    for _ in 0..2 {
        ended.recv_timeout(std::time::Duration::from_secs(60)).expect("neither waits for the other");
    }
}

#[test]
fn a_session_keeps_no_frame_of_a_request() {
    let frame = Bytes::from(vec![b't'; 100_000]);
    let name = kafka_wire_core::Str::from_utf8(frame.slice(..1)).expect("ASCII");
    let key = PartitionKey { topic: TopicKey::name(name), partition: 0 };
    let sessions = FetchSessions::new(LIMITS);
    let next = PartitionKey { partition: 1, ..key.clone() };
    let asked =
        SessionRequest { wanted: vec![(key.clone(), wanted(0)), (next, wanted(0))], ..request(0, 0, &[]) };
    let context = sessions.begin(Millis(0), asked).unwrap();
    let (_, data) = data(0, 5, b"");
    sessions.finish(Millis(0), context, vec![(key, data)]);
    assert_eq!(sessions.len(), 1);
    let session = sessions.sessions.lock().values().next().cloned().expect("it was begun");
    let names: Vec<_> = session
        .lock()
        .order
        .values()
        .map(|cached| match &cached.key.topic {
            TopicKey::Name(name) => name.text().as_bytes().as_ptr(),
            TopicKey::Id(_) => panic!("asked by name"),
        })
        .collect();
    assert!(names.len() == 2 && names[0] == names[1], "one name for all partitions of a topic");
    assert!(frame.is_unique(), "only the test holds it");
}
