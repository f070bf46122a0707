//! [`ApiKey`]: the APIs of Kafka 4.4, with the versions that its brokers and controllers accept, and Weir's own.
//!
//! What a server of ours announces comes from its route table; this list is what the protocol knows.

use std::ops::RangeInclusive;

macro_rules! api_keys {
    (@flexible never) => { None };
    (@flexible from $first:literal) => { Some($first) };
    ($($key:ident = $code:literal, $versions:expr, $flexible:ident $($first:literal)?;)*) => {
        /// An API. The number is the one on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i16)]
        #[allow(missing_docs)]
        pub enum ApiKey {
            $($key = $code,)*
        }

        impl ApiKey {
            /// All APIs, by number.
            pub const ALL: &'static [ApiKey] = &[$(ApiKey::$key),*];

            /// Kafka's name, e.g. `Fetch`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(ApiKey::$key => stringify!($key),)*
                }
            }

            /// The versions that Kafka 4.4 accepts, without those that it calls unstable; all of an API of Weir's own.
            #[must_use]
            pub const fn versions(self) -> RangeInclusive<i16> {
                match self {
                    $(ApiKey::$key => $versions,)*
                }
            }

            /// The first version with compact lengths and tagged fields, if there is one.
            #[must_use]
            pub const fn first_flexible(self) -> Option<i16> {
                match self {
                    $(ApiKey::$key => api_keys!(@flexible $flexible $($first)?),)*
                }
            }
        }
    };
}

api_keys! {
    Produce = 0, 3..=13, from 9;
    Fetch = 1, 4..=18, from 12;
    ListOffsets = 2, 1..=11, from 6;
    Metadata = 3, 0..=13, from 9;
    OffsetCommit = 8, 2..=10, from 8;
    OffsetFetch = 9, 1..=10, from 6;
    FindCoordinator = 10, 0..=6, from 3;
    JoinGroup = 11, 0..=9, from 6;
    Heartbeat = 12, 0..=4, from 4;
    LeaveGroup = 13, 0..=5, from 4;
    SyncGroup = 14, 0..=5, from 4;
    DescribeGroups = 15, 0..=6, from 5;
    ListGroups = 16, 0..=5, from 3;
    SaslHandshake = 17, 0..=1, never;
    ApiVersions = 18, 0..=5, from 3;
    CreateTopics = 19, 2..=7, from 5;
    DeleteTopics = 20, 1..=6, from 4;
    DeleteRecords = 21, 0..=2, from 2;
    InitProducerId = 22, 0..=5, from 2;
    OffsetForLeaderEpoch = 23, 2..=4, from 4;
    AddPartitionsToTxn = 24, 0..=5, from 3;
    AddOffsetsToTxn = 25, 0..=4, from 3;
    EndTxn = 26, 0..=5, from 3;
    WriteTxnMarkers = 27, 1..=2, from 1;
    TxnOffsetCommit = 28, 0..=6, from 3;
    DescribeAcls = 29, 1..=3, from 2;
    CreateAcls = 30, 1..=3, from 2;
    DeleteAcls = 31, 1..=3, from 2;
    DescribeConfigs = 32, 1..=4, from 4;
    AlterConfigs = 33, 0..=2, from 2;
    AlterReplicaLogDirs = 34, 1..=2, from 2;
    DescribeLogDirs = 35, 1..=5, from 2;
    SaslAuthenticate = 36, 0..=2, from 2;
    CreatePartitions = 37, 0..=3, from 2;
    CreateDelegationToken = 38, 1..=3, from 2;
    RenewDelegationToken = 39, 1..=2, from 2;
    ExpireDelegationToken = 40, 1..=2, from 2;
    DescribeDelegationToken = 41, 1..=3, from 2;
    DeleteGroups = 42, 0..=3, from 2;
    ElectLeaders = 43, 0..=2, from 2;
    IncrementalAlterConfigs = 44, 0..=1, from 1;
    AlterPartitionReassignments = 45, 0..=1, from 0;
    ListPartitionReassignments = 46, 0..=0, from 0;
    OffsetDelete = 47, 0..=0, never;
    DescribeClientQuotas = 48, 0..=1, from 1;
    AlterClientQuotas = 49, 0..=1, from 1;
    DescribeUserScramCredentials = 50, 0..=0, from 0;
    AlterUserScramCredentials = 51, 0..=0, from 0;
    Vote = 52, 0..=2, from 0;
    BeginQuorumEpoch = 53, 0..=1, from 1;
    EndQuorumEpoch = 54, 0..=1, from 1;
    DescribeQuorum = 55, 0..=2, from 0;
    AlterPartition = 56, 2..=3, from 0;
    UpdateFeatures = 57, 0..=2, from 0;
    Envelope = 58, 0..=0, from 0;
    FetchSnapshot = 59, 0..=1, from 0;
    DescribeCluster = 60, 0..=2, from 0;
    DescribeProducers = 61, 0..=0, from 0;
    BrokerRegistration = 62, 0..=4, from 0;
    BrokerHeartbeat = 63, 0..=2, from 0;
    UnregisterBroker = 64, 0..=0, from 0;
    DescribeTransactions = 65, 0..=0, from 0;
    ListTransactions = 66, 0..=2, from 0;
    AllocateProducerIds = 67, 0..=0, from 0;
    ConsumerGroupHeartbeat = 68, 0..=1, from 0;
    ConsumerGroupDescribe = 69, 0..=1, from 0;
    ControllerRegistration = 70, 0..=0, from 0;
    GetTelemetrySubscriptions = 71, 0..=0, from 0;
    PushTelemetry = 72, 0..=0, from 0;
    AssignReplicasToDirs = 73, 0..=0, from 0;
    ListConfigResources = 74, 0..=1, from 0;
    DescribeTopicPartitions = 75, 0..=0, from 0;
    ShareGroupHeartbeat = 76, 1..=1, from 0;
    ShareGroupDescribe = 77, 1..=1, from 0;
    ShareFetch = 78, 1..=2, from 0;
    ShareAcknowledge = 79, 1..=2, from 0;
    AddRaftVoter = 80, 0..=1, from 0;
    RemoveRaftVoter = 81, 0..=0, from 0;
    UpdateRaftVoter = 82, 0..=0, from 0;
    InitializeShareGroupState = 83, 0..=0, from 0;
    ReadShareGroupState = 84, 0..=0, from 0;
    WriteShareGroupState = 85, 0..=1, from 0;
    DeleteShareGroupState = 86, 0..=0, from 0;
    ReadShareGroupStateSummary = 87, 0..=1, from 0;
    StreamsGroupHeartbeat = 88, 0..=1, from 0;
    StreamsGroupDescribe = 89, 0..=1, from 0;
    DescribeShareGroupOffsets = 90, 0..=1, from 0;
    AlterShareGroupOffsets = 91, 0..=0, from 0;
    DeleteShareGroupOffsets = 92, 0..=0, from 0;
    StreamsGroupTopologyDescriptionUpdate = 93, 0..=0, from 0;
    UnregisterController = 94, 0..=0, from 0;
    // Weir's own: from `ApiKey::OWN_MIN` on.
    DescribeGroupOffsets = 10_000, 0..=0, from 0;
    DescribeFollowers = 10_001, 0..=0, from 0;
}

/// A number that names no API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown API key {0}")]
pub struct UnknownApiKey(pub i16);

impl ApiKey {
    /// Keys from here on are Weir's own APIs; Kafka's count up from 0.
    pub const OWN_MIN: i16 = 10_000;

    /// Whether the API is Weir's own and unknown to Kafka.
    #[must_use]
    pub const fn is_own(self) -> bool {
        self.code() >= Self::OWN_MIN
    }

    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Whether the version has compact lengths and tagged fields. Also right for versions that are newer than this list,
    /// since flexible versions never end.
    #[must_use]
    pub fn is_flexible(self, version: i16) -> bool {
        self.first_flexible().is_some_and(|first| version >= first)
    }
}

impl TryFrom<i16> for ApiKey {
    type Error = UnknownApiKey;

    fn try_from(code: i16) -> Result<Self, Self::Error> {
        ApiKey::ALL
            .binary_search_by_key(&code, |key| key.code())
            .map(|index| ApiKey::ALL[index])
            .map_err(|_| UnknownApiKey(code))
    }
}

impl std::fmt::Display for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_from_their_numbers() {
        for pair in ApiKey::ALL.windows(2) {
            assert!(pair[0].code() < pair[1].code());
        }
        for &key in ApiKey::ALL {
            assert_eq!(ApiKey::try_from(key.code()), Ok(key));
        }
        // Removed in Kafka 4.0, never given, below zero.
        for code in [4, 7, 95, 9_999, i16::MAX, -1] {
            assert_eq!(ApiKey::try_from(code), Err(UnknownApiKey(code)));
        }
    }

    #[test]
    fn flexible_versions_never_end() {
        assert!(!ApiKey::Fetch.is_flexible(11));
        assert!(ApiKey::Fetch.is_flexible(12));
        assert!(ApiKey::Fetch.is_flexible(i16::MAX));
        assert!(!ApiKey::SaslHandshake.is_flexible(i16::MAX));
        assert!(!ApiKey::ApiVersions.is_flexible(-1));
    }
}
