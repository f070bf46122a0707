//! One file per API: its request, its response, and what changed from version to version.
//!
//! Structs and fields have Kafka's names. Versions are those that Kafka 4.4 accepts. APIs of Weir's own say so.

pub mod add_raft_voter;
pub mod alter_configs;
pub mod alter_partition_reassignments;
pub mod alter_replica_log_dirs;
pub mod api_versions;
pub mod create_partitions;
pub mod create_topics;
pub mod delete_groups;
pub mod delete_records;
pub mod delete_topics;
pub mod describe_cluster;
pub mod describe_configs;
pub mod describe_followers;
pub mod describe_group_offsets;
pub mod describe_groups;
pub mod describe_log_dirs;
pub mod describe_quorum;
pub mod describe_topic_partitions;
pub mod elect_leaders;
pub mod fetch;
pub mod find_coordinator;
pub mod heartbeat;
pub mod incremental_alter_configs;
pub mod init_producer_id;
pub mod join_group;
pub mod leave_group;
pub mod list_config_resources;
pub mod list_groups;
pub mod list_offsets;
pub mod list_partition_reassignments;
pub mod metadata;
pub mod offset_commit;
pub mod offset_delete;
pub mod offset_fetch;
pub mod offset_for_leader_epoch;
pub mod produce;
pub mod remove_raft_voter;
pub mod sasl_authenticate;
pub mod sasl_handshake;
pub mod sync_group;
pub mod unregister_broker;
pub mod update_features;

/// Something to do with every API; see [`visit`].
#[cfg(feature = "testing")]
pub trait Visitor {
    /// Called with each request.
    fn api<R>(&mut self)
    where
        R: crate::Request + crate::sample::Sample,
        R::Response: crate::sample::Sample;
}

/// Shows every API to `visitor`, in alphabetical order; lets a test cover them all.
#[cfg(feature = "testing")]
pub fn visit(visitor: &mut impl Visitor) {
    visitor.api::<add_raft_voter::AddRaftVoterRequest>();
    visitor.api::<alter_configs::AlterConfigsRequest>();
    visitor.api::<alter_partition_reassignments::AlterPartitionReassignmentsRequest>();
    visitor.api::<alter_replica_log_dirs::AlterReplicaLogDirsRequest>();
    visitor.api::<api_versions::ApiVersionsRequest>();
    visitor.api::<create_partitions::CreatePartitionsRequest>();
    visitor.api::<create_topics::CreateTopicsRequest>();
    visitor.api::<delete_groups::DeleteGroupsRequest>();
    visitor.api::<delete_records::DeleteRecordsRequest>();
    visitor.api::<delete_topics::DeleteTopicsRequest>();
    visitor.api::<describe_cluster::DescribeClusterRequest>();
    visitor.api::<describe_configs::DescribeConfigsRequest>();
    visitor.api::<describe_followers::DescribeFollowersRequest>();
    visitor.api::<describe_group_offsets::DescribeGroupOffsetsRequest>();
    visitor.api::<describe_groups::DescribeGroupsRequest>();
    visitor.api::<describe_log_dirs::DescribeLogDirsRequest>();
    visitor.api::<describe_quorum::DescribeQuorumRequest>();
    visitor.api::<describe_topic_partitions::DescribeTopicPartitionsRequest>();
    visitor.api::<elect_leaders::ElectLeadersRequest>();
    visitor.api::<fetch::FetchRequest>();
    visitor.api::<find_coordinator::FindCoordinatorRequest>();
    visitor.api::<heartbeat::HeartbeatRequest>();
    visitor.api::<incremental_alter_configs::IncrementalAlterConfigsRequest>();
    visitor.api::<init_producer_id::InitProducerIdRequest>();
    visitor.api::<join_group::JoinGroupRequest>();
    visitor.api::<leave_group::LeaveGroupRequest>();
    visitor.api::<list_config_resources::ListConfigResourcesRequest>();
    visitor.api::<list_groups::ListGroupsRequest>();
    visitor.api::<list_offsets::ListOffsetsRequest>();
    visitor.api::<list_partition_reassignments::ListPartitionReassignmentsRequest>();
    visitor.api::<metadata::MetadataRequest>();
    visitor.api::<offset_commit::OffsetCommitRequest>();
    visitor.api::<offset_delete::OffsetDeleteRequest>();
    visitor.api::<offset_fetch::OffsetFetchRequest>();
    visitor.api::<offset_for_leader_epoch::OffsetForLeaderEpochRequest>();
    visitor.api::<produce::ProduceRequest>();
    visitor.api::<remove_raft_voter::RemoveRaftVoterRequest>();
    visitor.api::<sasl_authenticate::SaslAuthenticateRequest>();
    visitor.api::<sasl_handshake::SaslHandshakeRequest>();
    visitor.api::<sync_group::SyncGroupRequest>();
    visitor.api::<unregister_broker::UnregisterBrokerRequest>();
    visitor.api::<update_features::UpdateFeaturesRequest>();
}
