//! Producer ids for idempotent producers: handed out of blocks that the controller allocates.
//!
//! The next block is fetched while the current one is still being used, so that a producer hardly ever waits for the
//! quorum. A block belongs to one run of this node; what is left of it at the end is never used again.

use crate::controller_port::{ControllerFailure, ControllerPort};
use parking_lot::Mutex;
use proto_types::controller_api::{AllocateProducerIds, ControllerReply, ControllerRequest};
use proto_types::ids::{BrokerEpoch, NodeId, ProducerId};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The next block is fetched when this share of the current one is used (in percent).
const PREFETCH_AT_PERCENT: i64 = 90;
/// How long one attempt to get a block may take.
const ALLOCATION_TIMEOUT: Duration = Duration::from_secs(5);

/// Hands out producer ids. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ProducerIds {
    shared: Arc<Shared>,
}

struct Shared {
    node: NodeId,
    controller: Arc<dyn ControllerPort>,
    broker_epoch: watch::Receiver<Option<BrokerEpoch>>,
    blocks: Mutex<Blocks>,
    /// Counts finished attempts, so that those who wait look again.
    attempts: watch::Sender<Attempt>,
}

#[derive(Debug, Clone, Default)]
struct Attempt {
    number: u64,
    failure: Option<ControllerFailure>,
}

/// The block in use and the one after it.
#[derive(Debug, Default)]
struct Blocks {
    current: Range<i64>,
    prefetch_at: i64,
    next: Option<Range<i64>>,
    fetching: bool,
}

impl Blocks {
    /// The next id, if there is one, and whether a block should be fetched now.
    fn take(&mut self) -> (Option<ProducerId>, bool) {
        if self.current.is_empty()
            && let Some(next) = self.next.take()
        {
            self.prefetch_at = next.start + (next.end - next.start) * PREFETCH_AT_PERCENT / 100;
            self.current = next;
        }
        let id = self.current.next().map(ProducerId);
        let low = self.current.is_empty() || self.current.start >= self.prefetch_at;
        let fetch = low && self.next.is_none() && !self.fetching;
        self.fetching |= fetch;
        (id, fetch)
    }
}

impl ProducerIds {
    /// `broker_epoch` is the node's registration; ids are given out only once there is one.
    pub(crate) fn new(
        node: NodeId,
        controller: Arc<dyn ControllerPort>,
        broker_epoch: watch::Receiver<Option<BrokerEpoch>>,
    ) -> Self {
        let attempts = watch::Sender::new(Attempt::default());
        let shared = Shared { node, controller, broker_epoch, blocks: Mutex::default(), attempts };
        Self { shared: Arc::new(shared) }
    }

    /// An id that no producer has had before. Waits for the controller only when both blocks are used up.
    pub(crate) async fn next(&self) -> Result<ProducerId, ControllerFailure> {
        let mut attempts = self.shared.attempts.subscribe();
        loop {
            let seen = attempts.borrow_and_update().number;
            let (id, fetch) = self.shared.blocks.lock().take();
            if fetch {
                // A task of its own: the connection that happened to find the block empty may go away.
                let shared = Arc::clone(&self.shared);
                tokio::spawn(async move { shared.fetch().await });
            }
            if let Some(id) = id {
                return Ok(id);
            }
            let attempt = attempts.wait_for(|attempt| attempt.number != seen).await;
            let failure = attempt.ok().and_then(|attempt| attempt.failure.clone());
            if let Some(failure) = failure {
                return Err(failure);
            }
        }
    }
}

impl Shared {
    async fn fetch(&self) {
        let outcome = self.allocate().await;
        let failure = {
            let mut blocks = self.blocks.lock();
            blocks.fetching = false;
            match outcome {
                Ok(block) => {
                    blocks.next = Some(block);
                    None
                }
                Err(failure) => {
                    tracing::warn!(%failure, "get a block of producer ids");
                    Some(failure)
                }
            }
        };
        self.attempts.send_modify(|attempt| {
            attempt.number += 1;
            attempt.failure = failure;
        });
    }

    async fn allocate(&self) -> Result<Range<i64>, ControllerFailure> {
        let Some(broker_epoch) = *self.broker_epoch.borrow() else {
            return Err(ControllerFailure::Unavailable("this node is not registered yet".to_owned()));
        };
        let request = AllocateProducerIds { node: self.node, broker_epoch };
        let request = ControllerRequest::AllocateProducerIds(request);
        match self.controller.ask(request, ALLOCATION_TIMEOUT).await? {
            ControllerReply::ProducerIds { first, count } if count > 0 => {
                Ok(first.0..first.0 + i64::from(count))
            }
            other => Err(ControllerFailure::OutcomeUnknown(format!("unexpected answer {other:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quic_transport::BoxFuture;
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

    /// Gives out blocks of ten; the first `failures` requests fail.
    struct Blocks {
        next: AtomicI64,
        failures: AtomicU32,
    }

    impl ControllerPort for Blocks {
        fn ask(
            &self,
            request: ControllerRequest,
            _timeout: Duration,
        ) -> BoxFuture<'_, Result<ControllerReply, ControllerFailure>> {
            Box::pin(async move {
                tokio::task::yield_now().await;
                assert!(matches!(request, ControllerRequest::AllocateProducerIds(_)));
                let fails = |left: u32| left.checked_sub(1);
                if self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fails).is_ok() {
                    return Err(ControllerFailure::Unavailable("test".into()));
                }
                let first = ProducerId(self.next.fetch_add(10, Ordering::SeqCst));
                Ok(ControllerReply::ProducerIds { first, count: 10 })
            })
        }
    }

    fn ids(failures: u32, registered: bool) -> ProducerIds {
        let controller = Arc::new(Blocks { next: AtomicI64::new(1000), failures: failures.into() });
        let epoch = registered.then_some(BrokerEpoch(1));
        ProducerIds::new(NodeId(1), controller, watch::Sender::new(epoch).subscribe())
    }

    #[tokio::test]
    async fn ids_are_unique_across_blocks_and_callers() {
        let ids = ids(0, true);
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                let ids = ids.clone();
                tokio::spawn(async move {
                    let mut got = Vec::new();
                    for _ in 0..7 {
                        got.push(ids.next().await.unwrap());
                    }
                    got
                })
            })
            .collect();
        let mut seen = BTreeSet::new();
        for task in tasks {
            for id in task.await.unwrap() {
                assert!(seen.insert(id), "{id} was handed out twice");
            }
        }
        assert_eq!(seen.len(), 350);
        // The prefetch may hold one more block, never more.
        assert!(seen.last().unwrap().0 < 1000 + 350 + 20);
    }

    #[tokio::test]
    async fn a_failure_reaches_the_caller_and_the_next_try_works() {
        let ids = ids(1, true);
        assert!(matches!(ids.next().await, Err(ControllerFailure::Unavailable(_))));
        assert_eq!(ids.next().await, Ok(ProducerId(1000)));
    }

    #[tokio::test]
    async fn a_node_that_is_not_registered_gives_no_ids() {
        assert!(matches!(ids(0, false).next().await, Err(ControllerFailure::Unavailable(_))));
    }
}
