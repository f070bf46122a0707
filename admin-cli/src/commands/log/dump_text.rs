//! What the entries of a log's files look like: the lines of Apache Kafka's dump tool, so that the two can be compared,
//! or JSON.

use log_engine::inspect::{AbortedTxn, Item};
use log_engine_core::{ProducerState, Seal};
use records::{BatchHeader, BatchView, Record, TimestampType};
use serde_json::{Map, Value, json};

/// A batch that unpacks to more is shown without its records.
const UNPACKED_BYTES_MAX: usize = 1 << 30;

/// The item as lines of text.
pub(super) fn lines(item: &Item, records: bool) -> Vec<String> {
    match item {
        Item::Batch { header, position, bytes, valid } => {
            let mut lines = vec![batch_line(header, *position, *valid)];
            if records && *valid {
                match record_lines(header, bytes) {
                    Ok(records) => lines.extend(records),
                    Err(reason) => lines.push(format!("| its records cannot be read: {reason}")),
                }
            }
            lines
        }
        Item::Index { offset, position } => vec![format!("offset: {offset} position: {position}")],
        Item::TimeIndex { timestamp, offset } => vec![format!("timestamp: {timestamp} offset: {offset}")],
        Item::Txn(AbortedTxn { version, producer_id, first_offset, last_offset, last_stable_offset }) => {
            vec![format!(
                "version: {version} producerId: {producer_id} firstOffset: {first_offset} lastOffset: {last_offset} \
                 lastStableOffset: {last_stable_offset}"
            )]
        }
        Item::Producer { id, state } => vec![producer_line(*id, state)],
        Item::Epoch(entry) => vec![format!("epoch: {} startOffset: {}", entry.epoch, entry.start_offset)],
        Item::Seal(seal) => seal_lines(seal),
        Item::Broken { position, reason } => vec![format!("broken at byte {position}: {reason}")],
    }
}

fn timestamp_type(header: &BatchHeader) -> &'static str {
    match header.timestamp_type() {
        TimestampType::CreateTime => "CreateTime",
        TimestampType::LogAppendTime => "LogAppendTime",
    }
}

/// As Java prints an `OptionalLong`.
fn optional(number: Option<i64>) -> String {
    number.map_or_else(|| "OptionalLong.empty".to_owned(), |number| format!("OptionalLong[{number}]"))
}

fn codec(header: &BatchHeader) -> String {
    header.compression().map_or_else(|error| error.to_string(), |codec| codec.name().to_owned())
}

fn batch_line(header: &BatchHeader, position: u64, valid: bool) -> String {
    format!(
        "baseOffset: {} lastOffset: {} count: {} baseSequence: {} lastSequence: {} producerId: {} producerEpoch: {} \
         partitionLeaderEpoch: {} isTransactional: {} isControl: {} deleteHorizonMs: {} position: {position} {}: {} \
         size: {} magic: {} compresscodec: {} crc: {} isvalid: {valid}",
        header.base_offset,
        header.last_offset(),
        header.record_count,
        header.base_sequence,
        header.last_sequence(),
        header.producer_id,
        header.producer_epoch,
        header.partition_leader_epoch,
        header.is_transactional(),
        header.is_control(),
        optional(header.delete_horizon()),
        timestamp_type(header),
        header.max_timestamp,
        header.size(),
        header.magic,
        codec(header),
        header.crc,
    )
}

fn each_record(
    header: &BatchHeader,
    bytes: &[u8],
    each: &mut dyn FnMut(&Record<'_>, i32),
) -> Result<(), String> {
    let batch = BatchView::parse(bytes).map_err(|error| error.to_string())?;
    let records = batch.records(UNPACKED_BYTES_MAX).map_err(|error| error.to_string())?;
    for record in records.iter() {
        let record = record.map_err(|error| error.to_string())?;
        let delta = i32::try_from(record.offset - header.base_offset).unwrap_or(i32::MAX);
        let sequence = match header.base_sequence {
            -1 => -1,
            base => log_engine_core::producers::sequence_plus(base, delta),
        };
        each(&record, sequence);
    }
    Ok(())
}

fn record_lines(header: &BatchHeader, bytes: &[u8]) -> Result<Vec<String>, String> {
    let (kind, mut lines) = (timestamp_type(header), Vec::new());
    each_record(header, bytes, &mut |record, sequence| {
        let size = |bytes: Option<&[u8]>| bytes.map_or(-1, |bytes| bytes.len() as i64);
        let keys: Vec<_> =
            record.headers.iter().map(|h| String::from_utf8_lossy(h.key).into_owned()).collect();
        let mut line = format!(
            "| offset: {} {kind}: {} keySize: {} valueSize: {} sequence: {sequence} headerKeys: [{}]",
            record.offset,
            record.timestamp,
            size(record.key),
            size(record.value),
            keys.join(",")
        );
        if header.is_control() {
            line.push_str(&marker_text(record));
        } else {
            for (name, bytes) in [("key", record.key), ("payload", record.value)] {
                if let Some(bytes) = bytes {
                    line.push_str(&format!(" {name}: {}", String::from_utf8_lossy(bytes)));
                }
            }
        }
        lines.push(line);
    })?;
    Ok(lines)
}

/// What a control record says: the end of a transaction, or something else.
fn marker_text(record: &Record<'_>) -> String {
    let number = |bytes: Option<&[u8]>, at: usize| {
        bytes.and_then(|bytes| bytes.get(at..at + 2)).map(|two| i16::from_be_bytes([two[0], two[1]]))
    };
    let epoch = record
        .value
        .and_then(|value| value.get(2..6))
        .map_or(-1, |four| i32::from_be_bytes(std::array::from_fn(|i| four[i])));
    match number(record.key, 2) {
        Some(0) => format!(" endTxnMarker: ABORT coordinatorEpoch: {epoch}"),
        Some(1) => format!(" endTxnMarker: COMMIT coordinatorEpoch: {epoch}"),
        Some(other) => format!(" controlType: {other}"),
        None => " controlType: unreadable".to_owned(),
    }
}

fn producer_line(id: i64, state: &ProducerState) -> String {
    let mut line = format!(
        "producerId: {id} producerEpoch: {} coordinatorEpoch: {} currentTxnFirstOffset: {} lastTimestamp: {} ",
        state.epoch,
        state.coordinator_epoch,
        optional(state.txn_first_offset),
        state.last_timestamp,
    );
    // Of one that has only ended a transaction in its epoch there is no batch.
    if let Some(newest) = state.batches().next_back() {
        line.push_str(&format!(
            "firstSequence: {} lastSequence: {} lastOffset: {} offsetDelta: {} timestamp: {} ",
            newest.first_sequence(),
            newest.last_sequence,
            newest.last_offset,
            newest.offset_delta,
            newest.timestamp,
        ));
    }
    line.push_str(&format!("batches: {}", state.batches().len()));
    line
}

fn seal_lines(seal: &Seal) -> Vec<String> {
    let file = |sum: Option<log_engine_core::FileSum>| {
        sum.map_or_else(|| "none".to_owned(), |sum| format!("{} bytes crc {:08x}", sum.length, sum.crc))
    };
    let mut lines = vec![format!(
        "baseOffset: {} lastOffset: {} nextBaseOffset: {} length: {} batches: {} records: {} maxTimestamp: {} \
         maxTimestampOffset: {} producersAt: {} index: {} timeindex: {} txnindex: {}",
        seal.base_offset,
        seal.last_offset,
        seal.next_base,
        seal.length,
        seal.batches,
        seal.records,
        seal.max_timestamp,
        seal.max_timestamp_offset,
        optional(seal.producers_at),
        file(seal.index),
        file(seal.time_index),
        file(seal.txn_index),
    )];
    lines.extend(seal.pieces.iter().enumerate().map(|(nth, crc)| format!("| piece: {nth} crc: {crc:08x}")));
    lines
}

/// The item as one JSON object.
pub(super) fn to_json(item: &Item, records: bool) -> Value {
    match item {
        Item::Batch { header, position, bytes, valid } => {
            let mut batch = batch_json(header, *position, *valid);
            if records && *valid {
                let (mut list, mut kept) = (Vec::new(), Map::new());
                let read = each_record(header, bytes, &mut |record, sequence| {
                    list.push(record_json(header, record, sequence));
                });
                match read {
                    Ok(()) => kept.insert("records".to_owned(), Value::Array(list)),
                    Err(reason) => kept.insert("unreadable".to_owned(), Value::String(reason)),
                };
                if let Some(batch) = batch.as_object_mut() {
                    batch.extend(kept);
                }
            }
            batch
        }
        Item::Index { offset, position } => json!({ "offset": offset, "position": position }),
        Item::TimeIndex { timestamp, offset } => json!({ "timestamp": timestamp, "offset": offset }),
        Item::Txn(txn) => json!({
            "version": txn.version, "producerId": txn.producer_id, "firstOffset": txn.first_offset,
            "lastOffset": txn.last_offset, "lastStableOffset": txn.last_stable_offset,
        }),
        Item::Producer { id, state } => producer_json(*id, state),
        Item::Epoch(entry) => json!({ "epoch": entry.epoch, "startOffset": entry.start_offset }),
        Item::Seal(seal) => seal_json(seal),
        Item::Broken { position, reason } => json!({ "brokenAt": position, "reason": reason }),
    }
}

fn batch_json(header: &BatchHeader, position: u64, valid: bool) -> Value {
    json!({
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset(),
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence(),
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "isTransactional": header.is_transactional(),
        "isControl": header.is_control(),
        "deleteHorizonMs": header.delete_horizon(),
        "position": position,
        "timestampType": timestamp_type(header),
        "maxTimestamp": header.max_timestamp,
        "size": header.size(),
        "magic": header.magic,
        "codec": codec(header),
        "crc": header.crc,
        "valid": valid,
    })
}

fn record_json(header: &BatchHeader, record: &Record<'_>, sequence: i32) -> Value {
    let text = |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let headers: Vec<Value> = record
        .headers
        .iter()
        .map(|header| json!({ "key": text(Some(header.key)), "value": text(header.value) }))
        .collect();
    let mut value = json!({
        "offset": record.offset, "timestamp": record.timestamp, "sequence": sequence,
        "key": text(record.key), "value": text(record.value), "headers": headers,
    });
    if header.is_control() {
        value["control"] = Value::String(marker_text(record).trim().to_owned());
    }
    value
}

fn producer_json(id: i64, state: &ProducerState) -> Value {
    let batches: Vec<Value> = state
        .batches()
        .map(|batch| {
            json!({
                "firstSequence": batch.first_sequence(), "lastSequence": batch.last_sequence,
                "lastOffset": batch.last_offset, "offsetDelta": batch.offset_delta, "timestamp": batch.timestamp,
            })
        })
        .collect();
    json!({
        "producerId": id, "producerEpoch": state.epoch, "coordinatorEpoch": state.coordinator_epoch,
        "currentTxnFirstOffset": state.txn_first_offset, "lastTimestamp": state.last_timestamp, "batches": batches,
    })
}

fn seal_json(seal: &Seal) -> Value {
    let file = |sum: Option<log_engine_core::FileSum>| {
        sum.map(|sum| json!({ "length": sum.length, "crc": sum.crc }))
    };
    json!({
        "baseOffset": seal.base_offset, "lastOffset": seal.last_offset, "nextBaseOffset": seal.next_base,
        "length": seal.length, "batches": seal.batches, "records": seal.records,
        "maxTimestamp": seal.max_timestamp, "maxTimestampOffset": seal.max_timestamp_offset,
        "producersAt": seal.producers_at, "index": file(seal.index), "timeindex": file(seal.time_index),
        "txnindex": file(seal.txn_index), "pieces": seal.pieces,
    })
}
