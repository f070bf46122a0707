//! What record data costs on its way through: nothing. No copy, and a handful of small allocations a message.
//!
//! One test only: the allocator counts for the whole process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::alloc::System;
use std::sync::Arc;

use bytes::Bytes;
use kafka_wire_core::messages::fetch::{FetchRequest, FetchResponse, FetchableTopicResponse, PartitionData};
use kafka_wire_core::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use kafka_wire_core::{Message, Part, Records, Region, Request, Writer};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region as Measured, Stats, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const MIB: usize = 1024 * 1024;

fn measure<T>(work: impl Fn() -> T) -> (T, Stats) {
    // The harness may still be at something of its own when it is measured the first time.
    let tries = [(); 3].map(|()| {
        let measured = Measured::new(ALLOCATOR);
        let result = work();
        (result, measured.change())
    });
    tries.into_iter().min_by_key(|(_, stats)| stats.allocations).unwrap()
}

fn produce(partitions: usize) -> Bytes {
    let partition_data = (0..partitions)
        .map(|index| PartitionProduceData {
            index: i32::try_from(index).unwrap(),
            records: Some(Bytes::from(vec![7; MIB / partitions]).into()),
        })
        .collect();
    let request = ProduceRequest {
        acks: -1,
        topic_data: vec![TopicProduceData { name: "orders".into(), partition_data, ..Default::default() }],
        ..Default::default()
    };
    let mut writer = Writer::new();
    request.encode(&mut writer, 9).unwrap();
    writer.finish().into_bytes().unwrap()
}

fn fetch(partitions: i32, records: impl Fn() -> Records) -> FetchResponse {
    let partitions = (0..partitions)
        .map(|partition_index| PartitionData {
            partition_index,
            records: Some(records()),
            ..Default::default()
        })
        .collect();
    FetchResponse {
        responses: vec![FetchableTopicResponse { topic: "orders".into(), partitions, ..Default::default() }],
        ..Default::default()
    }
}

#[test]
fn record_data_is_never_copied() {
    for (partitions, most) in [(1, 512), (100, 16 * 1024)] {
        let body = produce(partitions);
        let (request, stats) = measure(|| ProduceRequest::decode_exact(body.clone(), 9).unwrap());
        println!("produce, {partitions} partitions: {stats:?}");
        assert!(stats.allocations <= 4, "{stats:?}");
        assert!(stats.bytes_allocated <= most, "{stats:?}");
        for partition in &request.topic_data[0].partition_data {
            let records = partition.records.as_ref().unwrap().as_bytes().unwrap();
            assert_eq!(records.len(), MIB / partitions);
            assert!(body.as_ptr_range().contains(&records.as_ptr()), "records are a copy");
        }
    }

    let (file, bytes) = (Arc::new(()), Bytes::from(vec![7; MIB]));
    let region = Region { source: file, offset: 0, len: MIB };
    for records in [Records::Bytes(bytes.clone()), Records::Region(region.clone())] {
        for partitions in [1, 100] {
            let response = fetch(partitions, || records.clone());
            let (frame, stats) = measure(|| FetchRequest::response_frame(&response, 12, 1).unwrap());
            println!("fetch, {partitions} partitions: {stats:?}");
            assert!(frame.len > MIB * usize::try_from(partitions).unwrap());
            assert!(stats.allocations <= 24, "{stats:?}");
            assert!(stats.bytes_allocated + stats.bytes_reallocated.unsigned_abs() <= 64 * 1024, "{stats:?}");
            let shared = frame.parts.iter().filter(|part| match part {
                Part::Bytes(part) => part.as_ptr() == bytes.as_ptr(),
                Part::Region(part) => *part == region,
            });
            assert_eq!(shared.count(), usize::try_from(partitions).unwrap());
        }
    }
}
