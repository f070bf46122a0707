//! The partition runtime over a simulated disk: power cuts, full disks and failed syncs, with real threads.
//!
//! Not deterministic in its interleaving, only in its faults; what it checks must hold for every interleaving.

use super::*;

#[path = "registry/drop_tests.rs"]
mod drop_tests;
#[path = "registry/moves_tests.rs"]
mod moves_tests;

use crate::disk::scrub::ScrubLimits;
use crate::partition::stalling_disk::StallingDisk;
use crate::partition::{ProduceOutcome, ValidBatch};
use crate::test_node::{live_node, topic, topic_id};
use bytes::Bytes;
use log_engine::{DataDirOptions, Disk, OpenMode, SimDisk, SimFault};
use proto_types::ids::{LeaderEpoch, MetadataIndex, Millis, Offset, PartitionEpoch};
use proto_types::metadata::{MetadataChange, PartitionState, topic_partition};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use records::{BatchBuilder, BatchHeader};
use std::path::Path;
use storage_node_core::{Acks, LeadershipError, ProduceError};

const PARTITIONS: i32 = 2;
const WAIT_MS: i64 = 20_000;

struct World {
    partitions: Arc<Partitions>,
    clock: Clock,
    image: ClusterImage,
}

impl World {
    /// Where nothing is reserved: the disk itself refuses.
    async fn open(disk: &Arc<SimDisk>, epoch: i32) -> Self {
        let mut limits = PartitionLimits::default();
        limits.housekeeping.reserve_bytes = 0;
        Self::open_with(Arc::clone(disk) as Arc<dyn Disk>, epoch, limits).await
    }

    async fn open_with(disk: Arc<dyn Disk>, epoch: i32, limits: PartitionLimits) -> Self {
        Self::open_configured(disk, epoch, limits, &[]).await
    }

    async fn open_configured(
        disk: Arc<dyn Disk>,
        epoch: i32,
        limits: PartitionLimits,
        topic_configs: &[(&str, &str)],
    ) -> Self {
        Self::open_in(disk, 1, epoch, limits, topic_configs).await
    }

    /// A node that has only just started, with the disk that it had before.
    fn start(disk: &Arc<SimDisk>) -> Self {
        Self::start_in(Arc::clone(disk) as Arc<dyn Disk>, 1, PartitionLimits::default())
    }

    /// In the first so many of two directories.
    async fn open_in(
        disk: Arc<dyn Disk>,
        directories: usize,
        epoch: i32,
        limits: PartitionLimits,
        topic_configs: &[(&str, &str)],
    ) -> Self {
        let mut world = Self::start_in(disk, directories, limits);
        world.apply(&Self::first_changes(epoch, topic_configs)).await;
        world
    }

    /// In the first so many of two directories, before it has heard anything of the cluster.
    fn start_in(disk: Arc<dyn Disk>, directories: usize, limits: PartitionLimits) -> Self {
        Self::start_beside(disk, directories, &[], false, limits)
    }

    /// The same, and others that cannot be opened; or one of them has taken the place of a lost one.
    fn start_beside(
        disk: Arc<dyn Disk>,
        directories: usize,
        offline: &[&str],
        replaces_lost_disk: bool,
        limits: PartitionLimits,
    ) -> Self {
        let options = |path: &Path| DataDirOptions {
            cluster_id: "c".into(),
            node_id: 1,
            new_directory_id: uuid::Uuid::from_u128(path.as_os_str().len() as u128),
            descriptors_max: 100,
        };
        let paths = ["data", "more-data"].map(Path::new);
        let data: Vec<_> = paths[..directories]
            .iter()
            .map(|path| DataDir::open(Arc::clone(&disk), path, &options(path)).unwrap())
            .collect();
        let clock = Clock::start();
        let config = PartitionsConfig {
            node: NodeId(1),
            file_configs: ConfigMap::new(),
            limits,
            clock,
            metrics: PartitionMetrics::default(),
            cleaner_metrics: crate::disk::cleaner::CleanerMetrics::default(),
            replication: crate::replication::Replication::alone(),
            offline: offline
                .iter()
                .map(|path| OfflineDirectory { path: path.into(), reason: "it is damaged".into() })
                .collect(),
            given_up: Vec::new(),
            replaces_lost_disk,
        };
        let partitions = Partitions::start(config, data).unwrap();
        Self { partitions, clock, image: ClusterImage::empty() }
    }

    async fn apply(&mut self, changes: &[MetadataChange]) {
        let delta = self.image.apply(MetadataIndex(self.image.index().0 + 1), changes);
        self.partitions.apply(&self.image, &delta).await;
    }

    /// A topic whose partitions this node leads.
    fn first_changes(epoch: i32, topic_configs: &[(&str, &str)]) -> Vec<MetadataChange> {
        let mut changes = live_node(1);
        changes.extend(topic(1, "t", PARTITIONS, &[1]));
        changes.extend((0..PARTITIONS).map(|index| MetadataChange::PartitionSet {
            partition: topic_partition(topic_id(1), index),
            state: PartitionState {
                replicas: vec![NodeId(1)],
                adding: vec![],
                removing: vec![],
                isr: vec![NodeId(1)],
                elr: vec![],
                leader: Some(NodeId(1)),
                leader_epoch: LeaderEpoch(epoch),
                partition_epoch: PartitionEpoch(100 + epoch),
            },
        }));
        changes.extend(topic_configs.iter().map(|&(name, value)| MetadataChange::ConfigSet {
            resource: ConfigResource::Topic(topic_id(1)),
            name: name.to_owned(),
            value: Some(value.to_owned()),
        }));
        changes
    }

    /// The disk loses what it may, and the node starts again.
    async fn power_cut(self, disk: &Arc<SimDisk>, epoch: i32) -> Self {
        self.partitions.close().await;
        drop(self.partitions);
        disk.restart();
        Self::open(disk, epoch).await
    }

    fn handle(&self, partition: i32) -> PartitionHandle {
        match self.partitions.get(topic_partition(topic_id(1), partition)) {
            Lookup::Open(handle) => handle,
            other => panic!("{other:?}"),
        }
    }

    async fn produce(
        &self,
        partition: i32,
        acks: Acks,
        producer: i64,
        sequence: i32,
    ) -> Result<ProduceOutcome, ProduceError> {
        let mut builder = BatchBuilder::new().producer(producer, 0, sequence);
        builder.push(1_000, None, Some(value(producer, sequence).as_bytes()), &[]).unwrap();
        let bytes = Bytes::from(builder.build());
        let header = BatchHeader::parse(&bytes).unwrap();
        let deadline = Millis(self.clock.monotonic().0 + WAIT_MS);
        let pending = self.handle(partition).produce(ValidBatch { bytes, header }, acks, deadline).await?;
        pending.outcome().await
    }

    /// All committed values of a partition with their offsets.
    fn read(&self, partition: i32) -> Vec<(i64, String)> {
        let handle = self.handle(partition);
        let view = handle.view();
        let (mut at, mut found) = (view.start.0, Vec::new());
        while at < view.high_watermark.0 {
            let slice = handle.reader().read(at, 1 << 20, view.high_watermark.0, true).unwrap();
            let bytes = slice.to_bytes().unwrap();
            for batch in records::batches(&bytes) {
                let batch = batch.unwrap();
                batch.check_crc().unwrap();
                for record in batch.records(1 << 20).unwrap().iter() {
                    let record = record.unwrap();
                    found.push((record.offset, String::from_utf8(record.value.unwrap().to_vec()).unwrap()));
                }
            }
            at = slice.next_offset;
        }
        found
    }
}

fn value(producer: i64, sequence: i32) -> String {
    format!("{producer}:{sequence}")
}

/// What one producer knows: how many of its records are acknowledged, and where they are.
struct Producer {
    id: i64,
    partition: i32,
    acked: Vec<i64>,
}

impl Producer {
    /// Sends one record after the other until `count` are acknowledged or something fails.
    async fn run(&mut self, world: &World, count: usize) {
        while self.acked.len() < count {
            match world.produce(self.partition, Acks::All, self.id, self.acked.len() as i32).await {
                Ok(outcome) => self.acked.push(outcome.base_offset.0),
                Err(_) => return,
            }
        }
    }

    fn check(&self, records: &[(i64, String)]) {
        for (sequence, offset) in self.acked.iter().enumerate() {
            let wanted = value(self.id, sequence as i32);
            let at: Vec<_> = records.iter().filter(|(_, value)| *value == wanted).collect();
            assert_eq!(at.len(), 1, "{wanted} is there once");
            assert_eq!(at[0].0, *offset, "{wanted} is where it was acknowledged");
        }
    }
}

/// Four producers write until the disk dies at a random operation; the node restarts and they go on.
async fn crash_run(seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let disk = SimDisk::new(seed);
    let mut world = World::open(&disk, 1).await;
    let mut producers: Vec<_> =
        (0..4).map(|id| Producer { id, partition: id as i32 % PARTITIONS, acked: Vec::new() }).collect();
    for epoch in 2..5 {
        disk.crash_at(disk.ops() + rng.random_range(1..150));
        let runs = producers.iter_mut().map(|producer| producer.run(&world, 1_000));
        futures_util::future::join_all(runs).await;
        assert!(disk.is_crashed(), "producers go on until the disk dies");
        world = world.power_cut(&disk, epoch).await;
        for partition in 0..PARTITIONS {
            let records = world.read(partition);
            let offsets: Vec<_> = records.iter().map(|(offset, _)| *offset).collect();
            assert_eq!(offsets, (0..records.len() as i64).collect::<Vec<_>>(), "offsets are dense");
            producers
                .iter()
                .filter(|producer| producer.partition == partition)
                .for_each(|p| p.check(&records));
        }
    }
    // In the end everybody gets everything in: what was in doubt is sent again and not doubled.
    let total: Vec<usize> = producers.iter().map(|producer| producer.acked.len() + 5).collect();
    let runs = producers.iter_mut().zip(&total).map(|(producer, &count)| producer.run(&world, count));
    futures_util::future::join_all(runs).await;
    for (producer, count) in producers.iter().zip(total) {
        assert_eq!(producer.acked.len(), count);
        let records = world.read(producer.partition);
        producer.check(&records);
        let prefix = format!("{}:", producer.id);
        let own: Vec<_> = records.iter().filter(|(_, value)| value.starts_with(&prefix)).collect();
        assert_eq!(own.len(), count, "nothing is there twice: {own:?}");
    }
    world.partitions.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_records_survive_power_cuts_once_and_in_place() {
    if let Some(seed) = std::env::var("WEIR_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return crash_run(seed).await;
    }
    for seed in 0..40 {
        println!("repeat with: WEIR_SEED={seed} cargo test -p storage-node power_cuts");
        crash_run(seed).await;
    }
}

#[tokio::test]
async fn a_full_disk_refuses_and_recovers() {
    let disk = SimDisk::new(1);
    let world = World::open(&disk, 1).await;
    world.produce(0, Acks::All, 1, 0).await.unwrap();
    disk.set_capacity(Some(disk.used_bytes()));
    assert_eq!(world.produce(0, Acks::All, 1, 1).await, Err(ProduceError::WriteRefused));
    disk.set_capacity(None);
    let outcome = world.produce(0, Acks::All, 1, 1).await.unwrap();
    assert_eq!(outcome.base_offset, Offset(1));
    world.partitions.close().await;
}

#[tokio::test]
async fn a_failed_sync_takes_its_directory_offline_and_no_other() {
    let disk = SimDisk::new(1);
    let open =
        |epoch| World::open_in(Arc::clone(&disk) as Arc<dyn Disk>, 2, epoch, PartitionLimits::default(), &[]);
    let world = open(1).await;
    assert_ne!(world.handle(0).directory(), world.handle(1).directory());
    world.produce(0, Acks::All, 1, 0).await.unwrap();
    disk.inject(SimFault::Sync(".log".into()));
    assert_eq!(world.produce(0, Acks::All, 1, 1).await, Err(ProduceError::LogFailed));
    assert_eq!(world.produce(0, Acks::Leader, 1, 1).await, Err(ProduceError::LogFailed));
    assert_eq!(world.handle(0).view().check_leader(-1), Err(LeadershipError::LogFailed));
    world.produce(1, Acks::All, 2, 0).await.unwrap();
    let failed = world.handle(0).directory();
    eventually("the directory is offline", || world.partitions.metrics().disks().failures().len() == 1).await;
    assert!(world.partitions.failure_of(failed).is_some());
    // What was there is not made anew where a disk works; what is new comes to stand there.
    let id = |partition| topic_partition(topic_id(1), partition);
    assert_eq!(world.partitions.place(id(0)), failed);
    for new in 10..14 {
        assert_ne!(world.partitions.place(id(new)), failed);
    }
    // The next start verifies what is there, and goes on from it.
    world.partitions.close().await;
    drop(world);
    disk.restart();
    let world = open(2).await;
    assert_eq!(world.read(0)[0], (0, value(1, 0)));
    let end = world.handle(0).view().end;
    let next = world.produce(0, Acks::All, 1, 1).await.unwrap();
    assert!(next.base_offset == end || next.base_offset.0 == 1, "{next:?}");
    world.partitions.close().await;
}

#[tokio::test]
async fn a_copy_whose_folder_is_gone_is_missed_where_it_was_and_made_nowhere_else() {
    let disk = SimDisk::new(1);
    let open =
        |epoch| World::open_in(Arc::clone(&disk) as Arc<dyn Disk>, 2, epoch, PartitionLimits::default(), &[]);
    let world = open(1).await;
    let paths = ["data", "more-data"];
    let lost = world.handle(0).directory();
    world.produce(0, Acks::All, 1, 0).await.unwrap();
    world.produce(1, Acks::All, 2, 0).await.unwrap();
    world.partitions.close().await;
    drop(world);
    let id = topic_partition(topic_id(1), 0);
    let folder =
        Path::new(paths[lost]).join(log_engine::LogName::new(id.topic.0, id.partition.0).to_string());
    for file in disk.list(&folder).unwrap() {
        disk.remove_file(&folder.join(&file.name)).unwrap();
    }
    disk.remove_dir(&folder).unwrap();
    let world = open(2).await;
    assert!(matches!(world.partitions.get(id), Lookup::Failed), "not a new, empty one");
    assert!(world.partitions.damaged.lock().contains(&id));
    assert_eq!(world.partitions.place(id), lost);
    assert_eq!(world.read(1), [(0, value(2, 0))]);
    world.partitions.close().await;
}

#[tokio::test]
async fn what_lies_in_a_directory_that_cannot_be_opened_is_offline_and_made_anew_nowhere() {
    let disk = SimDisk::new(1);
    let at = || Arc::clone(&disk) as Arc<dyn Disk>;
    let both = |epoch| World::open_in(at(), 2, epoch, PartitionLimits::default(), &[]);
    let world = both(1).await;
    for partition in 0..2 {
        world.produce(partition, Acks::All, 1, 0).await.unwrap();
    }
    let second = (0..2).find(|partition| world.handle(*partition).directory() == 1).unwrap();
    let id = topic_partition(topic_id(1), second);
    world.partitions.close().await;
    drop(world);
    let mut world = World::start_beside(at(), 1, &["more-data"], false, PartitionLimits::default());
    world.apply(&World::first_changes(2, &[])).await;
    assert!(matches!(world.partitions.get(id), Lookup::Failed));
    assert_eq!(world.partitions.failed(), [id], "it resigns, if it leads");
    assert_eq!(world.partitions.damaged(), [], "it is not begun anew from a leader");
    assert_eq!(world.partitions.metrics().disks().failures().len(), 1);
    world.produce(1 - second, Acks::All, 1, 1).await.unwrap();
    // Neither is it when it comes again.
    let (mut image, mut delta) = (world.image.clone(), ImageDelta::default());
    let state = image.partition(id).unwrap().as_ref().clone();
    for (index, replicas) in [(2, vec![NodeId(2)]), (3, vec![NodeId(1)])] {
        let state = PartitionState { replicas, ..state.clone() };
        delta.merge(
            image.apply(MetadataIndex(index), &[MetadataChange::PartitionSet { partition: id, state }]),
        );
        world.partitions.apply(&image, &std::mem::take(&mut delta)).await;
    }
    assert!(matches!(world.partitions.get(id), Lookup::Failed));
    assert!(!disk.list(Path::new("data")).unwrap().iter().any(|entry| entry.name == id.to_string()));
    world.partitions.close().await;
    drop(world);
    let world = both(3).await;
    assert_eq!(world.read(second), [(0, value(1, 0))]);
    world.partitions.close().await;
}

/// Removes all that is in a folder, for good.
fn wipe(disk: &SimDisk, folder: &Path) {
    for entry in disk.list(folder).unwrap() {
        let path = folder.join(&entry.name);
        if entry.is_dir {
            wipe(disk, &path);
            disk.remove_dir(&path).unwrap();
        } else {
            disk.remove_file(&path).unwrap();
        }
    }
    disk.sync_dir(folder).unwrap();
}

/// What the cluster believes to be here is not an empty log.
#[tokio::test]
async fn what_was_on_a_lost_disk_is_not_made_anew_before_it_is_given_up() {
    let disk = SimDisk::new(1);
    let at = || Arc::clone(&disk) as Arc<dyn Disk>;
    let world = World::open_in(at(), 2, 1, PartitionLimits::default(), &[]).await;
    for partition in 0..2 {
        world.produce(partition, Acks::All, 1, 0).await.unwrap();
    }
    let second = (0..2).find(|partition| world.handle(*partition).directory() == 1).unwrap();
    let id = topic_partition(topic_id(1), second);
    world.partitions.close().await;
    drop(world);
    let folder = Path::new("more-data");
    wipe(&disk, folder);

    // Which of two directories had it nobody knows.
    let mut world = World::start_beside(at(), 1, &["other"], true, PartitionLimits::default());
    world.apply(&World::first_changes(2, &[])).await;
    assert_eq!((world.partitions.failed(), world.partitions.damaged()), (vec![id], vec![]));
    assert!(!*world.partitions.watch_lost_missed().borrow());
    world.partitions.close().await;
    drop(world);

    // The process may end whenever it likes.
    for (run, replaces_lost_disk) in [true, true, false].into_iter().enumerate() {
        let limits = PartitionLimits::default();
        let mut world = World::start_beside(at(), 2, &[], replaces_lost_disk, limits);
        world.apply(&World::first_changes(3, &[])).await;
        assert_eq!(world.partitions.failed(), [id], "run {run}: it resigns, if it leads");
        assert_eq!(world.partitions.damaged(), [id], "run {run}: it is to begin anew from a leader");
        assert!(*world.partitions.watch_lost_missed().borrow());
        assert_eq!(world.read(1 - second), [(0, value(1, 0))]);
        // Nobody else leads: it stays as it is.
        world.partitions.restart_copy(&world.image, id).await.unwrap();
        assert_eq!(world.partitions.damaged(), [id]);
        world.partitions.close().await;
        drop(world);
        disk.crash_at(disk.ops() + 1);
        disk.restart();
    }

    // Another one does, and counts on nothing of it. And what is placed here from now on is new.
    let mut world = World::start_beside(at(), 2, &[], false, PartitionLimits::default());
    world.apply(&World::first_changes(4, &[])).await;
    let state = world.image.partition(id).unwrap().as_ref().clone();
    let led = PartitionState { leader: Some(NodeId(2)), isr: vec![NodeId(2)], ..state };
    let led = PartitionState { replicas: vec![NodeId(2), NodeId(1)], leader_epoch: LeaderEpoch(5), ..led };
    let led = PartitionState { partition_epoch: PartitionEpoch(200), ..led };
    let new = topic_partition(topic_id(1), PARTITIONS);
    let changes = [(id, led.clone()), (new, led)];
    world.apply(&changes.map(|(partition, state)| MetadataChange::PartitionSet { partition, state })).await;
    assert!(matches!(world.partitions.get(new), Lookup::Open(_)));
    world.partitions.restart_copy(&world.image, id).await.unwrap();
    assert_eq!(world.partitions.damaged(), []);
    assert_eq!(world.handle(second).view().end, Offset(0));
    world.partitions.close().await;
}

/// A directory that cannot be written keeps nothing from the others.
#[tokio::test]
async fn what_was_lost_is_missed_everywhere_though_one_directory_cannot_note_it() {
    let disk = SimDisk::new(1);
    let at = || Arc::clone(&disk) as Arc<dyn Disk>;
    let world = World::open_in(at(), 2, 1, PartitionLimits::default(), &[]).await;
    world.partitions.close().await;
    drop(world);
    for folder in ["data", "more-data"] {
        wipe(&disk, Path::new(folder));
    }
    for is_written in [false, true] {
        let mut world = World::start_beside(at(), 2, &[], true, PartitionLimits::default());
        if !is_written {
            // It is under the name that the file was made by.
            disk.inject(SimFault::Write("data/flushed-ends.tmp".into()));
        }
        world.apply(&World::first_changes(2, &[])).await;
        let mut failed = world.partitions.failed();
        failed.sort_unstable();
        let all: Vec<_> = (0..PARTITIONS).map(|partition| topic_partition(topic_id(1), partition)).collect();
        assert_eq!(failed, all, "{is_written}: none is made anew, empty: {:?}", world.partitions.damaged());
        assert_eq!(*world.partitions.watch_lost_missed().borrow(), is_written);
        world.partitions.close().await;
        drop(world);
        disk.crash_at(disk.ops() + 1);
        disk.restart();
    }
}

#[tokio::test]
async fn a_failed_directory_takes_all_that_is_in_it_along_and_opens_nothing_more() {
    let disk = SimDisk::new(1);
    let world = World::open(&disk, 1).await;
    world.produce(0, Acks::All, 1, 0).await.unwrap();
    world.produce(1, Acks::All, 2, 0).await.unwrap();
    disk.inject(SimFault::Write(".log".into()));
    assert_eq!(world.produce(0, Acks::All, 1, 1).await, Err(ProduceError::LogFailed));
    eventually("its neighbour is offline too", || world.handle(1).view().standing == Standing::Failed).await;
    let mut failed = world.partitions.failed();
    failed.sort_unstable();
    assert_eq!(failed, [topic_partition(topic_id(1), 0), topic_partition(topic_id(1), 1)]);
    // It is served what a reader finds in memory, and no more is written.
    assert_eq!(world.produce(1, Acks::Leader, 2, 1).await, Err(ProduceError::LogFailed));
    let world = world.power_cut(&disk, 2).await;
    assert_eq!(world.read(0)[0], (0, value(1, 0)));
    assert_eq!(world.read(1)[0], (0, value(2, 0)));
}

/// The disk fails while a log is opened, and again at the next try: the copy is offline until a try succeeds, and not tried all
/// the time.
#[tokio::test]
async fn a_copy_that_could_not_be_opened_for_the_moment_is_opened_later() {
    let disk = SimDisk::new(1);
    let world = World::open(&disk, 1).await;
    for sequence in 0..3 {
        world.produce(0, Acks::All, 1, sequence).await.unwrap();
    }
    // What no record of flushed ends tells of is read when the log is opened.
    disk.crash_at(disk.ops() + 1);
    world.produce(0, Acks::All, 1, 3).await.unwrap_err();
    world.partitions.close().await;
    drop(world);
    disk.restart();
    let id = topic_partition(topic_id(1), 0);
    disk.inject(SimFault::Read(".log".into()));
    let world = World::open(&disk, 2).await;
    assert!(matches!(world.partitions.get(id), Lookup::Failed));
    assert_eq!(world.partitions.damaged(), []);
    world.produce(1, Acks::All, 2, 0).await.unwrap();

    let in_a_while = |wait_ms| Millis(world.clock.monotonic().0 + wait_ms);
    let Millis(before) = world.clock.monotonic();
    disk.inject(SimFault::Read(".log".into()));
    world.partitions.reopen_due(&world.image, in_a_while(5_000)).await;
    assert!(matches!(world.partitions.get(id), Lookup::Failed), "the disk fails again");
    world.partitions.reopen_due(&world.image, Millis(before + 9_999)).await;
    assert!(matches!(world.partitions.get(id), Lookup::Failed), "it is too early");
    world.partitions.reopen_due(&world.image, in_a_while(10_000)).await;
    let expected: Vec<_> = (0..3).map(|sequence| (i64::from(sequence), value(1, sequence))).collect();
    assert_eq!(world.read(0)[..3], expected);
    let next = i32::try_from(world.read(0).len()).unwrap();
    world.produce(0, Acks::All, 1, next).await.unwrap();
    assert_eq!(world.read(1), [(0, value(2, 0))]);
    world.partitions.close().await;
}

/// What the disk had no room for may be gone, or still be there: what was acknowledged is, and the partition goes on by itself.
#[tokio::test]
async fn a_log_whose_sync_found_no_space_goes_on_when_there_is_some() {
    for seed in 1..4 {
        let disk = SimDisk::new(seed);
        let world = World::open(&disk, 1).await;
        let id = topic_partition(topic_id(1), 0);
        world.produce(0, Acks::All, 1, 0).await.unwrap();
        disk.inject(SimFault::SyncNoSpace(".log".into()));
        assert_eq!(world.produce(0, Acks::All, 1, 1).await, Err(ProduceError::LogFailed));
        let handle = world.handle(0);
        eventually("nothing of it is under way", || handle.is_closed_for_space()).await;
        assert_eq!(world.partitions.metrics().disks().failures(), [""; 0], "the directory is not to blame");
        world.produce(1, Acks::All, 2, 0).await.unwrap();
        let in_a_while = |wait_ms| Millis(world.clock.monotonic().0 + wait_ms);
        world.partitions.reopen_due(&world.image, in_a_while(0)).await;
        assert!(matches!(world.partitions.get(id), Lookup::Failed), "it is closed, and its turn comes later");
        if seed == 1 {
            // The device has none of what was not synced, and what the cache shows of it is gone too.
            let folder = disk.list(Path::new("data")).unwrap();
            let folder = folder.iter().find(|e| e.is_dir && e.name.ends_with("-0")).unwrap();
            let path = Path::new("data").join(&folder.name).join("00000000000000000000.log");
            let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
            file.set_len(file.len().unwrap() - 20).unwrap();
        }
        // It does not fit while it is copied; it is tried again.
        disk.set_capacity(Some(disk.used_bytes()));
        world.partitions.reopen_due(&world.image, in_a_while(5_000)).await;
        assert!(matches!(world.partitions.get(id), Lookup::Failed) && world.partitions.damaged().is_empty());
        disk.set_capacity(None);
        let opened = async || {
            world.partitions.reopen_due(&world.image, in_a_while(1_000_000)).await;
            matches!(world.partitions.get(id), Lookup::Open(_))
        };
        while !opened().await {
            // The log thread has yet to see that there is room.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        eventually("it leads again", || world.handle(0).view().high_watermark > Offset(0)).await;
        assert_eq!(world.read(0)[0], (0, value(1, 0)), "what was acknowledged is there");
        // The producer sends again what was refused: it may be there already.
        world.produce(0, Acks::All, 1, 1).await.unwrap();
        world.produce(0, Acks::All, 1, 2).await.unwrap();
        let expected: Vec<_> = (0..3).map(|n| (i64::from(n), value(1, n))).collect();
        assert_eq!(world.read(0), expected);
        let world = world.power_cut(&disk, 2).await;
        assert_eq!(world.read(0), expected);
        world.partitions.close().await;
    }
}

/// Others may have what a leader has lost, or the controllers may count them in sync by now: it comes back as a follower only.
#[tokio::test]
async fn a_leader_among_others_gives_up_before_its_closed_log_is_opened_again() {
    let disk = SimDisk::new(1);
    let mut world = World::open(&disk, 1).await;
    let id = topic_partition(topic_id(1), 0);
    let of = |leader: i32, epoch: i32, partition_epoch: i32| {
        let state = PartitionState {
            replicas: vec![NodeId(1), NodeId(2)],
            adding: vec![],
            removing: vec![],
            isr: vec![NodeId(leader)],
            elr: vec![],
            leader: Some(NodeId(leader)),
            leader_epoch: LeaderEpoch(epoch),
            partition_epoch: PartitionEpoch(partition_epoch),
        };
        [MetadataChange::PartitionSet { partition: id, state }]
    };
    world.apply(&of(1, 1, 10)).await;
    world.produce(0, Acks::All, 1, 0).await.unwrap();
    disk.inject(SimFault::SyncNoSpace(".log".into()));
    assert_eq!(world.produce(0, Acks::All, 1, 1).await, Err(ProduceError::LogFailed));
    let handle = world.handle(0);
    eventually("nothing of it is under way", || handle.is_closed_for_space()).await;
    for wait_ms in [0, 1_000_000] {
        let now = Millis(world.clock.monotonic().0 + wait_ms);
        world.partitions.reopen_due(&world.image, now).await;
        assert!(matches!(world.partitions.get(id), Lookup::Failed), "it leads still");
        assert_eq!(world.partitions.failed(), [id], "and resigns");
    }
    world.apply(&of(2, 2, 11)).await;
    let now = Millis(world.clock.monotonic().0 + 1_000_000);
    world.partitions.reopen_due(&world.image, now).await;
    eventually("it follows", || world.handle(0).view().standing == Standing::Follower).await;
    assert_eq!(world.partitions.failed(), []);
    world.partitions.close().await;
}

/// Clients are refused before the disk is full, the logs of coordinators are not, and it all goes on when there is room.
#[tokio::test]
async fn below_the_reserve_producers_are_refused_until_there_is_room() {
    let disk = SimDisk::new(1);
    let limits = PartitionLimits::default();
    let world = World::open_with(Arc::clone(&disk) as Arc<dyn Disk>, 1, limits).await;
    world.produce(0, Acks::All, 1, 0).await.unwrap();
    // A sixteenth of the disk is reserved; half of that is left.
    const CAPACITY: u64 = 4 << 20;
    let filler = disk.open(Path::new("data/filler"), OpenMode::CreateNew).unwrap();
    filler.set_len(CAPACITY - CAPACITY / 32 - disk.used_bytes()).unwrap();
    disk.set_capacity(Some(CAPACITY));
    wait_for_refusal(&world, true).await;
    assert_eq!(world.read(0), [(0, value(1, 0))], "it can be read");
    let deleted = world.handle(0).delete_records(None, Millis(WAIT_MS)).await;
    assert_eq!(deleted, Ok(Offset(1)), "and shortened");
    filler.set_len(0).unwrap();
    wait_for_refusal(&world, false).await;
    assert!(world.read(0).is_empty());
    world.produce(1, Acks::All, 9, 0).await.unwrap();
}

/// Sends to a partition until it is refused, or not any more.
async fn wait_for_refusal(world: &World, refused: bool) {
    wait_for_refusal_of(world, 1, (5 + i64::from(refused), 0), refused).await;
}

async fn wait_for_refusal_of(
    world: &World,
    partition: i32,
    (producer, mut sequence): (i64, i32),
    refused: bool,
) {
    let began = Clock::start();
    loop {
        let answer = world.produce(partition, Acks::All, producer, sequence).await;
        match answer {
            Ok(_) if !refused => return,
            Ok(_) => sequence += 1,
            Err(ProduceError::DiskFull) if refused => return,
            Err(error) => assert_eq!(error, ProduceError::DiskFull),
        }
        assert!(began.monotonic().0 < WAIT_MS, "it does not come");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_leader_that_starts_on_a_full_disk_deletes_records_and_goes_on_when_there_is_room() {
    let disk = SimDisk::new(1);
    let world = World::open(&disk, 1).await;
    for sequence in 0..3 {
        world.produce(0, Acks::All, 1, sequence).await.unwrap();
    }
    disk.set_capacity(Some(disk.used_bytes()));
    let world = world.power_cut(&disk, 2).await;
    disk.set_capacity(Some(disk.used_bytes()));
    let handle = world.handle(0);
    // The epoch of the new leadership finds no room.
    assert_eq!(handle.delete_records(Some(Offset(2)), Millis(WAIT_MS)).await, Ok(Offset(2)));
    assert_eq!(handle.view().check_leader(-1), Ok(()));
    assert!(world.produce(0, Acks::All, 1, 3).await.is_err());
    disk.set_capacity(None);
    wait_for_refusal_of(&world, 0, (1, 3), false).await;
    world.partitions.close().await;
}

/// Where nobody waits for the disk, finished segments still get there, and their descriptors are let go.
#[tokio::test]
async fn a_topic_that_is_not_flushed_for_its_producers_is_flushed_segment_by_segment() {
    let disk = SimDisk::new(1);
    let configs = [("weir.flush", "os"), ("segment.bytes", "1048576")];
    let world =
        World::open_configured(Arc::clone(&disk) as Arc<dyn Disk>, 1, PartitionLimits::default(), &configs);
    let world = world.await;
    let handle = world.handle(0);
    for _ in 0..40 {
        let mut builder = BatchBuilder::new();
        builder.push(1_000, None, Some(&vec![7; 400_000]), &[]).unwrap();
        let bytes = Bytes::from(builder.build());
        let header = BatchHeader::parse(&bytes).unwrap();
        let deadline = Millis(world.clock.monotonic().0 + WAIT_MS);
        let pending = handle.produce(ValidBatch { bytes, header }, Acks::Leader, deadline).await.unwrap();
        pending.outcome().await.unwrap();
    }
    let deadline = Millis(world.clock.monotonic().0 + WAIT_MS);
    while handle.reader().flushed() < 36 {
        assert!(world.clock.monotonic() < deadline, "flushed up to {}", handle.reader().flushed());
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    world.partitions.close().await;
}

#[tokio::test]
async fn closing_answers_everybody() {
    let disk = SimDisk::new(1);
    let world = World::open(&disk, 1).await;
    let handle = world.handle(0);
    world.produce(0, Acks::All, 1, 0).await.unwrap();
    world.partitions.close().await;
    let mut builder = BatchBuilder::new();
    builder.push(1_000, None, None, &[]).unwrap();
    let bytes = Bytes::from(builder.build());
    let header = BatchHeader::parse(&bytes).unwrap();
    let refused = handle.produce(ValidBatch { bytes, header }, Acks::All, Millis(WAIT_MS)).await;
    assert_eq!(refused.map(|_| ()).unwrap_err(), ProduceError::NotLeader);
    assert_eq!(
        handle.delete_records(None, Millis(WAIT_MS)).await,
        Err(storage_node_core::DeleteRecordsError::NotLeader)
    );
}

/// Removing the files of a large log takes long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_until_the_files_of_a_deleted_topic_are_removed() {
    let disk = StallingDisk::over(SimDisk::new(1));
    let inner = Arc::clone(&disk) as Arc<dyn Disk>;
    let mut world = World::open_with(Arc::clone(&inner), 1, PartitionLimits::default()).await;
    world.produce(0, Acks::All, 1, 0).await.unwrap();
    disk.stall(".deleted/");
    let deleted = MetadataChange::TopicDeleted { topic: topic_id(1) };
    let delta = world.image.apply(MetadataIndex(2), &[deleted]);
    let patience = Duration::from_millis(WAIT_MS as u64);
    let applied = tokio::time::timeout(patience, world.partitions.apply(&world.image, &delta)).await;
    disk.release();
    applied.unwrap();
    assert!(matches!(world.partitions.get(topic_partition(topic_id(1), 0)), Lookup::Absent));
    world.partitions.close().await;
    drop(world);
    let world = World::open_with(inner, 2, PartitionLimits::default()).await;
    assert_eq!(world.handle(0).view().end, Offset(0));
    world.partitions.close().await;
}

/// T-29: what is told late of a topic that is gone does not touch the one that has its name now.
#[tokio::test]
async fn a_late_delete_leaves_the_topic_of_the_same_name_alone() {
    let disk = SimDisk::new(1);
    let mut world = World::open(&disk, 1).await;
    world.produce(0, Acks::All, 1, 0).await.unwrap();
    let deleted = world.image.apply(MetadataIndex(2), &[MetadataChange::TopicDeleted { topic: topic_id(1) }]);
    world.partitions.apply(&world.image, &deleted).await;
    let created = world.image.apply(MetadataIndex(3), &topic(2, "t", 1, &[1]));
    world.partitions.apply(&world.image, &created).await;
    let new = topic_partition(topic_id(2), 0);
    let Lookup::Open(handle) = world.partitions.get(new) else { panic!("it was created") };
    assert_eq!(handle.view().end, Offset(0), "it has nothing of the old one");
    let mut again = deleted.clone();
    again.merge(ImageDelta { partitions: [topic_partition(topic_id(1), 0)].into(), ..ImageDelta::default() });
    world.partitions.apply(&world.image, &again).await;
    assert!(matches!(world.partitions.get(new), Lookup::Open(_)), "the new topic's copy is gone");
    assert!(matches!(world.partitions.get(topic_partition(topic_id(1), 0)), Lookup::Absent));
    world.partitions.close().await;
}

/// T-30: metadata that is empty, behind, or says that the topic was deleted and made anew while the node was down: whatever it
/// finds on its disks that it is not told of, it leaves alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_metadata_does_not_know_at_a_start_is_kept() {
    let disk = SimDisk::new(1);
    let world = World::open(&disk, 1).await;
    for sequence in 0..3 {
        world.produce(0, Acks::All, 1, sequence).await.unwrap();
    }
    let records = world.read(0);
    world.partitions.close().await;
    drop(world);
    let wrong: [(&str, Vec<MetadataChange>); 4] = [
        ("empty", vec![]),
        ("of before the topic was made", live_node(1)),
        ("ahead: another topic has the name", [live_node(1), topic(2, "t", PARTITIONS, &[1])].concat()),
        ("ahead: the copies are elsewhere", [live_node(1), topic(1, "t", PARTITIONS, &[2])].concat()),
    ];
    for (what, changes) in wrong {
        let mut world = World::start(&disk);
        world.apply(&changes).await;
        assert!(matches!(world.partitions.get(topic_partition(topic_id(1), 0)), Lookup::Absent), "{what}");
        world.partitions.close().await;
    }
    let world = World::open(&disk, 2).await;
    assert_eq!((records.len(), world.read(0)), (3, records));
    world.partitions.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_disk_makes_the_node_unhealthy_and_holds_up_nobody_else() {
    let disk = StallingDisk::over(SimDisk::new(1));
    let limits = PartitionLimits { disk_stall_ms: 300, ..PartitionLimits::default() };
    let world = World::open_with(Arc::clone(&disk) as Arc<dyn Disk>, 1, limits).await;
    let mut healthy = world.partitions.watch_healthy();
    assert!(*healthy.borrow_and_update());
    let log = topic_partition(topic_id(1), 0).to_string();
    disk.stall(&format!("{log}/"));
    let stalled = world.produce(0, Acks::All, 1, 0);
    let others = async {
        // Appends go on, those to the stalled log too; other logs are flushed by other threads.
        assert_eq!(world.produce(0, Acks::Leader, 2, 0).await.unwrap().base_offset, Offset(1));
        for sequence in 0..20 {
            world.produce(1, Acks::All, 3, sequence).await.unwrap();
        }
        healthy.wait_for(|healthy| !healthy).await.unwrap();
        assert_eq!(world.handle(0).view().high_watermark, Offset(0));
        disk.release();
        healthy.wait_for(|healthy| *healthy).await.unwrap();
    };
    let (stalled, ()) = tokio::join!(stalled, others);
    assert_eq!(stalled.unwrap().base_offset, Offset(0));
    world.partitions.close().await;
}

/// Polls until it holds.
async fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("not in 20 s: {what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scrub_seals_and_finds_damage_and_a_leader_keeps_what_is_left() {
    let disk = SimDisk::new(7);
    let scrub = ScrubLimits { bytes_per_second: 1 << 30, period_ms: 100 };
    let limits = || PartitionLimits { scrub, ..PartitionLimits::default() };
    let open = |epoch| {
        World::open_configured(
            Arc::clone(&disk) as Arc<dyn Disk>,
            epoch,
            limits(),
            &[("segment.bytes", "1048576")],
        )
    };
    let world = open(0).await;
    let id = topic_partition(topic_id(1), 0);
    let dir = Path::new("data").join(id.to_string());
    let files = |suffix: &str| -> Vec<String> {
        let names = disk.list(&dir).unwrap().into_iter().map(|entry| entry.name);
        names.filter(|name| name.ends_with(suffix)).collect()
    };
    let mut sequence = 0;
    while files(".log").len() < 3 {
        let mut builder = BatchBuilder::new().producer(1, 0, sequence);
        builder.push(1_000, None, Some(&vec![b'x'; 200_000]), &[]).unwrap();
        let bytes = Bytes::from(builder.build());
        let header = BatchHeader::parse(&bytes).unwrap();
        let deadline = Millis(world.clock.monotonic().0 + WAIT_MS);
        let batch = ValidBatch { bytes, header };
        world.handle(0).produce(batch, Acks::All, deadline).await.unwrap().outcome().await.unwrap();
        sequence += 1;
    }
    world.produce(1, Acks::All, 2, 0).await.unwrap();
    eventually("both finished segments have seals", || files(".seal").len() == 2).await;

    // The first byte of the file is part of an offset, which no batch checksum covers.
    disk.flip_bit(&dir.join(&files(".log")[1]), 4, 2);
    let handle = world.handle(0);
    eventually("the copy is offline", || handle.view().standing == Standing::Failed).await;
    assert!(world.partitions.damaged.lock().contains(&id));
    assert_eq!(world.read(1).len(), 1, "its neighbour goes on");
    drop(handle);
    world.partitions.close().await;
    drop(world);
    disk.restart_process();

    let mut world = open(1).await;
    assert!(matches!(world.partitions.get(id), Lookup::Failed), "the damage is remembered");
    assert!(world.partitions.damaged.lock().contains(&id));
    assert_eq!(world.read(1).len(), 1);
    // This node leads the partition: there is nobody to begin anew from, and what is left stays.
    let left = files(".log");
    world.partitions.restart_copy(&world.image, id).await.unwrap();
    assert!(world.partitions.damaged.lock().contains(&id));
    assert_eq!(files(".log"), left);
    // A copy that could not be opened goes with its topic all the same.
    let deleted = world.image.apply(MetadataIndex(2), &[MetadataChange::TopicDeleted { topic: topic_id(1) }]);
    world.partitions.apply(&world.image, &deleted).await;
    assert!(matches!(world.partitions.get(id), Lookup::Absent));
    assert_eq!(world.partitions.damaged(), []);
    let is_left = || disk.list(Path::new("data")).unwrap().iter().any(|e| e.name.contains(&id.to_string()));
    eventually("its files are gone", || !is_left()).await;
    world.partitions.close().await;
}

/// A look at everything may take days within its rate: what a reader stumbles over meanwhile does not wait for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_that_a_reader_met_is_looked_at_in_the_middle_of_a_regular_scrub() {
    let disk = SimDisk::new(8);
    let scrub = ScrubLimits { bytes_per_second: 1, period_ms: 1 };
    let limits = PartitionLimits { scrub, ..PartitionLimits::default() };
    let world = World::open_configured(Arc::clone(&disk) as Arc<dyn Disk>, 0, limits, &[]).await;
    world.produce(0, Acks::All, 1, 0).await.unwrap();
    world.produce(1, Acks::All, 2, 0).await.unwrap();
    let handle = world.handle(1);
    let log = Path::new("data").join(handle.id().to_string()).join("00000000000000000000.log");
    disk.flip_bit(&log, 70, 2);
    // It has more than a minute to go then, at a byte a second.
    eventually("the pass is at work", || world.partitions.metrics().scrubbed_bytes() > 0).await;
    assert_ne!(handle.view().standing, Standing::Failed, "the pass is still far from it");
    let error = handle.reader().read_checked(0, 1 << 20, 1, true).expect_err("damaged");
    handle.on_read_error(&error);
    eventually("the copy is offline", || handle.view().standing == Standing::Failed).await;
    assert_eq!(world.read(0).len(), 1, "its neighbour goes on");
    world.partitions.close().await;
}

/// Records of the year 1970 are older than any retention, so they go at the next look; those that are not committed stay, and
/// whoever reads learns where the log begins now. What went stays away after a power cut.
#[tokio::test]
async fn old_records_go_by_themselves_and_their_files_after_a_while() {
    let disk = SimDisk::new(11);
    let mut limits = PartitionLimits::default();
    limits.housekeeping.check_interval_ms = 1;
    let configs = [("retention.ms", "1000"), ("file.delete.delay.ms", "300")];
    let world = World::open_configured(Arc::clone(&disk) as Arc<dyn Disk>, 1, limits, &configs).await;
    let mut producer = Producer { id: 1, partition: 0, acked: Vec::new() };
    producer.run(&world, 20).await;
    assert_eq!(producer.acked.len(), 20);
    let handle = world.handle(0);
    eventually("the old records go", || handle.view().start == Offset(20)).await;
    assert_eq!(world.read(0), []);
    let log = handle.id().to_string();
    let files = |suffix: &str| {
        let names = disk.list(&Path::new("data").join(&log)).unwrap();
        names.iter().filter(|entry| entry.name.ends_with(suffix)).count()
    };
    eventually("and their files", || files(".deleted") == 0).await;
    assert_eq!(files(".log"), 1);
    let world = world.power_cut(&disk, 2).await;
    assert_eq!(world.handle(0).view().start, Offset(20));
    let next = world.produce(0, Acks::All, 1, 20).await.unwrap();
    assert_eq!(next.base_offset, Offset(20));
}

#[path = "registry/open_tests.rs"]
mod open_tests;
