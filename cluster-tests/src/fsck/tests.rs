//! A cluster's directories written by hand, damaged in one place each: every check finds its fault and nothing else does.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proto_types::ids::{BrokerEpoch, DirectoryId, Incarnation, LeaderEpoch, NodeId, PartitionEpoch, TopicId};
use proto_types::metadata::{
    ConfigResource, MetadataChange, NodeRegistered, PartitionState, topic_partition,
};
use records::BatchBuilder;
use uuid::Uuid;

use super::{Findings, Options, check, crc32c};
use crate::history::{EventKind, History, payload};
use crate::keyed::{self, Model};

const TOPIC: TopicId = TopicId(Uuid::from_u128(0x1234_5678_9abc_def0_1234_5678_9abc_def0));
const NAME: &str = "orders";

/// What a batch in a test needs; the rest is fixed.
#[derive(Clone, Copy)]
struct Written {
    base: i64,
    epoch: i32,
    sequence: i32,
    timestamp: i64,
    /// One value for each record.
    values: &'static [u64],
}

fn batches() -> Vec<Written> {
    vec![
        Written { base: 0, epoch: 0, sequence: 0, timestamp: 100, values: &[7, 8] },
        Written { base: 2, epoch: 0, sequence: 2, timestamp: 90, values: &[9] },
        Written { base: 3, epoch: 2, sequence: 3, timestamp: 110, values: &[10] },
    ]
}

fn varint(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while rest > 0x7f {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn encode(batch: Written) -> Vec<u8> {
    let mut covered = Vec::new();
    covered.extend_from_slice(&0_i16.to_be_bytes());
    let count = i32::try_from(batch.values.len()).unwrap();
    covered.extend_from_slice(&(count - 1).to_be_bytes());
    covered.extend_from_slice(&batch.timestamp.to_be_bytes());
    covered.extend_from_slice(&batch.timestamp.to_be_bytes());
    covered.extend_from_slice(&77_i64.to_be_bytes());
    covered.extend_from_slice(&0_i16.to_be_bytes());
    covered.extend_from_slice(&batch.sequence.to_be_bytes());
    covered.extend_from_slice(&count.to_be_bytes());
    for (delta, value) in (0_i64..).zip(batch.values) {
        let value = payload(*value, 0);
        let mut record = vec![0];
        varint(&mut record, 0);
        varint(&mut record, delta);
        varint(&mut record, -1);
        varint(&mut record, i64::try_from(value.len()).unwrap());
        record.extend_from_slice(value.as_bytes());
        varint(&mut record, 0);
        varint(&mut covered, i64::try_from(record.len()).unwrap());
        covered.extend_from_slice(&record);
    }
    let mut out = batch.base.to_be_bytes().to_vec();
    out.extend_from_slice(&i32::try_from(covered.len() + 9).unwrap().to_be_bytes());
    out.extend_from_slice(&batch.epoch.to_be_bytes());
    out.push(2);
    out.extend_from_slice(&crc32c(&[&covered]).to_be_bytes());
    out.extend_from_slice(&covered);
    out
}

/// A cluster of one controller and nodes 1 to 3, whose partition 0 holds the same batches.
struct Cluster {
    dir: tempfile::TempDir,
    changes: Vec<Vec<MetadataChange>>,
    history: History,
    keyed: Option<(String, Model)>,
}

impl Cluster {
    fn new() -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        let mut cluster = Cluster { dir, changes: metadata(), history: History::default(), keyed: None };
        for node in 1..=3 {
            cluster.write_copy(node, &batches());
        }
        let mut client = cluster.history.client("producer");
        for (offset, value) in [(0, 7), (1, 8), (2, 9), (3, 10)] {
            client.event(1, 0, EventKind::Send { value });
            client.event(2, 0, EventKind::Acknowledged { value, offset });
        }
        cluster
    }

    fn copy(&self, node: i32) -> PathBuf {
        self.dir.path().join(format!("node-{node}/{TOPIC}-0"))
    }

    fn file(&self, node: i32, extension: &str) -> PathBuf {
        self.copy(node).join(format!("{:020}.{extension}", 0))
    }

    fn write_copy(&self, node: i32, batches: &[Written]) {
        fs::create_dir_all(self.copy(node)).unwrap();
        let (mut log, mut index, mut times) = (Vec::new(), Vec::new(), Vec::new());
        let mut largest = i64::MIN;
        for batch in batches {
            let last = i32::try_from(batch.base).unwrap() + i32::try_from(batch.values.len()).unwrap() - 1;
            index.extend_from_slice(&last.to_be_bytes());
            index.extend_from_slice(&u32::try_from(log.len()).unwrap().to_be_bytes());
            if batch.timestamp > largest {
                largest = batch.timestamp;
                times.extend_from_slice(&batch.timestamp.to_be_bytes());
                times.extend_from_slice(&last.to_be_bytes());
            }
            log.extend_from_slice(&encode(*batch));
        }
        fs::write(self.file(node, "log"), log).unwrap();
        fs::write(self.file(node, "index"), index).unwrap();
        fs::write(self.file(node, "timeindex"), times).unwrap();
        fs::write(self.copy(node).join("leader-epoch-checkpoint"), "0\n2\n0 0\n2 3\n").unwrap();
        fs::write(self.copy(node).join(format!("{:020}.snapshot", 3)), snapshot(2, 2)).unwrap();
    }

    fn write_metadata(&self) -> PathBuf {
        let dir = self.dir.path().join("controller-1");
        fs::create_dir_all(dir.join("log")).unwrap();
        let first = 1_u64;
        let mut bytes = b"WEIRRAFT\x04\x00\x01\x00\x00\x00\x00\x00".to_vec();
        bytes.extend_from_slice(&first.to_le_bytes());
        bytes.extend_from_slice(&crc32c(&[&bytes]).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        for (index, changes) in (first..).zip(&self.changes) {
            // Envelope, id, the variant for changes.
            let mut entry = vec![5, 0, 1, 0];
            entry.extend_from_slice(&proto_types::encode(&(3_u64, 1_u64, index, 1_u8)));
            entry.extend_from_slice(&proto_types::encode(changes));
            let at = bytes.len() as u64;
            let mut header = u32::try_from(entry.len()).unwrap().to_le_bytes().to_vec();
            header.extend_from_slice(&crc32c(&[&entry]).to_le_bytes());
            header.extend_from_slice(
                &crc32c(&[&header, &first.to_le_bytes(), &at.to_le_bytes()]).to_le_bytes(),
            );
            bytes.extend_from_slice(&header);
            bytes.extend_from_slice(&entry);
        }
        fs::write(dir.join("log").join(format!("{first:020}.raft")), bytes).unwrap();
        let mut progress = vec![3, 0, 1, 0];
        let committed = Some((3_u64, 1_u64, self.changes.len() as u64));
        progress.extend_from_slice(&proto_types::encode(&(None::<u8>, 0_u64, 1_u64, committed)));
        let mut slot = 0x5753_4c54_u32.to_le_bytes().to_vec();
        slot.extend_from_slice(&u32::try_from(progress.len()).unwrap().to_le_bytes());
        slot.extend_from_slice(&2_u64.to_le_bytes());
        let crc = crc32c(&[&slot, &progress]);
        slot.extend_from_slice(&crc.to_le_bytes());
        slot.extend_from_slice(&progress);
        fs::write(dir.join("progress"), slot).unwrap();
        dir
    }

    fn check(&self) -> Findings {
        let nodes: BTreeMap<i32, PathBuf> =
            (1..=3).map(|node| (node, self.dir.path().join(format!("node-{node}")))).collect();
        let controllers = vec![self.write_metadata()];
        let options = Options { controllers, nodes, topic: Some(NAME.to_owned()), keyed: self.keyed.clone() };
        check(&options, Some(&self.history)).unwrap()
    }

    /// All faults, as one text; there must be some.
    fn faults(&self) -> String {
        let faults = self.check().faults;
        assert!(!faults.is_empty(), "the fault was not found");
        faults.join("\n")
    }
}

/// A producer snapshot with the one producer of the tests.
fn snapshot(last_sequence: i32, last_offset: i64) -> Vec<u8> {
    let mut body = 1_i32.to_be_bytes().to_vec();
    body.extend_from_slice(&77_i64.to_be_bytes());
    body.extend_from_slice(&0_i16.to_be_bytes());
    body.extend_from_slice(&last_sequence.to_be_bytes());
    body.extend_from_slice(&last_offset.to_be_bytes());
    body.extend_from_slice(&[0; 24]);
    let mut out = 1_i16.to_be_bytes().to_vec();
    out.extend_from_slice(&crc32c(&[&body]).to_be_bytes());
    out.extend_from_slice(&body);
    out
}

fn registered(node: i32, broker_epoch: i64, incarnation: u128) -> MetadataChange {
    MetadataChange::NodeRegistered(NodeRegistered {
        node: NodeId(node),
        broker_epoch: BrokerEpoch(broker_epoch),
        incarnation: Incarnation(Uuid::from_u128(incarnation)),
        directories: vec![DirectoryId(Uuid::from_u128(u128::from(node.unsigned_abs())))],
        listeners: Vec::new(),
        control_address: "a:1".to_owned(),
        data_address: "a:2".to_owned(),
        rack: None,
    })
}

fn fenced(node: i32, broker_epoch: i64, fenced: bool) -> MetadataChange {
    MetadataChange::NodeFenced { node: NodeId(node), broker_epoch: BrokerEpoch(broker_epoch), fenced }
}

fn partition(isr: &[i32], elr: &[i32], leader: Option<i32>, leader_epoch: i32, epoch: i32) -> MetadataChange {
    let ids = |nodes: &[i32]| nodes.iter().copied().map(NodeId).collect::<Vec<_>>();
    MetadataChange::PartitionSet {
        partition: topic_partition(TOPIC, 0),
        state: PartitionState {
            replicas: ids(&[1, 2, 3]),
            adding: Vec::new(),
            removing: Vec::new(),
            isr: ids(isr),
            elr: ids(elr),
            leader: leader.map(NodeId),
            leader_epoch: LeaderEpoch(leader_epoch),
            partition_epoch: PartitionEpoch(epoch),
        },
    }
}

fn metadata() -> Vec<Vec<MetadataChange>> {
    let node = |node| vec![registered(node, i64::from(node), 100 + u128::from(node.unsigned_abs()))];
    vec![
        Vec::new(),
        node(1),
        node(2),
        node(3),
        vec![fenced(1, 1, false), fenced(2, 2, false), fenced(3, 3, false)],
        vec![
            MetadataChange::TopicCreated { topic: TOPIC, name: NAME.to_owned() },
            MetadataChange::ConfigSet {
                resource: ConfigResource::Topic(TOPIC),
                name: "min.insync.replicas".to_owned(),
                value: Some("2".to_owned()),
            },
            partition(&[1, 2, 3], &[], Some(1), 0, 0),
        ],
        vec![fenced(1, 1, true), partition(&[2, 3], &[], Some(2), 1, 1)],
        vec![partition(&[2], &[3], Some(2), 2, 2)],
        vec![registered(1, 9, 999)],
        vec![fenced(1, 9, false)],
        vec![partition(&[1, 2, 3], &[], Some(2), 2, 3)],
    ]
}

fn change_byte(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_whole_cluster_is_clean() {
    let cluster = Cluster::new();
    let findings = cluster.check();
    assert!(findings.is_clean(), "{findings}");
    let counts = findings.counts;
    assert_eq!((counts.copies, counts.batches, counts.acknowledged_records), (3, 9, 12));
    assert_eq!((counts.leader_changes, counts.isr_changes, counts.metadata_entries), (1, 3, 11));
    assert_eq!((counts.index_entries, counts.producer_snapshots), (15, 3));
    assert!(counts.bytes_compared > 0);
}

#[test]
fn a_changed_byte_is_found_by_the_checksum() {
    let cluster = Cluster::new();
    change_byte(&cluster.file(2, "log"), 70);
    assert!(cluster.faults().contains("its checksum is wrong"));
}

#[test]
fn copies_that_differ_at_the_same_offset_and_epoch_are_found() {
    let cluster = Cluster::new();
    let mut other = batches();
    other[0].values = &[7, 5];
    cluster.write_copy(3, &other);
    let faults = cluster.faults();
    assert!(faults.contains("differ below a batch on which they agree"), "{faults}");
    assert!(faults.contains("instead of the acknowledged 8"), "{faults}");
}

#[test]
fn a_copy_that_ends_early_lacks_what_was_acknowledged() {
    let cluster = Cluster::new();
    cluster.write_copy(3, &batches()[..2]);
    fs::write(cluster.copy(3).join("leader-epoch-checkpoint"), "0\n1\n0 0\n").unwrap();
    let faults = cluster.faults();
    assert!(faults.contains("end at 4 and 3"), "{faults}");
    assert!(faults.contains("node 3: lacks the acknowledged 10 at offset 3"), "{faults}");
}

#[test]
fn copies_that_part_are_found() {
    let cluster = Cluster::new();
    let mut other = batches();
    other[2].epoch = 1;
    cluster.write_copy(3, &other);
    fs::write(cluster.copy(3).join("leader-epoch-checkpoint"), "0\n2\n0 0\n1 3\n").unwrap();
    assert!(cluster.faults().contains("part at offset 3"));
}

#[test]
fn a_hole_in_the_offsets_is_found() {
    let cluster = Cluster::new();
    let mut other = batches();
    other.remove(1);
    cluster.write_copy(2, &other);
    assert!(cluster.faults().contains("offset 3 follows 2"));
}

#[test]
fn an_epoch_checkpoint_that_the_batches_contradict_is_found() {
    for (text, what) in [
        ("0\n2\n0 0\n2 2\n", "epoch 2 begins at 3"),
        ("0\n3\n0 0\n2 3\n3 9\n", "lets epoch 3 begin at 9"),
        ("0\n2\n0 0\n", "is damaged"),
        ("0\n1\n0 0\n", "epoch 2 begins at 3"),
    ] {
        let cluster = Cluster::new();
        fs::write(cluster.copy(1).join("leader-epoch-checkpoint"), text).unwrap();
        let faults = cluster.faults();
        assert!(faults.contains(what), "{faults}");
    }
    let cluster = Cluster::new();
    fs::write(cluster.copy(1).join("leader-epoch-checkpoint"), "0\n4\n0 0\n1 2\n2 3\n3 4\n").unwrap();
    let faults = cluster.check().faults;
    assert_eq!(faults, Vec::<String>::new(), "leaders that wrote nothing are fine");
    fs::remove_file(cluster.copy(1).join("leader-epoch-checkpoint")).unwrap();
    assert!(cluster.faults().contains("there is no leader-epoch-checkpoint"));
}

#[test]
fn indexes_that_a_scan_contradicts_are_found() {
    let cluster = Cluster::new();
    change_byte(&cluster.file(1, "index"), 15);
    assert!(cluster.faults().contains("index of segment 0"));
    let cluster = Cluster::new();
    change_byte(&cluster.file(1, "timeindex"), 7);
    assert!(cluster.faults().contains("timeindex of segment 0"));
}

#[test]
fn producers_that_the_batches_contradict_are_found() {
    let cluster = Cluster::new();
    fs::write(cluster.copy(1).join(format!("{:020}.snapshot", 3)), snapshot(1, 1)).unwrap();
    assert!(cluster.faults().contains("producer snapshot 3 says"));
    let cluster = Cluster::new();
    let mut twice = batches();
    twice[2].sequence = 2;
    for node in 1..=3 {
        cluster.write_copy(node, &twice);
    }
    assert!(cluster.faults().contains("sequence 2 of producer 77"));
}

/// Replaces the metadata from entry `at` (counted from 1) on.
fn faults_of_metadata(at: usize, changes: Vec<Vec<MetadataChange>>) -> String {
    let mut cluster = Cluster::new();
    cluster.changes.truncate(at - 1);
    cluster.changes.extend(changes);
    cluster.faults()
}

#[test]
fn leaders_out_of_nowhere_are_found() {
    let elected = vec![partition(&[1], &[], Some(1), 3, 3)];
    let faults = faults_of_metadata(9, vec![elected]);
    assert!(faults.contains("neither in ISR nor in ELR"), "{faults}");
    // One that was in the ELR may lead.
    let elected = vec![fenced(2, 2, true), partition(&[3], &[], Some(3), 3, 3)];
    let mut cluster = Cluster::new();
    cluster.changes.truncate(8);
    cluster.changes.push(elected);
    assert_eq!(cluster.check().faults, Vec::<String>::new());
}

#[test]
fn epochs_that_go_back_and_ids_that_come_again_are_found() {
    for (change, what) in [
        (partition(&[2, 3], &[], Some(2), 1, 3), "the leader epoch goes back"),
        (partition(&[2, 3], &[], Some(3), 2, 3), "another leader in the same epoch"),
        (partition(&[2, 3], &[], Some(2), 2, 2), "the partition epoch does not grow"),
        (partition(&[2, 1], &[], Some(2), 2, 3), "a fenced node joined the ISR"),
        (partition(&[2], &[2], Some(2), 2, 3), "a node is in ISR and ELR"),
        (partition(&[3], &[], Some(2), 2, 3), "the leader is not in the ISR"),
        (registered(3, 2, 5), "broker epoch 2 after 3"),
        (registered(3, 3, 5), "broker epoch 3 after 3"),
        (
            MetadataChange::TopicCreated { topic: TOPIC, name: "again".to_owned() },
            "the id of topic again was used before",
        ),
    ] {
        let faults = faults_of_metadata(9, vec![vec![change]]);
        assert!(faults.contains(what), "{what}: {faults}");
    }
}

#[test]
fn a_damaged_metadata_log_is_found() {
    let cluster = Cluster::new();
    let dir = cluster.write_metadata();
    let other = dir.with_file_name("controller-2");
    fs::create_dir_all(other.join("log")).unwrap();
    fs::copy(dir.join("progress"), other.join("progress")).unwrap();
    let name = format!("log/{:020}.raft", 1);
    let mut bytes = fs::read(dir.join(&name)).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(other.join(&name), bytes).unwrap();
    // A second, whole file behind it makes it sure that no crash tore it.
    fs::copy(dir.join(&name), other.join(format!("log/{:020}.raft", 99))).unwrap();
    let options = Options { controllers: vec![dir, other], ..Options::default() };
    let findings = check(&options, None).unwrap();
    assert!(findings.faults.iter().any(|fault| fault.contains("is broken")), "{findings}");
}

/// A value of a key, or a deletion of it.
fn write_of(key: u64, deleting: bool, number: usize) -> u64 {
    (0..)
        .filter(|value| keyed::key_of(*value) == key && keyed::deletes(*value) == deleting)
        .nth(number)
        .unwrap()
}

/// Writes to keys 1 and 2, of which the second is deleted at offset 3; then another one to key 1.
fn keyed_writes() -> [(i64, u64); 5] {
    let write = |offset, key, deleting, number| (offset, write_of(key, deleting, number));
    [
        write(0, 1, false, 0),
        write(1, 2, false, 0),
        write(2, 1, false, 1),
        write(3, 2, true, 0),
        write(4, 1, false, 2),
    ]
}

impl Cluster {
    /// The topic is compacted, nothing is gone yet.
    fn compacted() -> Cluster {
        let mut cluster = Cluster::new();
        cluster.changes[5].push(MetadataChange::ConfigSet {
            resource: ConfigResource::Topic(TOPIC),
            name: "cleanup.policy".to_owned(),
            value: Some("compact".to_owned()),
        });
        let mut history = History::default();
        let mut producer = history.client("producer");
        for (offset, value) in keyed_writes() {
            producer.event(1, 0, EventKind::Acknowledged { value, offset });
        }
        cluster.keyed = Some((NAME.to_owned(), Model::of(&history)));
        (1..=3).for_each(|node| cluster.write_keyed(node, 0, &keyed_writes()));
        cluster
    }

    /// Batches of one record each. The last one is of the epoch after `epoch`.
    fn write_keyed(&self, node: i32, epoch: i32, writes: &[(i64, u64)]) {
        fs::remove_dir_all(self.copy(node)).unwrap();
        fs::create_dir_all(self.copy(node)).unwrap();
        let mut log = Vec::new();
        for (offset, value) in writes.iter().copied() {
            let (key, text) = (keyed::key_text(value), payload(value, 0));
            let (value, headers) = match keyed::deletes(value) {
                true => (None, vec![(keyed::HEADER.as_bytes(), Some(text.as_bytes()))]),
                false => (Some(text.as_bytes()), Vec::new()),
            };
            let epoch = if offset == 4 { epoch + 1 } else { epoch };
            let mut batch = BatchBuilder::new().base_offset(offset).leader_epoch(epoch);
            batch.push(100, Some(key.as_bytes()), value, &headers).unwrap();
            log.extend_from_slice(&batch.build());
        }
        fs::write(self.file(node, "log"), log).unwrap();
        fs::write(self.copy(node).join("leader-epoch-checkpoint"), "0\n2\n0 0\n1 4\n").unwrap();
    }
}

#[test]
fn copies_that_have_compacted_as_far_as_each_came_are_clean() {
    let all = keyed_writes();
    let cluster = Cluster::compacted();
    cluster.write_keyed(2, 0, &all[2..]);
    cluster.write_keyed(3, 0, &all[4..]);
    assert_eq!(cluster.check().faults, Vec::<String>::new());
}

#[test]
fn a_compacted_copy_that_tells_another_map_is_found() {
    let all = keyed_writes();
    let cases: [(&[(i64, u64)], &str); 5] = [
        (&all[..4], "end at 5 and 4"),
        (&all[..3], "key2 is as it was at offset 1"),
        (&[all[3]], "key1 is not there"),
        (&[(4, write_of(1, false, 3))], "another copy has something else at offset 4"),
        (&[(3, all[4].1), all[4]], "instead of the acknowledged"),
    ];
    for (left, expected) in cases {
        let cluster = Cluster::compacted();
        cluster.write_keyed(2, 0, left);
        let faults = cluster.faults();
        assert!(faults.contains(expected), "{expected}: {faults}");
    }
}

#[test]
fn a_compacted_copy_whose_epochs_are_not_those_of_its_batches_is_found() {
    let cluster = Cluster::compacted();
    cluster.write_keyed(2, 1, &keyed_writes());
    assert!(cluster.faults().contains("epoch 1 stands at 0"), "{}", cluster.faults());
    let cluster = Cluster::compacted();
    let all = keyed_writes();
    cluster.write_keyed(2, 0, &[all[0], all[0], all[4]]);
    assert!(cluster.faults().contains("offset 0 follows 1"), "{}", cluster.faults());
}
