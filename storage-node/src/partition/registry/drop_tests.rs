//! Copies that are dropped, and what is found of them in data directories.

use super::*;

fn id(partition: i32) -> TopicPartition {
    topic_partition(topic_id(1), partition)
}

/// A partition with its only copy on one node.
pub(super) fn on(node: i32, partition: i32, epoch: i32) -> MetadataChange {
    let state = PartitionState {
        replicas: vec![NodeId(node)],
        adding: vec![],
        removing: vec![],
        isr: vec![NodeId(node)],
        elr: vec![],
        leader: Some(NodeId(node)),
        leader_epoch: LeaderEpoch(epoch),
        partition_epoch: PartitionEpoch(100 + epoch),
    };
    MetadataChange::PartitionSet { partition: id(partition), state }
}

/// The data directories that have a folder of partition 0.
fn folders(disk: &SimDisk) -> Vec<&'static str> {
    let has = |path: &str| disk.list(Path::new(path)).unwrap().iter().any(|e| e.name == id(0).to_string());
    ["data", "more-data"].into_iter().filter(|path| has(path)).collect()
}

/// Else a start would find two copies, and take the older one for the newer.
#[tokio::test]
async fn a_copy_whose_files_stay_comes_back_where_they_are() {
    for was_open in [true, false] {
        let disk = SimDisk::new(1);
        let start = || World::start_in(Arc::clone(&disk) as Arc<dyn Disk>, 2, PartitionLimits::default());
        let mut world = start();
        world.apply(&World::first_changes(1, &[])).await;
        world.apply(&topic(2, "u", 1, &[1])).await;
        assert_eq!((world.handle(0).directory(), world.handle(1).directory()), (0, 1));
        world.produce(0, Acks::All, 1, 0).await.unwrap();
        if !was_open {
            world.partitions.close().await;
            drop(world);
            disk.inject(SimFault::Read(format!("{}/leader-epoch-checkpoint", id(0))));
            world = start();
            world.apply(&World::first_changes(2, &[])).await;
            world.apply(&topic(2, "u", 1, &[1])).await;
            assert_eq!(world.partitions.failed(), [id(0)]);
        }
        // The other directory has fewer copies now.
        world.apply(&[on(2, 1, 3)]).await;
        disk.inject(SimFault::Rename(id(0).to_string()));
        world.apply(&[on(2, 0, 3)]).await;
        assert!(matches!(world.partitions.get(id(0)), Lookup::Absent));
        assert_eq!(folders(&disk), ["data"]);
        world.apply(&[on(1, 0, 4)]).await;
        world.produce(0, Acks::All, 2, 0).await.unwrap();
        assert_eq!((world.handle(0).directory(), folders(&disk)), (0, vec!["data"]));
        let records = world.read(0);
        world.partitions.close().await;
        drop(world);
        let mut world = start();
        world.apply(&World::first_changes(5, &[])).await;
        assert_eq!((world.read(0), world.partitions.failed()), (records, vec![]));
        // One that could be removed may lie anywhere.
        world.apply(&[on(2, 0, 6)]).await;
        assert_eq!(folders(&disk), [""; 0]);
        world.partitions.close().await;
    }
}

#[tokio::test]
async fn a_copy_in_two_directories_is_not_opened_in_either() {
    let disk = SimDisk::new(1);
    let start = || World::start_in(Arc::clone(&disk) as Arc<dyn Disk>, 2, PartitionLimits::default());
    let mut world = start();
    world.apply(&World::first_changes(1, &[])).await;
    world.produce(0, Acks::All, 1, 0).await.unwrap();
    world.produce(1, Acks::All, 1, 0).await.unwrap();
    world.partitions.close().await;
    drop(world);
    assert_eq!(folders(&disk), ["data"]);
    let second = Path::new("more-data").join(id(0).to_string());
    disk.create_dir_all(&second).unwrap();
    for epoch in [2, 3] {
        let mut world = start();
        world.apply(&World::first_changes(epoch, &[])).await;
        assert_eq!((world.partitions.failed(), world.partitions.damaged()), (vec![id(0)], vec![]));
        world.partitions.reopen_due(&world.image, Millis(i64::MAX)).await;
        assert!(matches!(world.partitions.get(id(0)), Lookup::Failed));
        assert_eq!(world.read(1), [(0, value(1, 0))]);
        world.partitions.close().await;
    }
    // An operator takes the wrong one away.
    disk.remove_dir(&second).unwrap();
    let mut world = start();
    world.apply(&World::first_changes(4, &[])).await;
    assert_eq!(world.read(0), [(0, value(1, 0))]);
    world.partitions.close().await;
    drop(world);
    // If it goes it goes from both.
    disk.create_dir_all(&second).unwrap();
    let mut world = start();
    world.apply(&World::first_changes(5, &[])).await;
    assert_eq!(world.partitions.failed(), [id(0)]);
    world.apply(&[MetadataChange::TopicDeleted { topic: topic_id(1) }]).await;
    assert_eq!(folders(&disk), [""; 0]);
    world.partitions.close().await;
}
