//! What AlterConfigs and IncrementalAlterConfigs share: the question to the controller, and one answer per resource.

use super::config_resource;
use super::error_code::KafkaError;
use crate::node::Node;
use kafka_wire_core::{ErrorCode, Str};
use proto_types::controller_api::{
    AlterConfigs, AlterResource, ConfigOp, ControllerReply, ControllerRequest,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// The changes of one resource, as a client asks for them.
#[derive(Debug)]
pub(crate) struct ResourceChanges {
    /// Kafka's number of the type.
    pub(crate) kind: i8,
    /// Kafka's name of the resource.
    pub(crate) name: Str,
    /// Whether everything that is not named goes back to its default.
    pub(crate) replace_all: bool,
    /// What to do, or why that cannot be asked at all.
    pub(crate) ops: Result<Vec<ConfigOp>, KafkaError>,
}

/// The answer for one resource.
#[derive(Debug)]
pub(crate) struct ResourceOutcome {
    pub(crate) kind: i8,
    pub(crate) name: Str,
    pub(crate) error_code: ErrorCode,
    pub(crate) error_message: Option<Str>,
}

/// Asks the controller to make the changes (or only to check them). One outcome per resource, in order.
pub(crate) async fn alter(
    node: &Node,
    changes: Vec<ResourceChanges>,
    validate_only: bool,
) -> Vec<ResourceOutcome> {
    let mut counts: BTreeMap<(i8, Str), usize> = BTreeMap::new();
    for change in &changes {
        *counts.entry((change.kind, change.name.clone())).or_default() += 1;
    }
    let mut outcomes: Vec<(i8, Str, Result<(), KafkaError>)> = Vec::new();
    let mut asked = Vec::new();
    let mut resources = Vec::new();
    for ResourceChanges { kind, name, replace_all, ops } in changes {
        let unique = counts.get(&(kind, name.clone())) == Some(&1);
        match checked(kind, &name, unique, replace_all, ops) {
            Ok(resource) => {
                asked.push(outcomes.len());
                resources.push(resource);
                outcomes.push((kind, name, Ok(())));
            }
            Err(error) => outcomes.push((kind, name, Err(error))),
        }
    }
    if !resources.is_empty() {
        for (at, result) in asked.iter().zip(ask(node, resources, validate_only).await) {
            outcomes[*at].2 = result;
        }
    }
    let outcome = |(kind, name, result): (i8, Str, Result<(), KafkaError>)| {
        let (error_code, error_message) = match result {
            Ok(()) => (ErrorCode::None, None),
            Err(error) => (error.code, Some(error.message)),
        };
        ResourceOutcome { kind, name, error_code, error_message }
    };
    outcomes.into_iter().map(outcome).collect()
}

fn checked(
    kind: i8,
    name: &Str,
    unique: bool,
    replace_all: bool,
    ops: Result<Vec<ConfigOp>, KafkaError>,
) -> Result<AlterResource, KafkaError> {
    if !unique {
        let message = Str::from_static("Each resource must appear at most once.");
        return Err(KafkaError::new(ErrorCode::InvalidRequest, message));
    }
    Ok(AlterResource { resource: config_resource::parse(kind, name)?, replace_all, ops: ops? })
}

async fn ask(node: &Node, resources: Vec<AlterResource>, validate_only: bool) -> Vec<Result<(), KafkaError>> {
    let count = resources.len();
    // These requests carry no time-out of their own.
    let timeout = Duration::from_millis(node.request_timeout_ms());
    let question = ControllerRequest::AlterConfigs(AlterConfigs {
        resources,
        validate_only,
        timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
    });
    match node.ask_controller(question, timeout).await {
        Ok(ControllerReply::ConfigsAltered(results)) if results.len() == count => {
            results.into_iter().map(|result| result.map_err(KafkaError::from)).collect()
        }
        Ok(other) => vec![Err(Node::unexpected_reply(&other)); count],
        Err(error) => vec![Err(error); count],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_node::{TestNode, live_node};
    use proto_types::controller_api::{ConfigOpKind, ResourceRef};
    use proto_types::error::{Reason, Rejection};

    fn changes(kind: i8, name: &str, value: &str) -> ResourceChanges {
        let op = ConfigOp { name: "retention.ms".into(), kind: ConfigOpKind::Set, value: Some(value.into()) };
        ResourceChanges { kind, name: name.into(), replace_all: false, ops: Ok(vec![op]) }
    }

    #[tokio::test]
    async fn outcomes_come_in_order_whoever_decided_them() {
        let test = TestNode::with(&[], &live_node(1), |request| {
            let ControllerRequest::AlterConfigs(alter) = request else { panic!("{request:?}") };
            let results = alter.resources.iter().map(|resource| match resource.ops[0].value.as_deref() {
                Some("-5") => Err(Rejection { reason: Reason::InvalidConfig, message: "at least -1".into() }),
                _ => Ok(()),
            });
            Ok(ControllerReply::ConfigsAltered(results.collect()))
        });
        let asked = vec![
            changes(4, "x", "1"),
            changes(2, "a", "1"),
            changes(2, "b", "-5"),
            changes(2, "c", "1"),
            changes(2, "c", "2"),
            changes(4, "", "1"),
        ];
        let outcomes = alter(&test.node, asked, true).await;
        let codes: Vec<(&str, ErrorCode)> =
            outcomes.iter().map(|outcome| (&*outcome.name, outcome.error_code)).collect();
        let expected = [
            ("x", ErrorCode::InvalidRequest),
            ("a", ErrorCode::None),
            ("b", ErrorCode::InvalidConfig),
            ("c", ErrorCode::InvalidRequest),
            ("c", ErrorCode::InvalidRequest),
            ("", ErrorCode::None),
        ];
        assert_eq!(codes, expected);
        let questions = test.controller.asked.lock();
        let [ControllerRequest::AlterConfigs(alter)] = &questions[..] else { panic!("{questions:?}") };
        assert!(alter.validate_only);
        assert_eq!(alter.resources[0].resource, ResourceRef::Topic("a".into()));
        assert_eq!(alter.resources.len(), 3);
    }

    #[tokio::test]
    async fn nothing_is_asked_when_nothing_is_left() {
        let test = TestNode::new(&live_node(1));
        assert!(alter(&test.node, vec![], false).await.is_empty());
        let outcomes = alter(&test.node, vec![changes(4, "x", "1")], false).await;
        assert_eq!(outcomes.len(), 1);
    }
}
