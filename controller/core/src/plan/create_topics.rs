//! New topics: names, counts, placement, and the configs that they start with.

use super::alter_configs::check_topic_configs;
use super::{Decision, Draft, Inputs, check_count, reject};
use crate::placement;
use crate::state::ClusterState;
use crate::topic_name;
use proto_types::config_schema::integer;
use proto_types::controller_api::{CreateTopics, CreatedTopic, NewTopic};
use proto_types::error::{Reason, Rejection};
use proto_types::ids::{LeaderEpoch, NodeId, PartitionEpoch, TopicId};
use proto_types::metadata::{ConfigResource, MetadataChange, PartitionState, topic_partition};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Most replicas of a partition.
pub const REPLICATION_FACTOR_MAX: usize = i16::MAX as usize;

/// One result per topic, in the request's order.
pub type Results = Vec<Result<CreatedTopic, Rejection>>;

/// Plans the creation of topics.
pub fn create_topics(
    state: &ClusterState,
    request: &CreateTopics,
    inputs: &mut Inputs,
) -> Result<Decision<Results>, Rejection> {
    check_count(&inputs.limits, request.topics.len(), "topics")?;
    check_total(state, request, inputs)?;
    let mut draft = Draft::new(state);
    let twice = named_twice(request);
    let results = request
        .topics
        .iter()
        .map(|topic| {
            if twice.contains(topic.name.as_str()) {
                return reject(Reason::InvalidRequest, "Duplicate topic name.");
            }
            let planned = plan_topic(&draft.scratch, topic, inputs)?;
            draft.add(planned.changes);
            Ok(planned.reply)
        })
        .map(|result| {
            result.map(|mut created| {
                if request.validate_only {
                    created.topic = TopicId(Uuid::nil());
                }
                created
            })
        })
        .collect();
    Ok(draft.into_decision(request.validate_only, results))
}

fn named_twice(request: &CreateTopics) -> BTreeSet<&str> {
    let mut seen = BTreeSet::new();
    request.topics.iter().map(|topic| topic.name.as_str()).filter(|name| !seen.insert(*name)).collect()
}

/// Bounds the whole request before anything is planned, so that a hostile one costs nothing.
fn check_total(state: &ClusterState, request: &CreateTopics, inputs: &Inputs) -> Result<(), Rejection> {
    let limits = &inputs.limits;
    let of_topic = |topic: &NewTopic| match topic.partitions {
        _ if !topic.assignments.is_empty() => topic.assignments.len(),
        Some(count) => usize::try_from(count).unwrap_or(0),
        None => default_of(state, "num.partitions"),
    };
    let total = request.topics.iter().map(of_topic).fold(0_usize, usize::saturating_add);
    super::create_partitions::check_new_partitions(state, total, limits)
}

fn default_of(state: &ClusterState, config: &str) -> usize {
    let value = state.configs().cluster_value(config).and_then(integer).unwrap_or(1);
    usize::try_from(value).unwrap_or(1)
}

fn plan_topic(
    state: &ClusterState,
    topic: &NewTopic,
    inputs: &mut Inputs,
) -> Result<Decision<CreatedTopic>, Rejection> {
    let name = topic.name.as_str();
    topic_name::check(name)?;
    topic_name::check_open(name)?;
    if state.topics().id(name).is_some() {
        return reject(Reason::TopicExists, format!("Topic '{name}' already exists."));
    }
    if let Some(other) = state.topics().colliding(name) {
        let message = format!(
            "Topic '{name}' collides with existing topic: {other} (names that differ only in '.' and '_' look the \
             same in metrics)."
        );
        return reject(Reason::InvalidTopicName, message);
    }
    let replicas = replicas_of(state, topic, inputs)?;
    let replication_factor = replicas[0].len();
    let configs = configs_of(state, topic, replication_factor)?;
    let id = fresh_id(state, inputs);
    let mut changes = vec![MetadataChange::TopicCreated { topic: id, name: name.to_owned() }];
    for (index, replicas) in (0_i32..).zip(&replicas) {
        let state = new_partition(state, replicas);
        changes.push(MetadataChange::PartitionSet { partition: topic_partition(id, index), state });
    }
    changes.extend(configs.iter().map(|(name, value)| MetadataChange::ConfigSet {
        resource: ConfigResource::Topic(id),
        name: name.clone(),
        value: Some(value.clone()),
    }));
    let reply = CreatedTopic {
        topic: id,
        partitions: replicas.len() as i32,
        replication_factor: replication_factor as i16,
        configs: configs.into_iter().collect(),
    };
    Ok(Decision { changes, reply })
}

/// An id that no topic has.
pub(super) fn fresh_id(state: &ClusterState, inputs: &mut Inputs) -> TopicId {
    loop {
        let id = inputs.chance.topic_id();
        if state.topics().name(id).is_none() {
            return id;
        }
    }
}

/// The replicas of each partition: assigned by the client, or placed. Never empty.
fn replicas_of(
    state: &ClusterState,
    topic: &NewTopic,
    inputs: &mut Inputs,
) -> Result<Vec<Vec<NodeId>>, Rejection> {
    if !topic.assignments.is_empty() {
        return assigned(state, topic);
    }
    let partitions = match topic.partitions {
        Some(count) if count <= 0 => {
            let message = "Number of partitions was set to an invalid non-positive value.";
            return reject(Reason::InvalidPartitions, message);
        }
        Some(count) => count as usize,
        None => default_of(state, "num.partitions"),
    };
    let replication_factor = match topic.replication_factor {
        Some(factor) if factor <= 0 => {
            let message = "Replication factor must be larger than 0, or -1 to use the default value.";
            return reject(Reason::InvalidReplicationFactor, message);
        }
        Some(factor) => factor as usize,
        None => default_of(state, "default.replication.factor"),
    };
    placement::place(state.nodes(), partitions, replication_factor, &mut inputs.chance)
}

fn assigned(state: &ClusterState, topic: &NewTopic) -> Result<Vec<Vec<NodeId>>, Rejection> {
    let only = "A manual partition assignment was specified, but";
    if topic.partitions.is_some() {
        return reject(Reason::InvalidRequest, format!("{only} numPartitions was not set to -1."));
    }
    if topic.replication_factor.is_some() {
        return reject(Reason::InvalidRequest, format!("{only} replication factor was not set to -1."));
    }
    let by_index: BTreeMap<i32, &Vec<NodeId>> =
        topic.assignments.iter().map(|(index, replicas)| (index.0, replicas)).collect();
    if by_index.len() != topic.assignments.len() || !by_index.keys().copied().eq(0..by_index.len() as i32) {
        let message = "partitions should be a consecutive 0-based integer sequence";
        return reject(Reason::InvalidReplicaAssignment, message);
    }
    let mut factor = None;
    for (index, replicas) in &by_index {
        check_assignment(state, *index, replicas, factor)?;
        factor = Some(replicas.len());
    }
    Ok(by_index.into_values().cloned().collect())
}

/// Checks one new partition's replicas as a client gave them; `factor` is how many the partitions before it have.
pub(super) fn check_assignment(
    state: &ClusterState,
    index: i32,
    replicas: &[NodeId],
    factor: Option<usize>,
) -> Result<(), Rejection> {
    check_replicas(state, index, replicas, factor)?;
    if replicas.iter().any(|node| state.nodes().is_active(*node)) {
        return Ok(());
    }
    let message = format!(
        "All brokers specified in the manual partition assignment for partition {index} are fenced or in controlled \
         shutdown. Start one of them, or name one that runs: weir cluster status lists them."
    );
    reject(Reason::InvalidReplicaAssignment, message)
}

/// Checks a list of replicas, whether alive or not.
pub(super) fn check_replicas(
    state: &ClusterState,
    index: i32,
    replicas: &[NodeId],
    factor: Option<usize>,
) -> Result<(), Rejection> {
    let problem = if replicas.is_empty() {
        "The manual partition assignment includes an empty replica list.".to_owned()
    } else if let Some(factor) = factor.filter(|factor| *factor != replicas.len()) {
        format!(
            "The manual partition assignment includes a partition with {} replica(s), but this is not consistent \
             with previous partitions, which have {factor} replica(s).",
            replicas.len()
        )
    } else if replicas.len() > REPLICATION_FACTOR_MAX {
        format!("The manual partition assignment for partition {index} has too many replicas.")
    } else {
        let mut seen = BTreeSet::new();
        if let Some(node) = replicas.iter().find(|node| state.nodes().get(**node).is_none()) {
            format!(
                "The manual partition assignment includes broker {node}, but no such broker is registered. \
                 Choose among those that weir cluster status lists."
            )
        } else if let Some(node) = replicas.iter().find(|node| !seen.insert(**node)) {
            format!("The manual partition assignment includes the broker {node} more than once.")
        } else {
            return Ok(());
        }
    };
    reject(Reason::InvalidReplicaAssignment, problem)
}

/// A partition's first state: in sync are the replicas that are alive, and the first of them leads.
pub(super) fn new_partition(state: &ClusterState, replicas: &[NodeId]) -> PartitionState {
    let isr: Vec<NodeId> = replicas.iter().copied().filter(|node| state.nodes().is_active(*node)).collect();
    PartitionState {
        replicas: replicas.to_vec(),
        adding: Vec::new(),
        removing: Vec::new(),
        leader: isr.first().copied(),
        isr,
        elr: Vec::new(),
        leader_epoch: LeaderEpoch(0),
        partition_epoch: PartitionEpoch(0),
    }
}

/// The explicit configs: the client's, and the stricter minimum of in-sync replicas that replicated topics start with.
fn configs_of(
    state: &ClusterState,
    topic: &NewTopic,
    replication_factor: usize,
) -> Result<BTreeMap<String, String>, Rejection> {
    let mut configs = BTreeMap::new();
    for (name, value) in &topic.configs {
        let Some(value) = value else {
            let message = format!("Null value not supported for topic configs: {}", name.escape_debug());
            return reject(Reason::InvalidConfig, message);
        };
        if configs.insert(name.clone(), value.clone()).is_some() {
            let message = format!("Config {} is given twice.", name.escape_debug());
            return reject(Reason::InvalidRequest, message);
        }
    }
    check_topic_configs(&configs)?;
    let name = "min.insync.replicas";
    let chosen =
        configs.contains_key(name) || state.configs().get(&ConfigResource::NodeDefault, name).is_some();
    if replication_factor >= 3 && !chosen {
        configs.insert(name.to_owned(), "2".to_owned());
    }
    Ok(configs)
}
