//! `weir log dump` over every kind of file, written by a real log, and over files that are damaged, missing or something
//! else.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use log_engine::{DataDir, DataDirOptions, Log, LogConfig, LogName, RealDisk};
use records::{BatchBuilder, BatchHeader, Compression, EndMarker};
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

use super::{DumpArgs, LogCommand, VerifyArgs, run};
use crate::failure::Failure;
use crate::output::{Format, captured};

const NOW: i64 = 1_700_000_000_000;

/// A closed log: an aborted transaction and a plain record in the first segment, an open transaction in the second.
struct Written {
    dir: PathBuf,
    /// Headers of its batches, in order.
    headers: Vec<BatchHeader>,
    _temporary: TempDir,
}

fn append(log: &mut Log, mut bytes: Vec<u8>, epoch: i32) -> BatchHeader {
    records::set_base_offset(&mut bytes, log.end());
    records::set_leader_epoch(&mut bytes, epoch);
    let header = BatchHeader::parse(&bytes).unwrap();
    log.append(&bytes, &[header], NOW).unwrap();
    header
}

fn write_log() -> Written {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path().join("data");
    let options = DataDirOptions {
        cluster_id: "dumped".to_owned(),
        node_id: 1,
        new_directory_id: Uuid::from_u128(1),
        descriptors_max: 8,
    };
    let data = DataDir::open(Arc::new(RealDisk), &root, &options).unwrap();
    let name = LogName::new(Uuid::from_u128(7), 0);
    let config = LogConfig { index_interval_bytes: 1, ..LogConfig::default() };
    let (mut log, _) = Log::open(&data, name, config, NOW).unwrap();

    let mut aborted = BatchBuilder::new().compression(Compression::Lz4).producer(70, 2, 0).transactional();
    aborted.push(NOW, Some(b"key"), Some(b"value"), &[(b"trace", Some(b"7"))]).unwrap();
    aborted.push(NOW + 5, None, None, &[(b"empty", None)]).unwrap();
    let marker = EndMarker { is_commit: false, coordinator_epoch: 3 }.encode(70, 2, NOW + 6).unwrap();
    let mut plain = BatchBuilder::new();
    plain.push(NOW + 7, None, Some(b"plain"), &[]).unwrap();
    let mut open = BatchBuilder::new().producer(71, 0, 10).transactional();
    open.push(NOW + 8, Some(b"k"), Some(b"open"), &[]).unwrap();

    let mut headers = vec![append(&mut log, aborted.build(), 4)];
    headers.push(append(&mut log, marker, 4));
    headers.push(append(&mut log, plain.build(), 4));
    log.roll().unwrap();
    headers.push(append(&mut log, open.build(), 6));
    // A segment is sealed when it is on disk.
    let flush = log.begin_flush().unwrap();
    let synced = flush.sync();
    log.on_flushed(flush.done(synced));
    while let Some((_, sealing)) = data.seal_next(Duration::ZERO) {
        sealing.unwrap();
    }
    log.close().unwrap();
    data.close_clean().unwrap();
    Written { dir: root.join(name.to_string()), headers, _temporary: temporary }
}

/// What the command prints, and how it ends.
fn dump_in(format: Format, records: bool, file: &Path) -> (String, Result<(), Failure>) {
    let mut result = Ok(());
    let text = captured(format, |output| {
        let args = DumpArgs { files: vec![file.to_owned()], records };
        result = run(LogCommand::Dump(args), output);
    });
    (text, result)
}

fn lines_of(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

impl Written {
    fn file(&self, base: i64, suffix: &str) -> PathBuf {
        self.dir.join(format!("{base:020}.{suffix}"))
    }

    /// The JSON documents of a file that is sound.
    fn dump(&self, base: i64, suffix: &str) -> Vec<Value> {
        let (text, result) = dump_in(Format::Json, true, &self.file(base, suffix));
        assert_eq!(result, Ok(()), "{suffix} of {base}: {text}");
        lines_of(&text)
    }

    /// Where each batch of the first segment begins, and where the last one ends.
    fn positions(&self) -> [usize; 4] {
        let [a, b, c, _] = [0, 1, 2, 3].map(|i| self.headers[i].size());
        [0, a, a + b, a + b + c]
    }
}

#[test]
fn segments_are_shown_batch_by_batch_with_their_records() {
    let log = write_log();
    let [first, marker, plain, _] = log.positions();
    let crcs: Vec<u32> = log.headers.iter().map(|header| header.crc).collect();
    let sizes: Vec<usize> = log.headers.iter().map(BatchHeader::size).collect();
    let expected = [
        json!({
            "baseOffset": 0, "lastOffset": 1, "count": 2, "baseSequence": 0, "lastSequence": 1, "producerId": 70,
            "producerEpoch": 2, "partitionLeaderEpoch": 4, "isTransactional": true, "isControl": false,
            "deleteHorizonMs": null, "position": first, "timestampType": "CreateTime", "maxTimestamp": NOW + 5,
            "size": sizes[0], "magic": 2, "codec": "lz4", "crc": crcs[0], "valid": true,
            "records": [
                { "offset": 0, "timestamp": NOW, "sequence": 0, "key": "key", "value": "value",
                  "headers": [{ "key": "trace", "value": "7" }] },
                { "offset": 1, "timestamp": NOW + 5, "sequence": 1, "key": null, "value": null,
                  "headers": [{ "key": "empty", "value": null }] },
            ],
        }),
        json!({
            "baseOffset": 2, "lastOffset": 2, "count": 1, "baseSequence": -1, "lastSequence": -1, "producerId": 70,
            "producerEpoch": 2, "partitionLeaderEpoch": 4, "isTransactional": true, "isControl": true,
            "deleteHorizonMs": null, "position": marker, "timestampType": "CreateTime", "maxTimestamp": NOW + 6,
            "size": sizes[1], "magic": 2, "codec": "none", "crc": crcs[1], "valid": true,
            "records": [
                { "offset": 2, "timestamp": NOW + 6, "sequence": -1, "key": "\0\0\0\0",
                  "value": "\0\0\0\0\0\u{3}", "headers": [],
                  "control": "endTxnMarker: ABORT coordinatorEpoch: 3" },
            ],
        }),
        json!({
            "baseOffset": 3, "lastOffset": 3, "count": 1, "baseSequence": -1, "lastSequence": -1, "producerId": -1,
            "producerEpoch": -1, "partitionLeaderEpoch": 4, "isTransactional": false, "isControl": false,
            "deleteHorizonMs": null, "position": plain, "timestampType": "CreateTime", "maxTimestamp": NOW + 7,
            "size": sizes[2], "magic": 2, "codec": "none", "crc": crcs[2], "valid": true,
            "records": [
                { "offset": 3, "timestamp": NOW + 7, "sequence": -1, "key": null, "value": "plain", "headers": [] },
            ],
        }),
    ];
    assert_eq!(log.dump(0, "log"), expected);
    let second = log.dump(4, "log");
    assert_eq!(second.len(), 1);
    assert_eq!((&second[0]["baseOffset"], &second[0]["partitionLeaderEpoch"]), (&json!(4), &json!(6)));

    // Records only if they are asked for.
    let (text, result) = dump_in(Format::Json, false, &log.file(0, "log"));
    assert_eq!(result, Ok(()));
    let without: Vec<Value> = lines_of(&text);
    assert_eq!(without.len(), 3);
    assert!(without.iter().all(|batch| batch.get("records").is_none()));
}

#[test]
fn indexes_are_shown_entry_by_entry() {
    let log = write_log();
    let [_, marker, plain, _] = log.positions();
    assert_eq!(
        log.dump(0, "index"),
        [json!({ "offset": 2, "position": marker }), json!({ "offset": 3, "position": plain })]
    );
    assert_eq!(
        log.dump(0, "timeindex"),
        [json!({ "timestamp": NOW + 6, "offset": 2 }), json!({ "timestamp": NOW + 7, "offset": 3 })]
    );
    // A segment that never rolled has its newest time too.
    assert_eq!(log.dump(4, "timeindex"), [json!({ "timestamp": NOW + 8, "offset": 4 })]);
    assert_eq!(log.dump(4, "index"), Vec::<Value>::new());
    assert_eq!(
        log.dump(0, "txnindex"),
        [json!({
            "version": 0, "producerId": 70, "firstOffset": 0, "lastOffset": 2, "lastStableOffset": 3,
        })]
    );
}

#[test]
fn snapshots_epochs_and_seals_are_shown() {
    let log = write_log();
    let of_70 = json!({
        "producerId": 70, "producerEpoch": 2, "coordinatorEpoch": 3, "currentTxnFirstOffset": null,
        "lastTimestamp": NOW + 6,
        "batches": [{
            "firstSequence": 0, "lastSequence": 1, "lastOffset": 1, "offsetDelta": 1, "timestamp": NOW + 5,
        }],
    });
    let of_71 = json!({
        "producerId": 71, "producerEpoch": 0, "coordinatorEpoch": -1, "currentTxnFirstOffset": 4,
        "lastTimestamp": NOW + 8,
        "batches": [{
            "firstSequence": 10, "lastSequence": 10, "lastOffset": 4, "offsetDelta": 0, "timestamp": NOW + 8,
        }],
    });
    let at_the_end = [of_70, of_71];
    assert_eq!(log.dump(4, "snapshot"), at_the_end[..1], "before the second segment");
    assert_eq!(log.dump(5, "snapshot"), at_the_end);

    let (text, result) = dump_in(Format::Json, false, &log.dir.join("leader-epoch-checkpoint"));
    assert_eq!(result, Ok(()));
    assert_eq!(
        lines_of(&text),
        [json!({ "epoch": 4, "startOffset": 0 }), json!({ "epoch": 6, "startOffset": 4 })]
    );

    let [.., length] = log.positions();
    let seal = log.dump(0, "seal");
    assert_eq!(seal.len(), 1);
    let length_of = |suffix: &str| fs::metadata(log.file(0, suffix)).unwrap().len();
    let expected = json!({
        "baseOffset": 0, "lastOffset": 3, "nextBaseOffset": 4, "length": length, "batches": 3, "records": 4,
        "maxTimestamp": NOW + 7, "maxTimestampOffset": 3, "producersAt": 4,
    });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&seal[0][field], value, "{field}");
    }
    for suffix in ["index", "timeindex", "txnindex"] {
        assert_eq!(seal[0][suffix]["length"], length_of(suffix), "{suffix}");
    }
    assert_eq!(seal[0]["pieces"].as_array().unwrap().len(), 1, "one piece: the segment is small");
}

/// A copy of the file under the same name, changed.
fn changed(log: &Written, file: &Path, change: impl FnOnce(&mut Vec<u8>)) -> PathBuf {
    let mut bytes = fs::read(file).unwrap();
    change(&mut bytes);
    let dir = log.dir.join("changed");
    fs::create_dir_all(&dir).unwrap();
    let path = dir.join(file.file_name().unwrap());
    fs::write(&path, bytes).unwrap();
    path
}

type Change = fn(&mut Vec<u8>);

#[test]
fn damage_is_shown_where_it_is_and_fails_the_command() {
    let log = write_log();
    let [_, _, plain, end] = log.positions();
    let snapshot = log.file(5, "snapshot");
    let epochs = log.dir.join("leader-epoch-checkpoint");
    // File, change, where it is found, and how many entries are shown before it.
    let cases: [(PathBuf, Change, usize, usize); 8] = [
        (log.file(0, "log"), |bytes| bytes.truncate(bytes.len() - 3), plain, 2),
        (log.file(0, "log"), |bytes| bytes.extend([0; 40]), end, 3),
        (log.file(0, "index"), |bytes| bytes.extend([1; 5]), 16, 2),
        (log.file(0, "timeindex"), |bytes| bytes.truncate(23), 12, 1),
        (log.file(0, "txnindex"), |bytes| bytes.extend([0; 33]), 34, 1),
        (snapshot, |bytes| bytes[20] ^= 1, 0, 0),
        (epochs, |bytes| bytes.truncate(6), 0, 0),
        (log.file(0, "seal"), |bytes| bytes[30] ^= 1, 0, 0),
    ];
    for (file, change, position, before) in cases {
        let path = changed(&log, &file, change);
        let name = path.display().to_string();
        let (text, result) = dump_in(Format::Json, false, &path);
        let shown = lines_of(&text);
        assert_eq!(shown.len(), before + 1, "{name}: {text}");
        let broken = &shown[before];
        assert_eq!(broken["brokenAt"], position, "{name}: {text}");
        assert!(broken["reason"].as_str().is_some_and(|reason| reason.len() > 10), "{name}: {text}");
        let failure = result.unwrap_err();
        assert_eq!(failure.exit_code(), 1);
        assert_eq!(
            failure.to_json()["error"],
            json!({
                "kind": "failed",
                "message": format!("{name} is damaged in 1 part, first at byte {position}"),
                "hint": "`weir log verify` on its directory tells what else is wrong",
            })
        );
    }

    // A batch whose checksum does not fit is shown as such, without its records, and so are those behind it.
    let path = changed(&log, &log.file(0, "log"), |bytes| bytes[plain - 1] ^= 1);
    let (text, result) = dump_in(Format::Json, true, &path);
    let valid: Vec<(Value, bool)> = lines_of(&text)
        .into_iter()
        .map(|batch| (batch["valid"].clone(), batch.get("records").is_some()))
        .collect();
    assert_eq!(valid, [(json!(true), true), (json!(false), false), (json!(true), true)]);
    assert!(result.unwrap_err().to_string().contains("damaged in 1 part, first at byte "));
}

#[test]
fn zeros_at_the_end_of_an_index_are_no_entries() {
    let log = write_log();
    let entries = log.dump(0, "index");
    let path = changed(&log, &log.file(0, "index"), |bytes| bytes.resize(4096, 0));
    let (text, result) = dump_in(Format::Json, false, &path);
    assert_eq!((lines_of(&text), result), (entries, Ok(())));
}

#[test]
fn what_cannot_be_dumped_is_named_with_what_to_do() {
    let log = write_log();
    for name in ["meta.properties", "0.log", "00000000000000000000.cleaned", "00000000000000000000"] {
        let path = log.dir.join(name);
        fs::write(&path, b"x").unwrap();
        let (text, result) = dump_in(Format::Json, false, &path);
        let failure = result.unwrap_err();
        assert_eq!((text.as_str(), failure.exit_code()), ("", 2), "{name}");
        let message = failure.to_json()["error"]["message"].as_str().unwrap().to_owned();
        let begin = format!("{} is no file of a log that can be dumped: its name must be ", path.display());
        assert!(message.starts_with(&begin), "{message}");
    }
    for suffix in ["log", "index", "snapshot", "seal"] {
        let (text, result) = dump_in(Format::Table, false, &log.file(99, suffix));
        let failure = result.unwrap_err();
        assert_eq!(failure.exit_code(), 4, "{failure}");
        let path = log.file(99, suffix).display().to_string();
        assert_eq!(text, format!("Dumping {path}\n"));
        let said = failure.to_string();
        assert!(said.starts_with(&format!("error: cannot read {path}: ")), "{said}");
        assert!(said.contains("hint: each log has a directory of its own"), "{said}");
    }
}

/// What `weir log verify` says of a directory, and how it ends.
fn verify_in(dir: &Path) -> (Vec<Value>, Result<(), Failure>) {
    let mut result = Ok(());
    let text = captured(Format::Json, |output| {
        let args = VerifyArgs { dirs: vec![dir.to_owned()] };
        result = run(LogCommand::Verify(args), output);
    });
    let documents: Value = serde_json::from_str(&text).unwrap();
    (documents.as_array().unwrap().clone(), result)
}

#[test]
fn the_files_beside_the_logs_are_verified_with_a_data_directory() {
    let log = write_log();
    let root = log.dir.parent().unwrap();
    let (documents, result) = verify_in(root);
    assert_eq!((documents.len(), result), (2, Ok(())), "{documents:?}");
    assert_eq!(documents[0]["state"], "sound", "{documents:?}");
    let beside = &documents[1];
    assert_eq!(beside["data_directory"], root.display().to_string());
    // Nobody has told it of a run of the machine, or of other directories.
    assert_eq!(
        (&beside["state"], beside["findings"].as_array().unwrap().len()),
        (&json!("note"), 2),
        "{beside}"
    );
    let (documents, result) = verify_in(&log.dir);
    assert_eq!((documents.len(), result), (1, Ok(())), "a log alone");

    for (name, state) in [("meta.properties", "damage"), ("cleaner-dropped-checkpoint", "rebuildable")] {
        let path = root.join(name);
        let whole = fs::read(&path).unwrap();
        let mut bytes = whole.clone();
        let at = bytes.len() - 2;
        bytes[at] ^= 1;
        fs::write(&path, bytes).unwrap();
        let (documents, result) = verify_in(root);
        assert_eq!(documents[1]["state"], state, "{documents:?}");
        let named = documents[1]["findings"]
            .as_array()
            .unwrap()
            .iter()
            .any(|finding| finding["severity"] == state && finding["file"] == path.display().to_string());
        assert!(named, "{documents:?}");
        let failure = result.unwrap_err().to_string();
        assert!(failure.contains(&format!("the data directory {}", root.display())), "{failure}");
        fs::write(&path, whole).unwrap();
    }
    fs::remove_dir_all(&log.dir).unwrap();
    let (documents, result) = verify_in(root);
    assert_eq!((documents[0]["state"].as_str(), result.is_err()), (Some("damage"), true), "{documents:?}");
}
