//! The format byte by byte: what these tests spell out stands on disks and must never change.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use records::{BatchBuilder, BatchHeader, Compression, TimestampType, batches, check_crc};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Two records, the second with a null key, an empty value and two headers of the same key.
const GOLDEN: &str = "
    0000000000000007 0000004f 00000003 02 9f727cc1
    0000 00000001 0000000000000bb8 0000000000000fa0 0000000000000009 0002 00000005 00000002
    1c 00 00 00 06 6b6579 0a 76616c7565 00
    1c 00 d00f 02 01 00 04 02 68 02 31 02 68 01
";

#[test]
fn the_builder_makes_exactly_these_bytes() {
    let mut builder = BatchBuilder::new().base_offset(7).leader_epoch(3).producer(9, 2, 5);
    builder.push(3_000, Some(b"key"), Some(b"value"), &[]).unwrap();
    builder.push(4_000, None, Some(b""), &[(b"h", Some(b"1")), (b"h", None)]).unwrap();
    let batch = builder.build();
    assert_eq!(to_hex(&batch), to_hex(&hex(GOLDEN)));
}

#[test]
fn the_reader_reads_them() {
    let bytes = hex(GOLDEN);
    check_crc(&bytes).unwrap();
    let view = batches(&bytes).next().unwrap().unwrap();
    let header = *view.header();
    let expected = BatchHeader {
        base_offset: 7,
        length: 79,
        partition_leader_epoch: 3,
        magic: 2,
        crc: 0x9f72_7cc1,
        attributes: 0,
        last_offset_delta: 1,
        base_timestamp: 3_000,
        max_timestamp: 4_000,
        producer_id: 9,
        producer_epoch: 2,
        base_sequence: 5,
        record_count: 2,
    };
    assert_eq!(header, expected);
    assert_eq!(header.compression(), Ok(Compression::None));
    assert_eq!(header.timestamp_type(), TimestampType::CreateTime);
    assert_eq!((header.size(), header.last_offset(), header.last_sequence()), (91, 8, 6));
    let records = view.records(1 << 20).unwrap();
    let records: Vec<_> = records.iter().map(|record| record.unwrap()).collect();
    assert_eq!((records[0].offset, records[0].timestamp), (7, 3_000));
    assert_eq!((records[0].key, records[0].value), (Some(&b"key"[..]), Some(&b"value"[..])));
    assert_eq!((records[1].offset, records[1].timestamp), (8, 4_000));
    assert_eq!((records[1].key, records[1].value), (None, Some(&b""[..])));
    let headers: Vec<_> = records[1].headers.iter().map(|header| (header.key, header.value)).collect();
    assert_eq!(headers, [(&b"h"[..], Some(&b"1"[..])), (&b"h"[..], None)]);
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
