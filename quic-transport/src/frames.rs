//! The two halves of a long-lived stream: whole frames in order, with back-pressure.
//!
//! Sending waits while the other side does not read (flow control of the connection and of the stream). A half that is
//! dropped without [`FrameSender::finish`] is an error at the other side, so "the end" is never confused with "a crash".

use crate::envelope::PREFIX_LEN;
use crate::error::FrameError;
use crate::frame_buffer::{FrameBuffer, Oversized};
use crate::memory::{PipeReceiver, PipeSender};
use crate::metrics::GaugeGuard;
use crate::peer::Link;
use bytes::{BufMut, Bytes, BytesMut};
use prometheus_client::metrics::counter::Counter;
use quinn::VarInt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// Reset code of a sender that was dropped before its end.
const ABANDONED: VarInt = VarInt::from_u32(1);
/// Most bytes that one read takes out of the connection.
const CHUNK_MAX: usize = 1 << 20;
/// Frames up to this size are copied together into one write; larger ones are handed over as they are.
const COALESCE_MAX: usize = 4096;

pub(crate) enum Sink {
    Quic(quinn::SendStream),
    Memory(PipeSender),
}

/// The sending half.
pub struct FrameSender {
    sink: Sink,
    limit: usize,
    /// True from the beginning of a write to its end: still true means that a write was given up half-way.
    writing: bool,
    finished: bool,
    sent: Counter,
    _open: GaugeGuard,
    /// The asking side's connection lives as long as its streams.
    _link: Option<Arc<dyn Link>>,
}

impl FrameSender {
    pub(crate) fn new(sink: Sink, limit: usize, sent: Counter, open: GaugeGuard) -> Self {
        Self { sink, limit, writing: false, finished: false, sent, _open: open, _link: None }
    }

    pub(crate) fn keeping(self, link: Arc<dyn Link>) -> Self {
        let mut keeping = self;
        keeping._link = Some(link);
        keeping
    }

    /// Sends one frame; returns when it is in the connection's buffer, not when it has arrived.
    ///
    /// Not cancel-safe: after giving up a send half-way every further one fails with [`FrameError::Abandoned`].
    pub async fn send(&mut self, frame: Bytes) -> Result<(), FrameError> {
        self.send_all(vec![frame]).await
    }

    /// Sends several frames with one write.
    pub async fn send_all(&mut self, frames: Vec<Bytes>) -> Result<(), FrameError> {
        if let Some(frame) = frames.iter().find(|frame| frame.len() > self.limit) {
            return Err(FrameError::TooLarge { length: frame.len(), limit: self.limit });
        }
        if self.writing {
            return Err(FrameError::Abandoned);
        }
        let total: usize = frames.iter().map(Bytes::len).sum();
        self.writing = true;
        match &mut self.sink {
            Sink::Quic(stream) => {
                let mut pieces = pieces(&frames);
                stream.write_all_chunks(&mut pieces).await.map_err(|e| FrameError::closed(write_ended(e)))?;
            }
            Sink::Memory(pipe) => {
                for frame in frames {
                    pipe.send(frame).await?;
                }
            }
        }
        self.writing = false;
        self.sent.inc_by(total as u64);
        Ok(())
    }

    /// Sends a message as one frame.
    pub async fn send_message<T: Serialize>(&mut self, message: &T) -> Result<(), FrameError> {
        self.send(Bytes::from(proto_types::encode(message))).await
    }

    /// Ends the stream properly: the other side reads all frames, then the end.
    pub async fn finish(mut self) -> Result<(), FrameError> {
        if self.writing {
            return Err(FrameError::Abandoned);
        }
        self.finished = true;
        match &mut self.sink {
            Sink::Quic(stream) => stream.finish().map_err(|e| FrameError::closed(e.to_string())),
            Sink::Memory(pipe) => pipe.finish().await,
        }
    }

    /// Completes when the other side no longer reads or the connection is gone.
    pub async fn closed(&self) {
        match &self.sink {
            Sink::Quic(stream) => {
                let _how = stream.stopped().await;
            }
            Sink::Memory(pipe) => pipe.closed().await,
        }
    }

    /// Largest frame that may be sent, bytes.
    pub fn frame_bytes_max(&self) -> usize {
        self.limit
    }
}

impl Drop for FrameSender {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        match &mut self.sink {
            // Fails only if the stream is over already.
            Sink::Quic(stream) => {
                let _over = stream.reset(ABANDONED);
            }
            Sink::Memory(pipe) => pipe.abandon(),
        }
    }
}

impl std::fmt::Debug for FrameSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrameSender").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// Prefixes and frames in order, small neighbours copied together.
fn pieces(frames: &[Bytes]) -> Vec<Bytes> {
    let mut pieces = Vec::with_capacity(2 * frames.len());
    let mut small = BytesMut::new();
    for frame in frames {
        let length = u32::try_from(frame.len()).expect("the limit on frames is at most 1 GiB");
        small.reserve(PREFIX_LEN);
        small.put_u32(length);
        if frame.len() <= COALESCE_MAX {
            small.extend_from_slice(frame);
        } else {
            pieces.push(small.split().freeze());
            pieces.push(frame.clone());
        }
    }
    if !small.is_empty() {
        pieces.push(small.freeze());
    }
    pieces
}

pub(crate) enum Source {
    Quic(FrameReader),
    Memory(PipeReceiver),
}

/// The receiving half. Dropping it tells the sender to stop.
pub struct FrameReceiver {
    source: Source,
    received: Counter,
    _link: Option<Arc<dyn Link>>,
}

impl FrameReceiver {
    pub(crate) fn new(source: Source, received: Counter) -> Self {
        Self { source, received, _link: None }
    }

    pub(crate) fn keeping(self, link: Arc<dyn Link>) -> Self {
        Self { _link: Some(link), ..self }
    }

    /// The next frame, or `None` after the sender's proper end. Cancel-safe.
    pub async fn recv(&mut self) -> Result<Option<Bytes>, FrameError> {
        let frame = match &mut self.source {
            Source::Quic(reader) => reader.next().await?,
            Source::Memory(pipe) => pipe.recv().await?,
        };
        self.received.inc_by(frame.as_ref().map_or(0, Bytes::len) as u64);
        Ok(frame)
    }

    /// The next frame as a message, which must use it up. Cancel-safe.
    pub async fn recv_message<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        match self.recv().await? {
            Some(frame) => {
                proto_types::decode(&frame).map(Some).map_err(|e| FrameError::Malformed(e.to_string()))
            }
            None => Ok(None),
        }
    }
}

impl std::fmt::Debug for FrameReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrameReceiver").finish_non_exhaustive()
    }
}

/// Frames out of a QUIC stream. All methods are cancel-safe: what was read stays in the buffer.
pub(crate) struct FrameReader {
    stream: quinn::RecvStream,
    buffer: FrameBuffer,
}

impl FrameReader {
    pub(crate) fn new(stream: quinn::RecvStream, limit: usize) -> Self {
        Self { stream, buffer: FrameBuffer::new(limit) }
    }

    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.buffer.set_limit(limit);
    }

    /// Tells the sender that nothing more will be read.
    pub(crate) fn stop(&mut self, code: VarInt) {
        // Fails only if the stream is over already.
        let _over = self.stream.stop(code);
    }

    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, FrameError> {
        loop {
            match self.buffer.next() {
                Ok(Some(frame)) => return Ok(Some(frame)),
                Ok(None) => {}
                Err(oversized) => return Err(self.too_large(oversized)),
            }
            if !self.fill().await? {
                return if self.buffer.is_empty() { Ok(None) } else { Err(FrameError::Truncated) };
            }
        }
    }

    /// The length of the next frame, before its bytes are read.
    pub(crate) async fn next_len(&mut self) -> Result<Option<usize>, FrameError> {
        loop {
            match self.buffer.next_len() {
                Ok(Some(length)) => return Ok(Some(length)),
                Ok(None) => {}
                Err(oversized) => return Err(self.too_large(oversized)),
            }
            if !self.fill().await? {
                return if self.buffer.is_empty() { Ok(None) } else { Err(FrameError::Truncated) };
            }
        }
    }

    /// Whether the stream ends here.
    pub(crate) async fn at_end(&mut self) -> Result<bool, FrameError> {
        Ok(self.buffer.is_empty() && !self.fill().await?)
    }

    /// Reads a chunk; false at the end of the stream.
    async fn fill(&mut self) -> Result<bool, FrameError> {
        let chunk = self.stream.read_chunk(CHUNK_MAX, true).await;
        match chunk.map_err(|e| FrameError::closed(read_ended(e)))? {
            Some(chunk) => {
                self.buffer.push(chunk.bytes);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    fn too_large(&self, Oversized(length): Oversized) -> FrameError {
        FrameError::TooLarge { length, limit: self.buffer.limit() }
    }
}

/// How a stream ended that was being read: the connection's own reason if the connection is lost.
fn read_ended(error: quinn::ReadError) -> String {
    match error {
        quinn::ReadError::ConnectionLost(reason) => reason.to_string(),
        quinn::ReadError::Reset(_)
        | quinn::ReadError::ClosedStream
        | quinn::ReadError::IllegalOrderedRead
        | quinn::ReadError::ZeroRttRejected => error.to_string(),
    }
}

/// The same for a stream that was being written.
pub(crate) fn write_ended(error: quinn::WriteError) -> String {
    match error {
        quinn::WriteError::ConnectionLost(reason) => reason.to_string(),
        quinn::WriteError::Stopped(_)
        | quinn::WriteError::ClosedStream
        | quinn::WriteError::ZeroRttRejected => error.to_string(),
    }
}
