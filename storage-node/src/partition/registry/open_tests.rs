//! Logs that come up one by one: one that takes long, or stands still, holds up no other.

use super::*;

/// A simulated disk that can stand still, with a node's logs of some records on it. The power went while more was written.
async fn disk_with_records() -> (Arc<SimDisk>, Arc<StallingDisk>) {
    let disk = SimDisk::new(1);
    let world = World::open(&disk, 1).await;
    for sequence in 0..3 {
        world.produce(0, Acks::All, 1, sequence).await.unwrap();
        world.produce(1, Acks::All, 2, sequence).await.unwrap();
    }
    disk.crash_at(disk.ops() + 1);
    world.produce(0, Acks::All, 1, 3).await.unwrap_err();
    world.partitions.close().await;
    drop(world);
    disk.restart();
    let stalling = StallingDisk::over(Arc::clone(&disk) as Arc<dyn Disk>);
    (disk, stalling)
}

fn id(partition: i32) -> TopicPartition {
    topic_partition(topic_id(1), partition)
}

/// Partition 0 on two nodes, of which only the leader is in sync.
fn alone_in_sync(leader: i32, epoch: i32) -> MetadataChange {
    let state = PartitionState {
        replicas: vec![NodeId(1), NodeId(2)],
        adding: vec![],
        removing: vec![],
        isr: vec![NodeId(leader)],
        elr: vec![],
        leader: Some(NodeId(leader)),
        leader_epoch: LeaderEpoch(epoch),
        partition_epoch: PartitionEpoch(100 + epoch),
    };
    MetadataChange::PartitionSet { partition: id(0), state }
}

fn is_open(world: &World, partition: i32) -> bool {
    matches!(world.partitions.get(id(partition)), Lookup::Open(_))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_stands_still_at_the_start_holds_up_no_other_and_is_noticed() {
    let (_, disk) = disk_with_records().await;
    let limits = PartitionLimits { disk_stall_ms: 300, ..PartitionLimits::default() };
    let mut world = World::start_in(Arc::clone(&disk) as Arc<dyn Disk>, 1, limits);
    let mut healthy = world.partitions.watch_healthy();
    disk.stall(&id(0).to_string());
    let delta = world.image.apply(MetadataIndex(1), &World::first_changes(2, &[]));
    let applied = AtomicBool::new(false);
    let apply = async {
        world.partitions.apply(&world.image, &delta).await;
        applied.store(true, Ordering::Release);
    };
    let meanwhile = async {
        eventually("the other log is open", || is_open(&world, 1)).await;
        world.produce(1, Acks::All, 2, 3).await.unwrap();
        assert_eq!(world.read(1).len(), 4);
        assert!(matches!(world.partitions.get(id(0)), Lookup::Absent), "it is not open yet");
        let sentence = world.partitions.metrics().opening().sentence().unwrap();
        assert!(sentence.starts_with("opening: 1 of 2 partition copies are open"), "{sentence}");
        healthy.wait_for(|healthy| !healthy).await.unwrap();
        assert!(!applied.load(Ordering::Acquire), "the node may not say yet that all are open");
        disk.release();
    };
    tokio::join!(apply, meanwhile);
    healthy.wait_for(|healthy| *healthy).await.unwrap();
    assert_eq!(world.read(0)[..3], [0, 1, 2].map(|n| (i64::from(n), value(1, n))));
    assert_eq!(world.partitions.metrics().opening().sentence(), None);
    world.partitions.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_stands_still_when_it_is_opened_again_holds_up_no_other() {
    let (inner, disk) = disk_with_records().await;
    inner.inject(SimFault::Read(format!("{}/00000000000000000000.log", id(0))));
    let world = World::open_with(Arc::clone(&disk) as Arc<dyn Disk>, 2, PartitionLimits::default()).await;
    assert!(matches!(world.partitions.get(id(0)), Lookup::Failed));
    disk.stall(&id(0).to_string());
    let now = Millis(world.clock.monotonic().0 + 5_000);
    let meanwhile = async {
        eventually("it is being opened", || disk.waiting() == 1).await;
        world.produce(1, Acks::All, 2, 3).await.unwrap();
        assert!(matches!(world.partitions.get(id(0)), Lookup::Failed));
        disk.release();
    };
    tokio::join!(world.partitions.reopen_due(&world.image, now), meanwhile);
    assert!(world.read(0).len() >= 3 && world.read(1).len() == 4);
    world.partitions.close().await;
}

/// The node goes on without a copy that takes long, and takes it in as the metadata wants it by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_copy_holds_up_neither_the_start_nor_the_metadata() {
    let (_, disk) = disk_with_records().await;
    let limits = || PartitionLimits { open_wait_ms: 1_000, ..PartitionLimits::default() };
    let start = || World::start_in(Arc::clone(&disk) as Arc<dyn Disk>, 1, limits());
    let mut world = start();
    disk.stall(&id(0).to_string());
    world.apply(&World::first_changes(2, &[])).await;
    assert!(matches!(world.partitions.get(id(0)), Lookup::Failed), "others may lead it meanwhile");
    world.produce(1, Acks::All, 2, 3).await.unwrap();
    // Nobody begins it a second time.
    let far = Millis(i64::MAX);
    world.partitions.reopen_due(&world.image, far).await;
    world.partitions.restart_copy(&world.image, id(0)).await.unwrap();
    world.apply(&World::first_changes(3, &[("weir.flush", "os")])).await;
    assert!(matches!(world.partitions.get(id(0)), Lookup::Failed));
    disk.release();
    let end = world.partitions.late_end().await;
    world.partitions.take_late(&world.image, end).await;
    let handle = world.handle(0);
    assert_eq!(handle.view().leader_epoch, LeaderEpoch(3), "the newest");
    assert_eq!(handle.settings().replica.flush, storage_node_core::FlushMode::Os);
    assert_eq!(world.read(0)[..3], [0, 1, 2].map(|n| (i64::from(n), value(1, n))));
    assert_eq!((world.partitions.failed(), world.partitions.metrics().opening().sentence()), (vec![], None));
    world.partitions.close().await;
    drop((handle, world));

    let mut world = start();
    disk.stall(&id(0).to_string());
    world.apply(&World::first_changes(4, &[])).await;
    world.apply(&[MetadataChange::TopicDeleted { topic: topic_id(1) }]).await;
    assert!(matches!(world.partitions.get(id(0)), Lookup::Absent));
    disk.release();
    let end = world.partitions.late_end().await;
    world.partitions.take_late(&world.image, end).await;
    assert!(matches!(world.partitions.get(id(0)), Lookup::Absent));
    world.partitions.close().await;
    drop(world);
    let world = World::open_with(Arc::clone(&disk) as Arc<dyn Disk>, 5, PartitionLimits::default()).await;
    assert_eq!(world.handle(0).view().end, Offset(0), "its files went with the topic");
    world.partitions.close().await;
}

/// The same holds for a copy that was closed with more than it has when it is open at last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_copy_that_has_lost_records_does_not_lead_among_others() {
    let inner = SimDisk::new(1);
    let disk = StallingDisk::over(Arc::clone(&inner) as Arc<dyn Disk>);
    let mut limits = PartitionLimits { open_wait_ms: 1_000, ..PartitionLimits::default() };
    limits.housekeeping.reserve_bytes = 0;
    let mut world = World::open_with(Arc::clone(&disk) as Arc<dyn Disk>, 1, limits).await;
    let of = |leader, epoch| [alone_in_sync(leader, epoch)];
    world.apply(&of(1, 2)).await;
    world.produce(0, Acks::All, 1, 0).await.unwrap();
    inner.inject(SimFault::SyncNoSpace(".log".into()));
    assert_eq!(world.produce(0, Acks::All, 1, 1).await, Err(ProduceError::LogFailed));
    let handle = world.handle(0);
    eventually("nothing of it is under way", || handle.is_closed_for_space()).await;
    world.apply(&of(2, 3)).await;
    let soon = |world: &World| Millis(world.clock.monotonic().0);
    world.partitions.close_full(soon(&world)).await;
    let path = Path::new("data").join(id(0).to_string()).join("00000000000000000000.log");
    let file = inner.open(&path, OpenMode::ReadWrite).unwrap();
    file.set_len(file.len().unwrap() - 20).unwrap();
    disk.stall(&id(0).to_string());
    world.partitions.reopen_due(&world.image, Millis(soon(&world).0 + 5_000)).await;
    world.apply(&of(1, 4)).await;
    disk.release();
    let end = world.partitions.late_end().await;
    world.partitions.take_late(&world.image, end).await;
    assert!(matches!(world.partitions.get(id(0)), Lookup::Failed), "it resigns first");
    world.apply(&of(2, 5)).await;
    world.partitions.reopen_due(&world.image, Millis(soon(&world).0 + 1_000_000)).await;
    eventually("it follows", || world.handle(0).view().standing == Standing::Follower).await;
    assert_eq!(world.handle(0).view().end, Offset(1));
    world.partitions.close().await;
}

/// However many old logs take long, what is new has threads of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_copy_does_not_wait_for_old_ones_that_are_late() {
    const OLD: i32 = 40;
    let (inner, disk) = disk_with_records().await;
    for n in 0..OLD {
        let name = topic_partition(topic_id(2), n).to_string();
        inner.create_dir_all(&Path::new("data").join(name)).unwrap();
    }
    let limits = PartitionLimits { open_wait_ms: 5_000, ..PartitionLimits::default() };
    let mut world = World::start_in(Arc::clone(&disk) as Arc<dyn Disk>, 1, limits);
    disk.stall(&topic_id(2).to_string());
    let mut changes = World::first_changes(2, &[]);
    changes.extend(topic(2, "u", OLD, &[1]));
    world.apply(&changes).await;
    assert_eq!(world.partitions.failed().len(), OLD as usize);
    world.apply(&topic(3, "v", 1, &[1])).await;
    let new = topic_partition(topic_id(3), 0);
    assert!(matches!(world.partitions.get(new), Lookup::Open(_)));
    disk.release();
    for _ in 0..OLD {
        let end = world.partitions.late_end().await;
        world.partitions.take_late(&world.image, end).await;
    }
    assert_eq!(world.partitions.failed(), []);
    world.partitions.close().await;
}

/// What an old leadership decided is not carried out under the smaller minimum of a newer one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_copy_commits_nothing_in_an_epoch_that_is_over() {
    let (_, disk) = disk_with_records().await;
    let limits = PartitionLimits { open_wait_ms: 1_000, ..PartitionLimits::default() };
    let mut world = World::start_in(Arc::clone(&disk) as Arc<dyn Disk>, 1, limits);
    let of = |leader, epoch, min_insync: &str| {
        let mut changes = World::first_changes(1, &[("min.insync.replicas", min_insync)]);
        changes.push(alone_in_sync(leader, epoch));
        changes
    };
    disk.stall(&id(0).to_string());
    world.apply(&of(1, 2, "2")).await;
    assert!(matches!(world.partitions.get(id(0)), Lookup::Failed));
    world.apply(&of(2, 3, "1")).await;
    disk.release();
    let end = world.partitions.late_end().await;
    world.partitions.take_late(&world.image, end).await;
    let view = world.handle(0).view();
    assert_eq!((view.standing, view.leader_epoch), (Standing::Follower, LeaderEpoch(3)));
    assert!(view.high_watermark < view.end, "nobody else was in sync: {view:?}");
    world.partitions.close().await;
}

/// What an earlier process did not flush a power cut may still take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_before_any_log_was_opened_is_as_clean_as_the_stop_before() {
    let (inner, disk) = disk_with_records().await;
    let says_clean = || inner.list(Path::new("data")).unwrap().iter().any(|e| e.name == "clean-shutdown");
    let start =
        || World::start_in(Arc::clone(&disk) as Arc<dyn Disk>, 1, PartitionLimits::default()).partitions;
    start().close().await;
    assert!(!says_clean(), "its logs are as the crash has left them");
    let world = World::open_with(Arc::clone(&disk) as Arc<dyn Disk>, 2, PartitionLimits::default()).await;
    world.partitions.close().await;
    drop(world);
    assert!(says_clean());
    start().close().await;
    assert!(says_clean());
}

/// A directory that fails takes with it what is being opened and what waits for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_open_when_its_directory_fails_is_refused() {
    let (inner, disk) = disk_with_records().await;
    let mut world = World::start_in(Arc::clone(&disk) as Arc<dyn Disk>, 1, PartitionLimits::default());
    disk.stall(&id(0).to_string());
    let delta = world.image.apply(MetadataIndex(1), &World::first_changes(2, &[]));
    let meanwhile = async {
        eventually("one is open, the other stands still", || is_open(&world, 1) && disk.waiting() == 1).await;
        inner.inject(SimFault::Sync(".log".into()));
        assert_eq!(world.produce(1, Acks::All, 2, 3).await, Err(ProduceError::LogFailed));
        eventually("the directory is offline", || world.partitions.failure_of(0).is_some()).await;
        disk.release();
    };
    tokio::join!(world.partitions.apply(&world.image, &delta), meanwhile);
    assert!(matches!(world.partitions.get(id(0)), Lookup::Failed), "nothing is opened there any more");
    assert_eq!(world.partitions.damaged(), []);
    let changes = topic(2, "u", 1, &[1]);
    world.apply(&changes).await;
    assert!(matches!(world.partitions.get(topic_partition(topic_id(2), 0)), Lookup::Failed));
    world.partitions.close().await;
    drop(world);
    inner.restart_process();
    let world = World::open(&inner, 3).await;
    assert!(world.read(0).len() >= 3 && world.read(1).len() >= 3);
    world.partitions.close().await;
}

/// Whoever stops a node does not wait for recoveries: what is not open by then is left as it is, and the stop is not clean.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_while_logs_are_opened_answers_everybody_and_leaves_them_for_the_next_start() {
    const MORE: i32 = 40;
    let (inner, disk) = disk_with_records().await;
    let mut world = World::start_in(Arc::clone(&disk) as Arc<dyn Disk>, 1, PartitionLimits::default());
    let mut changes = World::first_changes(2, &[]);
    changes.extend(topic(2, "u", MORE, &[1]));
    let delta = world.image.apply(MetadataIndex(1), &changes);
    // Those of the first topic are served; those of the second stand still.
    disk.stall(&topic_id(2).to_string());
    let meanwhile = async {
        eventually("the others are open", || is_open(&world, 0) && is_open(&world, 1)).await;
        eventually("as many as may be stand still", || disk.waiting() == 16).await;
        world.produce(1, Acks::All, 2, 3).await.unwrap();
        let failed = || world.partitions.failed().len();
        let look = async {
            eventually("those that wait are refused", || failed() == MORE as usize - 16).await;
            disk.release();
        };
        tokio::join!(world.partitions.close(), look);
    };
    tokio::join!(world.partitions.apply(&world.image, &delta), meanwhile);
    assert!((0..MORE).all(|n| {
        let copy = world.partitions.get(topic_partition(topic_id(2), n));
        matches!(copy, Lookup::Failed | Lookup::Absent)
    }));
    drop(world);
    let names = inner.list(Path::new("data")).unwrap();
    assert!(names.iter().all(|entry| entry.name != "clean-shutdown"), "some logs are as they were");
    let mut world = World::open(&inner, 3).await;
    world.apply(&topic(2, "u", MORE, &[1])).await;
    assert!(world.read(0).len() >= 3 && world.read(1).len() == 4);
    assert_eq!(world.partitions.failed(), []);
    world.partitions.close().await;
    drop(world);
    let names = inner.list(Path::new("data")).unwrap();
    assert!(names.iter().any(|entry| entry.name == "clean-shutdown"));
}

/// The newest claim of a coordinator may lie far back in the log of its shard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_for_a_claim_that_stands_still_holds_up_no_other_log_and_is_noticed() {
    let inner = SimDisk::new(1);
    let disk = StallingDisk::over(Arc::clone(&inner) as Arc<dyn Disk>);
    let shard = topic_partition(topic_id(2), 0);
    // As a shard its segments would be larger.
    let changes = |epoch, name| {
        let mut changes = World::first_changes(epoch, &[]);
        changes.extend(topic(2, name, 1, &[1]));
        changes.push(MetadataChange::ConfigSet {
            resource: ConfigResource::Topic(topic_id(2)),
            name: "segment.bytes".to_owned(),
            value: Some("20000".to_owned()),
        });
        changes
    };
    let shard_of = |world: &World| match world.partitions.get(shard) {
        Lookup::Open(handle) => Some(handle),
        Lookup::Failed | Lookup::Absent => None,
    };
    let limits = PartitionLimits { disk_stall_ms: 300, ..PartitionLimits::default() };
    let start = || World::start_in(Arc::clone(&disk) as Arc<dyn Disk>, 1, limits.clone());
    let mut world = start();
    world.apply(&changes(1, "filled")).await;
    for _ in 0..12 {
        let mut builder = BatchBuilder::new();
        builder.push(1_000, Some(b"key"), Some(&[7; 5_000]), &[]).unwrap();
        let bytes = Bytes::from(builder.build());
        let batch = ValidBatch { header: BatchHeader::parse(&bytes).unwrap(), bytes };
        let deadline = Millis(world.clock.monotonic().0 + WAIT_MS);
        let pending = shard_of(&world).unwrap().produce(batch, Acks::All, deadline).await.unwrap();
        pending.outcome().await.unwrap();
    }
    world.partitions.close().await;
    drop(world);
    // A start looks into the first and the last segment by itself.
    let names = inner.list(&Path::new("data").join(shard.to_string())).unwrap();
    let logs: Vec<_> = names.into_iter().map(|e| e.name).filter(|name| name.ends_with(".log")).collect();
    assert!(logs.len() > 2, "{logs:?}");

    let mut world = start();
    let mut healthy = world.partitions.watch_healthy();
    disk.stall_with_reads(&format!("{shard}/{}", logs[1]));
    let delta = world.image.apply(MetadataIndex(1), &changes(2, "__consumer_offsets"));
    let meanwhile = async {
        eventually("the search stands still", || disk.waiting() == 1).await;
        eventually("the others are open", || is_open(&world, 0) && is_open(&world, 1)).await;
        world.produce(1, Acks::All, 2, 0).await.unwrap();
        assert!(shard_of(&world).is_none());
        healthy.wait_for(|healthy| !healthy).await.unwrap();
        disk.release();
    };
    tokio::join!(world.partitions.apply(&world.image, &delta), meanwhile);
    healthy.wait_for(|healthy| *healthy).await.unwrap();
    assert!(shard_of(&world).is_some());
    world.partitions.close().await;
}
