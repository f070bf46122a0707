//! What all APIs of groups share: which shard a group belongs to, the way to its coordinator, and what a client is told
//! when there is no answer.

use crate::coordinator_port::{GroupCall, NoAnswer};
use crate::node::Node;
use kafka_wire::RequestContext;
use kafka_wire_core::{ErrorCode, Message, Request, Str, Writer};
use proto_types::coordinator_api::Shard;
use proto_types::ids::{PartitionIndex, TopicPartition};
use proto_types::metadata::InternalTopic;
use storage_node_core::image::ClusterImage;

/// Who every client is, as long as nobody logs in.
const PRINCIPAL: &str = "User:ANONYMOUS";

/// An API about a group that its coordinator answers.
pub(crate) trait GroupApi: Request {
    /// The answer that refuses the whole request.
    fn refuse(&self, version: i16, error: ErrorCode) -> Self::Response;

    /// The code for having no answer. Clients differ by API in what they take for worth a retry.
    fn code(no_answer: NoAnswer) -> ErrorCode {
        match no_answer {
            NoAnswer::Loading => ErrorCode::CoordinatorLoadInProgress,
            NoAnswer::NotAvailable => ErrorCode::CoordinatorNotAvailable,
            NoAnswer::Malformed => ErrorCode::InvalidRequest,
        }
    }
}

/// The shard of a group; none before the topic of the offsets exists.
pub(crate) fn shard_of(image: &ClusterImage, group: &str) -> Option<Shard> {
    let topic = image.topic_by_name(InternalTopic::ConsumerOffsets.name())?;
    let count = i32::try_from(topic.partitions.len()).ok().filter(|count| *count > 0)?;
    Some(TopicPartition { topic: topic.id, partition: PartitionIndex(partition_of(group, count)) })
}

/// Kafka's place for a group: Java's hash of the text, made positive, modulo the number of partitions.
fn partition_of(group: &str, partitions: i32) -> i32 {
    let hash =
        group.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    hash.checked_abs().unwrap_or(0) % partitions
}

/// Asks the coordinator of `group`; without an answer the request is refused as a whole.
pub(crate) async fn forward<R: GroupApi + Sync>(
    node: &Node,
    context: &RequestContext,
    group: &str,
    request: &R,
) -> R::Response {
    let answered = match shard_of(&node.image(), group) {
        Some(shard) => forward_to(node, context, shard, request).await,
        None => Err(NoAnswer::NotAvailable),
    };
    answered.unwrap_or_else(|why| request.refuse(context.api_version, R::code(why)))
}

/// Asks the coordinator of a shard.
pub(crate) async fn forward_to<R: GroupApi + Sync>(
    node: &Node,
    context: &RequestContext,
    shard: Shard,
    request: &R,
) -> Result<R::Response, NoAnswer> {
    let version = context.api_version;
    let mut writer = Writer::new();
    let unreadable = |error: &dyn std::fmt::Display| {
        tracing::error!(api = R::NAME, version, %error, "a forwarded message is not what it should be");
        NoAnswer::Malformed
    };
    request.encode(&mut writer, version).map_err(|error| unreadable(&error))?;
    let body = writer.finish().into_bytes().ok_or(NoAnswer::Malformed)?;
    let call = GroupCall {
        shard,
        api: R::KEY,
        api_version: version,
        client_id: context.client_id.as_ref().map(Str::to_string),
        client_host: format!("/{}", context.client_host),
        listener: context.listener.name.clone(),
        principal: PRINCIPAL.to_owned(),
        body,
    };
    // Whoever is parked must not hold a stop up.
    let answer = tokio::select! {
        answer = node.coordinators().forward(call) => answer?,
        () = context.draining.cancelled() => return Err(NoAnswer::NotAvailable),
    };
    R::Response::decode_exact(answer, version).map_err(|error| unreadable(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_where_kafka_has_them() {
        // Java: Utils.abs("...".hashCode()) % 50
        let cases = [
            ("", 0),
            ("a", 47),
            ("my-group", 12),
            ("console-consumer-12345", 6),
            ("Gruppe-ä", 26),
            ("🦀", 2),
        ];
        for (group, partition) in cases {
            assert_eq!(partition_of(group, 50), partition, "{group}");
        }
        // Its hash is the smallest number, which has no positive counterpart.
        assert_eq!(partition_of("polygenelubricants", 50), 0);
    }
}
