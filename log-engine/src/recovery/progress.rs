//! How far a recovery has got, for whoever watches it: a disk that hangs must be told from a log that is long.

use std::io;
use std::path::Path;

use crate::error::{FileError, OpenError};

/// Whoever watches hears of it each time so many bytes were gone through.
const TELL_BYTES: u64 = 1 << 20;

/// How far the recovery of a log has got.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecoveryProgress {
    /// Bytes of unflushed segments that were gone through, as far as they are done with.
    pub bytes_done: u64,
    /// Bytes of segments that were not known to be flushed as they are. What else there is to do costs little beside them.
    pub bytes_total: u64,
}

/// Hears how far a recovery has got: at its begin, and again at each segment, each look for the beginning of an epoch, and
/// each MiB that was read or written. `false` ends it; the log is then not open, and for the next opening it is as if the
/// process had died there.
pub type RecoveryWatch<'a> = &'a mut dyn FnMut(RecoveryProgress) -> bool;

/// What is told of a recovery.
pub(super) struct Watched<'a> {
    watch: RecoveryWatch<'a>,
    progress: RecoveryProgress,
    untold: u64,
    goes_on: bool,
}

impl<'a> Watched<'a> {
    /// Of a recovery that begins.
    pub(super) fn begin(watch: RecoveryWatch<'a>) -> Self {
        let progress = RecoveryProgress::default();
        let goes_on = watch(progress);
        Self { watch, progress, untold: 0, goes_on }
    }

    /// There is so much to go through.
    pub(super) fn expect(&mut self, bytes: u64) {
        self.progress.bytes_total += bytes;
    }

    /// So much of it was gone through.
    pub(super) fn on_done(&mut self, bytes: u64) -> bool {
        self.progress.bytes_done += bytes;
        self.on_work(bytes)
    }

    /// So many bytes were gone through that are no part of what was expected. Answers whether to go on.
    pub(super) fn on_work(&mut self, bytes: u64) -> bool {
        self.untold = self.untold.saturating_add(bytes);
        if self.untold >= TELL_BYTES { self.tell() } else { self.goes_on }
    }

    /// A piece of work is done that may have taken long, however few bytes it was. Answers whether to go on.
    pub(super) fn tell(&mut self) -> bool {
        self.untold = 0;
        self.goes_on = self.goes_on && (self.watch)(self.progress);
        self.goes_on
    }

    /// The error of a recovery that was ended by whoever watches.
    pub(super) fn check(&self, dir: &Path) -> Result<(), OpenError> {
        match self.goes_on {
            true => Ok(()),
            false => Err(FileError::new("recover", dir, io::ErrorKind::Interrupted.into()).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mebibyte_is_told_until_the_watcher_has_enough() {
        let mut told = Vec::new();
        let mut watch = |progress: RecoveryProgress| {
            told.push((progress.bytes_done, progress.bytes_total));
            progress.bytes_done < 2 * TELL_BYTES
        };
        let mut watched = Watched::begin(&mut watch);
        watched.expect(5 * TELL_BYTES);
        assert!(watched.on_done(TELL_BYTES - 1));
        assert!(watched.on_work(1) && watched.check(Path::new("d")).is_ok());
        assert!(!watched.on_done(TELL_BYTES + 1), "that is enough");
        assert!(
            !watched.on_done(TELL_BYTES) && watched.check(Path::new("d")).is_err(),
            "it is not asked again"
        );
        assert_eq!(told, [(0, 0), (TELL_BYTES - 1, 5 * TELL_BYTES), (2 * TELL_BYTES, 5 * TELL_BYTES)]);
    }
}
