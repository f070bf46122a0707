//! Topics that are made because somebody asked for them.
//!
//! As in Kafka the asker does not wait: he is told that the topic is unknown, and asks again. A name is made once at a time,
//! and so are only so many names; the others' turn comes when they are asked for again. A creation that fails is in the log
//! alone, for nobody waits for it.

use crate::kafka::error_code::KafkaError;
use crate::node::Node;
use kafka_wire_core::Str;
use parking_lot::Mutex;
use proto_types::controller_api::{
    ControllerReply, ControllerRequest, CreateInternalTopic, CreateTopics, NewTopic,
};
use proto_types::error::Reason;
use proto_types::metadata::InternalTopic;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// How long one attempt may take.
const CREATION_TIMEOUT: Duration = Duration::from_secs(5);

/// The names that this node has just asked the controller to create.
pub(crate) struct InCreation {
    names: Mutex<HashSet<Str>>,
    names_max: usize,
}

impl InCreation {
    pub(crate) fn new(names_max: usize) -> Arc<Self> {
        Arc::new(Self { names: Mutex::default(), names_max })
    }

    /// Those of `wanted` that are not in creation yet, as far as there is room.
    fn claim(self: &Arc<Self>, wanted: BTreeSet<Str>) -> Claim {
        let mut names = self.names.lock();
        let room = self.names_max.saturating_sub(names.len());
        let free = wanted.into_iter().filter(|name| !names.contains(name));
        // They outlive the request, whose frame they must not keep.
        let claimed: Vec<Str> = free.take(room).map(|name| name.detach()).collect();
        names.extend(claimed.iter().cloned());
        Claim { of: Arc::clone(self), names: claimed }
    }
}

/// Names that nobody else creates meanwhile.
struct Claim {
    of: Arc<InCreation>,
    names: Vec<Str>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut names = self.of.names.lock();
        for name in &self.names {
            names.remove(name);
        }
    }
}

/// Has the topics created, and does not wait for them. The names must be valid.
pub(crate) fn begin(node: &Arc<Node>, names: BTreeSet<Str>) {
    let claim = node.in_creation().claim(names);
    if claim.names.is_empty() {
        return;
    }
    let node = Arc::clone(node);
    // A task of its own: the connection that asked may go away.
    tokio::spawn(async move {
        let offsets = InternalTopic::ConsumerOffsets.name();
        if claim.names.iter().any(|name| &**name == offsets) {
            let timeout_ms = timeout_ms();
            let create = CreateInternalTopic { topic: InternalTopic::ConsumerOffsets, timeout_ms };
            let asked = node.ask_controller(ControllerRequest::CreateInternalTopic(create), CREATION_TIMEOUT);
            if let Err(error) = asked.await {
                tell(offsets, &error.message);
            }
        }
        let others: Vec<&Str> = claim.names.iter().filter(|name| &***name != offsets).collect();
        if !others.is_empty()
            && let Err(error) = create(&node, &others).await
        {
            tracing::info!(topics = others.len(), error = %error.message, "create topics on first use");
        }
    });
}

async fn create(node: &Node, names: &[&Str]) -> Result<(), KafkaError> {
    let (partitions, replication_factor) = node.new_topic_counts();
    let topic = |name: &&Str| NewTopic {
        name: name.to_string(),
        partitions,
        replication_factor,
        assignments: Vec::new(),
        configs: Vec::new(),
    };
    let request = ControllerRequest::CreateTopics(CreateTopics {
        topics: names.iter().map(topic).collect(),
        validate_only: false,
        timeout_ms: timeout_ms(),
    });
    let results = match node.ask_controller(request, CREATION_TIMEOUT).await? {
        ControllerReply::TopicsCreated(results) => results,
        other => return Err(Node::unexpected_reply(&other)),
    };
    for (name, result) in names.iter().zip(results) {
        // One that exists was made by another client, who was faster.
        if let Err(rejection) = result
            && rejection.reason != Reason::TopicExists
        {
            tell(name, &rejection.message);
        }
    }
    Ok(())
}

fn timeout_ms() -> u32 {
    u32::try_from(CREATION_TIMEOUT.as_millis()).unwrap_or(u32::MAX)
}

fn tell(name: &str, error: &str) {
    tracing::info!(topic = %name.escape_debug(), error, "create a topic on first use");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<Str> {
        names.iter().map(|&name| name.into()).collect()
    }

    fn claimed(claim: &Claim) -> Vec<&str> {
        claim.names.iter().map(|name| &**name).collect()
    }

    #[test]
    fn a_name_is_claimed_once_at_a_time() {
        let in_creation = InCreation::new(10);
        let first = in_creation.claim(names(&["a", "b"]));
        assert_eq!(claimed(&first), ["a", "b"]);
        let second = in_creation.claim(names(&["b", "c"]));
        assert_eq!(claimed(&second), ["c"]);
        drop(first);
        assert_eq!(claimed(&in_creation.claim(names(&["a", "b", "c"]))), ["a", "b"]);
        drop(second);
        assert!(in_creation.names.lock().is_empty());
    }

    #[test]
    fn more_names_than_there_is_room_for_wait_for_their_turn() {
        let in_creation = InCreation::new(2);
        let first = in_creation.claim(names(&["a", "b", "c"]));
        assert_eq!(claimed(&first), ["a", "b"]);
        assert!(in_creation.claim(names(&["c"])).names.is_empty());
        drop(first);
        assert_eq!(claimed(&in_creation.claim(names(&["c"]))), ["c"]);
    }
}
