//! G7: a reply is written only when the high watermark covers the records that it tells of.

use coordinator_core::{GroupReply, GroupRequest};
use kafka_wire_core::ErrorCode;

use crate::client::{error_of, fetched};
use crate::ghost::{commit_offsets, generation_is_durable};
use crate::log::ModelLog;

pub(crate) fn check(log: &ModelLog, request: &GroupRequest, reply: &GroupReply) {
    if error_of(reply) != ErrorCode::None {
        return;
    }
    match request {
        GroupRequest::Commit(request) => {
            for partition in request.topics.iter().flat_map(|topic| &topic.partitions) {
                let place = (request.group_id.clone(), partition.partition_index);
                let label = partition.committed_metadata.clone().unwrap_or_default();
                assert!(
                    !commit_offsets(log, &place, &label, log.high_watermark).is_empty(),
                    "G7: commit {label} of {place:?} is acknowledged, but not durable"
                );
            }
        }
        GroupRequest::Sync(request) => assert!(
            generation_is_durable(log, &request.group_id, request.generation_id),
            "G7: a part of {} generation {} is given, but not durable",
            request.group_id,
            request.generation_id
        ),
        GroupRequest::Fetch(request) => {
            let group = request.groups.first().map_or(&request.group_id, |group| &group.group_id);
            for (partition, offset, label) in fetched(reply) {
                let place = (group.clone(), partition);
                assert!(
                    offset < 0 || !commit_offsets(log, &place, &label, log.high_watermark).is_empty(),
                    "G7: commit {label} of {place:?} is shown, but not durable"
                );
            }
        }
        _ => {}
    }
}
