//! THE list: every API that this node serves, in which versions, by which handler.
//!
//! Versions are those that Apache Kafka 4.4 accepts; APIs of our own come last. ApiVersions is answered from this table and has no row. *Staged* rows
//! are queued in order and answered while the next request of the connection is read.

use super::handlers::{
    add_raft_voter, alter_configs, alter_partition_reassignments, alter_replica_log_dirs, create_partitions,
    create_topics, delete_groups, delete_records, delete_topics, describe_cluster, describe_configs,
    describe_followers, describe_group_offsets, describe_groups, describe_log_dirs, describe_quorum,
    describe_topic_partitions, elect_leaders, fetch, find_coordinator, heartbeat, incremental_alter_configs,
    init_producer_id, join_group, leave_group, list_config_resources, list_groups, list_offsets,
    list_partition_reassignments, metadata, offset_commit, offset_delete, offset_fetch,
    offset_for_leader_epoch, produce, remove_raft_voter, sasl_authenticate, sasl_handshake, sync_group,
    unregister_broker, update_features,
};
use crate::node::Node;
use kafka_wire::{ApiTable, TableError, route, staged};
use proto_types::ids::NodeId;

/// The table of a storage node, which tells clients that look for another node or cluster so (KIP-1242).
pub(crate) fn api_table(cluster_id: &str, node: NodeId) -> Result<ApiTable<Node>, TableError> {
    let table = ApiTable::new(vec![
        staged(3..=13, produce::handle),
        route(4..=18, fetch::handle),
        route(1..=11, list_offsets::handle),
        route(0..=13, metadata::handle),
        route(2..=10, offset_commit::handle),
        route(1..=10, offset_fetch::handle),
        route(0..=6, find_coordinator::handle),
        route(0..=9, join_group::handle),
        route(0..=4, heartbeat::handle),
        route(0..=5, leave_group::handle),
        route(0..=5, sync_group::handle),
        route(0..=6, describe_groups::handle),
        route(0..=5, list_groups::handle),
        route(0..=1, sasl_handshake::handle),
        route(2..=7, create_topics::handle),
        route(1..=6, delete_topics::handle),
        route(0..=2, delete_records::handle),
        route(0..=5, init_producer_id::handle),
        route(2..=4, offset_for_leader_epoch::handle),
        route(1..=4, describe_configs::handle),
        route(0..=2, alter_configs::handle),
        route(1..=2, alter_replica_log_dirs::handle),
        route(1..=5, describe_log_dirs::handle),
        route(0..=2, sasl_authenticate::handle),
        route(0..=3, create_partitions::handle),
        route(0..=3, delete_groups::handle),
        route(0..=2, elect_leaders::handle),
        route(0..=1, incremental_alter_configs::handle),
        route(0..=1, alter_partition_reassignments::handle),
        route(0..=0, list_partition_reassignments::handle),
        route(0..=0, offset_delete::handle),
        route(0..=2, describe_quorum::handle),
        route(0..=2, update_features::handle),
        route(0..=2, describe_cluster::handle),
        route(0..=0, unregister_broker::handle),
        route(0..=1, list_config_resources::handle),
        route(0..=0, describe_topic_partitions::handle),
        route(0..=1, add_raft_voter::handle),
        route(0..=0, remove_raft_voter::handle),
        route(0..=0, describe_group_offsets::handle),
        route(0..=0, describe_followers::handle),
    ])?;
    Ok(table.with_identity(cluster_id, node.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_row_has_its_file_and_every_file_its_row() {
        let table = api_table("c", NodeId(1)).unwrap();
        let rows: BTreeSet<String> = table.routes().iter().map(|route| snake_case(route.name())).collect();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/kafka/handlers");
        let files: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .filter_map(|entry| entry.unwrap().path().file_stem()?.to_str().map(str::to_owned))
            .collect();
        assert_eq!(rows, files);
    }

    fn snake_case(name: &str) -> String {
        let mut text = String::new();
        for c in name.chars() {
            if c.is_ascii_uppercase() && !text.is_empty() {
                text.push('_');
            }
            text.push(c.to_ascii_lowercase());
        }
        text
    }
}
