//! Puts one response on the socket: runs of bytes by `sendmsg`, file regions by `sendfile`, never waiting for a disk.
//!
//! A response is a list of parts. Bytes that are followed by a region carry `MSG_MORE`, so that a small header does not
//! leave as a packet of its own. Regions go in slices; each slice is probed first and read in by a thread when it is cold.
//! A file that turns out shorter than its region closes the connection: the client has been promised a length.

use std::fs::File;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_wire_core::{Part, Region};
use rustix::net::{SendAncillaryBuffer, SendFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::close_reason::CloseReason;
use crate::metrics::WireMetrics;
use crate::warm_pages::{Residency, WarmPool, probe};

/// One `sendfile`: large enough to be free of call costs, small enough to share the worker.
const SLICE_BYTES: usize = 256 << 10;
/// Runs of bytes per `sendmsg`.
const IOVECS_MAX: usize = 64;

/// What writing needs besides the socket.
#[derive(Debug)]
pub(crate) struct ResponseWriter<'a> {
    pub(crate) stream: &'a TcpStream,
    pub(crate) write_stall_max: Duration,
    pub(crate) warm: &'a WarmPool,
    pub(crate) metrics: &'a WireMetrics,
}

impl ResponseWriter<'_> {
    /// Writes the parts in order.
    pub(crate) async fn write(&self, parts: &[Part]) -> Result<(), CloseReason> {
        let mut rest = parts;
        while let Some(first) = rest.first() {
            match first {
                Part::Bytes(_) => {
                    let run = rest.iter().take_while(|part| matches!(part, Part::Bytes(_))).count();
                    let (bytes, after) = rest.split_at(run);
                    let more_follows = after.iter().any(|part| !part.is_empty());
                    self.write_bytes(bytes, more_follows).await?;
                    rest = after;
                }
                Part::Region(region) => {
                    rest = &rest[1..];
                    self.write_region(region).await?;
                }
            }
        }
        Ok(())
    }

    async fn write_bytes(&self, parts: &[Part], more_follows: bool) -> Result<(), CloseReason> {
        let mut runs: Vec<Bytes> = Vec::with_capacity(parts.len());
        runs.extend(parts.iter().filter_map(|part| match part {
            Part::Bytes(bytes) if !bytes.is_empty() => Some(bytes.clone()),
            Part::Bytes(_) | Part::Region(_) => None,
        }));
        let mut next = 0;
        while next < runs.len() {
            let window = &runs[next..(next + IOVECS_MAX).min(runs.len())];
            let iovecs: Vec<IoSlice<'_>> = window.iter().map(|bytes| IoSlice::new(bytes)).collect();
            let mut flags = SendFlags::NOSIGNAL;
            if more_follows || next + window.len() < runs.len() {
                flags |= SendFlags::MORE;
            }
            let mut sent = self
                .when_writable(|| {
                    Ok(rustix::net::sendmsg(
                        self.stream,
                        &iovecs,
                        &mut SendAncillaryBuffer::default(),
                        flags,
                    )?)
                })
                .await?;
            while sent > 0 {
                let taken = sent.min(runs[next].len());
                drop(runs[next].split_to(taken));
                sent -= taken;
                if runs[next].is_empty() {
                    next += 1;
                }
            }
        }
        Ok(())
    }

    async fn write_region(&self, region: &Region) -> Result<(), CloseReason> {
        let file = region.source.downcast_ref::<File>().ok_or(CloseReason::RegionSource)?;
        let mut offset = region.offset;
        let mut left = region.len;
        // How far the range is known to be in memory: a slice that the socket takes in pieces is probed once.
        let mut warm_until = offset;
        while left > 0 {
            if warm_until <= offset {
                let len = left.min(SLICE_BYTES);
                if probe(file, offset, len) == Residency::Cold {
                    self.metrics.on_cold_read();
                    let source = Arc::clone(&region.source);
                    self.warm.warm(source, offset, len).await.map_err(CloseReason::FileRead)?;
                }
                warm_until = offset.saturating_add(len as u64);
            }
            let count = left.min(usize::try_from(warm_until - offset).unwrap_or(left));
            let sent = self
                .when_writable(|| {
                    let mut at = offset;
                    Ok(rustix::fs::sendfile(self.stream, file, Some(&mut at), count)?)
                })
                .await?;
            if sent == 0 {
                return Err(CloseReason::FileShort { missing: left });
            }
            offset = offset.saturating_add(sent as u64);
            left -= sent;
        }
        Ok(())
    }

    /// Runs a non-blocking send when the socket takes bytes; gives up when it takes none for `write_stall_max`.
    async fn when_writable(&self, mut send: impl FnMut() -> io::Result<usize>) -> Result<usize, CloseReason> {
        loop {
            match self.stream.try_io(Interest::WRITABLE, &mut send) {
                Ok(sent) => {
                    // Lets other connections of this worker run between the slices of a large response.
                    tokio::task::coop::consume_budget().await;
                    return Ok(sent);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match timeout(self.write_stall_max, self.stream.writable()).await {
                        Ok(ready) => ready?,
                        Err(_elapsed) => return Err(CloseReason::WriteStalled(self.write_stall_max)),
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_disconnect(&error) => return Err(CloseReason::ClientClosed),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn is_disconnect(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}
