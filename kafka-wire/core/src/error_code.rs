//! [`ErrorCode`]: Kafka's error numbers, names and meanings.

macro_rules! error_codes {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $name:literal, $retriable:literal;)*) => {
        /// Why something was refused, or that it was not.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i16)]
        pub enum ErrorCode {
            $(
                $(#[$doc])*
                $variant = $code,
            )*
        }

        impl ErrorCode {
            /// All codes, in ascending order.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$variant),*];

            /// Kafka's name, e.g. `OFFSET_OUT_OF_RANGE`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(ErrorCode::$variant => $name,)*
                }
            }

            /// Whether Kafka's clients try again on it.
            #[must_use]
            pub const fn is_retriable(self) -> bool {
                match self {
                    $(ErrorCode::$variant => $retriable,)*
                }
            }
        }
    };
}

error_codes! {
    /// Something failed that has no code of its own.
    UnknownServerError = -1, "UNKNOWN_SERVER_ERROR", false;
    /// No error.
    #[default]
    None = 0, "NONE", false;
    /// The offset lies outside of the log.
    OffsetOutOfRange = 1, "OFFSET_OUT_OF_RANGE", false;
    /// A batch fails its checksum or contradicts itself.
    CorruptMessage = 2, "CORRUPT_MESSAGE", true;
    /// No such topic or partition here.
    UnknownTopicOrPartition = 3, "UNKNOWN_TOPIC_OR_PARTITION", true;
    /// A fetch size that makes no sense.
    InvalidFetchSize = 4, "INVALID_FETCH_SIZE", false;
    /// The partition has no leader now.
    LeaderNotAvailable = 5, "LEADER_NOT_AVAILABLE", true;
    /// This node does not lead (or hold) the partition.
    NotLeaderOrFollower = 6, "NOT_LEADER_OR_FOLLOWER", true;
    /// Not done within the request's time-out.
    RequestTimedOut = 7, "REQUEST_TIMED_OUT", true;
    /// The broker cannot be reached.
    BrokerNotAvailable = 8, "BROKER_NOT_AVAILABLE", false;
    /// The replica is not available.
    ReplicaNotAvailable = 9, "REPLICA_NOT_AVAILABLE", true;
    /// A batch above `max.message.bytes`.
    MessageTooLarge = 10, "MESSAGE_TOO_LARGE", false;
    /// A controller that was replaced.
    StaleControllerEpoch = 11, "STALE_CONTROLLER_EPOCH", false;
    /// The note on a committed offset is too long.
    OffsetMetadataTooLarge = 12, "OFFSET_METADATA_TOO_LARGE", false;
    /// The connection was lost before the answer; never sent by a broker.
    NetworkException = 13, "NETWORK_EXCEPTION", true;
    /// The coordinator still reads its log.
    CoordinatorLoadInProgress = 14, "COORDINATOR_LOAD_IN_PROGRESS", true;
    /// There is no coordinator now.
    CoordinatorNotAvailable = 15, "COORDINATOR_NOT_AVAILABLE", true;
    /// Another node coordinates this group or id.
    NotCoordinator = 16, "NOT_COORDINATOR", true;
    /// A topic name that is not allowed.
    InvalidTopicException = 17, "INVALID_TOPIC_EXCEPTION", false;
    /// A batch larger than a segment.
    RecordListTooLarge = 18, "RECORD_LIST_TOO_LARGE", false;
    /// Refused: the in-sync set is below `min.insync.replicas`.
    NotEnoughReplicas = 19, "NOT_ENOUGH_REPLICAS", true;
    /// Written, but the in-sync set shrank meanwhile.
    NotEnoughReplicasAfterAppend = 20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", true;
    /// Acks other than -1, 0 and 1.
    InvalidRequiredAcks = 21, "INVALID_REQUIRED_ACKS", false;
    /// The group is in another generation.
    IllegalGeneration = 22, "ILLEGAL_GENERATION", false;
    /// The member shares no protocol with the group.
    InconsistentGroupProtocol = 23, "INCONSISTENT_GROUP_PROTOCOL", false;
    /// A group id that is not allowed.
    InvalidGroupId = 24, "INVALID_GROUP_ID", false;
    /// The group has no such member.
    UnknownMemberId = 25, "UNKNOWN_MEMBER_ID", false;
    /// A session time-out outside of the broker's limits.
    InvalidSessionTimeout = 26, "INVALID_SESSION_TIMEOUT", false;
    /// The group rebalances: join again.
    RebalanceInProgress = 27, "REBALANCE_IN_PROGRESS", false;
    /// The offset commit is too large.
    InvalidCommitOffsetSize = 28, "INVALID_COMMIT_OFFSET_SIZE", false;
    /// Not allowed on the topic.
    TopicAuthorizationFailed = 29, "TOPIC_AUTHORIZATION_FAILED", false;
    /// Not allowed on the group.
    GroupAuthorizationFailed = 30, "GROUP_AUTHORIZATION_FAILED", false;
    /// Not allowed on the cluster.
    ClusterAuthorizationFailed = 31, "CLUSTER_AUTHORIZATION_FAILED", false;
    /// A record's timestamp is too far from the broker's clock.
    InvalidTimestamp = 32, "INVALID_TIMESTAMP", false;
    /// The SASL mechanism is not offered.
    UnsupportedSaslMechanism = 33, "UNSUPPORTED_SASL_MECHANISM", false;
    /// The request does not fit the state of the login.
    IllegalSaslState = 34, "ILLEGAL_SASL_STATE", false;
    /// The API version, or what was asked within it, is not supported.
    UnsupportedVersion = 35, "UNSUPPORTED_VERSION", false;
    /// The topic exists already.
    TopicAlreadyExists = 36, "TOPIC_ALREADY_EXISTS", false;
    /// A partition count that is not possible.
    InvalidPartitions = 37, "INVALID_PARTITIONS", false;
    /// A replication factor that is not possible.
    InvalidReplicationFactor = 38, "INVALID_REPLICATION_FACTOR", false;
    /// An assignment of replicas that is not possible.
    InvalidReplicaAssignment = 39, "INVALID_REPLICA_ASSIGNMENT", false;
    /// A config name or value that is not allowed.
    InvalidConfig = 40, "INVALID_CONFIG", false;
    /// This node is not the controller.
    NotController = 41, "NOT_CONTROLLER", true;
    /// The request contradicts itself.
    InvalidRequest = 42, "INVALID_REQUEST", false;
    /// The record format lacks what was asked for.
    UnsupportedForMessageFormat = 43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", false;
    /// A policy of the cluster forbids it.
    PolicyViolation = 44, "POLICY_VIOLATION", false;
    /// An idempotent producer left a gap.
    OutOfOrderSequenceNumber = 45, "OUT_OF_ORDER_SEQUENCE_NUMBER", false;
    /// A batch of an idempotent producer that was written before and is no longer remembered.
    DuplicateSequenceNumber = 46, "DUPLICATE_SEQUENCE_NUMBER", false;
    /// A producer epoch older than the partition knows.
    InvalidProducerEpoch = 47, "INVALID_PRODUCER_EPOCH", false;
    /// The transaction is not in a state for this.
    InvalidTxnState = 48, "INVALID_TXN_STATE", false;
    /// The transactional id belongs to another producer id.
    InvalidProducerIdMapping = 49, "INVALID_PRODUCER_ID_MAPPING", false;
    /// A transaction time-out above the broker's limit.
    InvalidTransactionTimeout = 50, "INVALID_TRANSACTION_TIMEOUT", false;
    /// The previous operation on the transaction has not ended.
    ConcurrentTransactions = 51, "CONCURRENT_TRANSACTIONS", true;
    /// A marker of a replaced transaction coordinator.
    TransactionCoordinatorFenced = 52, "TRANSACTION_COORDINATOR_FENCED", false;
    /// Not allowed on the transactional id.
    TransactionalIdAuthorizationFailed = 53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", false;
    /// Security features are off.
    SecurityDisabled = 54, "SECURITY_DISABLED", false;
    /// Not tried, since another part of the request failed.
    OperationNotAttempted = 55, "OPERATION_NOT_ATTEMPTED", false;
    /// The disk failed.
    KafkaStorageError = 56, "KAFKA_STORAGE_ERROR", true;
    /// No such data directory.
    LogDirNotFound = 57, "LOG_DIR_NOT_FOUND", false;
    /// The login failed.
    SaslAuthenticationFailed = 58, "SASL_AUTHENTICATION_FAILED", false;
    /// The partition remembers nothing of this producer.
    UnknownProducerId = 59, "UNKNOWN_PRODUCER_ID", false;
    /// The partition is being moved.
    ReassignmentInProgress = 60, "REASSIGNMENT_IN_PROGRESS", false;
    /// Delegation tokens are off.
    DelegationTokenAuthDisabled = 61, "DELEGATION_TOKEN_AUTH_DISABLED", false;
    /// No such delegation token.
    DelegationTokenNotFound = 62, "DELEGATION_TOKEN_NOT_FOUND", false;
    /// The principal may not renew this token.
    DelegationTokenOwnerMismatch = 63, "DELEGATION_TOKEN_OWNER_MISMATCH", false;
    /// Tokens are not handed out on such a connection.
    DelegationTokenRequestNotAllowed = 64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", false;
    /// Not allowed on the token.
    DelegationTokenAuthorizationFailed = 65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", false;
    /// The token has expired.
    DelegationTokenExpired = 66, "DELEGATION_TOKEN_EXPIRED", false;
    /// A kind of principal that is not supported.
    InvalidPrincipalType = 67, "INVALID_PRINCIPAL_TYPE", false;
    /// The group has members.
    NonEmptyGroup = 68, "NON_EMPTY_GROUP", false;
    /// No such group.
    GroupIdNotFound = 69, "GROUP_ID_NOT_FOUND", false;
    /// No such fetch session.
    FetchSessionIdNotFound = 70, "FETCH_SESSION_ID_NOT_FOUND", true;
    /// A request of the fetch session was lost or came twice.
    InvalidFetchSessionEpoch = 71, "INVALID_FETCH_SESSION_EPOCH", true;
    /// The leader has no listener of the name that was asked.
    ListenerNotFound = 72, "LISTENER_NOT_FOUND", true;
    /// Topics may not be deleted.
    TopicDeletionDisabled = 73, "TOPIC_DELETION_DISABLED", false;
    /// The client's leader epoch is older than ours.
    FencedLeaderEpoch = 74, "FENCED_LEADER_EPOCH", true;
    /// The client's leader epoch is newer than ours.
    UnknownLeaderEpoch = 75, "UNKNOWN_LEADER_EPOCH", true;
    /// The client's version cannot carry the codec.
    UnsupportedCompressionType = 76, "UNSUPPORTED_COMPRESSION_TYPE", false;
    /// A registration that was replaced.
    StaleBrokerEpoch = 77, "STALE_BROKER_EPOCH", false;
    /// A new leader does not know the high watermark yet.
    OffsetNotAvailable = 78, "OFFSET_NOT_AVAILABLE", true;
    /// Join again with the member id in this answer.
    MemberIdRequired = 79, "MEMBER_ID_REQUIRED", false;
    /// The preferred leader is not available.
    PreferredLeaderNotAvailable = 80, "PREFERRED_LEADER_NOT_AVAILABLE", true;
    /// The group is full.
    GroupMaxSizeReached = 81, "GROUP_MAX_SIZE_REACHED", false;
    /// Another member took over the static id.
    FencedInstanceId = 82, "FENCED_INSTANCE_ID", false;
    /// No replica may become leader now.
    EligibleLeadersNotAvailable = 83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", true;
    /// The leader is already as wished.
    ElectionNotNeeded = 84, "ELECTION_NOT_NEEDED", true;
    /// The partition is not being moved.
    NoReassignmentInProgress = 85, "NO_REASSIGNMENT_IN_PROGRESS", false;
    /// The group still consumes the topic.
    GroupSubscribedToTopic = 86, "GROUP_SUBSCRIBED_TO_TOPIC", false;
    /// A record breaks a rule of the topic.
    InvalidRecord = 87, "INVALID_RECORD", false;
    /// An open transaction may still change the offset.
    UnstableOffsetCommit = 88, "UNSTABLE_OFFSET_COMMIT", true;
    /// Over the quota: try again after the throttle time.
    ThrottlingQuotaExceeded = 89, "THROTTLING_QUOTA_EXCEEDED", true;
    /// A newer producer uses the transactional id.
    ProducerFenced = 90, "PRODUCER_FENCED", false;
    /// No such resource.
    ResourceNotFound = 91, "RESOURCE_NOT_FOUND", false;
    /// The request names a resource twice.
    DuplicateResource = 92, "DUPLICATE_RESOURCE", false;
    /// A credential that is not acceptable.
    UnacceptableCredential = 93, "UNACCEPTABLE_CREDENTIAL", false;
    /// Sender or receiver is not a voter.
    InconsistentVoterSet = 94, "INCONSISTENT_VOTER_SET", false;
    /// A feature version that is not possible.
    InvalidUpdateVersion = 95, "INVALID_UPDATE_VERSION", false;
    /// The feature update failed.
    FeatureUpdateFailed = 96, "FEATURE_UPDATE_FAILED", false;
    /// A forwarded request's principal cannot be read.
    PrincipalDeserializationFailure = 97, "PRINCIPAL_DESERIALIZATION_FAILURE", false;
    /// No such snapshot.
    SnapshotNotFound = 98, "SNAPSHOT_NOT_FOUND", false;
    /// A position outside of the snapshot.
    PositionOutOfRange = 99, "POSITION_OUT_OF_RANGE", false;
    /// No topic with this id here.
    UnknownTopicId = 100, "UNKNOWN_TOPIC_ID", true;
    /// The broker id is in use.
    DuplicateBrokerRegistration = 101, "DUPLICATE_BROKER_REGISTRATION", false;
    /// The broker id is not registered.
    BrokerIdNotRegistered = 102, "BROKER_ID_NOT_REGISTERED", false;
    /// The topic's name belongs to another id.
    InconsistentTopicId = 103, "INCONSISTENT_TOPIC_ID", true;
    /// A request for another cluster.
    InconsistentClusterId = 104, "INCONSISTENT_CLUSTER_ID", false;
    /// No such transactional id.
    TransactionalIdNotFound = 105, "TRANSACTIONAL_ID_NOT_FOUND", false;
    /// The fetch session mixes topic names and ids.
    FetchSessionTopicIdError = 106, "FETCH_SESSION_TOPIC_ID_ERROR", true;
    /// A replica that may not join the in-sync set.
    IneligibleReplica = 107, "INELIGIBLE_REPLICA", false;
    /// Done, and the partition got another leader by it.
    NewLeaderElected = 108, "NEW_LEADER_ELECTED", false;
    /// The offset is in tiered storage only.
    OffsetMovedToTieredStorage = 109, "OFFSET_MOVED_TO_TIERED_STORAGE", false;
    /// The member must give up its partitions and join again.
    FencedMemberEpoch = 110, "FENCED_MEMBER_EPOCH", false;
    /// The static id is still held by another member.
    UnreleasedInstanceId = 111, "UNRELEASED_INSTANCE_ID", false;
    /// The assignor is not known.
    UnsupportedAssignor = 112, "UNSUPPORTED_ASSIGNOR", false;
    /// The member's epoch is old: heartbeat first.
    StaleMemberEpoch = 113, "STALE_MEMBER_EPOCH", false;
    /// A request for a controller at a broker, or the reverse.
    MismatchedEndpointType = 114, "MISMATCHED_ENDPOINT_TYPE", false;
    /// A kind of endpoint that is not known.
    UnsupportedEndpointType = 115, "UNSUPPORTED_ENDPOINT_TYPE", false;
    /// No such controller.
    UnknownControllerId = 116, "UNKNOWN_CONTROLLER_ID", false;
    /// The telemetry subscription changed.
    UnknownSubscriptionId = 117, "UNKNOWN_SUBSCRIPTION_ID", false;
    /// The telemetry is too large.
    TelemetryTooLarge = 118, "TELEMETRY_TOO_LARGE", false;
    /// A registration that is not possible.
    InvalidRegistration = 119, "INVALID_REGISTRATION", false;
    /// The transaction must be aborted; the id stays usable.
    TransactionAbortable = 120, "TRANSACTION_ABORTABLE", false;
    /// The record is not in a state to be acknowledged.
    InvalidRecordState = 121, "INVALID_RECORD_STATE", false;
    /// No such share session.
    ShareSessionNotFound = 122, "SHARE_SESSION_NOT_FOUND", true;
    /// A request of the share session was lost or came twice.
    InvalidShareSessionEpoch = 123, "INVALID_SHARE_SESSION_EPOCH", true;
    /// A share state of another epoch.
    FencedStateEpoch = 124, "FENCED_STATE_EPOCH", false;
    /// The voter's key is another.
    InvalidVoterKey = 125, "INVALID_VOTER_KEY", false;
    /// Already a voter.
    DuplicateVoter = 126, "DUPLICATE_VOTER", false;
    /// Not a voter.
    VoterNotFound = 127, "VOTER_NOT_FOUND", false;
    /// A regular expression that cannot be read.
    InvalidRegularExpression = 128, "INVALID_REGULAR_EXPRESSION", false;
    /// The client must start again from its bootstrap addresses.
    RebootstrapRequired = 129, "REBOOTSTRAP_REQUIRED", false;
    /// A streams topology that is not possible.
    StreamsInvalidTopology = 130, "STREAMS_INVALID_TOPOLOGY", false;
    /// A topology epoch that is not possible.
    StreamsInvalidTopologyEpoch = 131, "STREAMS_INVALID_TOPOLOGY_EPOCH", false;
    /// A topology epoch that was replaced.
    StreamsTopologyFenced = 132, "STREAMS_TOPOLOGY_FENCED", false;
    /// Too many share sessions.
    ShareSessionLimitReached = 133, "SHARE_SESSION_LIMIT_REACHED", true;
    /// The group could not be deleted; its message says why.
    GroupDeletionFailed = 134, "GROUP_DELETION_FAILED", false;
    /// The topology description was not taken; the message says why.
    StreamsTopologyDescriptionUpdateFailed = 135, "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED", false;
    /// The controller id is not registered.
    ControllerIdNotRegistered = 136, "CONTROLLER_ID_NOT_REGISTERED", false;
}

impl ErrorCode {
    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// The code with this number. One that is newer than this list reads as [`ErrorCode::UnknownServerError`], as in
    /// Kafka's own clients.
    #[must_use]
    pub fn from_code(code: i16) -> Self {
        Self::ALL
            .binary_search_by_key(&code, |known| known.code())
            .map_or(ErrorCode::UnknownServerError, |index| Self::ALL[index])
    }

    /// Whether it is [`ErrorCode::None`].
    #[must_use]
    pub const fn is_none(self) -> bool {
        matches!(self, ErrorCode::None)
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_come_back_from_their_numbers() {
        for pair in ErrorCode::ALL.windows(2) {
            assert!(pair[0].code() < pair[1].code());
        }
        for &error in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_code(error.code()), error);
        }
        assert_eq!(ErrorCode::from_code(9999), ErrorCode::UnknownServerError);
        assert_eq!(ErrorCode::default(), ErrorCode::None);
        assert_eq!(ErrorCode::NotLeaderOrFollower.code(), 6);
    }
}
