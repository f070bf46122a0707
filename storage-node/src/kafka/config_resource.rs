//! Which of our config resources a client means: the three config APIs name them the same way.

use super::error_code::KafkaError;
use kafka_wire_core::{ErrorCode, Str};
use proto_types::controller_api::ResourceRef;
use proto_types::ids::NodeId;
use proto_types::metadata::ConfigResource;

/// Kafka's numbers of resource types.
pub(crate) mod resource_type {
    pub(crate) const TOPIC: i8 = 2;
    pub(crate) const BROKER: i8 = 4;
    pub(crate) const BROKER_LOGGER: i8 = 8;
    pub(crate) const CLIENT_METRICS: i8 = 16;
    pub(crate) const GROUP: i8 = 32;
}

/// Reads a resource as a client names it.
pub(crate) fn parse(kind: i8, name: &Str) -> Result<ResourceRef, KafkaError> {
    let invalid = |message: String| Err(KafkaError::new(ErrorCode::InvalidRequest, message));
    match kind {
        resource_type::TOPIC if name.is_empty() => {
            invalid("Default topic resources are not allowed.".to_owned())
        }
        resource_type::TOPIC => Ok(ResourceRef::Topic(name.to_string())),
        resource_type::BROKER if name.is_empty() => Ok(ResourceRef::Resource(ConfigResource::NodeDefault)),
        resource_type::BROKER => match name.parse::<i32>() {
            Ok(id) => Ok(ResourceRef::Resource(ConfigResource::Node(NodeId(id)))),
            Err(_) => invalid(format!("Broker id must be an integer, but it is: {}", name.escape_debug())),
        },
        resource_type::BROKER_LOGGER | resource_type::CLIENT_METRICS | resource_type::GROUP => {
            invalid(format!("Configs of resource type {} are not served by this version.", type_name(kind)))
        }
        other => invalid(format!("Unknown resource type {other}")),
    }
}

fn type_name(kind: i8) -> &'static str {
    match kind {
        resource_type::BROKER_LOGGER => "BROKER_LOGGER",
        resource_type::CLIENT_METRICS => "CLIENT_METRICS",
        resource_type::GROUP => "GROUP",
        _ => "UNKNOWN",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_read_as_kafka_names_them() {
        let topic = parse(resource_type::TOPIC, &"t".into());
        assert_eq!(topic, Ok(ResourceRef::Topic("t".into())));
        let node = parse(resource_type::BROKER, &"3".into());
        assert_eq!(node, Ok(ResourceRef::Resource(ConfigResource::Node(NodeId(3)))));
        let all = parse(resource_type::BROKER, &"".into());
        assert_eq!(all, Ok(ResourceRef::Resource(ConfigResource::NodeDefault)));
        for (kind, name) in [(2, ""), (4, "x"), (8, "1"), (16, "m"), (32, "g"), (0, "t"), (99, "t")] {
            let error = parse(kind, &name.into()).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidRequest, "{kind} {name}");
        }
    }
}
