//! SaslAuthenticate: one step of a SASL login.
//!
//! Versions:
//! - 1: lifetime of the session (KIP-368)
//! - 2: flexible

use bytes::Bytes;

use crate::{ErrorCode, KafkaMessage, Str};

/// Request of SaslAuthenticate.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=2, flexible = 2.., key = SaslAuthenticate, response = SaslAuthenticateResponse)]
pub struct SaslAuthenticateRequest {
    /// Bytes of the client's side of the mechanism.
    pub auth_bytes: Bytes,
}

/// Response of SaslAuthenticate.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=2, flexible = 2..)]
pub struct SaslAuthenticateResponse {
    /// Error of the whole request, or none.
    pub error_code: ErrorCode,
    /// The error in words; null without one.
    pub error_message: Option<Str>,
    /// Bytes of the server's side of the mechanism.
    pub auth_bytes: Bytes,
    /// When the client must log in again, in milliseconds; 0 never.
    #[kafka(versions = 1.., ignorable)]
    pub session_lifetime_ms: i64,
}
