//! Threads for work that may wait for a disk or take long: cold reads, lookups by time, unpacking of large batches.
//!
//! Bounded in threads and in queued jobs. A job that is not wanted any more (its asker is gone) is skipped.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

type Job = Box<dyn FnOnce() + Send>;

/// The pool; a clone is the same pool. The threads end when the last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct ReadPool {
    jobs: mpsc::Sender<Job>,
}

/// The job did not run to its end: it panicked, or the pool is going away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the read thread failed")]
pub(crate) struct ReadPoolFailed;

impl ReadPool {
    /// Starts `threads` threads behind a queue of `queue_max` jobs.
    pub(crate) fn start(threads: usize, queue_max: usize) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>(queue_max.max(1));
        let queue = Arc::new(Mutex::new(queue));
        for index in 0..threads.max(1) {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new().name(format!("weir-read-{index}")).spawn(move || {
                loop {
                    let job = queue.lock().blocking_recv();
                    match job {
                        Some(job) => job(),
                        None => return,
                    }
                }
            })?;
        }
        Ok(Self { jobs })
    }

    /// Runs `work` on a thread of the pool.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ReadPoolFailed> {
        let (done, result) = oneshot::channel();
        let job = Box::new(move || {
            if done.is_closed() {
                return;
            }
            // A panic must not end the thread; dropping the sender tells the asker.
            if let Ok(value) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
                drop(done.send(value));
            }
        });
        self.jobs.send(job).await.map_err(|_| ReadPoolFailed)?;
        result.await.map_err(|_| ReadPoolFailed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn jobs_run_and_a_panic_ends_only_its_own() {
        let pool = ReadPool::start(2, 1).unwrap();
        let results = futures_util::future::join_all((0..50).map(|n| pool.run(move || n * 2))).await;
        assert_eq!(results, (0..50).map(|n| Ok(n * 2)).collect::<Vec<_>>());
        let failed = pool.run(|| -> i32 { panic!("a job of this test panics") }).await;
        assert_eq!(failed, Err(ReadPoolFailed));
        assert_eq!(pool.run(|| 1).await, Ok(1));
    }
}
