//! A controller that cannot apply what is committed must not go on: whoever runs it is told, and it can be stopped.

use super::{PATIENCE, Quorum, eventually, plain};
use crate::quorum::type_config::Changes;
use openraft::async_runtime::WatchReceiver;
use proto_types::ids::{MetadataIndex, TopicId};
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
    // A leader begins with entries of its own: its term's first one, and who the voters are.
    eventually("what the leader begins with is applied", || {
        let state = controller.state();
        let last = controller.raft().metrics().borrow_watched().last_log_index;
        (!state.controllers().voters().is_empty() && Some(state.applied().0) == last).then_some(())
    })
    .await;
    assert!(timeout(std::time::Duration::from_millis(50), controller.failed()).await.is_err(), "it is well");
    // No plan makes a topic without partitions.
    let topic = MetadataChange::TopicCreated { topic: TopicId(Uuid::from_u128(1)), name: "t".into() };
    let raft = controller.raft().clone();
    let written = tokio::spawn(async move { raft.client_write(Changes(Arc::new(vec![topic]))).await });
    let reason = timeout(PATIENCE, controller.failed()).await.expect("told");
    let index = reason.strip_prefix("applying the metadata at index ");
    let index = index.and_then(|rest| rest.strip_suffix(" panicked")).expect(&reason);
    let index = MetadataIndex(index.parse().expect("a number"));
    assert!(controller.state().topics().id("t").is_none(), "nothing of it is shown");
    assert!(controller.state().applied() < index, "nor counted");
    timeout(PATIENCE, controller.shutdown()).await.expect("it can still be stopped");
    let written = timeout(PATIENCE, written).await.expect("answered").expect("the task has not panicked");
    assert!(written.is_err(), "nobody is told that it was done");
}
