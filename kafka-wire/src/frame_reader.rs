//! Reads length-prefixed frames of one connection, taking memory for each before it is read.
//!
//! An announced size costs nothing by itself: the first [`FIRST_READ_BYTES`] are read into a small buffer, then the frame
//! waits for its share of request memory, and only then the buffer gets its size (pages are touched as bytes arrive).
//! A frame takes its whole share at once, so frames never wait for each other half-read. While idle no buffer is held.

use std::io;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::close_reason::CloseReason;
use crate::config::Limits;
use crate::request_memory::{NoMemory, RequestMemory};

/// The first read of a burst; small requests fit, several at once.
const FIRST_READ_BYTES: usize = 8 << 10;
/// The length prefix.
const PREFIX_BYTES: usize = 4;

/// One request as it came, without its length prefix.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) body: Bytes,
    /// The frame's share of request memory, given back when the request is answered.
    pub(crate) memory: OwnedSemaphorePermit,
}

/// The reading side of a connection.
#[derive(Debug)]
pub(crate) struct FrameReader<'a> {
    stream: &'a TcpStream,
    limits: &'a Limits,
    memory: &'a RequestMemory,
    buffer: BytesMut,
}

impl<'a> FrameReader<'a> {
    pub(crate) fn new(stream: &'a TcpStream, limits: &'a Limits, memory: &'a RequestMemory) -> Self {
        Self { stream, limits, memory, buffer: BytesMut::new() }
    }

    /// Waits until the first bytes of a frame are there. Cancel-safe, holds no buffer while it waits.
    pub(crate) async fn wait(&mut self) -> Result<(), CloseReason> {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
            self.fill(FIRST_READ_BYTES).await?;
        }
        Ok(())
    }

    /// Reads the frame whose first bytes are there.
    pub(crate) async fn read(&mut self) -> Result<Frame, CloseReason> {
        let size = within(self.limits.frame_read_max, self.read_start()).await?;
        let memory = self.take_memory(size).await?;
        if self.buffer.len() < size {
            within(self.limits.frame_read_max, self.read_rest(size)).await?;
        }
        // A buffer that holds nothing else is handed over whole: then the frame is its only owner, and whoever gets it can
        // change record batches in place.
        let body = match self.buffer.len() == size {
            true => std::mem::take(&mut self.buffer),
            false => self.buffer.split_to(size),
        };
        Ok(Frame { body: body.freeze(), memory })
    }

    /// Reads and checks the length, and as much of the frame as the small buffer holds.
    async fn read_start(&mut self) -> Result<usize, CloseReason> {
        while self.buffer.len() < PREFIX_BYTES {
            self.fill(FIRST_READ_BYTES).await?;
        }
        let prefix = self.buffer.split_to(PREFIX_BYTES);
        let announced = i32::from_be_bytes([prefix[0], prefix[1], prefix[2], prefix[3]]);
        let max = self.limits.frame_bytes_max;
        let size = match usize::try_from(announced) {
            Ok(size) if size <= max => size,
            _ => return Err(CloseReason::FrameSize { announced, max }),
        };
        while self.buffer.len() < size.min(FIRST_READ_BYTES) {
            self.fill(FIRST_READ_BYTES).await?;
        }
        Ok(size)
    }

    async fn take_memory(&self, size: usize) -> Result<OwnedSemaphorePermit, CloseReason> {
        let waited = self.limits.memory_wait_max;
        self.memory.take(size, waited).await.map_err(|none| match none {
            NoMemory::Full => CloseReason::MemoryFull { bytes: size, waited },
            NoMemory::Closed => CloseReason::Draining,
        })
    }

    /// Reads up to the end of a frame of `size` bytes and not beyond, into a buffer of just that size.
    async fn read_rest(&mut self, size: usize) -> Result<(), CloseReason> {
        let mut whole = BytesMut::with_capacity(size);
        whole.extend_from_slice(&self.buffer);
        self.buffer = whole;
        while self.buffer.len() < size {
            let missing = size - self.buffer.len();
            self.fill(missing).await?;
        }
        Ok(())
    }

    /// Reads at least one and at most `most` bytes into the buffer.
    async fn fill(&mut self, most: usize) -> Result<(), CloseReason> {
        loop {
            self.stream.readable().await?;
            self.buffer.reserve(most.min(FIRST_READ_BYTES));
            let read = self.stream.try_read_buf(&mut (&mut self.buffer).limit(most));
            match read {
                Ok(0) => return Err(CloseReason::ClientClosed),
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.buffer.is_empty() {
                        self.buffer = BytesMut::new();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(CloseReason::ClientClosed);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, CloseReason>>,
) -> Result<T, CloseReason> {
    timeout(limit, work).await.unwrap_or(Err(CloseReason::FrameSlow(limit)))
}
