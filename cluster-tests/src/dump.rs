//! What Apache Kafka's dump-log tool says of the files of a partition: an outside check of the formats on disk, and of what
//! `weir log` says of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::clients::weir_output;
use crate::oracle::tools;

/// Words with which the tool reports something that does not fit.
const COMPLAINTS: &[&str] = &["ismatch", "out of order", "corrupt", "isvalid: false", "Exception"];

/// What entries begin with; everything else is about the file as a whole.
const ENTRIES: &[&str] =
    &["baseOffset: ", "| offset: ", "offset: ", "timestamp: ", "producerId: ", "version: "];

/// Runs `weir log`, which asks no server; says whether it found everything sound, and all that it wrote.
pub fn weir_log(args: &[&str]) -> (bool, String) {
    let output = weir_output("127.0.0.1:1", &[&["log"], args].concat(), b"");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).expect("text"))
}

/// What `weir log verify` says of the logs in a directory; its exit code must fit.
pub fn verify(dir: &Path) -> Value {
    let (sound, text) = weir_log(&["verify", "--output", "json", &dir.display().to_string()]);
    let document = text.lines().next().and_then(|line| serde_json::from_str(line).ok());
    let document: Value = document.unwrap_or_else(|| panic!("no JSON: {text}"));
    let logs = document.as_array().unwrap_or_else(|| panic!("no list: {text}"));
    assert_eq!(sound, logs.iter().all(|l| l["state"] == "sound" || l["state"] == "note"), "{text}");
    document
}

/// Has both tools tell every file of a partition that both know, and fails where they differ; how many entries there are, by
/// the kind of file.
pub fn compare_dumps(dir: &Path) -> BTreeMap<&'static str, usize> {
    ["log", "index", "timeindex", "txnindex", "snapshot"]
        .into_iter()
        .map(|kind| {
            let paths = files(dir, kind);
            let theirs = entries(&run(&["--print-data-log", "--deep-iteration"], &paths));
            let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            let mut args = vec!["dump", "--records"];
            args.extend(names.iter().map(String::as_str));
            let (sound, ours) = if paths.is_empty() { (true, String::new()) } else { weir_log(&args) };
            assert!(sound, "{kind} files of {}: {ours}", dir.display());
            let ours = entries(&ours);
            for (nth, (theirs, ours)) in theirs.iter().zip(&ours).enumerate() {
                assert_eq!(ours, theirs, "{kind} files of {}, entry {nth}", dir.display());
            }
            assert_eq!(ours.len(), theirs.len(), "{kind} files of {}", dir.display());
            (kind, ours.len())
        })
        .collect()
}

fn entries(text: &str) -> Vec<String> {
    let entry = |line: &&str| ENTRIES.iter().any(|begin| line.starts_with(begin));
    // Behind the newest batch of a producer, Kafka's tool knows of none.
    text.lines().filter(entry).map(|l| l.split(" batches: ").next().unwrap_or(l).to_owned()).collect()
}

/// A partition's folder as the tool reads it.
#[derive(Debug, Default)]
pub struct PartitionDump {
    /// How many segments there are.
    pub segments: usize,
    /// Values of all records, by offset from the first.
    pub values: Vec<String>,
    /// Offset of the first record.
    pub first_offset: i64,
    /// Entries of all offset indexes.
    pub index_entries: usize,
    /// Entries of all time indexes.
    pub time_entries: usize,
    /// Producers in the newest snapshot.
    pub producers: usize,
}

/// Every folder under `root` that holds segments.
pub fn partition_dirs(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(dir) = waiting.pop() {
        let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("list {}: {error}", dir.display()));
        for entry in entries.flatten() {
            if entry.path().is_dir() {
                waiting.push(entry.path());
            }
        }
        if !files(&dir, "log").is_empty() {
            found.push(dir);
        }
    }
    found.sort();
    found
}

/// Reads every segment, index and snapshot of a partition with the stock tool; panics where the tool complains, and where
/// offsets have holes.
pub fn dump_partition(dir: &Path) -> PartitionDump {
    let logs = files(dir, "log");
    let mut dump = PartitionDump { segments: logs.len(), first_offset: -1, ..PartitionDump::default() };
    read_records(&mut dump, &run(&["--print-data-log", "--deep-iteration"], &logs));
    let indexes = files(dir, "index");
    dump.index_entries = count_lines(&run(&[], &indexes), "offset: ");
    let sane = run(&["--index-sanity-check"], &indexes);
    // A segment of one batch needs no entry.
    let passed = sane.matches("passed sanity check").count() + sane.matches("is empty.").count();
    assert_eq!(passed, indexes.len(), "{sane}");
    dump.time_entries = count_lines(&run(&[], &files(dir, "timeindex")), "timestamp: ");
    if let Some(newest) = files(dir, "snapshot").pop() {
        dump.producers = count_lines(&run(&[], &[newest]), "producerId: ");
    }
    dump
}

/// What the tool says of a partition's transactions.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TransactionsDump {
    /// Entries of all transaction indexes: producer, first, last and last stable offset.
    pub aborted: Vec<[i64; 4]>,
    /// Markers in the log: offset, and whether it commits.
    pub markers: Vec<(i64, bool)>,
    /// Producers in the newest snapshot: id, epoch of the last marker's coordinator, first offset of the open transaction (−1:
    /// none).
    pub producers: Vec<[i64; 3]>,
}

/// Reads the markers, transaction indexes and newest snapshot of a partition with the stock tool.
pub fn dump_transactions(dir: &Path) -> TransactionsDump {
    let mut dump = TransactionsDump::default();
    for line in run(&["--print-data-log"], &files(dir, "log")).lines() {
        let marker = line.split_once("endTxnMarker: ").map(|(_, marker)| marker.starts_with("COMMIT"));
        dump.markers.extend(marker.map(|commits| (number(line, "offset: "), commits)));
    }
    for line in run(&[], &files(dir, "txnindex")).lines().filter(|line| line.contains("lastStableOffset: ")) {
        let fields = ["producerId: ", "firstOffset: ", "lastOffset: ", "lastStableOffset: "];
        dump.aborted.push(fields.map(|field| number(line, field)));
    }
    if let Some(newest) = files(dir, "snapshot").pop() {
        let text = run(&[], &[newest]);
        for line in text.lines().filter(|line| line.starts_with("producerId: ")) {
            let fields = ["producerId: ", "coordinatorEpoch: ", "currentTxnFirstOffset: "];
            dump.producers.push(fields.map(|field| number(line, field)));
        }
    }
    dump
}

/// The number behind a field's name, which may be wrapped in words and brackets; −1 if there is none.
fn number(line: &str, field: &str) -> i64 {
    let (_, rest) = line.split_once(field).unwrap_or_else(|| panic!("no {field:?} in {line}"));
    let value = rest.split(' ').next().unwrap_or_default();
    let digits: String = value.chars().filter(|c| c.is_ascii_digit() || *c == '-').collect();
    digits.parse().unwrap_or(-1)
}

fn read_records(dump: &mut PartitionDump, text: &str) {
    for line in text.lines() {
        let Some(record) = line.strip_prefix("| offset: ") else { continue };
        let offset: i64 =
            record.split(' ').next().and_then(|n| n.parse().ok()).expect("an offset is a number");
        if dump.first_offset < 0 {
            dump.first_offset = offset;
        }
        let expected = dump.first_offset + i64::try_from(dump.values.len()).expect("small");
        assert_eq!(offset, expected, "offsets have no holes");
        let (_, value) = record.split_once("payload: ").expect("a record has a value");
        dump.values.push(value.to_owned());
    }
}

fn run(flags: &[&str], files: &[PathBuf]) -> String {
    if files.is_empty() {
        return String::new();
    }
    let list: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    let list = list.join(",");
    let args = [flags, &["--files", &list]].concat();
    let output = tools::run("kafka-dump-log", &args, b"").expect("the jars of Kafka are there");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = tools::checked("kafka-dump-log", output).unwrap_or_else(|error| panic!("{error}"));
    for (line, complaint) in
        text.lines().chain(errors.lines()).flat_map(|l| COMPLAINTS.iter().map(move |c| (l, c)))
    {
        // The payload of a record may say anything.
        assert!(line.starts_with("| ") || !line.contains(complaint), "dump-log of {list}: {line}");
    }
    text
}

fn count_lines(text: &str, begin: &str) -> usize {
    text.lines().filter(|line| line.starts_with(begin)).count()
}

/// Files of a partition with this extension, by name, which is by base offset.
pub fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("list {}: {error}", dir.display()));
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .filter(|path| path.file_stem().is_some_and(|stem| stem.to_string_lossy().parse::<i64>().is_ok()))
        .collect();
    files.sort();
    files
}
