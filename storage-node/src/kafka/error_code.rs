//! The only place where an error of ours gets Kafka's number. Exhaustive: a new error does not compile without one.

use crate::controller_port::ControllerFailure;
use kafka_wire_core::{ErrorCode, Str};
use proto_types::error::{Reason, Rejection};

/// An error as a Kafka client gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KafkaError {
    /// Kafka's number.
    pub(crate) code: ErrorCode,
    /// A sentence for people; older versions of most APIs cannot carry it.
    pub(crate) message: Str,
}

impl KafkaError {
    pub(crate) fn new(code: ErrorCode, message: impl Into<Str>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<Rejection> for KafkaError {
    fn from(rejection: Rejection) -> Self {
        Self::new(reason(rejection.reason), rejection.message)
    }
}

impl From<ControllerFailure> for KafkaError {
    fn from(failure: ControllerFailure) -> Self {
        match failure {
            ControllerFailure::Rejected(rejection) => rejection.into(),
            // Nothing was done: clients look for the controller again and repeat the request.
            ControllerFailure::Unavailable(_) => Self::new(ErrorCode::NotController, failure.to_string()),
            // Repeating by itself could do it twice: that is for the caller to decide.
            ControllerFailure::OutcomeUnknown(_) => Self::new(ErrorCode::RequestTimedOut, failure.to_string()),
        }
    }
}

/// The number of a refusal by the controller.
pub(crate) fn reason(reason: Reason) -> ErrorCode {
    match reason {
        Reason::TopicExists => ErrorCode::TopicAlreadyExists,
        Reason::UnknownTopic => ErrorCode::UnknownTopicOrPartition,
        Reason::UnknownTopicId => ErrorCode::UnknownTopicId,
        Reason::InvalidTopicName => ErrorCode::InvalidTopicException,
        Reason::InvalidPartitions => ErrorCode::InvalidPartitions,
        Reason::InvalidReplicationFactor => ErrorCode::InvalidReplicationFactor,
        Reason::InvalidReplicaAssignment => ErrorCode::InvalidReplicaAssignment,
        Reason::InvalidConfig => ErrorCode::InvalidConfig,
        Reason::InvalidRequest => ErrorCode::InvalidRequest,
        Reason::PolicyViolation => ErrorCode::PolicyViolation,
        // Kafka has no word for it; this one is final, and its text says that a rule of the cluster forbids it.
        Reason::ClosedTopic => ErrorCode::PolicyViolation,
        Reason::StaleBrokerEpoch => ErrorCode::StaleBrokerEpoch,
        Reason::DuplicateNodeId => ErrorCode::DuplicateBrokerRegistration,
        Reason::UnknownNode => ErrorCode::BrokerIdNotRegistered,
        Reason::InconsistentClusterId => ErrorCode::InconsistentClusterId,
        Reason::UnknownResource => ErrorCode::ResourceNotFound,
    }
}
