//! Memory for requests between arrival and answer, shared by all connections.
//!
//! First come, first served; but a few large frames that arrive slowly, or wait long for their answer, must not keep the
//! heartbeats of everybody else waiting: small frames have a reserve that large ones never touch.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::error::Elapsed;
use tokio::time::timeout;

/// A frame up to here is small, bytes: heartbeats, commits, fetches, and produce requests of quiet producers.
const SMALL_FRAME_BYTES_MAX: usize = 64 << 10;
/// What is kept for small frames beside the memory for all, bytes.
const RESERVE_BYTES: usize = 16 << 20;

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct RequestMemory {
    all: Arc<Semaphore>,
    reserve: Arc<Semaphore>,
}

/// Why a frame got no memory.
#[derive(Debug)]
pub(crate) enum NoMemory {
    /// The time was up.
    Full,
    /// The server goes down.
    Closed,
}

impl RequestMemory {
    /// Memory of `bytes_max` bytes for all frames, and the reserve.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(bytes_max.min(Semaphore::MAX_PERMITS))),
            reserve: Arc::new(Semaphore::new(RESERVE_BYTES)),
        }
    }

    /// Waits at most `wait_max` for the memory of a frame; dropping the permit gives it back.
    pub(crate) async fn take(
        &self,
        bytes: usize,
        wait_max: Duration,
    ) -> Result<OwnedSemaphorePermit, NoMemory> {
        let share = u32::try_from(bytes).unwrap_or(u32::MAX);
        let source = match bytes <= SMALL_FRAME_BYTES_MAX {
            true => match Arc::clone(&self.all).try_acquire_many_owned(share) {
                Ok(permit) => return Ok(permit),
                Err(_none_left) => &self.reserve,
            },
            false => &self.all,
        };
        let taken = timeout(wait_max, Arc::clone(source).acquire_many_owned(share)).await;
        taken.map_err(|Elapsed { .. }| NoMemory::Full)?.map_err(|AcquireError { .. }| NoMemory::Closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn small_frames_pass_large_ones_that_wait() {
        let memory = RequestMemory::new(1 << 20);
        let wait_max = Duration::from_secs(30);
        let first = memory.take(1 << 20, wait_max).await.unwrap();
        assert!(matches!(memory.take(1 << 20, wait_max).await, Err(NoMemory::Full)));
        let small = memory.take(50, Duration::ZERO).await.unwrap();
        let kept = RESERVE_BYTES / SMALL_FRAME_BYTES_MAX - 1;
        let mut many = Vec::new();
        for _ in 0..kept {
            many.push(memory.take(SMALL_FRAME_BYTES_MAX, Duration::ZERO).await.unwrap());
        }
        assert!(
            matches!(memory.take(SMALL_FRAME_BYTES_MAX, wait_max).await, Err(NoMemory::Full)),
            "bounded too"
        );
        drop((small, many, first));
        assert_eq!(memory.all.available_permits(), 1 << 20);
        assert_eq!(memory.reserve.available_permits(), RESERVE_BYTES);
    }
}
