//! The topics: ids and names.

use crate::topic_name::collision_key;
use proto_types::ids::TopicId;
use proto_types::metadata::MetadataChange;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All live topics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topics {
    by_id: BTreeMap<TopicId, Arc<str>>,
    by_name: BTreeMap<Arc<str>, TopicId>,
    /// Names by what they look like in metrics; colliding names are refused, so there is one of each.
    by_collision_key: BTreeMap<String, TopicId>,
}

impl Topics {
    /// The name of a topic.
    pub fn name(&self, topic: TopicId) -> Option<&str> {
        self.by_id.get(&topic).map(AsRef::as_ref)
    }

    /// The id of the topic of that name.
    pub fn id(&self, name: &str) -> Option<TopicId> {
        self.by_name.get(name).copied()
    }

    /// The topic whose name differs from this one at most in `.` against `_`.
    pub fn colliding(&self, name: &str) -> Option<&str> {
        self.by_collision_key.get(&collision_key(name)).and_then(|topic| self.name(*topic))
    }

    /// All topics in order of name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, TopicId)> {
        self.by_name.iter().map(|(name, id)| (name.as_ref(), *id))
    }

    /// How many topics there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there is no topic.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(super) fn create(&mut self, topic: TopicId, name: String) {
        let name: Arc<str> = name.into();
        self.by_id.insert(topic, Arc::clone(&name));
        self.by_collision_key.insert(collision_key(&name), topic);
        self.by_name.insert(name, topic);
    }

    pub(super) fn delete(&mut self, topic: TopicId) {
        if let Some(name) = self.by_id.remove(&topic) {
            self.by_collision_key.remove(&collision_key(&name));
            self.by_name.remove(&name);
        }
    }

    pub(super) fn to_changes(&self, changes: &mut Vec<MetadataChange>) {
        for (topic, name) in &self.by_id {
            changes.push(MetadataChange::TopicCreated { topic: *topic, name: name.to_string() });
        }
    }
}
