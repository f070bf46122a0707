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
        let of_all = Arc::clone(&self.all).acquire_many_owned(share);
        let taken = match bytes <= SMALL_FRAME_BYTES_MAX {
            // The reserve is for when nothing else is free; what is free first ends the wait. The other wait is dropped, and
            // gives back what it may have got.
            true => {
                let of_either = async {
                    tokio::select! {
                        biased;
                        permit = of_all => permit,
                        permit = Arc::clone(&self.reserve).acquire_many_owned(share) => permit,
                    }
                };
                timeout(wait_max, of_either).await
            }
            false => timeout(wait_max, of_all).await,
        };
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

    #[tokio::test(start_paused = true)]
    async fn a_small_frame_takes_what_becomes_free_first_of_the_reserve_and_of_all() {
        let memory = RequestMemory::new(1 << 20);
        let wait_max = Duration::from_secs(30);
        for is_reserve in [false, true] {
            let all = memory.take(1 << 20, wait_max).await.unwrap();
            let reserve = Arc::clone(&memory.reserve).try_acquire_many_owned(RESERVE_BYTES as u32).unwrap();
            let waiting = memory.clone();
            let small = tokio::spawn(async move { waiting.take(50, wait_max).await });
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(!small.is_finished(), "nothing is free");
            // What is held on keeps what it has while the small frame has its answer.
            let (free, held) = if is_reserve { (reserve, all) } else { (all, reserve) };
            drop(free);
            let small = small.await.unwrap().expect("memory became free long before its time was up");
            drop((small, held));
            assert_eq!(memory.all.available_permits(), 1 << 20, "nothing is lost with the other wait");
            assert_eq!(memory.reserve.available_permits(), RESERVE_BYTES);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_frame_does_not_wait_behind_a_large_one() {
        let memory = RequestMemory::new(1 << 20);
        let wait_max = Duration::from_secs(30);
        let first = memory.take(1 << 19, wait_max).await.unwrap();
        let waiting = memory.clone();
        let large = tokio::spawn(async move { waiting.take(1 << 20, wait_max).await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        let small = memory.take(50, Duration::ZERO).await.expect("the reserve is free");
        drop(first);
        let large = large.await.unwrap().expect("the small frame holds nothing of what the large one needs");
        drop((small, large));
        assert_eq!(memory.all.available_permits(), 1 << 20);
    }
}
