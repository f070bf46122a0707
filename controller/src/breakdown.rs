//! Work without which a controller must not go on: if it panics, or finds that it cannot, the process ends.
//!
//! A panic ends only its own task. A controller that applies nothing more, proposes nothing or watches over nobody would go
//! on leading; so such work reports here, and the process waits for reports.

use futures_util::FutureExt;
use std::fmt::Display;
use std::future::Future;
use std::panic::{AssertUnwindSafe, UnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use tokio::sync::watch;

/// The first report, and whoever waits for it. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Breakdown {
    reason: Arc<watch::Sender<Option<String>>>,
}

impl Breakdown {
    pub(crate) fn new() -> Self {
        Self { reason: Arc::new(watch::Sender::new(None)) }
    }

    fn report(&self, what: impl Display) {
        self.give_up(format!("{what} panicked"));
    }

    /// This controller cannot go on.
    pub(crate) fn give_up(&self, why: String) {
        tracing::error!(why, "this controller cannot go on");
        self.reason.send_if_modified(|reason| {
            let first = reason.is_none();
            reason.get_or_insert(why);
            first
        });
    }

    /// Runs `work`; a panic is reported and goes on.
    pub(crate) fn watch<R>(&self, what: impl Display, work: impl FnOnce() -> R + UnwindSafe) -> R {
        catch_unwind(work).unwrap_or_else(|panic| {
            self.report(what);
            resume_unwind(panic)
        })
    }

    /// Runs `work` to its end; a panic is reported and ends it.
    pub(crate) async fn watch_task(self, what: &'static str, work: impl Future<Output = ()>) {
        if AssertUnwindSafe(work).catch_unwind().await.is_err() {
            self.report(what);
        }
    }

    /// Completes at the first report.
    pub(crate) async fn wait(&self) -> String {
        let mut reason = self.reason.subscribe();
        let told = reason.wait_for(Option::is_some).await.map(|reason| reason.clone());
        told.ok().flatten().expect("the sender lives in `self`, and the condition was that there is a reason")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_panic_is_told() {
        let breakdown = Breakdown::new();
        assert_eq!(breakdown.watch("adding", || 1 + 1), 2);
        breakdown.clone().watch_task("the task", async {}).await;
        assert!(breakdown.wait().now_or_never().is_none());
        breakdown.clone().watch_task("the task", async { panic!("for the test") }).await;
        assert!(catch_unwind(AssertUnwindSafe(|| breakdown.watch("adding", || panic!("again")))).is_err());
        assert_eq!(breakdown.wait().await, "the task panicked");
    }
}
