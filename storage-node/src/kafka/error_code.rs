//! The only place where an error of ours gets Kafka's number. Exhaustive: a new error does not compile without one.

use crate::controller_port::ControllerFailure;
use crate::kafka::find_partition::FindError;
use crate::partition::validation::InvalidBatch;
use kafka_wire_core::{ErrorCode, Str};
use proto_types::error::{Reason, Rejection};
use storage_node_core::{DeleteRecordsError, LeadershipError, ProduceError};

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
            ControllerFailure::OutcomeUnknown(_) => {
                Self::new(ErrorCode::RequestTimedOut, failure.to_string())
            }
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
        Reason::FencedLeaderEpoch => ErrorCode::FencedLeaderEpoch,
        Reason::StalePartitionEpoch => ErrorCode::InvalidUpdateVersion,
        Reason::IneligibleReplica => ErrorCode::IneligibleReplica,
        Reason::NotLeader => ErrorCode::NotLeaderOrFollower,
        Reason::UnknownPartition => ErrorCode::UnknownTopicOrPartition,
        Reason::ElectionNotNeeded => ErrorCode::ElectionNotNeeded,
        Reason::PreferredLeaderNotAvailable => ErrorCode::PreferredLeaderNotAvailable,
        Reason::EligibleLeadersNotAvailable => ErrorCode::EligibleLeadersNotAvailable,
        Reason::NoReassignmentInProgress => ErrorCode::NoReassignmentInProgress,
        Reason::NodeInUse => ErrorCode::InvalidRequest,
        Reason::DuplicateVoter => ErrorCode::DuplicateVoter,
        Reason::VoterNotFound => ErrorCode::VoterNotFound,
        Reason::ChangeInProgress => ErrorCode::ReassignmentInProgress,
        Reason::InvalidFeatureLevel => ErrorCode::InvalidUpdateVersion,
        Reason::UnsupportedLevel => ErrorCode::UnsupportedVersion,
    }
}

impl From<FindError> for KafkaError {
    fn from(error: FindError) -> Self {
        let code = match error {
            FindError::UnknownTopic | FindError::UnknownPartition => ErrorCode::UnknownTopicOrPartition,
            FindError::UnknownTopicId => ErrorCode::UnknownTopicId,
            FindError::NotHere => ErrorCode::NotLeaderOrFollower,
            FindError::Failed => ErrorCode::KafkaStorageError,
        };
        Self::new(code, error.to_string())
    }
}

impl From<LeadershipError> for KafkaError {
    fn from(error: LeadershipError) -> Self {
        let code = match error {
            LeadershipError::NotLeader => ErrorCode::NotLeaderOrFollower,
            LeadershipError::LogFailed => ErrorCode::KafkaStorageError,
            LeadershipError::FencedLeaderEpoch { .. } => ErrorCode::FencedLeaderEpoch,
            LeadershipError::UnknownLeaderEpoch { .. } => ErrorCode::UnknownLeaderEpoch,
        };
        Self::new(code, error.to_string())
    }
}

impl From<ProduceError> for KafkaError {
    fn from(error: ProduceError) -> Self {
        let code = match error {
            ProduceError::NotLeader => ErrorCode::NotLeaderOrFollower,
            ProduceError::NotEnoughReplicas { .. } => ErrorCode::NotEnoughReplicas,
            ProduceError::NotEnoughReplicasAfterAppend { .. } => ErrorCode::NotEnoughReplicasAfterAppend,
            // All are worth a retry, and this is the code that all clients retry without asking for metadata.
            ProduceError::TimedOut
            | ProduceError::Busy
            | ProduceError::BehindRefused
            | ProduceError::TooManyTransactions { .. } => ErrorCode::RequestTimedOut,
            ProduceError::OutOfOrderSequence { .. } => ErrorCode::OutOfOrderSequenceNumber,
            // Not DUPLICATE_SEQUENCE_NUMBER, which clients take for success: it is not known to be there.
            ProduceError::DuplicateTooOld => ErrorCode::OutOfOrderSequenceNumber,
            ProduceError::InvalidProducerEpoch { .. } => ErrorCode::InvalidProducerEpoch,
            ProduceError::InvalidTxnState { .. } => ErrorCode::InvalidTxnState,
            ProduceError::TransactionCoordinatorFenced { .. } => ErrorCode::TransactionCoordinatorFenced,
            // Clients retry it, and it is the one that says that a disk is why.
            ProduceError::WriteRefused | ProduceError::DiskFull | ProduceError::LogFailed => {
                ErrorCode::KafkaStorageError
            }
        };
        Self::new(code, error.to_string())
    }
}

impl From<&InvalidBatch> for KafkaError {
    fn from(error: &InvalidBatch) -> Self {
        let code = match error {
            InvalidBatch::Corrupt(_) => ErrorCode::CorruptMessage,
            InvalidBatch::Malformed(_) | InvalidBatch::Records(_) => ErrorCode::InvalidRecord,
            InvalidBatch::Compression { .. } => ErrorCode::UnsupportedCompressionType,
            InvalidBatch::TooLarge { .. } => ErrorCode::MessageTooLarge,
            InvalidBatch::LargerThanSegment { .. } => ErrorCode::RecordListTooLarge,
            // Final, and the text says why.
            InvalidBatch::Transactional => ErrorCode::InvalidTxnState,
            InvalidBatch::Timestamps(_) => ErrorCode::InvalidTimestamp,
        };
        Self::new(code, error.to_string())
    }
}

impl From<DeleteRecordsError> for KafkaError {
    fn from(error: DeleteRecordsError) -> Self {
        let code = match error {
            DeleteRecordsError::NotLeader => ErrorCode::NotLeaderOrFollower,
            DeleteRecordsError::OffsetOutOfRange { .. } => ErrorCode::OffsetOutOfRange,
            DeleteRecordsError::TimedOut | DeleteRecordsError::Busy => ErrorCode::RequestTimedOut,
            DeleteRecordsError::WriteRefused | DeleteRecordsError::LogFailed => ErrorCode::KafkaStorageError,
        };
        Self::new(code, error.to_string())
    }
}
