//! What goes into a shard and what comes out: requests with their context, replies by token, records, and the look at
//! topics that commits need.

use bytes::Bytes;
use kafka_wire_core::messages::delete_groups::{
    DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse,
};
use kafka_wire_core::messages::describe_group_offsets::{
    DescribeGroupOffsetsRequest, DescribeGroupOffsetsResponse,
};
use kafka_wire_core::messages::describe_groups::{
    DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroup,
};
use kafka_wire_core::messages::heartbeat::{HeartbeatRequest, HeartbeatResponse};
use kafka_wire_core::messages::join_group::{JoinGroupRequest, JoinGroupResponse};
use kafka_wire_core::messages::leave_group::{LeaveGroupRequest, LeaveGroupResponse};
use kafka_wire_core::messages::list_groups::{ListGroupsRequest, ListGroupsResponse};
use kafka_wire_core::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_wire_core::messages::offset_delete::{OffsetDeleteRequest, OffsetDeleteResponse};
use kafka_wire_core::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup, OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
};
use kafka_wire_core::messages::sync_group::{SyncGroupRequest, SyncGroupResponse};
use kafka_wire_core::{ApiKey, DecodeError, EncodeError, ErrorCode, Message, Str, Writer};
use thiserror::Error;
use uuid::Uuid;

/// Both clocks of one moment, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Time-outs run on this one.
    pub monotonic: i64,
    /// Wall clock since the Unix epoch; only commits and expiry use it.
    pub wall: i64,
}

/// Names a request for its reply; the caller chooses it, once per request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// Who asks, and what the shard cannot make itself.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestContext {
    /// Names the request.
    pub token: Token,
    /// Version of the API that the client speaks.
    pub api_version: i16,
    /// Client id of the request header, empty if null.
    pub client_id: Str,
    /// Address of the client, in Kafka's form `/127.0.0.1`.
    pub client_host: Str,
    /// A fresh random id: becomes part of a new member's id.
    pub fresh_id: Uuid,
}

/// A topic as the cluster's metadata has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub name: Str,
    /// Its id.
    pub id: Uuid,
    /// Number of its partitions.
    pub partitions: i32,
}

/// Topics of the cluster.
pub trait TopicImage {
    /// The topic of that name.
    fn by_name(&self, name: &str) -> Option<Topic>;
    /// The topic of that id.
    fn by_id(&self, id: Uuid) -> Option<Topic>;
}

/// A record to append, and the group that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// The group.
    pub group: Str,
    /// Key of the record.
    pub key: Bytes,
    /// Value of the record; `None` is a tombstone.
    pub value: Option<Bytes>,
    /// Timestamp of the record: wall clock in milliseconds.
    pub timestamp: i64,
}

impl StoredRecord {
    /// What a record has beside key and value in a batch, at most: its length, attributes, deltas of timestamp and offset,
    /// the lengths of key and value, and the number of its headers.
    pub const FRAMING_BYTES_MAX: usize = 5 + 1 + 10 + 5 + 5 + 5 + 1;

    /// Bytes that the record takes in a batch, at most.
    #[must_use]
    pub fn size(&self) -> usize {
        Self::FRAMING_BYTES_MAX + self.key.len() + self.value.as_ref().map_or(0, Bytes::len)
    }
}

/// The reply to a request, perhaps one that came long ago.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// Names the request.
    pub token: Token,
    /// Version of the request, which decides the bytes of the reply.
    pub version: i16,
    /// The reply.
    pub reply: GroupReply,
    /// The group whose stored state the reply may show; `None` = of all groups.
    pub group: Option<Str>,
}

/// What a turn of the shard leads to: records to append, then replies. A request without a completion is parked: its
/// reply is a completion of a later turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// To append, in this order.
    pub records: Vec<StoredRecord>,
    /// To send once the log holds the records above, and earlier ones of the same group, below its high watermark.
    pub completions: Vec<Completion>,
}

/// Why a request cannot be read.
#[derive(Debug, Error)]
pub enum RequestError {
    /// Not an API of groups.
    #[error("{0} is not an API of groups")]
    Api(ApiKey),
    /// Not a body of this API and version.
    #[error(transparent)]
    Body(#[from] DecodeError),
}

macro_rules! group_apis {
    ($($variant:ident($request:ident, $response:ident, $key:ident);)*) => {
        /// A request to a shard.
        #[derive(Clone, Debug, PartialEq)]
        pub enum GroupRequest {
            $(
                #[doc = concat!("See [`", stringify!($request), "`].")]
                $variant($request),
            )*
        }

        /// A reply of a shard; the version of the request decides its bytes.
        #[derive(Clone, Debug, PartialEq)]
        pub enum GroupReply {
            $(
                #[doc = concat!("See [`", stringify!($response), "`].")]
                $variant($response),
            )*
        }

        impl GroupRequest {
            /// The APIs that a shard serves.
            pub const APIS: &'static [ApiKey] = &[$(ApiKey::$key),*];

            /// Reads the body of a request.
            pub fn decode(api: ApiKey, version: i16, body: Bytes) -> Result<Self, RequestError> {
                match api {
                    $(ApiKey::$key => Ok(GroupRequest::$variant($request::decode_exact(body, version)?)),)*
                    other => Err(RequestError::Api(other)),
                }
            }
        }

        impl GroupReply {
            /// The body of a reply in the version of its request.
            pub fn encode(&self, version: i16) -> Result<Bytes, EncodeError> {
                let mut writer = Writer::new();
                match self {
                    $(GroupReply::$variant(response) => response.encode(&mut writer, version)?,)*
                }
                Ok(writer.finish().into_bytes().expect("replies of groups hold no file regions"))
            }
        }
    };
}

group_apis! {
    Join(JoinGroupRequest, JoinGroupResponse, JoinGroup);
    Sync(SyncGroupRequest, SyncGroupResponse, SyncGroup);
    Heartbeat(HeartbeatRequest, HeartbeatResponse, Heartbeat);
    Leave(LeaveGroupRequest, LeaveGroupResponse, LeaveGroup);
    Commit(OffsetCommitRequest, OffsetCommitResponse, OffsetCommit);
    Fetch(OffsetFetchRequest, OffsetFetchResponse, OffsetFetch);
    OffsetDelete(OffsetDeleteRequest, OffsetDeleteResponse, OffsetDelete);
    Describe(DescribeGroupsRequest, DescribeGroupsResponse, DescribeGroups);
    List(ListGroupsRequest, ListGroupsResponse, ListGroups);
    DeleteGroups(DeleteGroupsRequest, DeleteGroupsResponse, DeleteGroups);
    DescribeOffsets(DescribeGroupOffsetsRequest, DescribeGroupOffsetsResponse, DescribeGroupOffsets);
}

impl GroupRequest {
    /// The reply that refuses the whole request with `error`, put where the API has a place for it.
    #[must_use]
    pub fn refuse(&self, version: i16, error: ErrorCode) -> GroupReply {
        match self {
            GroupRequest::Join(r) => GroupReply::Join(refuse_join(version, r.member_id.clone(), error)),
            GroupRequest::Sync(_) => GroupReply::Sync(refuse_sync(error)),
            GroupRequest::Heartbeat(_) => {
                GroupReply::Heartbeat(HeartbeatResponse { error_code: error, ..Default::default() })
            }
            GroupRequest::Leave(_) => {
                GroupReply::Leave(LeaveGroupResponse { error_code: error, ..Default::default() })
            }
            GroupRequest::Commit(r) => GroupReply::Commit(refuse_commit(r, error)),
            GroupRequest::Fetch(r) => GroupReply::Fetch(refuse_fetch(r, version, error)),
            GroupRequest::OffsetDelete(_) => {
                GroupReply::OffsetDelete(OffsetDeleteResponse { error_code: error, ..Default::default() })
            }
            GroupRequest::Describe(r) => GroupReply::Describe(refuse_describe(r, error)),
            GroupRequest::List(_) => {
                GroupReply::List(ListGroupsResponse { error_code: error, ..Default::default() })
            }
            GroupRequest::DeleteGroups(r) => GroupReply::DeleteGroups(refuse_delete(r, error)),
            GroupRequest::DescribeOffsets(_) => GroupReply::DescribeOffsets(refuse_describe_offsets(error)),
        }
    }

    /// The reply while the shard loads. Kafka's clients take LOAD_IN_PROGRESS on Heartbeat and SyncGroup for a fatal
    /// error, so the one is told that all is well and the other to join again, as Kafka does.
    #[must_use]
    pub fn refuse_while_loading(&self, version: i16) -> GroupReply {
        let error = match self {
            GroupRequest::Heartbeat(_) => ErrorCode::None,
            GroupRequest::Sync(_) => ErrorCode::RebalanceInProgress,
            GroupRequest::Join(_)
            | GroupRequest::Leave(_)
            | GroupRequest::Commit(_)
            | GroupRequest::Fetch(_)
            | GroupRequest::OffsetDelete(_)
            | GroupRequest::Describe(_)
            | GroupRequest::List(_)
            | GroupRequest::DeleteGroups(_)
            | GroupRequest::DescribeOffsets(_) => ErrorCode::CoordinatorLoadInProgress,
        };
        self.refuse(version, error)
    }
}

impl Completion {
    /// The same completion, but refusing the request with `error`.
    #[must_use]
    pub fn refused(&self, error: ErrorCode) -> Completion {
        Completion { reply: self.reply.refused(self.version, error), ..self.clone() }
    }
}

impl GroupReply {
    /// The same kind of reply, but refusing: for a parked request or one whose append has no known outcome.
    #[must_use]
    pub fn refused(&self, version: i16, error: ErrorCode) -> GroupReply {
        match self {
            GroupReply::Join(r) => GroupReply::Join(refuse_join(version, r.member_id.clone(), error)),
            GroupReply::Sync(_) => GroupReply::Sync(refuse_sync(error)),
            GroupReply::Heartbeat(_) => {
                GroupReply::Heartbeat(HeartbeatResponse { error_code: error, ..Default::default() })
            }
            GroupReply::Leave(_) => {
                GroupReply::Leave(LeaveGroupResponse { error_code: error, ..Default::default() })
            }
            GroupReply::Commit(r) => {
                let mut r = r.clone();
                for partition in r.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
                    partition.error_code = error;
                }
                GroupReply::Commit(r)
            }
            GroupReply::Fetch(r) => GroupReply::Fetch(refused_fetch(r, error)),
            GroupReply::OffsetDelete(_) => {
                GroupReply::OffsetDelete(OffsetDeleteResponse { error_code: error, ..Default::default() })
            }
            GroupReply::Describe(r) => {
                let groups = r.groups.iter().map(|group| refused_group(&group.group_id, error)).collect();
                GroupReply::Describe(DescribeGroupsResponse { throttle_time_ms: 0, groups })
            }
            GroupReply::List(_) => {
                GroupReply::List(ListGroupsResponse { error_code: error, ..Default::default() })
            }
            GroupReply::DeleteGroups(r) => {
                let results = r.results.iter().map(|result| refused_deletion(&result.group_id, error));
                GroupReply::DeleteGroups(DeleteGroupsResponse {
                    throttle_time_ms: 0,
                    results: results.collect(),
                })
            }
            GroupReply::DescribeOffsets(_) => GroupReply::DescribeOffsets(refuse_describe_offsets(error)),
        }
    }
}

/// A join that failed. Versions before 7 cannot say that there is no protocol, only that its name is empty.
pub(crate) fn refuse_join(version: i16, member_id: Str, error: ErrorCode) -> JoinGroupResponse {
    let protocol_name = (version < 7).then(Str::default);
    JoinGroupResponse { error_code: error, member_id, protocol_name, ..Default::default() }
}

pub(crate) fn refuse_sync(error: ErrorCode) -> SyncGroupResponse {
    SyncGroupResponse { error_code: error, ..Default::default() }
}

pub(crate) fn refuse_commit(request: &OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse {
    let topics = request.topics.iter().map(|topic| OffsetCommitResponseTopic {
        name: topic.name.clone(),
        topic_id: topic.topic_id,
        partitions: topic
            .partitions
            .iter()
            .map(|partition| OffsetCommitResponsePartition {
                partition_index: partition.partition_index,
                error_code: error,
            })
            .collect(),
    });
    OffsetCommitResponse { throttle_time_ms: 0, topics: topics.collect() }
}

fn refuse_fetch(request: &OffsetFetchRequest, version: i16, error: ErrorCode) -> OffsetFetchResponse {
    if version >= 8 {
        let groups = request.groups.iter().map(|group| refused_fetch_group(&group.group_id, error));
        return OffsetFetchResponse { groups: groups.collect(), ..Default::default() };
    }
    // Version 1 has no error of the whole request.
    let topics = request.topics.iter().flatten().map(|topic| OffsetFetchResponseTopic {
        name: topic.name.clone(),
        partitions: topic.partition_indexes.iter().map(|index| refused_offset(*index, error)).collect(),
    });
    OffsetFetchResponse { error_code: error, topics: topics.collect(), ..Default::default() }
}

fn refused_fetch(reply: &OffsetFetchResponse, error: ErrorCode) -> OffsetFetchResponse {
    let topics = reply.topics.iter().map(|topic| OffsetFetchResponseTopic {
        name: topic.name.clone(),
        partitions: topic.partitions.iter().map(|p| refused_offset(p.partition_index, error)).collect(),
    });
    let groups = reply.groups.iter().map(|group| refused_fetch_group(&group.group_id, error));
    OffsetFetchResponse {
        throttle_time_ms: 0,
        error_code: error,
        topics: topics.collect(),
        groups: groups.collect(),
    }
}

fn refused_fetch_group(group: &Str, error: ErrorCode) -> OffsetFetchResponseGroup {
    OffsetFetchResponseGroup { group_id: group.clone(), topics: Vec::new(), error_code: error }
}

fn refused_offset(partition_index: i32, error: ErrorCode) -> OffsetFetchResponsePartition {
    OffsetFetchResponsePartition {
        partition_index,
        committed_offset: -1,
        error_code: error,
        ..Default::default()
    }
}

fn refuse_describe(request: &DescribeGroupsRequest, error: ErrorCode) -> DescribeGroupsResponse {
    let groups = request.groups.iter().map(|group| refused_group(group, error));
    DescribeGroupsResponse { throttle_time_ms: 0, groups: groups.collect() }
}

fn refuse_describe_offsets(error: ErrorCode) -> DescribeGroupOffsetsResponse {
    DescribeGroupOffsetsResponse { error_code: error, ..Default::default() }
}

fn refused_group(group: &Str, error: ErrorCode) -> DescribedGroup {
    DescribedGroup { group_id: group.clone(), error_code: error, ..Default::default() }
}

fn refuse_delete(request: &DeleteGroupsRequest, error: ErrorCode) -> DeleteGroupsResponse {
    let results = request.groups_names.iter().map(|group| refused_deletion(group, error));
    DeleteGroupsResponse { throttle_time_ms: 0, results: results.collect() }
}

pub(crate) fn refused_deletion(group: &Str, error: ErrorCode) -> DeletableGroupResult {
    DeletableGroupResult { group_id: group.clone(), error_code: error, error_message: None }
}
