//! ApiVersions, answered from the table: the one request that is answered even when its version is unknown.
//!
//! A version that is too new gets a v0 response with UNSUPPORTED_VERSION and the range of ApiVersions, its body unread
//! (KIP-511), so that the client can step down. From v3 on the client names its software; a bad name is INVALID_REQUEST.
//! Produce is announced from version 0 as Kafka 4 announces it: old librdkafka compares that range literally. Requests of
//! those versions close the connection, as they do there. Weir's own APIs are told to clients that call themselves `weir`.

use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;
use kafka_wire_core::messages::api_versions::{
    ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey,
};
use kafka_wire_core::{ApiKey, ErrorCode, Message, Reader, RequestHeader, Str};

use crate::close_reason::CloseReason;
use crate::dispatch::{ApiTable, Outcome, Place, RequestContext, decode, encode};

pub(crate) const KEY: i16 = ApiKey::ApiVersions as i16;
pub(crate) const NAME: &str = "ApiVersions";
/// Versions of a server that does not know its own place in a cluster.
const VERSIONS_ANONYMOUS: RangeInclusive<i16> = 0..=4;
/// The software name of Weir's own clients.
pub(crate) const WEIR_SOFTWARE: &str = "weir";
/// First version in which the client names its software.
const SOFTWARE_VERSION_MIN: i16 = 3;
/// First version whose clients understand a feature that may be at level 0.
const FEATURES_FROM_0_VERSION_MIN: i16 = 4;

/// What a client calls itself (KIP-511). Both parts match `[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSoftware {
    /// For instance `apache-kafka-java`.
    pub name: String,
    /// For instance `4.4.0`.
    pub version: String,
}

/// Which node of which cluster a server is, for clients that tell whom they mean to talk to (KIP-1242).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerIdentity {
    pub(crate) cluster_id: String,
    pub(crate) node_id: i32,
}

impl ServerIdentity {
    /// Whether the client means another cluster, or another node of this one.
    fn is_misrouted(&self, request: &ApiVersionsRequest) -> bool {
        let other = |cluster_id: &str| cluster_id != self.cluster_id || request.node_id != self.node_id;
        request.cluster_id.as_deref().is_some_and(other)
    }
}

/// The cluster's features as ApiVersions tells them (KIP-584).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Features {
    /// Name, lowest and highest level of what this server could do. A feature that begins at level 0 is told from v4 on.
    pub supported: Vec<(String, i16, i16)>,
    /// Name and level of what the cluster has switched on.
    pub finalized: Vec<(String, i16)>,
    /// Grows with each change of `finalized`.
    pub epoch: i64,
}

/// The versions that are served: those in which a client names its node only when the server can check it.
pub(crate) fn versions(identity: Option<&ServerIdentity>) -> RangeInclusive<i16> {
    match identity {
        Some(_) => ApiVersionsRequest::VERSIONS,
        None => VERSIONS_ANONYMOUS,
    }
}

/// Answers the request in `frame`.
pub(crate) fn answer<S>(
    table: &ApiTable<S>,
    connection: &mut RequestContext,
    frame: Bytes,
    version: i16,
) -> Result<Outcome, CloseReason> {
    let versions = versions(table.identity());
    let mut body = Reader::new(frame);
    let header =
        RequestHeader::decode(&mut body).map_err(|error| CloseReason::MalformedHeader(error.to_string()))?;
    let place = Place { api: NAME, version, correlation_id: header.correlation_id };
    if !versions.contains(&version) {
        let response = ApiVersionsResponse {
            error_code: ErrorCode::UnsupportedVersion,
            api_keys: vec![entry(KEY, &versions)],
            ..ApiVersionsResponse::default()
        };
        return Ok(encode::<ApiVersionsRequest>(&response, Place { version: 0, ..place }));
    }
    let request = decode::<ApiVersionsRequest>(body, place)?;
    if version >= SOFTWARE_VERSION_MIN {
        let (name, software_version) = (&*request.client_software_name, &*request.client_software_version);
        if !is_software_word(name) || !is_software_word(software_version) {
            return Ok(refusal(ErrorCode::InvalidRequest, place));
        }
        connection.software =
            Some(Arc::new(ClientSoftware { name: name.to_owned(), version: software_version.to_owned() }));
    }
    if table.identity().is_some_and(|identity| identity.is_misrouted(&request)) {
        return Ok(refusal(ErrorCode::RebootstrapRequired, place));
    }
    let own_client = connection.software.as_ref().is_some_and(|software| software.name == WEIR_SOFTWARE);
    let api_keys = table
        .ranges()
        .into_iter()
        .filter(|(key, _)| *key < ApiKey::OWN_MIN || own_client)
        .map(|(key, versions)| entry(key, &versions))
        .collect();
    let response = ApiVersionsResponse { api_keys, ..feature_fields(table.features(), version) };
    Ok(encode::<ApiVersionsRequest>(&response, place))
}

fn refusal(error_code: ErrorCode, place: Place) -> Outcome {
    let response = ApiVersionsResponse { error_code, ..ApiVersionsResponse::default() };
    encode::<ApiVersionsRequest>(&response, place)
}

/// The response with only its features filled in; all at their defaults, which are not written, when there are none.
fn feature_fields(features: Option<Features>, version: i16) -> ApiVersionsResponse {
    let Some(features) = features else { return ApiVersionsResponse::default() };
    let told = |min: i16| min > 0 || version >= FEATURES_FROM_0_VERSION_MIN;
    ApiVersionsResponse {
        supported_features: features
            .supported
            .iter()
            .filter(|(_, min, _)| told(*min))
            .map(|(name, min, max)| SupportedFeatureKey {
                name: Str::from(name),
                min_version: *min,
                max_version: *max,
            })
            .collect(),
        finalized_features_epoch: features.epoch,
        finalized_features: features
            .finalized
            .iter()
            .map(|(name, level)| FinalizedFeatureKey {
                name: Str::from(name),
                max_version_level: *level,
                min_version_level: *level,
            })
            .collect(),
        ..ApiVersionsResponse::default()
    }
}

fn entry(key: i16, versions: &RangeInclusive<i16>) -> ApiVersion {
    let announced_min = if key == ApiKey::Produce as i16 { 0 } else { *versions.start() };
    ApiVersion { api_key: key, min_version: announced_min, max_version: *versions.end() }
}

/// Letters, digits, `-` and `.`, with a letter or digit at both ends.
fn is_software_word(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.');
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() && bytes.iter().all(inner)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_words_are_kafkas() {
        for good in ["a", "apache-kafka-java", "4.4.0", "A9.b-C"] {
            assert!(is_software_word(good), "{good}");
        }
        for bad in ["", "-a", "a-", ".a", "a.", "a b", "ä", "a_b", "a\n"] {
            assert!(!is_software_word(bad), "{bad:?}");
        }
    }
}
