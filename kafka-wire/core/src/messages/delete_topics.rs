//! DeleteTopics: delete topics.
//!
//! Versions:
//! - 4: flexible
//! - 5: error message
//! - 6: by name or id

use uuid::Uuid;

use crate::{ErrorCode, KafkaMessage, KafkaStruct, Str};

/// Request of DeleteTopics.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 1..=6, flexible = 4.., key = DeleteTopics, response = DeleteTopicsResponse)]
pub struct DeleteTopicsRequest {
    /// Topics to delete, by name or id.
    #[kafka(versions = 6..)]
    pub topics: Vec<DeleteTopicState>,
    /// Names of the topics to delete.
    #[kafka(versions = ..=5, ignorable)]
    pub topic_names: Vec<Str>,
    /// How long the server may take, in milliseconds.
    pub timeout_ms: i32,
}

/// A topic to delete.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct DeleteTopicState {
    /// Name of the topic; null deletes by id.
    pub name: Option<Str>,
    /// Id of the topic; nil deletes by name.
    pub topic_id: Uuid,
}

/// Response of DeleteTopics.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 1..=6, flexible = 4..)]
pub struct DeleteTopicsResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// Answers, one for each asked.
    pub responses: Vec<DeletableTopicResult>,
}

/// The answer for one topic.
#[derive(Clone, Debug, PartialEq, KafkaStruct)]
pub struct DeletableTopicResult {
    /// Name of the topic; null if unknown.
    #[kafka(nullable = 6..)]
    pub name: Option<Str>,
    /// Id of the topic.
    #[kafka(versions = 6.., ignorable)]
    pub topic_id: Uuid,
    /// Error of this element, or none.
    pub error_code: ErrorCode,
    /// The error in words; null without one.
    #[kafka(versions = 5.., ignorable)]
    pub error_message: Option<Str>,
}
