//! The end of a leader's log in memory, for followers that keep pace: they are sent the bytes that were appended, without a
//! look into files.
//!
//! It holds what is not committed yet, as far as the node's budget for all partitions goes; whatever is not here is in the
//! log.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use proto_types::ids::Offset;

/// Bytes that the tails of all partitions may hold together.
#[derive(Debug)]
pub(crate) struct TailBudget {
    used: AtomicUsize,
    bytes_max: usize,
}

impl TailBudget {
    pub(crate) fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), bytes_max })
    }

    fn take(&self, bytes: usize) -> bool {
        let take = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.bytes_max);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// See the module. Written by the partition's owner alone.
#[derive(Debug)]
pub(crate) struct Tail {
    budget: Arc<TailBudget>,
    appended: Mutex<VecDeque<Appended>>,
}

/// The batches in memory that is not much larger than they are. A small one shares the buffer of the request that it came in,
/// which nobody has counted here.
fn without_slack(batches: BytesMut) -> Bytes {
    match batches.capacity() / 2 > batches.len() {
        true => Bytes::copy_from_slice(&batches),
        false => batches.freeze(),
    }
}

/// One append; each begins where the one before ends.
#[derive(Debug)]
struct Appended {
    from: Offset,
    end: Offset,
    bytes: Bytes,
}

impl Tail {
    pub(crate) fn new(budget: Arc<TailBudget>) -> Self {
        Self { budget, appended: Mutex::default() }
    }

    /// Batches are in the log. Without room for them, what is here is of no use to anybody who needs them next.
    pub(crate) fn push(&self, from: Offset, end: Offset, batches: BytesMut) {
        let bytes = without_slack(batches);
        let room = self.budget.take(bytes.len());
        let mut appended = self.appended.lock();
        let continues = appended.back().is_none_or(|last| last.end == from);
        if !room || !continues {
            self.clear_all(&mut appended);
        }
        if room {
            appended.push_back(Appended { from, end, bytes });
        }
    }

    /// Whole batches from `from` on, at most `bytes_max` bytes but at least one append, and the offset after them. `None` if
    /// they are not here.
    pub(crate) fn read(&self, from: Offset, bytes_max: usize) -> Option<(Bytes, Offset)> {
        let appended = self.appended.lock();
        let first = appended.binary_search_by_key(&from, |appended| appended.from).ok()?;
        let (mut count, mut bytes) = (1, appended[first].bytes.len());
        for next in appended.range(first + 1..) {
            if bytes + next.bytes.len() > bytes_max {
                break;
            }
            (count, bytes) = (count + 1, bytes + next.bytes.len());
        }
        let end = appended[first + count - 1].end;
        if count == 1 {
            return Some((appended[first].bytes.clone(), end));
        }
        let mut joined = BytesMut::with_capacity(bytes);
        appended.range(first..first + count).for_each(|appended| joined.extend_from_slice(&appended.bytes));
        Some((joined.freeze(), end))
    }

    /// Everything below is committed: whoever still lacks it reads the log.
    pub(crate) fn drop_below(&self, offset: Offset) {
        let mut appended = self.appended.lock();
        while appended.front().is_some_and(|first| first.end <= offset) {
            let first = appended.pop_front().expect("it was there a moment ago");
            self.budget.give_back(first.bytes.len());
        }
    }

    /// The log was cut, or another leads.
    pub(crate) fn clear(&self) {
        self.clear_all(&mut self.appended.lock());
    }

    fn clear_all(&self, appended: &mut VecDeque<Appended>) {
        self.budget.give_back(appended.drain(..).map(|appended| appended.bytes.len()).sum());
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(bytes_max: usize) -> (Arc<TailBudget>, Tail) {
        let budget = TailBudget::new(bytes_max);
        (Arc::clone(&budget), Tail::new(budget))
    }

    fn push(tail: &Tail, from: i64, end: i64, bytes: &'static [u8]) {
        tail.push(Offset(from), Offset(end), BytesMut::from(bytes));
    }

    fn read(tail: &Tail, from: i64, bytes_max: usize) -> Option<(Vec<u8>, i64)> {
        tail.read(Offset(from), bytes_max).map(|(bytes, end)| (bytes.to_vec(), end.0))
    }

    #[test]
    fn appends_are_read_together_up_to_a_bound_but_one_at_least() {
        let (_, tail) = tail(100);
        push(&tail, 5, 7, b"aaa");
        push(&tail, 7, 8, b"bb");
        push(&tail, 8, 10, b"c");
        assert_eq!(read(&tail, 5, 1), Some((b"aaa".to_vec(), 7)));
        assert_eq!(read(&tail, 5, 5), Some((b"aaabb".to_vec(), 8)));
        assert_eq!(read(&tail, 7, 100), Some((b"bbc".to_vec(), 10)));
        assert_eq!(read(&tail, 6, 100), None, "in the middle of a batch");
        assert_eq!(read(&tail, 10, 100), None);
        tail.drop_below(Offset(8));
        assert_eq!(read(&tail, 7, 100), None);
        assert_eq!(read(&tail, 8, 100), Some((b"c".to_vec(), 10)));
    }

    #[test]
    fn a_small_batch_does_not_keep_the_buffer_of_its_request() {
        let (_, tail) = tail(100);
        let mut request = BytesMut::with_capacity(8192);
        request.extend_from_slice(b"header, batch");
        let batch = request.split_off(8);
        let place = batch.as_ptr();
        assert!(batch.capacity() > 1000);
        tail.push(Offset(0), Offset(1), batch);
        let (kept, _) = tail.read(Offset(0), 100).expect("it was pushed");
        assert_eq!(&kept[..], b"batch");
        assert_ne!(kept.as_ptr(), place, "copied out");
        let large = BytesMut::from(&[7_u8; 90][..]);
        let place = large.as_ptr();
        tail.push(Offset(1), Offset(2), large);
        assert_eq!(tail.read(Offset(1), 90).expect("it was pushed").0.as_ptr(), place, "handed over");
    }

    #[test]
    fn the_budget_is_kept_and_given_back() {
        let (budget, tail) = tail(5);
        push(&tail, 0, 1, b"aaa");
        push(&tail, 1, 2, b"bbb");
        assert_eq!((read(&tail, 0, 9), read(&tail, 1, 9)), (None, None), "no room: a gap must not be hidden");
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
        push(&tail, 2, 3, b"cccc");
        assert_eq!(read(&tail, 2, 9), Some((b"cccc".to_vec(), 3)));
        // Elsewhere in the log than where it ended.
        push(&tail, 9, 10, b"d");
        assert_eq!((read(&tail, 2, 9), read(&tail, 9, 9)), (None, Some((b"d".to_vec(), 10))));
        assert_eq!(budget.used.load(Ordering::Relaxed), 1);
        drop(tail);
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }
}
