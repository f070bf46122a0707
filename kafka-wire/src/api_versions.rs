//! ApiVersions, answered from the table: the one request that is answered even when its version is unknown.
//!
//! A version that is too new gets a v0 response with UNSUPPORTED_VERSION and the range of ApiVersions, its body unread
//! (KIP-511), so that the client can step down. From v3 on the client names its software; a bad name is INVALID_REQUEST.
//! Produce is announced from version 0 as Kafka 4 announces it: old librdkafka compares that range literally. Requests of
//! those versions close the connection, as they do there.

use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;
use kafka_wire_core::messages::api_versions::{ApiVersion, ApiVersionsRequest, ApiVersionsResponse};
use kafka_wire_core::{ApiKey, ErrorCode, Message, Reader, RequestHeader};

use crate::close_reason::CloseReason;
use crate::dispatch::{ApiTable, Outcome, PRIVATE_KEY_MIN, Place, RequestContext, decode, encode};

pub(crate) const KEY: i16 = ApiKey::ApiVersions as i16;
pub(crate) const NAME: &str = "ApiVersions";
pub(crate) const VERSIONS: RangeInclusive<i16> = ApiVersionsRequest::VERSIONS;
/// The software name of Weir's own clients.
pub(crate) const WEIR_SOFTWARE: &str = "weir";
/// First version in which the client names its software.
const SOFTWARE_VERSION_MIN: i16 = 3;

/// What a client calls itself (KIP-511). Both parts match `[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSoftware {
    /// For instance `apache-kafka-java`.
    pub name: String,
    /// For instance `4.4.0`.
    pub version: String,
}

/// Answers the request in `frame`.
pub(crate) fn answer<S>(
    table: &ApiTable<S>,
    connection: &mut RequestContext,
    frame: Bytes,
    version: i16,
) -> Result<Outcome, CloseReason> {
    let supported = VERSIONS.contains(&version);
    let mut body = Reader::new(frame);
    let header =
        RequestHeader::decode(&mut body).map_err(|error| CloseReason::MalformedHeader(error.to_string()))?;
    let place = Place { api: NAME, version, correlation_id: header.correlation_id };
    if !supported {
        let response = ApiVersionsResponse {
            error_code: ErrorCode::UnsupportedVersion,
            api_keys: vec![entry(KEY, &VERSIONS)],
            ..ApiVersionsResponse::default()
        };
        return Ok(encode::<ApiVersionsRequest>(&response, Place { version: 0, ..place }));
    }
    let request = decode::<ApiVersionsRequest>(body, place)?;
    if version >= SOFTWARE_VERSION_MIN {
        let (name, software_version) = (&*request.client_software_name, &*request.client_software_version);
        if !is_software_word(name) || !is_software_word(software_version) {
            let response = ApiVersionsResponse {
                error_code: ErrorCode::InvalidRequest,
                ..ApiVersionsResponse::default()
            };
            return Ok(encode::<ApiVersionsRequest>(&response, place));
        }
        connection.software =
            Some(Arc::new(ClientSoftware { name: name.to_owned(), version: software_version.to_owned() }));
    }
    let own_client = connection.software.as_ref().is_some_and(|software| software.name == WEIR_SOFTWARE);
    let api_keys = table
        .ranges()
        .into_iter()
        .filter(|(key, _)| *key < PRIVATE_KEY_MIN || own_client)
        .map(|(key, versions)| entry(key, &versions))
        .collect();
    Ok(encode::<ApiVersionsRequest>(
        &ApiVersionsResponse { api_keys, ..ApiVersionsResponse::default() },
        place,
    ))
}

fn entry(key: i16, versions: &RangeInclusive<i16>) -> ApiVersion {
    let announced_min = if key == ApiKey::Produce as i16 { 0 } else { *versions.start() };
    ApiVersion {
        api_key: key,
        min_version: announced_min,
        max_version: *versions.end(),
        ..ApiVersion::default()
    }
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
