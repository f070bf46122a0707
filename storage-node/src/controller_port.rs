//! What the rest of the node sees of the controllers: one question, one answer, and the ways in which it can fail.

use proto_types::controller_api::{ControllerReply, ControllerRequest};
use proto_types::error::Rejection;
use quic_transport::BoxFuture;
use std::time::Duration;

/// Why a question to the controllers brought no answer. What a caller may do differs, so each way has its variant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ControllerFailure {
    /// The controller refuses the request; repeating it unchanged is useless.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// No controller could be asked within the time: nothing was done, and a later try may succeed.
    #[error("no controller could be asked: {0}")]
    Unavailable(String),
    /// A controller was asked and no answer came: it may have been done, or may yet be.
    #[error("the outcome is not known: {0}")]
    OutcomeUnknown(String),
}

/// Asks the controllers, wherever their leader is.
pub(crate) trait ControllerPort: Send + Sync + 'static {
    /// Asks the leader, and follows it when it moves, for at most `timeout`.
    fn ask(
        &self,
        request: ControllerRequest,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<ControllerReply, ControllerFailure>>;
}
