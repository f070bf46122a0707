//! InitProducerId: an id and epoch for an idempotent or transactional producer (KIP-98).
//!
//! Versions:
//! - 2: flexible
//! - 3: carry on with a known id (KIP-360)
//! - 4: PRODUCER_FENCED
//! - 5: TRANSACTION_ABORTABLE
//! - 6: two-phase commit (KIP-939); not stable in Kafka 4.4

use crate::{ErrorCode, KafkaMessage, Str};

/// Request of InitProducerId.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=6, flexible = 2.., key = InitProducerId, response = InitProducerIdResponse)]
pub struct InitProducerIdRequest {
    /// Transactional id of the producer, or null.
    pub transactional_id: Option<Str>,
    /// When an open transaction is aborted, in milliseconds.
    pub transaction_timeout_ms: i32,
    /// Id that the producer has, or -1; to carry on after an epoch error.
    #[kafka(versions = 3.., default = -1)]
    pub producer_id: i64,
    /// Its epoch, or -1.
    #[kafka(versions = 3.., default = -1)]
    pub producer_epoch: i16,
    /// The client takes part in two-phase commit (KIP-939).
    #[kafka(versions = 6..)]
    pub enable_2pc: bool,
    /// Keep a prepared transaction instead of aborting it (KIP-939).
    #[kafka(versions = 6..)]
    pub keep_prepared_txn: bool,
}

/// Response of InitProducerId.
#[derive(Clone, Debug, PartialEq, KafkaMessage)]
#[kafka(versions = 0..=6, flexible = 2..)]
pub struct InitProducerIdResponse {
    /// How long the client should wait because of a quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// Error of the whole request, or none.
    pub error_code: ErrorCode,
    /// Id of the producer, or -1.
    #[kafka(default = -1)]
    pub producer_id: i64,
    /// Epoch of the producer id.
    pub producer_epoch: i16,
    /// Producer id of the prepared transaction, or -1 (KIP-939).
    #[kafka(versions = 6.., default = -1)]
    pub ongoing_txn_producer_id: i64,
    /// Its epoch, or -1.
    #[kafka(versions = 6.., default = -1)]
    pub ongoing_txn_producer_epoch: i16,
}
