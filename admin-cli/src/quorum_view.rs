//! The controllers as their leader knows them, read through Kafka's DescribeQuorum.

use kafka_wire::Client;
use kafka_wire_core::messages::describe_quorum::{
    DescribeQuorumRequest, DescribeQuorumResponse, PartitionToDescribe, ReplicaState, TopicToDescribe,
};
use serde_json::{Value, json};

use crate::cluster_view::address_text;
use crate::failure::Failure;

/// Kafka's name of the quorum's log.
const TOPIC: &str = "__cluster_metadata";

/// The quorum.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct QuorumView {
    /// None while there is no leader.
    pub(crate) leader: Option<i32>,
    pub(crate) epoch: i32,
    pub(crate) high_watermark: i64,
    /// Voters first, in order of id.
    pub(crate) members: Vec<MemberView>,
}

/// A controller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MemberView {
    pub(crate) id: i32,
    pub(crate) address: Option<String>,
    pub(crate) voter: bool,
    /// Entries that the leader has and this one has not; none if that is not known.
    pub(crate) behind: Option<i64>,
    /// Milliseconds by which it was last seen with all that there was, before the leader; none if that is not known.
    pub(crate) behind_ms: Option<i64>,
}

/// Asks for the quorum.
pub(crate) async fn quorum(client: &Client) -> Result<QuorumView, Failure> {
    let request = DescribeQuorumRequest {
        topics: vec![TopicToDescribe {
            topic_name: TOPIC.into(),
            partitions: vec![PartitionToDescribe { partition_index: 0 }],
        }],
    };
    from_response(client.call(&request).await?)
}

fn from_response(response: DescribeQuorumResponse) -> Result<QuorumView, Failure> {
    let refused = |code, message: Option<&str>| Failure::refused("describe the controllers", code, message);
    if !response.error_code.is_none() {
        return Err(refused(response.error_code, response.error_message.as_deref()));
    }
    let partition = response.topics.into_iter().flat_map(|topic| topic.partitions).next();
    let Some(partition) = partition else {
        return Err(Failure::failed("the cluster told nothing of its controllers"));
    };
    if !partition.error_code.is_none() {
        return Err(refused(partition.error_code, partition.error_message.as_deref()));
    }
    let nodes = response.nodes;
    let address = |id: i32| {
        let listener = nodes.iter().find(|node| node.node_id == id)?.listeners.first()?;
        Some(address_text(&listener.host, listener.port))
    };
    let leader_state = partition.current_voters.iter().find(|state| state.replica_id == partition.leader_id);
    let (leader_end, leader_ms) =
        leader_state.map_or((-1, -1), |state| (state.log_end_offset, state.last_caught_up_timestamp));
    let known = |state: i64, leader: i64| (state >= 0 && leader >= 0).then(|| (leader - state).max(0));
    let member = |state: &ReplicaState, voter| MemberView {
        id: state.replica_id,
        address: address(state.replica_id),
        voter,
        behind: known(state.log_end_offset, leader_end),
        behind_ms: known(state.last_caught_up_timestamp, leader_ms),
    };
    // Storage nodes follow too; they have a directory, and are shown by themselves.
    let learners = partition.observers.iter().filter(|observer| observer.replica_directory_id.is_nil());
    let voters = partition.current_voters.iter().map(|state| member(state, true));
    let mut members: Vec<_> = voters.chain(learners.map(|state| member(state, false))).collect();
    members.sort_by_key(|member| (!member.voter, member.id));
    Ok(QuorumView {
        leader: (partition.leader_id >= 0).then_some(partition.leader_id),
        epoch: partition.leader_epoch,
        high_watermark: partition.high_watermark,
        members,
    })
}

impl QuorumView {
    pub(crate) fn to_json(&self) -> Value {
        let members = self.members.iter().map(|member| {
            json!({
                "controller": member.id, "address": member.address, "role": self.role(member),
                "behind": member.behind, "behind_ms": member.behind_ms,
            })
        });
        json!({
            "leader": self.leader, "epoch": self.epoch, "high_watermark": self.high_watermark,
            "controllers": members.collect::<Value>(),
        })
    }

    /// Titles of [`QuorumView::rows`].
    pub(crate) const HEADER: [&'static str; 5] = ["CONTROLLER", "ADDRESS", "ROLE", "BEHIND", "SECONDS"];

    /// A line for each member.
    pub(crate) fn rows(&self) -> Vec<Vec<String>> {
        let number = |number: Option<i64>| number.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let seconds =
            |ms: Option<i64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{:.1}", ms as f64 / 1_000.0));
        let row = |member: &MemberView| {
            let address = member.address.clone().unwrap_or_else(|| "-".to_owned());
            let role = self.role(member).to_owned();
            vec![member.id.to_string(), address, role, number(member.behind), seconds(member.behind_ms)]
        };
        self.members.iter().map(row).collect()
    }

    fn role(&self, member: &MemberView) -> &'static str {
        match (self.leader == Some(member.id), member.voter) {
            (true, _) => "leader",
            (false, true) => "voter",
            (false, false) => "learner",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_wire_core::ErrorCode;
    use kafka_wire_core::messages::describe_quorum::{Listener, Node, PartitionData, TopicData};
    use uuid::Uuid;

    fn state(replica_id: i32, log_end_offset: i64, at: i64) -> ReplicaState {
        ReplicaState {
            replica_id,
            log_end_offset,
            last_fetch_timestamp: at,
            last_caught_up_timestamp: at,
            ..ReplicaState::default()
        }
    }

    #[test]
    fn members_are_shown_with_what_they_lack() {
        let storage_node = ReplicaState { replica_directory_id: Uuid::from_u128(1), ..state(1, 99, 7_000) };
        let partition = PartitionData {
            leader_id: 2,
            leader_epoch: 7,
            high_watermark: 100,
            current_voters: vec![state(3, 90, 6_000), state(2, 101, 7_500)],
            observers: vec![state(4, -1, -1), storage_node],
            ..PartitionData::default()
        };
        let listener = Listener { name: "CONTROLLER".into(), host: "::1".into(), port: 9183 };
        let response = DescribeQuorumResponse {
            topics: vec![TopicData { topic_name: TOPIC.into(), partitions: vec![partition] }],
            nodes: vec![Node { node_id: 3, listeners: vec![listener] }],
            ..DescribeQuorumResponse::default()
        };
        let view = from_response(response).unwrap();
        let rows: Vec<String> = view.rows().iter().map(|row| row.join(" ")).collect();
        assert_eq!(rows, ["2 - leader 0 0.0", "3 [::1]:9183 voter 11 1.5", "4 - learner - -"]);
        assert_eq!(view.to_json()["controllers"][1]["behind_ms"], json!(1_500));
    }

    #[test]
    fn a_refusal_says_so() {
        let response = DescribeQuorumResponse {
            error_code: ErrorCode::NotController,
            error_message: Some("no controller could be asked".into()),
            ..DescribeQuorumResponse::default()
        };
        assert!(from_response(response).unwrap_err().to_string().contains("no controller could be asked"));
        assert!(from_response(DescribeQuorumResponse::default()).is_err());
    }
}
