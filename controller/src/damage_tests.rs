//! Every kind of file of a controller's data directory, damaged in every way: what the next start makes of it. The second table
//! in `docs/damage.md` is what this test finds; after a change write it anew with
//! `WEIR_WRITE_TABLE=1 cargo test -p controller damage_tests`.

use crate::data_dir::DataFiles;
use crate::quorum::disk::system_disk;
use crate::quorum::stored::{
    DiskKind, StoredEntry, StoredLogId, StoredMembers, StoredPayload, StoredSnapshotMeta, StoredVote, seal,
};
use crate::quorum::type_config::TypeConfig;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use uuid::Uuid;

const BEGIN: &str = "<!-- table of controllers -->\n";
const END: &str = "<!-- end of table of controllers -->\n";
const DAMAGES: [&str; 5] = ["a bit flips", "cut short", "missing", "an older version", "a block of zeros"];
const SEGMENT_BYTES: u64 = 300;
const OTHER_DIRECTORY: Uuid = Uuid::from_u128(22);
/// Places of a flipped bit, or of a cut, in a file.
const PLACES: usize = 24;

/// Where in a data directory a file is.
type Find = fn(&Path) -> PathBuf;

/// The files: what they are, and how to find the one that is damaged.
const KINDS: [(&str, Find); 8] = [
    ("`identity`", |root| root.join("identity")),
    ("`vote`", |root| root.join("vote")),
    ("`voted`", |root| root.join("voted")),
    ("`progress`", |root| root.join("progress")),
    ("`peers`", |root| root.join("peers")),
    ("`log/`, a finished file", |root| files(&root.join("log")).swap_remove(1)),
    ("`log/`, the file that takes appends, below the last sync", |root| last(&root.join("log"))),
    ("`snapshot/`, the newest", |root| last(&root.join("snapshot"))),
];

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(dir).expect("listed").map(|entry| entry.expect("listed").path()).collect();
    files.sort();
    files
}

fn last(dir: &Path) -> PathBuf {
    files(dir).pop().expect("there is one")
}

fn open(root: &Path) -> Result<DataFiles, String> {
    DataFiles::open(&system_disk(), root, "c", 1, SEGMENT_BYTES, Uuid::from_u128(11))
        .map_err(|error| error.to_string())
}

fn id(index: u64) -> StoredLogId {
    StoredLogId { term: 1 + index / 10, node: 1, index }
}

fn snapshot(files: &DataFiles, index: u64) {
    let membership = StoredMembers { configs: vec![vec![1]], members: vec![(1, "a:1".into())] };
    let meta = StoredSnapshotMeta { last_log_id: Some(id(index)), membership_log_id: None, membership };
    files.snapshots.save(&meta, b"some state").expect("saved");
}

fn work(files: &mut DataFiles, term: u64, indexes: std::ops::Range<u64>) {
    files.log.save_vote(StoredVote { term, node: 1, committed: true }).expect("saved");
    let ids: Vec<StoredLogId> = indexes.clone().map(id).collect();
    let entry = |index| seal(DiskKind::Entry, &StoredEntry { id: id(index), payload: StoredPayload::Blank });
    files.log.append(&ids, &indexes.map(entry).collect::<Vec<_>>()).expect("appended");
    files.log.sync().expect("synced");
}

/// A directory as it was and as it is. The later one has purged nothing that the earlier one had not.
async fn filled(older: &Path, root: &Path) {
    let mut files = open(root).expect("made");
    work(&mut files, 3, 0..20);
    snapshot(&files, 5);
    files.log.purge(id(3)).expect("purged");
    drop(files);
    copy(root, older);
    let mut files = open(root).expect("opened");
    work(&mut files, 5, 20..40);
    files.peers.check::<TypeConfig>(2, OTHER_DIRECTORY).await.expect("remembered");
    snapshot(&files, 12);
    files.log.purge(id(7)).expect("purged");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("made");
    for entry in std::fs::read_dir(from).expect("listed").map(|entry| entry.expect("listed")) {
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to),
            false => _ = std::fs::copy(entry.path(), to).expect("copied"),
        }
    }
}

/// What a start finds, in the words of the table.
fn outcome(root: &Path) -> &'static str {
    let files = match open(root) {
        Ok(files) => files,
        Err(reason) => {
            assert!(reason.contains("is damaged") || reason.contains("cannot"), "{reason}");
            return "**the controller does not start** and says why";
        }
    };
    let entries =
        (8..files.log.next()).map(|at| files.log.read(at).expect("readable").map(|(entry, _)| entry.id));
    assert!(entries.eq((8..40).map(|at| Some(id(at)))), "an entry that was synced is missing");
    let (held, _) = files.snapshots.load().expect("readable").expect("there is one");
    assert_eq!(held.last_log_id, Some(id(12)));
    let vote = files.log.vote();
    assert_eq!(vote, Some(StoredVote { term: 5, node: 1, committed: true }), "it may vote twice in a term");
    if files.peers.directory(2) != Some(OTHER_DIRECTORY) {
        return "learned anew from the metadata, or from whom it meets first";
    }
    "of no consequence: it has two copies, or is a lower bound"
}

/// The file in its damaged forms; none where it is gone.
fn damaged(whole: &[u8], older: Option<Vec<u8>>, damage: &str) -> Vec<Option<Vec<u8>>> {
    let step = whole.len().div_ceil(PLACES).max(1);
    let places = (0..whole.len()).step_by(step);
    match damage {
        "a bit flips" => places
            .map(|at| {
                let mut bytes = whole.to_vec();
                bytes[at] ^= 0x10;
                Some(bytes)
            })
            .collect(),
        "cut short" => places.map(|at| Some(whole[..at].to_vec())).collect(),
        "missing" => vec![None],
        "an older version" => older.into_iter().map(Some).collect(),
        _ => vec![Some(vec![0; whole.len()])],
    }
}

#[tokio::test]
async fn the_table_of_damages_says_what_is_found() {
    let dir = tempfile::tempdir().expect("temp dir");
    let [older, sound, tried] = ["older", "sound", "tried"].map(|name| dir.path().join(name));
    filled(&older, &sound).await;
    let mut table = String::from("| file |");
    DAMAGES.iter().for_each(|damage| table += &format!(" {damage} |"));
    table += &format!("\n|{}\n", "---|".repeat(DAMAGES.len() + 1));
    for (kind, find) in KINDS {
        let path = find(&sound);
        let whole = std::fs::read(&path).expect("readable");
        let name = path.strip_prefix(&sound).expect("it is in there");
        table += &format!("| {kind} |");
        for damage in DAMAGES {
            let before = std::fs::read(older.join(name)).ok().filter(|before| *before != whole);
            let mut found = BTreeSet::new();
            for bytes in damaged(&whole, before, damage) {
                if tried.exists() {
                    std::fs::remove_dir_all(&tried).expect("removable");
                }
                copy(&sound, &tried);
                match bytes {
                    Some(bytes) => std::fs::write(tried.join(name), bytes).expect("writable"),
                    None => std::fs::remove_file(tried.join(name)).expect("removable"),
                }
                found.insert(outcome(&tried));
            }
            let found: Vec<&str> = found.into_iter().collect();
            let text = if found.is_empty() { "there is none".to_owned() } else { found.join("; or ") };
            table += &format!(" {text} |");
        }
        table.push('\n');
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/damage.md");
    let text = std::fs::read_to_string(&path).expect("readable");
    let (before, rest) = text.split_once(BEGIN).expect("the document has the table");
    let (written, after) = rest.split_once(END).expect("the table ends");
    if std::env::var_os("WEIR_WRITE_TABLE").is_some() {
        std::fs::write(&path, [before, BEGIN, &table, END, after].concat()).expect("writable");
    } else {
        assert_eq!(written, table, "docs/damage.md; see the head of this file");
    }
}
