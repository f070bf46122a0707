//! A controller that cannot apply what is committed must not go on: whoever runs it is told, and it can be stopped.

use super::{PATIENCE, Quorum, plain};
use crate::quorum::type_config::Changes;
use proto_types::ids::TopicId;
use proto_types::metadata::MetadataChange;
use std::sync::Arc;
use tokio::time::timeout;
use uuid::Uuid;

/// Invariants are checked after each batch in debug builds: that makes the panic.
/// T-53.
#[cfg(debug_assertions)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_while_applying_ends_the_controller() {
    let mut quorum = Quorum::start(1, plain).await;
    quorum.leader().await;
    let controller = quorum.running[0].take().expect("running");
    let before = controller.state().applied();
    assert!(timeout(std::time::Duration::from_millis(50), controller.failed()).await.is_err(), "it is well");
    // No plan makes a topic without partitions.
    let topic = MetadataChange::TopicCreated { topic: TopicId(Uuid::from_u128(1)), name: "t".into() };
    let raft = controller.raft().clone();
    let written = tokio::spawn(async move { raft.client_write(Changes(Arc::new(vec![topic]))).await });
    let reason = timeout(PATIENCE, controller.failed()).await.expect("told");
    assert!(reason.contains("applying the metadata at index") && reason.contains("panicked"), "{reason}");
    assert!(controller.state().topics().id("t").is_none(), "nothing of it is shown");
    assert_eq!(controller.state().applied(), before);
    timeout(PATIENCE, controller.shutdown()).await.expect("it can still be stopped");
    let written = timeout(PATIENCE, written).await.expect("answered").expect("the task has not panicked");
    assert!(written.is_err(), "nobody is told that it was done");
}
