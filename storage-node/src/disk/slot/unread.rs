//! Sizes of appends that readers may not see yet, so that who waits for bytes is told when they may.

use std::collections::VecDeque;

use proto_types::ids::Offset;

/// Appends whose sizes are remembered one by one; beyond it they are added up.
const APPENDS_MAX: usize = 1024;

/// End offset and bytes of appends, in order.
#[derive(Debug, Default)]
pub(super) struct Unread(VecDeque<(Offset, i64)>);

impl Unread {
    pub(super) fn push(&mut self, end: Offset, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let full = self.0.len() >= APPENDS_MAX;
        match self.0.back_mut() {
            Some(last) if full => *last = (end, last.1.saturating_add(bytes)),
            _ => self.0.push_back((end, bytes)),
        }
    }

    /// Readers may see everything below `bound`: how many bytes more these are.
    pub(super) fn take_below(&mut self, bound: Offset) -> i64 {
        let mut readable: i64 = 0;
        while let Some((_, bytes)) = self.0.pop_front_if(|(end, _)| *end <= bound) {
            readable = readable.saturating_add(bytes);
        }
        readable
    }

    /// The log was cut.
    pub(super) fn cut(&mut self, end: Offset) {
        self.0.retain(|(appended, _)| *appended <= end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_once_and_not_before_their_end() {
        let mut unread = Unread::default();
        for end in 1..=3 {
            unread.push(Offset(end * 10), 5);
        }
        assert_eq!([9, 10, 29, 29].map(|bound| unread.take_below(Offset(bound))), [0, 5, 5, 0]);
        unread.push(Offset(40), 7);
        unread.cut(Offset(30));
        assert_eq!(unread.take_below(Offset(100)), 5);
    }

    #[test]
    fn beyond_the_bound_appends_are_added_up() {
        let mut unread = Unread::default();
        for end in 0..3 * APPENDS_MAX as i64 {
            unread.push(Offset(end + 1), 1);
        }
        assert_eq!(unread.0.len(), APPENDS_MAX);
        assert_eq!(unread.take_below(Offset(3 * APPENDS_MAX as i64)), 3 * APPENDS_MAX as i64);
    }
}
