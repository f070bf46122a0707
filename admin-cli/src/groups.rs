//! Groups as their coordinators know them: who is in them, and what they have committed.
//!
//! A request goes to the node that answers for the group, which FindCoordinator names; while coordinators load, move, or the
//! internal topic is made, it is repeated until the time of the command is over.

use std::collections::BTreeMap;
use std::time::Duration;

use kafka_wire::{Client, ClientError};
use kafka_wire_core::consumer_protocol::{CONSUMER, ConsumerAssignment};
use kafka_wire_core::messages::describe_group_offsets::{
    DescribeGroupOffsetsRequest, DescribeGroupOffsetsResponse,
};
use kafka_wire_core::messages::describe_groups::{
    DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroup, DescribedGroupMember,
};
use kafka_wire_core::messages::find_coordinator::FindCoordinatorRequest;
use kafka_wire_core::messages::list_groups::{ListGroupsRequest, ListedGroup};
use kafka_wire_core::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse, OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use kafka_wire_core::{ErrorCode, Request, Str};

use crate::clock::monotonic_now;
use crate::failure::Failure;
use crate::output::printable;

/// Pause before a request is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// The newest version of requests that name topics by name; from the next on they have ids.
pub(crate) const NAMED_TOPICS_MAX: i16 = 9;
/// FindCoordinator's number of consumer groups.
const GROUP: i8 = 0;
/// The first version of FindCoordinator that takes several keys.
const SEVERAL_KEYS: i16 = 4;
/// The first version of OffsetFetch that takes several groups.
const SEVERAL_GROUPS: i16 = 8;
/// How many members are named in a sentence.
const MEMBERS_NAMED_MAX: usize = 5;

/// A partition of a topic.
pub(crate) type TopicPartition = (String, i32);

/// What a group has committed for a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) offset: i64,
    /// When; none if the cluster does not tell, as Kafka's protocol does not.
    pub(crate) time: Option<CommitTime>,
}

/// When an offset was committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CommitTime {
    /// Milliseconds since 1970.
    pub(crate) at_ms: i64,
    /// Milliseconds between then and the description, by the coordinator's clock: ours may be wrong.
    pub(crate) age_ms: i64,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) id: String,
    /// The name that a static member goes by.
    pub(crate) instance: Option<String>,
    pub(crate) client: String,
    pub(crate) host: String,
    /// What it reads; none if its bytes are not those of a consumer.
    pub(crate) assigned: Option<Vec<TopicPartition>>,
}

/// A group as its coordinator describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) id: String,
    /// Kafka's name of its state.
    pub(crate) state: String,
    pub(crate) protocol_type: String,
    /// The assignor, for consumers.
    pub(crate) protocol: String,
    /// The node that answers for it.
    pub(crate) node: i32,
    pub(crate) members: Vec<Member>,
}

impl Group {
    /// The failure of a change that needs the group to be without members.
    pub(crate) fn is_active(&self, what: &str) -> Failure {
        let name = printable(&self.id);
        let count = self.members.len();
        let named = self.members.iter().take(MEMBERS_NAMED_MAX).map(|member| {
            let id = member.instance.as_ref().unwrap_or(&member.id);
            format!(
                "{} (client {}, host {})",
                printable(id),
                printable(&member.client),
                printable(&member.host)
            )
        });
        let mut list = named.collect::<Vec<_>>().join(", ");
        if count > MEMBERS_NAMED_MAX {
            list.push_str(&format!(" and {} more", count - MEMBERS_NAMED_MAX));
        }
        let members = match count {
            0 => "members that are joining".to_owned(),
            1 => format!("a member: {list}"),
            _ => format!("{count} members: {list}"),
        };
        Failure::failed(format!("cannot {what}: group {name} is in use ({}) by {members}", self.state)).hint(
            format!(
                "stop its consumers, then repeat this; one that died is dropped when its session is over. \
                 `weir group describe {name}` shows who is left"
            ),
        )
    }

    /// Whether nobody reads by it.
    pub(crate) fn is_without_members(&self) -> bool {
        self.members.is_empty() && matches!(&*self.state, "Empty" | "Dead")
    }
}

/// The failure for a group that is not there.
pub(crate) fn unknown(group: &str) -> Failure {
    Failure::not_found(format!("there is no group {}", printable(group)))
        .hint("`weir group list` shows which there are")
}

/// Access to the coordinators of groups.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Groups<'a> {
    pub(crate) client: &'a Client,
    /// How long a request is repeated.
    pub(crate) patience: Duration,
}

impl Groups<'_> {
    /// Calls the coordinator of `group`, with the highest version up to `version_max`; `code` is what the response says as a
    /// whole. Gives the node that answered too.
    pub(crate) async fn call<R: Request>(
        &self,
        group: &str,
        version_max: i16,
        request: impl Fn(i16) -> R,
        code: impl Fn(&R::Response) -> ErrorCode,
    ) -> Result<(i32, R::Response), Failure> {
        Ok(self.call_if_served(group, version_max, request, code).await??)
    }

    /// The same, with the inner error if the node does not serve the API at all.
    async fn call_if_served<R: Request>(
        &self,
        group: &str,
        version_max: i16,
        request: impl Fn(i16) -> R,
        code: impl Fn(&R::Response) -> ErrorCode,
    ) -> Result<Result<(i32, R::Response), ClientError>, Failure> {
        let begin = monotonic_now();
        loop {
            let outcome = match self.find(group).await? {
                Err(code) => Err(code),
                Ok(node) => {
                    let connection = self.client.node(node).await?;
                    let version = match connection.version::<R>() {
                        Ok(version) => version.min(version_max),
                        Err(not_served) => return Ok(Err(not_served)),
                    };
                    let response = connection.call_version(&request(version), version).await?;
                    match code(&response) {
                        code if is_passing(code) => Err(code),
                        _ => Ok((node, response)),
                    }
                }
            };
            match outcome {
                Ok(answer) => return Ok(Ok(answer)),
                Err(code) => self.wait(begin, group, code).await?,
            }
        }
    }

    /// Waits before a request is repeated; fails when the time is over.
    async fn wait(&self, begin: std::time::Instant, group: &str, code: ErrorCode) -> Result<(), Failure> {
        if monotonic_now().saturating_duration_since(begin) + RETRY_PAUSE >= self.patience {
            let group = printable(group);
            let why = code.name();
            return Err(Failure::unreachable(format!("the coordinator of group {group} does not serve: {why}"))
                .hint("`weir cluster status` shows the nodes; a coordinator that starts or takes over is there in seconds"));
        }
        tokio::time::sleep(RETRY_PAUSE).await;
        Ok(())
    }

    /// The node that answers for `group`, or why nobody does right now.
    async fn find(&self, group: &str) -> Result<Result<i32, ErrorCode>, Failure> {
        let connection = self.client.any().await?;
        let several = connection.version::<FindCoordinatorRequest>()? >= SEVERAL_KEYS;
        let key = Str::from(group);
        let request = if several {
            FindCoordinatorRequest { key_type: GROUP, coordinator_keys: vec![key], ..Default::default() }
        } else {
            FindCoordinatorRequest { key_type: GROUP, key, ..Default::default() }
        };
        let response = connection.call(&request).await?;
        let (node, code, message) = match response.coordinators.into_iter().next() {
            Some(found) => (found.node_id, found.error_code, found.error_message),
            None => (response.node_id, response.error_code, response.error_message),
        };
        match code {
            ErrorCode::None => Ok(Ok(node)),
            code if is_passing(code) => Ok(Err(code)),
            code => {
                let what = format!("find the coordinator of group {}", printable(group));
                Err(Failure::refused(what, code, message.as_deref()))
            }
        }
    }

    /// All groups of all nodes with the node that answers for each, by name.
    pub(crate) async fn list(&self) -> Result<BTreeMap<String, (i32, ListedGroup)>, Failure> {
        let mut groups = BTreeMap::new();
        for node in self.client.cluster_nodes().await? {
            let begin = monotonic_now();
            let listed = loop {
                let response = self.client.call_node(node.id, &ListGroupsRequest::default()).await?;
                match response.error_code {
                    ErrorCode::None => break response.groups,
                    code if is_passing(code)
                        && monotonic_now().saturating_duration_since(begin) < self.patience =>
                    {
                        tokio::time::sleep(RETRY_PAUSE).await;
                    }
                    code => {
                        return Err(Failure::refused(
                            format!("list the groups of node {}", node.id),
                            code,
                            None,
                        ));
                    }
                }
            };
            groups.extend(listed.into_iter().map(|group| (group.group_id.to_string(), (node.id, group))));
        }
        Ok(groups)
    }

    /// The group, or none if the coordinator knows no classic group of this name.
    pub(crate) async fn describe(&self, group: &str) -> Result<Option<Group>, Failure> {
        let request = |_| DescribeGroupsRequest {
            groups: vec![Str::from(group)],
            include_authorized_operations: false,
        };
        let code = |response: &DescribeGroupsResponse| first_code(&response.groups, |group| group.error_code);
        let (node, response) = self.call(group, i16::MAX, request, code).await?;
        let described = response.groups.into_iter().next();
        let described = described
            .ok_or_else(|| Failure::failed(format!("node {node} describes no group when asked for one")))?;
        match described.error_code {
            ErrorCode::GroupIdNotFound => Ok(None),
            // What versions before 6 say of a group that is not there.
            ErrorCode::None if described.group_state == "Dead" => Ok(None),
            ErrorCode::None => Ok(Some(read_group(described, node))),
            code => {
                let what = format!("describe group {}", printable(group));
                Err(Failure::refused(what, code, described.error_message.as_deref()))
            }
        }
    }

    /// All offsets that the group has committed, with the times of their commits where the cluster tells them.
    pub(crate) async fn commits(&self, group: &str) -> Result<BTreeMap<TopicPartition, Commit>, Failure> {
        let request = |_| DescribeGroupOffsetsRequest { group_id: Str::from(group) };
        let code = |response: &DescribeGroupOffsetsResponse| response.error_code;
        let Ok((_, response)) = self.call_if_served(group, i16::MAX, request, code).await? else {
            let committed = self.committed(group).await?.into_iter();
            return Ok(committed.map(|(key, offset)| (key, Commit { offset, time: None })).collect());
        };
        match response.error_code {
            ErrorCode::None | ErrorCode::GroupIdNotFound => Ok(read_commits(response)),
            code => {
                let what = format!("describe the offsets of group {}", printable(group));
                Err(Failure::refused(what, code, None))
            }
        }
    }

    /// All offsets that the group has committed.
    pub(crate) async fn committed(&self, group: &str) -> Result<BTreeMap<TopicPartition, i64>, Failure> {
        let request = |version| {
            if version >= SEVERAL_GROUPS {
                let group_id = Str::from(group);
                let group = OffsetFetchRequestGroup { group_id, topics: None, ..Default::default() };
                OffsetFetchRequest { groups: vec![group], ..Default::default() }
            } else {
                OffsetFetchRequest { group_id: Str::from(group), topics: None, ..Default::default() }
            }
        };
        let code = |response: &OffsetFetchResponse| match response.groups.first() {
            Some(group) => group.error_code,
            None => response.error_code,
        };
        let (_, response) = self.call(group, NAMED_TOPICS_MAX, request, code).await?;
        let failed =
            |code| Failure::refused(format!("read the offsets of group {}", printable(group)), code, None);
        let answer = single_group(response);
        match answer.error_code {
            ErrorCode::None => {}
            ErrorCode::GroupIdNotFound => return Ok(BTreeMap::new()),
            code => return Err(failed(code)),
        }
        let mut committed = BTreeMap::new();
        for topic in answer.topics {
            for partition in topic.partitions {
                if !partition.error_code.is_none() {
                    return Err(failed(partition.error_code));
                }
                if partition.committed_offset >= 0 {
                    let key = (topic.name.to_string(), partition.partition_index);
                    committed.insert(key, partition.committed_offset);
                }
            }
        }
        Ok(committed)
    }
}

/// Whether a coordinator that says this will serve soon, or another one will.
fn is_passing(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::CoordinatorNotAvailable | ErrorCode::CoordinatorLoadInProgress | ErrorCode::NotCoordinator
    )
}

/// The code of the only element.
pub(crate) fn first_code<T>(elements: &[T], code: impl Fn(&T) -> ErrorCode) -> ErrorCode {
    elements.first().map_or(ErrorCode::None, code)
}

/// The answer for one group in the form of the versions that take several.
fn single_group(response: OffsetFetchResponse) -> OffsetFetchResponseGroup {
    if let Some(group) = response.groups.into_iter().next() {
        return group;
    }
    let topics = response.topics.into_iter().map(|topic| OffsetFetchResponseTopics {
        name: topic.name,
        partitions: topic
            .partitions
            .into_iter()
            .map(|partition| OffsetFetchResponsePartitions {
                partition_index: partition.partition_index,
                committed_offset: partition.committed_offset,
                committed_leader_epoch: partition.committed_leader_epoch,
                metadata: partition.metadata,
                error_code: partition.error_code,
            })
            .collect(),
        ..Default::default()
    });
    OffsetFetchResponseGroup {
        topics: topics.collect(),
        error_code: response.error_code,
        ..Default::default()
    }
}

fn read_commits(response: DescribeGroupOffsetsResponse) -> BTreeMap<TopicPartition, Commit> {
    let now = response.current_time_ms;
    let topics = response.topics.into_iter().map(|topic| (String::from(topic.name), topic.partitions));
    let partitions = topics.flat_map(|(name, partitions)| {
        partitions.into_iter().map(move |partition| {
            let at_ms = partition.commit_time_ms;
            // A coordinator of then whose clock was ahead commits in what is now the future.
            let time = CommitTime { at_ms, age_ms: now.saturating_sub(at_ms).max(0) };
            let commit = Commit { offset: partition.committed_offset, time: Some(time) };
            ((name.clone(), partition.partition_index), commit)
        })
    });
    partitions.collect()
}

fn read_group(described: DescribedGroup, node: i32) -> Group {
    let consumers = described.protocol_type == CONSUMER;
    Group {
        id: described.group_id.into(),
        state: described.group_state.into(),
        protocol_type: described.protocol_type.into(),
        protocol: described.protocol_data.into(),
        node,
        members: described.members.into_iter().map(|member| read_member(member, consumers)).collect(),
    }
}

fn read_member(member: DescribedGroupMember, consumer: bool) -> Member {
    let assignment = consumer.then(|| ConsumerAssignment::decode(member.member_assignment).ok()).flatten();
    let assigned = assignment.map(|assignment| {
        let mut partitions: Vec<TopicPartition> = assignment
            .topics
            .iter()
            .flat_map(|topic| topic.partitions.iter().map(|partition| (topic.name.to_string(), *partition)))
            .collect();
        partitions.sort();
        partitions
    });
    Member {
        id: member.member_id.into(),
        instance: member.group_instance_id.map(String::from),
        client: member.client_id.into(),
        host: member.client_host.into(),
        assigned,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kafka_wire_core::messages::describe_group_offsets::{
        DescribedGroupOffset, DescribedGroupOffsetsTopic,
    };

    use super::*;

    pub(super) fn member(id: &str) -> Member {
        Member {
            id: id.to_owned(),
            instance: None,
            client: "c".to_owned(),
            host: "/127.0.0.1".to_owned(),
            assigned: Some(Vec::new()),
        }
    }

    #[test]
    fn who_is_in_the_way_is_named() {
        let mut group = Group {
            id: "readers".to_owned(),
            state: "Stable".to_owned(),
            protocol_type: CONSUMER.to_owned(),
            protocol: "range".to_owned(),
            node: 1,
            members: vec![member("m-1")],
        };
        let text = group.is_active("reset offsets").to_string();
        assert!(
            text.starts_with(
                "error: cannot reset offsets: group readers is in use (Stable) by a member: \
                 m-1 (client c, host /127.0.0.1)\n  hint: stop its consumers"
            ),
            "{text}"
        );
        group.members = (0..7).map(|n| member(&format!("m-{n}"))).collect();
        let text = group.is_active("reset offsets").to_string();
        assert!(text.contains("by 7 members: m-0 (") && text.contains(" and 2 more\n"), "{text}");
        assert!(!group.is_without_members());
    }

    #[test]
    fn ages_are_taken_on_the_coordinators_clock() {
        let offset = |partition_index, commit_time_ms| DescribedGroupOffset {
            partition_index,
            committed_offset: 7,
            commit_time_ms,
        };
        let partitions = vec![offset(0, 400), offset(1, 1_500)];
        let topic = DescribedGroupOffsetsTopic { name: "t".into(), partitions };
        let response = DescribeGroupOffsetsResponse {
            current_time_ms: 1_000,
            topics: vec![topic],
            ..DescribeGroupOffsetsResponse::default()
        };
        let commits = read_commits(response);
        let time = |partition| commits[&("t".to_owned(), partition)].time;
        assert_eq!(time(0), Some(CommitTime { at_ms: 400, age_ms: 600 }));
        assert_eq!(time(1), Some(CommitTime { at_ms: 1_500, age_ms: 0 }), "not before it was");
    }

    #[test]
    fn members_of_other_protocols_and_damaged_assignments_have_no_partitions_to_show() {
        let described = |assignment: &'static [u8]| DescribedGroupMember {
            member_assignment: Bytes::from_static(assignment),
            ..DescribedGroupMember::default()
        };
        let good = b"\0\0\0\0\0\x01\0\x01t\0\0\0\x02\0\0\0\x03\0\0\0\x01\xff\xff\xff\xff";
        let assigned = |bytes, consumer| read_member(described(bytes), consumer).assigned;
        assert_eq!(assigned(good, true), Some(vec![("t".to_owned(), 1), ("t".to_owned(), 3)]));
        assert_eq!(assigned(good, false), None);
        assert_eq!(assigned(&good[..9], true), None);
        assert_eq!(assigned(b"", true), Some(Vec::new()));
    }
}
