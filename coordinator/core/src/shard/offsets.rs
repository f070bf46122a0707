//! OffsetCommit, OffsetFetch, OffsetDelete, DescribeGroupOffsets.
//!
//! Offsets are stored under the topic's name, as Kafka does, with the topic's id beside it: an offset that was committed to
//! a topic of the same name that is gone is not handed out for the new one.

use kafka_wire_core::messages::describe_group_offsets::{
    DescribeGroupOffsetsRequest, DescribeGroupOffsetsResponse, DescribedGroupOffset,
    DescribedGroupOffsetsTopic,
};
use kafka_wire_core::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse,
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_wire_core::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestTopic, OffsetDeleteResponse, OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
};
use kafka_wire_core::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup, OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions, OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_wire_core::{ErrorCode, Str};
use uuid::Uuid;

use super::join::check_member;
use super::{STORED_TEXT_MAX, Shard, Turn, reply};
use crate::group::{ClassicGroup, GroupState, Parked};
use crate::request::{Decision, GroupReply, Now, RequestContext, Topic, TopicImage, refuse_commit};
use crate::stored::{OffsetCommitKey, OffsetCommitValue, Record};

/// From this version topics are named by id.
const TOPIC_IDS: i16 = 10;
/// From this version several groups are asked for at once (KIP-709).
const SEVERAL_GROUPS: i16 = 8;
/// From this version an unknown group is an error of its own (KIP-848).
const GROUP_ID_NOT_FOUND: i16 = 9;

/// What a group has committed to one topic.
struct Committed<'a> {
    name: &'a Str,
    /// None if the cluster has no topic of this name.
    topic: Option<Topic>,
    offsets: Vec<(i32, &'a OffsetCommitValue)>,
}

impl Shard {
    pub(super) fn offset_commit(
        &mut self,
        now: Now,
        context: &RequestContext,
        request: &OffsetCommitRequest,
        topics: &dyn TopicImage,
    ) -> Decision {
        if let Err(error) = self.check_commit_group(context, request) {
            let response = refuse_commit(request, error);
            return reply(context, Some(request.group_id.clone()), GroupReply::Commit(response));
        }
        let parked = Parked { token: context.token, version: context.api_version };
        self.turn(now, &request.group_id, |turn, group| {
            let response = match turn.check_commit(group, request) {
                Err(error) => refuse_commit(request, error),
                Ok(()) => turn.commit(group, request, parked.version, topics),
            };
            turn.complete(&group.id, parked, GroupReply::Commit(response));
        })
    }

    fn check_commit_group(
        &self,
        context: &RequestContext,
        request: &OffsetCommitRequest,
    ) -> Result<(), ErrorCode> {
        if request.group_id.len() > STORED_TEXT_MAX {
            return Err(ErrorCode::InvalidGroupId);
        }
        if self.knows(&request.group_id) {
            return Ok(());
        }
        // A group without members begins with its first commit.
        match request.generation_id_or_member_epoch {
            generation if generation < 0 => match self.state.group_count() < self.config.groups_max {
                true => Ok(()),
                false => Err(ErrorCode::PolicyViolation),
            },
            _ if context.api_version >= GROUP_ID_NOT_FOUND => Err(ErrorCode::GroupIdNotFound),
            _ => Err(ErrorCode::IllegalGeneration),
        }
    }

    pub(super) fn offset_fetch(
        &self,
        context: &RequestContext,
        request: &OffsetFetchRequest,
        topics: &dyn TopicImage,
    ) -> Decision {
        let by_id = context.api_version >= TOPIC_IDS;
        if context.api_version >= SEVERAL_GROUPS {
            let groups = request.groups.iter().map(|group| OffsetFetchResponseGroup {
                group_id: group.group_id.clone(),
                topics: match &group.topics {
                    Some(wanted) => {
                        let wanted = wanted.iter().map(|topic| {
                            (topic.name.clone(), topic.topic_id, topic.partition_indexes.as_slice())
                        });
                        self.fetch(&group.group_id, by_id, wanted, topics)
                    }
                    None => self.fetch_all(&group.group_id, by_id, topics),
                },
                error_code: ErrorCode::None,
            });
            let response = OffsetFetchResponse { groups: groups.collect(), ..OffsetFetchResponse::default() };
            let group = match request.groups.as_slice() {
                [group] => Some(group.group_id.clone()),
                _ => None,
            };
            return reply(context, group, GroupReply::Fetch(response));
        }
        let fetched = match &request.topics {
            Some(wanted) => {
                let wanted = wanted
                    .iter()
                    .map(|topic| (topic.name.clone(), Uuid::nil(), topic.partition_indexes.as_slice()));
                self.fetch(&request.group_id, false, wanted, topics)
            }
            None => self.fetch_all(&request.group_id, false, topics),
        };
        let topics = fetched.into_iter().map(single_group_topic).collect();
        let response = OffsetFetchResponse { topics, ..OffsetFetchResponse::default() };
        reply(context, Some(request.group_id.clone()), GroupReply::Fetch(response))
    }

    fn fetch<'r>(
        &self,
        group: &Str,
        by_id: bool,
        wanted: impl Iterator<Item = (Str, Uuid, &'r [i32])>,
        topics: &dyn TopicImage,
    ) -> Vec<OffsetFetchResponseTopics> {
        wanted
            .map(|(name, topic_id, indexes)| {
                let topic = if by_id { topics.by_id(topic_id) } else { topics.by_name(&name) };
                let unknown_id = by_id && topic.is_none();
                let name = topic.as_ref().map_or(name, |topic| topic.name.clone());
                let partitions = indexes.iter().map(|&index| {
                    let stored = self.state.offset(group, &name, index);
                    let stored = stored.filter(|value| !unknown_id && is_of(value, topic.as_ref()));
                    let error = if unknown_id { ErrorCode::UnknownTopicId } else { ErrorCode::None };
                    fetched(index, stored, error)
                });
                let partitions = partitions.collect();
                OffsetFetchResponseTopics { name: name_or_nothing(by_id, name), topic_id, partitions }
            })
            .collect()
    }

    fn fetch_all(&self, group: &Str, by_id: bool, topics: &dyn TopicImage) -> Vec<OffsetFetchResponseTopics> {
        let committed = self.committed(group, topics).into_iter();
        // Without an id there is no way to name the topic.
        let nameable = committed.filter(|committed| !by_id || committed.topic.is_some());
        let answers = nameable.map(|Committed { name, topic, offsets }| {
            let partitions =
                offsets.into_iter().map(|(index, value)| fetched(index, Some(value), ErrorCode::None));
            OffsetFetchResponseTopics {
                name: name_or_nothing(by_id, name.clone()),
                topic_id: topic.filter(|_| by_id).map_or(Uuid::nil(), |topic| topic.id),
                partitions: partitions.collect(),
            }
        });
        answers.collect()
    }

    /// What the group has committed to topics as they are now, by topic.
    fn committed(&self, group: &Str, topics: &dyn TopicImage) -> Vec<Committed<'_>> {
        let mut all: Vec<Committed<'_>> = Vec::new();
        for ((name, index), value) in self.state.offsets(group) {
            if all.last().is_none_or(|last| last.name != name) {
                all.push(Committed { name, topic: topics.by_name(name), offsets: Vec::new() });
            }
            if let Some(last) = all.last_mut()
                && is_of(value, last.topic.as_ref())
            {
                last.offsets.push((*index, value));
            }
        }
        all.retain(|committed| !committed.offsets.is_empty());
        all
    }

    pub(super) fn describe_group_offsets(
        &self,
        now: Now,
        context: &RequestContext,
        request: &DescribeGroupOffsetsRequest,
        topics: &dyn TopicImage,
    ) -> Decision {
        let group = &request.group_id;
        let known = self.knows(group);
        let described = self.committed(group, topics).into_iter().map(|committed| {
            let partitions = committed.offsets.into_iter().map(|(index, value)| DescribedGroupOffset {
                partition_index: index,
                committed_offset: value.offset,
                commit_time_ms: value.commit_timestamp,
            });
            DescribedGroupOffsetsTopic { name: committed.name.clone(), partitions: partitions.collect() }
        });
        let response = DescribeGroupOffsetsResponse {
            throttle_time_ms: 0,
            error_code: if known { ErrorCode::None } else { ErrorCode::GroupIdNotFound },
            current_time_ms: now.wall,
            topics: described.collect(),
        };
        reply(context, Some(group.clone()), GroupReply::DescribeOffsets(response))
    }

    pub(super) fn offset_delete(
        &mut self,
        now: Now,
        context: &RequestContext,
        request: &OffsetDeleteRequest,
        topics: &dyn TopicImage,
    ) -> Decision {
        let refused = |error_code| {
            let response = OffsetDeleteResponse { error_code, ..OffsetDeleteResponse::default() };
            reply(context, Some(request.group_id.clone()), GroupReply::OffsetDelete(response))
        };
        if request.group_id.is_empty() {
            return refused(ErrorCode::InvalidGroupId);
        }
        if !self.knows(&request.group_id) {
            return refused(ErrorCode::GroupIdNotFound);
        }
        let parked = Parked { token: context.token, version: context.api_version };
        self.turn(now, &request.group_id, |turn, group| {
            let response = if group.state != GroupState::Empty && !group.is_consumer_group() {
                OffsetDeleteResponse {
                    error_code: ErrorCode::NonEmptyGroup,
                    ..OffsetDeleteResponse::default()
                }
            } else {
                let answers = request.topics.iter().map(|topic| turn.delete_offsets(group, topic, topics));
                OffsetDeleteResponse { topics: answers.collect(), ..OffsetDeleteResponse::default() }
            };
            turn.complete(&group.id, parked, GroupReply::OffsetDelete(response));
        })
    }
}

impl Turn<'_> {
    fn check_commit(
        &mut self,
        group: &mut ClassicGroup,
        request: &OffsetCommitRequest,
    ) -> Result<(), ErrorCode> {
        let generation = request.generation_id_or_member_epoch;
        if generation < 0 && group.state == GroupState::Empty {
            return Ok(());
        }
        let claims_membership =
            generation >= 0 || !request.member_id.is_empty() || request.group_instance_id.is_some();
        if !claims_membership {
            // The group has members, and the offsets are theirs.
            return Err(ErrorCode::UnknownMemberId);
        }
        check_member(group, &request.member_id, request.group_instance_id.as_ref())?;
        if generation != group.generation && !cfg!(weir_planted_bug = "B26") {
            return Err(ErrorCode::IllegalGeneration);
        }
        match group.state {
            GroupState::CompletingRebalance => Err(ErrorCode::RebalanceInProgress),
            GroupState::Empty => Ok(()),
            GroupState::PreparingRebalance | GroupState::Stable => {
                // A member that commits lives.
                self.renew_session(group, &request.member_id.detach());
                Ok(())
            }
        }
    }

    fn commit(
        &mut self,
        group: &ClassicGroup,
        request: &OffsetCommitRequest,
        version: i16,
        topics: &dyn TopicImage,
    ) -> OffsetCommitResponse {
        let expire_timestamp = match request.retention_time_ms {
            retention if retention >= 0 => self.now.wall.saturating_add(retention),
            _ => -1,
        };
        let answers = request.topics.iter().map(|wanted| {
            let topic = match version >= TOPIC_IDS {
                true => topics.by_id(wanted.topic_id),
                false => topics.by_name(&wanted.name),
            };
            self.commit_topic(group, wanted, topic, version, expire_timestamp)
        });
        OffsetCommitResponse { throttle_time_ms: 0, topics: answers.collect() }
    }

    fn commit_topic(
        &mut self,
        group: &ClassicGroup,
        wanted: &OffsetCommitRequestTopic,
        topic: Option<Topic>,
        version: i16,
        expire_timestamp: i64,
    ) -> OffsetCommitResponseTopic {
        let partitions = wanted.partitions.iter().map(|partition| {
            let error_code = match &topic {
                None if version >= TOPIC_IDS => ErrorCode::UnknownTopicId,
                None => ErrorCode::UnknownTopicOrPartition,
                Some(topic) => self.commit_partition(group, partition, topic, expire_timestamp),
            };
            OffsetCommitResponsePartition { partition_index: partition.partition_index, error_code }
        });
        let partitions = partitions.collect();
        OffsetCommitResponseTopic { name: wanted.name.clone(), topic_id: wanted.topic_id, partitions }
    }

    fn commit_partition(
        &mut self,
        group: &ClassicGroup,
        partition: &OffsetCommitRequestPartition,
        topic: &Topic,
        expire_timestamp: i64,
    ) -> ErrorCode {
        let index = partition.partition_index;
        if !(0..topic.partitions).contains(&index) {
            return ErrorCode::UnknownTopicOrPartition;
        }
        let metadata = partition.committed_metadata.clone().unwrap_or_default();
        if is_too_long(&metadata, self.config.offset_metadata_max_bytes) {
            return ErrorCode::OffsetMetadataTooLarge;
        }
        if self.state.offset(&group.id, &topic.name, index).is_none()
            && self.state.offset_count(&group.id) >= self.config.group_offsets_max
        {
            return ErrorCode::PolicyViolation;
        }
        // The version that carries an expiry carries neither epoch nor id.
        let expires = expire_timestamp != -1;
        let value = OffsetCommitValue {
            offset: partition.committed_offset,
            leader_epoch: if expires { -1 } else { partition.committed_leader_epoch },
            metadata,
            commit_timestamp: self.now.wall,
            expire_timestamp,
            topic_id: if expires { Uuid::nil() } else { topic.id },
        };
        let key = OffsetCommitKey { group: group.id.clone(), topic: topic.name.clone(), partition: index };
        self.write(Record::Offset(key, Some(value)));
        ErrorCode::None
    }

    fn delete_offsets(
        &mut self,
        group: &ClassicGroup,
        wanted: &OffsetDeleteRequestTopic,
        topics: &dyn TopicImage,
    ) -> OffsetDeleteResponseTopic {
        let subscribed = group.state != GroupState::Empty && group.may_subscribe(&wanted.name);
        let existing = topics.by_name(&wanted.name).map_or(0..0, |topic| 0..topic.partitions);
        let partitions = wanted.partitions.iter().map(|partition| {
            let index = partition.partition_index;
            let error_code = match existing.contains(&index) {
                false => ErrorCode::UnknownTopicOrPartition,
                true if subscribed => ErrorCode::GroupSubscribedToTopic,
                true => ErrorCode::None,
            };
            if error_code == ErrorCode::None && self.state.offset(&group.id, &wanted.name, index).is_some() {
                let key =
                    OffsetCommitKey { group: group.id.clone(), topic: wanted.name.clone(), partition: index };
                self.write(Record::Offset(key, None));
            }
            OffsetDeleteResponsePartition { partition_index: index, error_code }
        });
        let partitions = partitions.collect();
        OffsetDeleteResponseTopic { name: wanted.name.clone(), partitions }
    }
}

/// Kafka counts UTF-16 units; the stored form counts bytes.
fn is_too_long(metadata: &str, max: usize) -> bool {
    metadata.len() > STORED_TEXT_MAX || (metadata.len() > max && metadata.encode_utf16().count() > max)
}

/// Whether the offset was committed to this very topic, as far as one can tell.
fn is_of(value: &OffsetCommitValue, topic: Option<&Topic>) -> bool {
    topic.is_none_or(|topic| value.topic_id.is_nil() || topic.id.is_nil() || value.topic_id == topic.id)
}

fn name_or_nothing(by_id: bool, name: Str) -> Str {
    if by_id { Str::default() } else { name }
}

fn fetched(
    partition_index: i32,
    stored: Option<&OffsetCommitValue>,
    error_code: ErrorCode,
) -> OffsetFetchResponsePartitions {
    OffsetFetchResponsePartitions {
        partition_index,
        committed_offset: stored.map_or(-1, |value| value.offset),
        committed_leader_epoch: stored.map_or(-1, |value| value.leader_epoch),
        metadata: Some(stored.map(|value| value.metadata.clone()).unwrap_or_default()),
        error_code,
    }
}

fn single_group_topic(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic {
    let partitions = topic.partitions.into_iter().map(|partition| OffsetFetchResponsePartition {
        partition_index: partition.partition_index,
        committed_offset: partition.committed_offset,
        committed_leader_epoch: partition.committed_leader_epoch,
        metadata: partition.metadata,
        error_code: partition.error_code,
    });
    OffsetFetchResponseTopic { name: topic.name, partitions: partitions.collect() }
}
