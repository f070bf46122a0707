//! Copies that move between data directories, with the real tasks over a simulated disk.

use super::drop_tests::on;
use super::*;
use crate::controller_port::{ControllerFailure, ControllerPort};
use crate::mover::Mover;
use crate::published_image::PublishedImage;
use proto_types::controller_api::{ControllerReply, ControllerRequest};
use proto_types::ids::BrokerEpoch;
use quic_transport::BoxFuture;
use std::path::PathBuf;

/// The paths of the two directories.
const PATHS: [&str; 2] = ["data", "more-data"];

/// Keeps what it was asked, and agrees to nothing.
#[derive(Default)]
struct Refusing {
    asked: Mutex<Vec<ControllerRequest>>,
}

impl ControllerPort for Refusing {
    fn ask(
        &self,
        request: ControllerRequest,
        _timeout: Duration,
    ) -> BoxFuture<'_, Result<ControllerReply, ControllerFailure>> {
        self.asked.lock().push(request);
        Box::pin(async { Err(ControllerFailure::Unavailable("a test".into())) })
    }
}

/// A node of two directories with the tasks that move its copies.
struct Moving {
    world: World,
    published: Arc<PublishedImage>,
    controller: Arc<Refusing>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Moving {
    async fn open(disk: &Arc<SimDisk>, epoch: i32) -> Self {
        Self::with(disk, &World::first_changes(epoch, &[("segment.bytes", "20000")])).await
    }

    async fn with(disk: &Arc<SimDisk>, changes: &[MetadataChange]) -> Self {
        Self::over(Arc::clone(disk) as Arc<dyn Disk>, PartitionLimits::default(), changes).await
    }

    async fn over(disk: Arc<dyn Disk>, mut limits: PartitionLimits, changes: &[MetadataChange]) -> Self {
        limits.housekeeping.reserve_bytes = 0;
        let mut world = World::start_in(disk, 2, limits);
        world.apply(changes).await;
        let published = Arc::new(PublishedImage::default());
        published.publish(world.image.clone());
        let controller = Arc::new(Refusing::default());
        let mover = Mover {
            me: NodeId(1),
            partitions: Arc::clone(&world.partitions),
            published: Arc::clone(&published),
            controller: Arc::clone(&controller) as Arc<dyn ControllerPort>,
            broker_epoch: watch::Sender::new(Some(BrokerEpoch(1))).subscribe(),
            call_max: Duration::from_secs(1),
            clock: world.clock,
        };
        let (partitions, images) = (Arc::clone(&world.partitions), Arc::clone(&published));
        let opener = async move {
            loop {
                let copied = partitions.moves().copied().await;
                partitions.finish_move(Some(&images.load()), copied).await;
            }
        };
        let tasks = vec![tokio::spawn(mover.run()), tokio::spawn(opener)];
        Self { world, published, controller, tasks }
    }

    fn id() -> TopicPartition {
        topic_partition(topic_id(1), 0)
    }

    fn place(&self) -> usize {
        self.world.handle(0).directory()
    }

    fn ask(&self, to: usize) {
        self.world.partitions.move_copy(Self::id(), PATHS[to]).unwrap();
    }

    async fn ended(&self) {
        eventually("the move is over", || self.world.partitions.moves().all().is_empty()).await;
    }

    /// The directories that have a folder of the copy.
    fn folders(&self, disk: &SimDisk) -> Vec<usize> {
        folders_of(Self::id(), disk)
    }

    /// Appends until it is committed, whoever refuses meanwhile; the offset.
    async fn append(&self, producer: i64, sequence: i32) -> i64 {
        loop {
            match self.world.produce(0, Acks::All, producer, sequence).await {
                Ok(outcome) => return outcome.base_offset.0,
                Err(error) => assert_eq!(error, ProduceError::NotLeader),
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn close(self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
        for task in self.tasks {
            drop(task.await);
        }
        self.world.partitions.close().await;
    }
}

fn folders_of(id: TopicPartition, disk: &SimDisk) -> Vec<usize> {
    let name = crate::disk::log_thread::log_name(id).to_string();
    let has = |path: &str| disk.list(Path::new(path)).unwrap().iter().any(|e| e.name.starts_with(&name));
    (0..2).filter(|&at| has(PATHS[at])).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_moves_to_and_fro_under_load_and_no_record_is_lost_or_moved() {
    let disk = SimDisk::new(5);
    let moving = Moving::open(&disk, 1).await;
    let mut offsets = Vec::new();
    let mut sequence = 0;
    for _ in 0..3 {
        let target = 1 - moving.place();
        moving.ask(target);
        // It goes on for a while beyond the move.
        let (mut left, before) = (100, sequence);
        while left > 0 {
            offsets.push(moving.append(7, sequence).await);
            sequence += 1;
            if moving.world.partitions.moves().all().is_empty() {
                left -= 1;
            }
        }
        assert!(sequence - before >= 100);
        assert_eq!(moving.place(), target);
        eventually("the old files are gone", || moving.folders(&disk) == [target]).await;
    }
    assert!(offsets.is_sorted_by(|a, b| a < b), "each has its own offset, in order");
    let expected: Vec<_> = offsets.iter().enumerate().map(|(n, at)| (*at, value(7, n as i32))).collect();
    eventually("all is committed", || moving.world.read(0).len() >= expected.len()).await;
    assert_eq!(moving.world.read(0), expected);
    let place = moving.place();
    moving.close().await;
    disk.restart();
    let again = Moving::open(&disk, 2).await;
    assert_eq!((again.place(), again.world.read(0)), (place, expected));
    again.close().await;
}

#[tokio::test]
async fn who_asks_for_the_present_place_ends_a_move() {
    let disk = SimDisk::new(5);
    let moving = Moving::open(&disk, 1).await;
    for sequence in 0..20 {
        moving.append(7, sequence).await;
    }
    let (here, throttle) = (moving.place(), &moving.world.partitions.config.replication.throttles.moves);
    throttle.set(1);
    throttle.take(1_000_000);
    moving.ask(1 - here);
    moving.ask(1 - here);
    eventually("it has begun", || moving.folders(&disk) == [0, 1]).await;
    assert_eq!(moving.world.partitions.moves().all().len(), 1);
    moving.ask(here);
    eventually("nothing is left of it", || moving.folders(&disk) == [here]).await;
    moving.ended().await;
    assert_eq!(moving.append(7, 20).await, 20);
    moving.close().await;
}

#[tokio::test]
async fn a_copy_that_finds_no_room_or_a_bad_disk_stays_where_it_is() {
    let disk = SimDisk::new(5);
    let moving = Moving::open(&disk, 1).await;
    for sequence in 0..20 {
        moving.append(7, sequence).await;
    }
    let here = moving.place();
    disk.set_capacity(Some(disk.used_bytes() + 100));
    moving.ask(1 - here);
    moving.ended().await;
    disk.set_capacity(None);
    let copy = format!("{}/{}.moving", PATHS[1 - here], crate::disk::log_thread::log_name(Moving::id()));
    disk.inject(SimFault::SyncDir(copy));
    moving.ask(1 - here);
    moving.ended().await;
    assert_eq!((moving.place(), moving.folders(&disk)), (here, vec![here]));
    assert_eq!(moving.append(7, 20).await, 20);
    assert_eq!(moving.world.read(0).len(), 21);
    moving.close().await;
}

#[tokio::test]
async fn a_leader_of_several_replicas_is_not_closed_before_it_has_given_up() {
    let disk = SimDisk::new(5);
    let state = |leader, epoch| MetadataChange::PartitionSet {
        partition: Moving::id(),
        state: PartitionState {
            replicas: vec![NodeId(1), NodeId(2)],
            adding: vec![],
            removing: vec![],
            isr: vec![NodeId(1), NodeId(2)],
            elr: vec![],
            leader: Some(NodeId(leader)),
            leader_epoch: LeaderEpoch(epoch),
            partition_epoch: PartitionEpoch(100 + epoch),
        },
    };
    let mut changes = World::first_changes(1, &[]);
    changes.push(state(1, 2));
    let mut moving = Moving::with(&disk, &changes).await;
    let here = moving.place();
    moving.ask(1 - here);
    eventually("it asks to be relieved", || moving.controller.asked.lock().len() > 1).await;
    let asked = moving.controller.asked.lock().first().cloned();
    let Some(ControllerRequest::AlterPartition(request)) = asked else { panic!("{asked:?}") };
    assert!(request.partitions[0].isr.iter().all(|(node, _)| *node == NodeId(2)), "{request:?}");
    assert_eq!(moving.world.handle(0).view().standing, Standing::Leader);
    moving.world.apply(&[state(2, 3)]).await;
    moving.published.publish(moving.world.image.clone());
    moving.ended().await;
    assert_eq!((moving.place(), moving.folders(&disk)), (1 - here, vec![1 - here]));
    moving.close().await;
}

#[tokio::test]
async fn what_cannot_be_moved_is_refused() {
    let disk = SimDisk::new(5);
    let moving = Moving::open(&disk, 1).await;
    let partitions = Arc::clone(&moving.world.partitions);
    assert_eq!(partitions.move_copy(Moving::id(), "elsewhere"), Err(MoveRefusal::NoSuchDirectory));
    let other = topic_partition(topic_id(9), 0);
    assert_eq!(partitions.move_copy(other, PATHS[0]), Err(MoveRefusal::NotHere));
    let there = 1 - moving.place();
    disk.inject(SimFault::Sync(".log".into()));
    assert_eq!(moving.world.produce(1, Acks::All, 1, 0).await, Err(ProduceError::LogFailed));
    eventually("the directory is offline", || partitions.failure_of(there).is_some()).await;
    assert_eq!(partitions.move_copy(Moving::id(), PATHS[there]), Err(MoveRefusal::DirectoryOffline));
    let failed = topic_partition(topic_id(1), 1);
    assert_eq!(partitions.move_copy(failed, PATHS[1 - there]), Err(MoveRefusal::CopyOffline));
    moving.close().await;
}

#[tokio::test]
async fn a_move_to_a_directory_that_has_failed_meanwhile_ends() {
    let disk = SimDisk::new(5);
    let moving = Moving::open(&disk, 1).await;
    moving.append(7, 0).await;
    let partitions = Arc::clone(&moving.world.partitions);
    let (here, throttle) = (moving.place(), &partitions.config.replication.throttles.moves);
    throttle.set(1);
    throttle.take(1_000_000);
    moving.ask(1 - here);
    eventually("it has begun", || moving.folders(&disk) == [0, 1]).await;
    disk.inject(SimFault::Sync(".log".into()));
    assert_eq!(moving.world.produce(1, Acks::All, 1, 0).await, Err(ProduceError::LogFailed));
    eventually("the directory is offline", || partitions.failure_of(1 - here).is_some()).await;
    moving.ended().await;
    assert_eq!(moving.place(), here);
    assert_eq!(moving.append(7, 1).await, 1);
    moving.close().await;
}

/// A copy of 20 records that was moved and could not be opened in its new place; where it was, and its old files.
async fn moved_and_not_open(disk: &Arc<SimDisk>) -> (Moving, usize, PathBuf) {
    let moving = Moving::open(disk, 1).await;
    for sequence in 0..20 {
        moving.append(7, sequence).await;
    }
    if moving.place() != 0 {
        moving.ask(0);
        eventually("it has moved", || moving.folders(disk) == [0]).await;
        moving.ended().await;
    }
    let here = moving.place();
    let name = crate::disk::log_thread::log_name(Moving::id());
    disk.inject(SimFault::Read(format!("{}/{name}/leader-epoch-checkpoint", PATHS[1 - here])));
    moving.ask(1 - here);
    moving.ended().await;
    assert!(matches!(moving.world.partitions.get(Moving::id()), Lookup::Failed));
    let target = moving.world.partitions.directories().nth(1 - here).unwrap().directory_id();
    let old = Path::new(PATHS[here]).join(format!("{name}.moved-to.{target}"));
    assert!(disk.list(&old).unwrap().iter().any(|entry| entry.name.ends_with(".log")));
    (moving, here, old)
}

#[tokio::test]
async fn a_moved_copy_that_cannot_be_opened_keeps_its_old_files_and_may_lead_when_it_is_open() {
    let disk = SimDisk::new(5);
    let (mut moving, here, _) = moved_and_not_open(&disk).await;
    let partitions = Arc::clone(&moving.world.partitions);
    // It has all that anybody has, also if others are to follow it by now.
    let mut state = Arc::unwrap_or_clone(Arc::clone(moving.world.image.partition(Moving::id()).unwrap()));
    state.replicas.push(NodeId(2));
    state.partition_epoch = PartitionEpoch(100);
    moving.world.apply(&[MetadataChange::PartitionSet { partition: Moving::id(), state }]).await;
    assert_eq!(moving.folders(&disk), [0, 1]);
    partitions.reopen_due(&moving.world.image, Millis(i64::MAX)).await;
    assert_eq!((moving.place(), moving.world.handle(0).reader().end()), (1 - here, 20));
    assert_eq!(moving.world.handle(0).view().standing, Standing::Leader, "in the epoch that it led before");
    eventually("the old files are gone", || moving.folders(&disk) == [1 - here]).await;
    moving.close().await;
}

/// The node starts again, at first without the directory that has the copy, which nobody speaks of.
#[tokio::test]
async fn a_copy_that_was_moved_to_a_directory_that_is_away_is_not_made_anew() {
    let disk = SimDisk::new(5);
    let (moving, here, old) = moved_and_not_open(&disk).await;
    moving.close().await;
    disk.restart();
    let files = disk.list(&old).unwrap().len();
    let mut world = World::start_in(Arc::clone(&disk) as Arc<dyn Disk>, 1, PartitionLimits::default());
    world.apply(&World::first_changes(2, &[])).await;
    world.partitions.reopen_due(&world.image, Millis(i64::MAX)).await;
    assert!(matches!(world.partitions.get(Moving::id()), Lookup::Failed));
    assert_eq!(world.partitions.damaged(), [], "it does not begin anew");
    let names: Vec<_> = disk.list(Path::new(PATHS[here])).unwrap().into_iter().map(|e| e.name).collect();
    assert!(!names.contains(&crate::disk::log_thread::log_name(Moving::id()).to_string()), "{names:?}");
    assert_eq!(disk.list(&old).unwrap().len(), files);
    // Nor is it when the copy has gone from here and come back, with nothing left that speaks of it.
    world.apply(&[on(2, 0, 3)]).await;
    assert!(disk.list(&old).is_err());
    world.apply(&[on(1, 0, 4)]).await;
    world.partitions.reopen_due(&world.image, Millis(i64::MAX)).await;
    assert!(matches!(world.partitions.get(Moving::id()), Lookup::Failed));
    world.partitions.close().await;
    drop(world);
    disk.restart();
    let moving = Moving::open(&disk, 5).await;
    assert_eq!((moving.place(), moving.world.read(0).len()), (1 - here, 20));
    eventually("the old files are gone", || moving.folders(&disk) == [1 - here]).await;
    moving.close().await;
}

/// Where the move is in doubt the copy may be in either directory. Else a start would find it in two that nobody knows to have it.
#[tokio::test]
async fn a_copy_whose_files_stay_where_it_was_to_be_moved_is_not_made_anew_elsewhere() {
    for both_stay in [false, true] {
        let disk = SimDisk::new(5);
        let mut moving = Moving::open(&disk, 1).await;
        moving.append(7, 0).await;
        assert_eq!(moving.place(), 0);
        disk.inject(SimFault::SyncDirAfterRename(".moving".into()));
        moving.ask(1);
        moving.ended().await;
        assert_eq!(moving.folders(&disk), [0, 1]);
        let name = crate::disk::log_thread::log_name(Moving::id());
        disk.inject(SimFault::Rename(name.to_string()));
        if both_stay {
            let target = moving.world.partitions.directories().nth(1).unwrap().directory_id();
            disk.inject(SimFault::Rename(format!("{name}.moved-to.{target}")));
        }
        moving.world.apply(&[on(2, 0, 2)]).await;
        assert!(matches!(moving.world.partitions.get(Moving::id()), Lookup::Absent));
        let stay = if both_stay { vec![0, 1] } else { vec![1] };
        eventually("what can be removed is gone", || moving.folders(&disk) == stay).await;
        moving.world.apply(&[on(1, 0, 3)]).await;
        match both_stay {
            true => assert!(matches!(moving.world.partitions.get(Moving::id()), Lookup::Failed)),
            false => assert_eq!(moving.place(), 1),
        }
        assert_eq!(moving.folders(&disk), stay);
        moving.close().await;
        let again = Moving::open(&disk, 4).await;
        assert_eq!(again.place(), 1);
        eventually("one is left", || again.folders(&disk) == [1]).await;
        again.close().await;
    }
}

#[tokio::test]
async fn a_topic_that_is_deleted_takes_the_old_files_with_it() {
    let deleted = MetadataChange::TopicDeleted { topic: topic_id(1) };
    let disk = SimDisk::new(5);
    let (mut moving, ..) = moved_and_not_open(&disk).await;
    moving.world.apply(std::slice::from_ref(&deleted)).await;
    eventually("nothing is left", || moving.folders(&disk).is_empty()).await;
    moving.close().await;

    // Nobody knows where it is.
    let disk = SimDisk::new(5);
    let mut moving = Moving::open(&disk, 1).await;
    moving.append(7, 0).await;
    disk.inject(SimFault::SyncDirAfterRename(".moving".into()));
    moving.ask(1 - moving.place());
    moving.ended().await;
    assert!(matches!(moving.world.partitions.get(Moving::id()), Lookup::Failed));
    assert_eq!(moving.folders(&disk), [0, 1]);
    moving.world.apply(&[deleted]).await;
    eventually("nothing is left", || moving.folders(&disk).is_empty()).await;
    moving.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_moved_copy_that_takes_long_to_open_holds_up_no_other_move() {
    let disk = SimDisk::new(5);
    let stalling = StallingDisk::over(Arc::clone(&disk) as Arc<dyn Disk>);
    let limits = PartitionLimits { open_wait_ms: 5_000, ..PartitionLimits::default() };
    let changes = World::first_changes(1, &[]);
    let moving = Moving::over(Arc::clone(&stalling) as Arc<dyn Disk>, limits, &changes).await;
    moving.append(7, 0).await;
    let (here, partitions) = (moving.place(), Arc::clone(&moving.world.partitions));
    let name = crate::disk::log_thread::log_name(Moving::id());
    stalling.stall_only(&format!("{}/{name}", PATHS[1 - here]));
    moving.ask(1 - here);
    moving.ended().await;
    assert!(partitions.is_late(Moving::id()));
    let other = topic_partition(topic_id(1), 1);
    let target = 1 - moving.world.handle(1).directory();
    partitions.move_copy(other, PATHS[target]).unwrap();
    moving.ended().await;
    assert_eq!((moving.world.handle(1).directory(), moving.folders(&disk)), (target, vec![0, 1]));
    eventually("its old files are gone", || folders_of(other, &disk) == [target]).await;
    stalling.release();
    let end = partitions.late_end().await;
    partitions.take_late(&moving.world.image, end).await;
    assert_eq!(moving.place(), 1 - here);
    eventually("the old files are gone", || moving.folders(&disk) == [1 - here]).await;
    moving.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_for_the_old_place_during_the_last_step_gets_the_copy_back() {
    let disk = SimDisk::new(5);
    let stalling = StallingDisk::over(Arc::clone(&disk) as Arc<dyn Disk>);
    let changes = World::first_changes(1, &[]);
    let disks = Arc::clone(&stalling) as Arc<dyn Disk>;
    let moving = Moving::over(disks, PartitionLimits::default(), &changes).await;
    moving.append(7, 0).await;
    let here = moving.place();
    // It is written when all is copied, before the copy gets its name.
    stalling.stall(&format!("{}/flushed-ends", PATHS[1 - here]));
    moving.ask(1 - here);
    eventually("the last step is under way", || stalling.waiting() > 0).await;
    moving.ask(here);
    moving.ended().await;
    assert_eq!(moving.folders(&disk), [0, 1]);
    stalling.release();
    eventually("it has come back", || moving.folders(&disk) == [here]).await;
    moving.ended().await;
    assert_eq!((moving.place(), moving.append(7, 1).await), (here, 1));
    moving.close().await;
}
