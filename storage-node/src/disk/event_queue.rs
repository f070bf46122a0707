//! The queue in front of a log thread: bounded in events and in bytes, drained in batches.
//!
//! Clients' work takes a [`Permit`] first, waiting its turn without blocking a worker; the permit is given back when the
//! event has been worked off. What the log thread itself has caused (a flush that is over) needs none: there is never
//! more than one flush per log, so it is bounded without. Pushing never waits, so a flusher can never be stuck behind
//! the thread that it serves.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bounds of one log thread's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueLimits {
    /// Events that may wait.
    pub(crate) events_max: usize,
    /// Bytes of record batches that may wait. A single larger batch may wait alone.
    pub(crate) bytes_max: usize,
}

/// A place in the queue; given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    _slot: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

/// The queue; one thread drains it, everybody else pushes.
#[derive(Debug)]
pub(crate) struct EventQueue<E> {
    state: Mutex<State<E>>,
    ready: Condvar,
    slots: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    bytes_max: u32,
}

#[derive(Debug)]
struct State<E> {
    events: Vec<E>,
    closed: bool,
}

/// The log thread has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the log thread has ended")]
pub(crate) struct QueueClosed;

impl<E> EventQueue<E> {
    /// An empty queue.
    pub(crate) fn new(limits: QueueLimits) -> Self {
        // tokio's semaphores count up to 2^61; permits are taken by u32.
        let bytes_max = u32::try_from(limits.bytes_max).unwrap_or(u32::MAX).max(1);
        Self {
            state: Mutex::new(State { events: Vec::new(), closed: false }),
            ready: Condvar::new(),
            slots: Arc::new(Semaphore::new(limits.events_max.max(1))),
            bytes: Arc::new(Semaphore::new(bytes_max as usize)),
            bytes_max,
        }
    }

    /// Waits for a place for an event of `bytes` bytes. First come, first served.
    pub(crate) async fn permit(&self, bytes: usize) -> Result<Permit, QueueClosed> {
        let slot = Arc::clone(&self.slots).acquire_owned().await.map_err(|_| QueueClosed)?;
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.bytes_max);
        let bytes = Arc::clone(&self.bytes).acquire_many_owned(bytes).await.map_err(|_| QueueClosed)?;
        Ok(Permit { _slot: slot, _bytes: bytes })
    }

    /// Appends an event. The event is given back if the queue was closed.
    pub(crate) fn push(&self, event: E) -> Result<(), E> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(event);
        }
        state.events.push(event);
        drop(state);
        self.ready.notify_one();
        Ok(())
    }

    /// Takes all events, waiting at most `wait` for the first. `into` must be empty; its capacity is reused.
    pub(crate) fn drain(&self, wait: Duration, into: &mut Vec<E>) {
        let mut state = self.state.lock();
        if state.events.is_empty() && !wait.is_zero() {
            self.ready.wait_for(&mut state, wait);
        }
        std::mem::swap(&mut state.events, into);
    }

    /// Takes no more events; gives those that are left.
    pub(crate) fn close(&self) -> Vec<E> {
        self.slots.close();
        self.bytes.close();
        let mut state = self.state.lock();
        state.closed = true;
        std::mem::take(&mut state.events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    const LIMITS: QueueLimits = QueueLimits { events_max: 2, bytes_max: 100 };

    #[test]
    fn events_and_bytes_are_bounded() {
        let queue = EventQueue::<u8>::new(LIMITS);
        let first = queue.permit(60).now_or_never().unwrap().unwrap();
        assert!(queue.permit(50).now_or_never().is_none(), "bytes");
        let second = queue.permit(40).now_or_never().unwrap().unwrap();
        assert!(queue.permit(0).now_or_never().is_none(), "events");
        drop((first, second));
        assert!(queue.permit(1_000_000).now_or_never().unwrap().is_ok(), "a large one goes alone");
    }

    #[test]
    fn events_come_out_in_order_and_all_at_once() {
        let queue = EventQueue::new(LIMITS);
        for event in 0..5 {
            queue.push(event).unwrap();
        }
        let mut events = Vec::new();
        queue.drain(Duration::ZERO, &mut events);
        assert_eq!(events, [0, 1, 2, 3, 4]);
        events.clear();
        queue.drain(Duration::from_millis(1), &mut events);
        assert!(events.is_empty());
    }

    #[test]
    fn a_waiting_drain_wakes_for_an_event() {
        let queue = Arc::new(EventQueue::new(LIMITS));
        let pusher = Arc::clone(&queue);
        let thread = std::thread::spawn(move || pusher.push(7).unwrap());
        let mut events = Vec::new();
        while events.is_empty() {
            queue.drain(Duration::from_secs(60), &mut events);
        }
        assert_eq!(events, [7]);
        thread.join().unwrap();
    }

    #[test]
    fn a_closed_queue_gives_events_back() {
        let queue = EventQueue::new(LIMITS);
        queue.push(1).unwrap();
        assert_eq!(queue.close(), [1]);
        assert_eq!(queue.push(2), Err(2));
        assert_eq!(queue.permit(1).now_or_never().unwrap().unwrap_err(), QueueClosed);
    }
}
