//! Keeps `sendfile` from waiting for the disk: tells whether a file range is in memory, and reads it in on a thread if not.
//!
//! The probe is `preadv2(RWF_NOWAIT)` of one byte per group of pages: it answers at once, and refuses when the page is not
//! there. Cold ranges go to a few threads of our own over a bounded queue; they read and throw away, the kernel keeps the
//! pages. A page may be evicted between probe and send; that costs one short wait and is rare, a cold segment is not.

use std::any::Any;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::{Errno, ReadWriteFlags};
use tokio::sync::{mpsc, oneshot};

/// Distance between probed bytes: read-ahead brings pages in by groups of at least this size.
const PROBE_STEP_BYTES: u64 = 64 << 10;
/// One read of a warming thread.
const READ_BYTES: usize = 64 << 10;

/// What a probe found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Residency {
    /// Every probed page is in memory.
    Warm,
    /// Some page is not, or the file system cannot tell.
    Cold,
}

/// Probes `len` bytes at `offset`. Never blocks. A range past the end of the file counts as warm: the send will find it short.
pub(crate) fn probe(file: &File, offset: u64, len: usize) -> Residency {
    let Some(last) = (len as u64).checked_sub(1).map(|l| offset.saturating_add(l)) else {
        return Residency::Warm;
    };
    let mut at = offset;
    loop {
        let mut byte = [0];
        match rustix::io::preadv2(file, &mut [IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return Residency::Cold,
        }
        if at == last {
            return Residency::Warm;
        }
        at = at.saturating_add(PROBE_STEP_BYTES).min(last);
    }
}

/// A range to read in.
struct Job {
    /// Holds the file open; known to be a `File`.
    source: Arc<dyn Any + Send + Sync>,
    offset: u64,
    len: usize,
    done: oneshot::Sender<io::Result<()>>,
}

/// The warming threads. They end when the last handle is dropped.
#[derive(Debug, Clone)]
pub(crate) struct WarmPool {
    jobs: mpsc::Sender<Job>,
}

impl WarmPool {
    /// Starts `threads` threads behind a queue of `queue_max` ranges.
    pub(crate) fn start(threads: usize, queue_max: usize) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel(queue_max);
        let queue = Arc::new(Mutex::new(queue));
        for index in 0..threads {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new()
                .name(format!("weir-warm-{index}"))
                .stack_size(256 << 10)
                .spawn(move || run(&queue))?;
        }
        Ok(Self { jobs })
    }

    /// Reads the range on a thread and returns when its pages are in memory.
    pub(crate) async fn warm(
        &self,
        source: Arc<dyn Any + Send + Sync>,
        offset: u64,
        len: usize,
    ) -> io::Result<()> {
        let (done, finished) = oneshot::channel();
        let gone = || io::Error::other("the warming threads have ended");
        self.jobs.send(Job { source, offset, len, done }).await.map_err(|_| gone())?;
        finished.await.map_err(|_| gone())?
    }
}

fn run(queue: &Mutex<mpsc::Receiver<Job>>) {
    let mut scratch = vec![0; READ_BYTES];
    loop {
        let job = queue.lock().blocking_recv();
        let Some(job) = job else { return };
        let result = match job.source.downcast_ref::<File>() {
            Some(file) => read_through(file, job.offset, job.len, &mut scratch),
            None => Err(io::Error::other("not a file")),
        };
        // The connection may have gone meanwhile; the pages are warm all the same.
        drop(job.done.send(result));
    }
}

fn read_through(file: &File, offset: u64, len: usize, scratch: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        let want = scratch.len().min(len - done);
        match file.read_at(&mut scratch[..want], offset.saturating_add(done as u64)) {
            Ok(0) => return Ok(()),
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn fresh_pages_are_warm_and_ranges_past_the_end_do_not_block() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; 300_000]).unwrap();
        // Some file systems cannot answer; then everything is read through a thread, which is right and slower.
        let first = probe(&file, 0, 1);
        assert_eq!(probe(&file, 0, 300_000), first);
        assert_eq!(probe(&file, 10, 0), Residency::Warm);
        probe(&file, u64::MAX - 10, 100);
    }

    #[tokio::test]
    async fn a_range_is_read_on_a_thread_of_the_pool() {
        let pool = WarmPool::start(2, 1).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; 300_000]).unwrap();
        let file: Arc<dyn Any + Send + Sync> = Arc::new(file);
        let jobs = (0..20).map(|_| pool.warm(Arc::clone(&file), 0, 400_000));
        for result in futures_util::future::join_all(jobs).await {
            result.unwrap();
        }
        let not_a_file: Arc<dyn Any + Send + Sync> = Arc::new(7_u8);
        assert!(pool.warm(not_a_file, 0, 1).await.is_err());
    }
}
