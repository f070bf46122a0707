//! What all APIs of groups share: which shard a group belongs to, the way to its coordinator, and what a client is told
//! when there is no answer.

use crate::coordinator_port::{GroupCall, NoAnswer};
use crate::node::Node;
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
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

/// Groups of one request that are asked for at a time, so that one request leaves the others their places.
const GROUPS_AT_ONCE: usize = 32;
/// Groups that one request may name.
const GROUPS_PER_REQUEST_MAX: usize = 100_000;

/// What `ask` answers for each group, in order, a few at a time.
pub(crate) async fn ask_each<T, F: Future>(groups: Vec<T>, ask: impl Fn(T) -> F) -> Vec<F::Output> {
    let mut groups = groups.into_iter();
    let mut asked: FuturesOrdered<F> = groups.by_ref().take(GROUPS_AT_ONCE).map(&ask).collect();
    let mut answers = Vec::with_capacity(groups.len() + asked.len());
    while let Some(answer) = asked.next().await {
        answers.push(answer);
        if let Some(group) = groups.next() {
            asked.push_back(ask(group));
        }
    }
    answers
}

/// Whether a request names more groups than one may. Then only those that it may name are left in it: it is refused with
/// INVALID_REQUEST, and so is the answer bounded.
pub(crate) fn names_too_many<T>(groups: &mut Vec<T>) -> bool {
    let too_many = groups.len() > GROUPS_PER_REQUEST_MAX;
    groups.truncate(GROUPS_PER_REQUEST_MAX);
    too_many
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn groups_are_asked_for_a_few_at_a_time_and_in_order() {
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let answers = ask_each((0..1_000_usize).collect(), |group| {
            let (running, most) = (&running, &most);
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                for _ in 0..group % 5 {
                    tokio::task::yield_now().await;
                }
                running.fetch_sub(1, Ordering::Relaxed);
                group
            }
        });
        assert_eq!(answers.await, (0..1_000).collect::<Vec<_>>());
        assert!((2..=GROUPS_AT_ONCE).contains(&most.load(Ordering::Relaxed)));
    }

    #[test]
    fn a_request_names_no_more_groups_than_it_may() {
        let mut groups = vec![(); GROUPS_PER_REQUEST_MAX];
        assert!(!names_too_many(&mut groups));
        groups.push(());
        assert!(names_too_many(&mut groups));
        assert_eq!(groups.len(), GROUPS_PER_REQUEST_MAX);
    }

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
