//! Topics go, with their partitions and configs.

use super::{Decision, Draft, Inputs, check_count, reject};
use crate::state::ClusterState;
use crate::topic_name;
use proto_types::controller_api::{DeleteTopics, DeletedTopic, TopicRef};
use proto_types::error::{Reason, Rejection};
use proto_types::ids::TopicId;
use proto_types::metadata::MetadataChange;

/// One result per topic, in the request's order.
pub type Results = Vec<Result<DeletedTopic, Rejection>>;

/// Plans the deletion of topics.
pub fn delete_topics(
    state: &ClusterState,
    request: &DeleteTopics,
    inputs: &Inputs,
) -> Result<Decision<Results>, Rejection> {
    check_count(&inputs.limits, request.topics.len(), "topics")?;
    let mut draft = Draft::new(state);
    let results = request
        .topics
        .iter()
        .map(|topic| {
            let (topic, name) = find(&draft.scratch, topic)?;
            topic_name::check_open(&name)?;
            draft.add(vec![MetadataChange::TopicDeleted { topic }]);
            Ok(DeletedTopic { topic, name })
        })
        .collect();
    Ok(draft.into_decision(false, results))
}

fn find(state: &ClusterState, topic: &TopicRef) -> Result<(TopicId, String), Rejection> {
    match topic {
        TopicRef::Name(name) => match state.topics().id(name) {
            Some(topic) => Ok((topic, name.clone())),
            None => reject(Reason::UnknownTopic, unknown_topic(name)),
        },
        TopicRef::Id(topic) => match state.topics().name(*topic) {
            Some(name) => Ok((*topic, name.to_owned())),
            None => reject(Reason::UnknownTopicId, format!("There is no topic with id {topic}.")),
        },
    }
}

/// The sentence for a name that no topic has.
pub(super) fn unknown_topic(name: &str) -> String {
    let shown: String = name.chars().take(topic_name::LENGTH_MAX).collect();
    format!("The topic '{}' does not exist.", shown.escape_debug())
}
