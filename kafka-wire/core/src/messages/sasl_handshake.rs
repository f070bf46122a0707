//! SaslHandshake: choose a SASL mechanism.
//!
//! Versions:
//! - 1: the login goes on in SaslAuthenticate requests instead of bare frames

use crate::{ErrorCode, KafkaMessage, Str};

/// Request of SaslHandshake.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=1, key = SaslHandshake, response = SaslHandshakeResponse)]
pub struct SaslHandshakeRequest {
    /// SASL mechanism that the client wants.
    pub mechanism: Str,
}

/// Response of SaslHandshake.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=1)]
pub struct SaslHandshakeResponse {
    /// Error of the whole request, or none.
    pub error_code: ErrorCode,
    /// SASL mechanisms that are offered.
    pub mechanisms: Vec<Str>,
}
