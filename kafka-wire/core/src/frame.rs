//! Cuts a byte stream into frames: four bytes of length, then that many bytes.
//!
//! The shell reads into a `BytesMut` and calls [`split`] after each read; frames come out as slices of that buffer.

use bytes::{Buf, Bytes, BytesMut};
use thiserror::Error;

/// Bytes of the length in front of a frame.
pub const LENGTH: usize = 4;

/// A length that ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// A length below zero.
    #[error("frame of {0} bytes")]
    Negative(i32),
    /// A frame above the limit of the listener.
    #[error("frame of {length} bytes, the limit is {limit}")]
    TooLarge {
        /// What the client announced.
        length: usize,
        /// What it may send.
        limit: usize,
    },
}

/// Length of the frame at the start of `buffer`, without the four bytes in front; `None` until those are there.
pub fn length(buffer: &[u8], limit: usize) -> Result<Option<usize>, FrameError> {
    let Some(head) = buffer.first_chunk::<LENGTH>() else {
        return Ok(None);
    };
    let announced = i32::from_be_bytes(*head);
    let length = usize::try_from(announced).map_err(|_| FrameError::Negative(announced))?;
    if length > limit {
        return Err(FrameError::TooLarge { length, limit });
    }
    Ok(Some(length))
}

/// Takes the first whole frame out of `buffer`, without its length; `None` until all of it is there.
pub fn split(buffer: &mut BytesMut, limit: usize) -> Result<Option<Bytes>, FrameError> {
    match length(buffer, limit)? {
        Some(length) if buffer.len() - LENGTH >= length => {
            buffer.advance(LENGTH);
            Ok(Some(buffer.split_to(length).freeze()))
        }
        Some(_) | None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_whole_however_the_bytes_arrive() {
        let stream = [0, 0, 0, 2, 7, 8, 0, 0, 0, 0, 0, 0, 0, 1, 9];
        for step in 1..=stream.len() {
            let (mut buffer, mut frames) = (BytesMut::new(), Vec::new());
            for piece in stream.chunks(step) {
                buffer.extend_from_slice(piece);
                while let Some(frame) = split(&mut buffer, 2).unwrap() {
                    frames.push(frame);
                }
            }
            assert_eq!(frames, [&[7, 8][..], &[], &[9]]);
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn bad_lengths_are_known_before_the_body_arrives() {
        assert_eq!(length(&[0, 0, 0, 3], 2), Err(FrameError::TooLarge { length: 3, limit: 2 }));
        assert_eq!(length(&[0xff; 4], 2), Err(FrameError::Negative(-1)));
        assert_eq!(length(&[0xff; 3], 2), Ok(None));
    }
}
