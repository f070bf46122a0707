//! Cuts a stream of bytes into length-prefixed frames. Pure.
//!
//! Nothing is reserved for a length that a peer claims: memory grows with the bytes that arrived. A frame that lies
//! within one received chunk is handed out as a slice of it.

use crate::envelope::PREFIX_LEN;
use bytes::{Buf, Bytes, BytesMut};

/// A frame above the limit: its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Oversized(pub(crate) usize);

#[derive(Debug)]
pub(crate) struct FrameBuffer {
    limit: usize,
    /// The newest chunk, not yet looked at.
    chunk: Bytes,
    /// The beginning of a frame that came in several chunks.
    partial: BytesMut,
}

impl FrameBuffer {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, chunk: Bytes::new(), partial: BytesMut::new() }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Whether the bytes end at the end of a frame.
    pub(crate) fn is_empty(&self) -> bool {
        self.chunk.is_empty() && self.partial.is_empty()
    }

    /// Takes the next chunk. Call only when [`next`](Self::next) has nothing more.
    pub(crate) fn push(&mut self, chunk: Bytes) {
        if self.chunk.is_empty() {
            self.chunk = chunk;
        } else {
            // Fewer bytes than a length prefix were left in the old chunk.
            self.partial.extend_from_slice(&self.chunk);
            self.chunk = chunk;
        }
    }

    /// The length of the frame that comes next, once its prefix is here.
    pub(crate) fn next_len(&mut self) -> Result<Option<usize>, Oversized> {
        self.fill_partial(PREFIX_LEN);
        let mut head = if self.partial.is_empty() { &self.chunk[..] } else { &self.partial[..] };
        if head.len() < PREFIX_LEN {
            return Ok(None);
        }
        let length = head.get_u32() as usize;
        if length > self.limit { Err(Oversized(length)) } else { Ok(Some(length)) }
    }

    /// The next whole frame, without its prefix.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, Oversized> {
        let Some(length) = self.next_len()? else {
            return Ok(None);
        };
        let whole = PREFIX_LEN + length;
        if self.partial.is_empty() && self.chunk.len() >= whole {
            self.chunk.advance(PREFIX_LEN);
            return Ok(Some(self.chunk.split_to(length)));
        }
        if self.partial.is_empty() {
            self.partial.extend_from_slice(&std::mem::take(&mut self.chunk));
        }
        self.fill_partial(whole);
        if self.partial.len() < whole {
            return Ok(None);
        }
        let mut frame = std::mem::take(&mut self.partial).freeze();
        frame.advance(PREFIX_LEN);
        Ok(Some(frame))
    }

    /// Moves bytes into a begun partial frame until it holds `length`.
    fn fill_partial(&mut self, length: usize) {
        if self.partial.is_empty() || self.partial.len() >= length {
            return;
        }
        let missing = (length - self.partial.len()).min(self.chunk.len());
        self.partial.extend_from_slice(&self.chunk.split_to(missing));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backoff::SplitMix;

    fn stream(frames: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for frame in frames {
            bytes.extend_from_slice(&u32::try_from(frame.len()).expect("small").to_be_bytes());
            bytes.extend_from_slice(frame);
        }
        bytes
    }

    #[test]
    fn any_cut_gives_the_same_frames() {
        let seed = std::env::var("WEIR_SEED").ok().and_then(|text| text.parse().ok());
        for seed in seed.map_or(0..300, |seed: u64| seed..seed + 1) {
            println!("WEIR_SEED={seed} cargo test -p quic-transport any_cut_gives_the_same_frames");
            let mut random = SplitMix::new(seed);
            let frames: Vec<Vec<u8>> = (0..random.below(20))
                .map(|_| (0..random.below(40)).map(|_| random.below(256) as u8).collect())
                .collect();
            let mut rest = Bytes::from(stream(&frames));
            let mut buffer = FrameBuffer::new(64);
            let mut got = Vec::new();
            while !rest.is_empty() {
                let size = 1 + random.below(rest.len().min(50) as u64) as usize;
                buffer.push(rest.split_to(size));
                while let Some(frame) = buffer.next().expect("within the limit") {
                    got.push(frame.to_vec());
                }
            }
            assert_eq!(got, frames);
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn a_claimed_length_reserves_nothing_and_the_limit_holds() {
        let mut buffer = FrameBuffer::new(1 << 30);
        buffer.push(Bytes::from_static(&[0x3f, 0xff, 0xff, 0xff, 1]));
        assert_eq!(buffer.next(), Ok(None));
        assert!(buffer.partial.capacity() < 1024);
        assert!(!buffer.is_empty());

        let mut buffer = FrameBuffer::new(3);
        buffer.push(Bytes::from_static(&[0, 0, 0, 4, 1]));
        assert_eq!(buffer.next(), Err(Oversized(4)));
    }

    #[test]
    fn a_frame_within_one_chunk_is_not_copied() {
        let chunk = Bytes::from(stream(&[vec![7; 100]]));
        let mut buffer = FrameBuffer::new(100);
        buffer.push(chunk.clone());
        let frame = buffer.next().expect("fits").expect("whole");
        assert_eq!(frame.as_ptr(), chunk[PREFIX_LEN..].as_ptr());
    }
}
