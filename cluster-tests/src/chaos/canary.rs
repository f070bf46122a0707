//! Tells whether the machine itself stood still: a thread that wants to wake up every few milliseconds and notes how late it was.
//! What took long while the canary slept says nothing about the cluster.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clock::Stopwatch;

const PAUSE: Duration = Duration::from_millis(20);

/// The running thread.
#[derive(Debug)]
pub(super) struct Canary {
    stop: Arc<AtomicBool>,
    late_ms: Arc<Mutex<Vec<u32>>>,
    thread: Option<JoinHandle<()>>,
}

impl Canary {
    pub(super) fn start() -> Canary {
        let (stop, late_ms) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<u32>>>::default());
        let thread = std::thread::spawn({
            let (stop, late_ms) = (Arc::clone(&stop), Arc::clone(&late_ms));
            move || {
                while !stop.load(Ordering::Relaxed) {
                    let watch = Stopwatch::start();
                    std::thread::sleep(PAUSE);
                    let late = watch.elapsed().saturating_sub(PAUSE).as_millis();
                    let late = u32::try_from(late).unwrap_or(u32::MAX);
                    late_ms.lock().unwrap_or_else(PoisonError::into_inner).push(late);
                }
            }
        });
        Canary { stop, late_ms, thread: Some(thread) }
    }

    /// Ends it; gives how late it was at worst and but for one time in a hundred, in milliseconds.
    pub(super) fn finish(mut self) -> (u32, u32) {
        self.end();
        let mut late = std::mem::take(&mut *self.late_ms.lock().unwrap_or_else(PoisonError::into_inner));
        late.sort_unstable();
        let p99 = late.get(late.len() * 99 / 100).copied().unwrap_or_default();
        (late.last().copied().unwrap_or_default(), p99)
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            eprintln!("the canary failed");
        }
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        self.end();
    }
}
