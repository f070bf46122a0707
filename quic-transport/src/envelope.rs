//! The bytes of a call: one request frame, one reply frame, each on its own half of a stream.
//!
//! A frame is a length (u32, big-endian) and that many bytes: a postcard header, then the body up to the end of the frame.
//! Bodies are not copied: header and body are written as two pieces and read as slices of one. Layouts are fixed by the
//! golden bytes below; an incompatible change is another ALPN.

use crate::error::Refusal;
use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

/// Bytes of the length prefix.
pub(crate) const PREFIX_LEN: usize = 4;
/// More than any header takes: what is added to a limit on bodies to get the limit on frames.
pub(crate) const HEADER_MAX: usize = 1024;
/// Longest text that a refusal carries.
const REASON_MAX: usize = 512;

/// Ties together what different daemons do for one cause. Zero means none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TraceId(pub u128);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RequestHeader {
    pub(crate) kind: u16,
    pub(crate) version: u16,
    /// Whether frames follow in both directions once the peer has agreed.
    pub(crate) stream: bool,
    pub(crate) request_id: u64,
    /// Time left when the request was written: clocks of daemons are not compared.
    pub(crate) deadline_ms: u32,
    pub(crate) trace: TraceId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReplyHeader {
    pub(crate) request_id: u64,
    pub(crate) outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// The body is the answer; for a stream, frames follow.
    Done,
    /// There is no body.
    Refused(Refusal),
}

impl ReplyHeader {
    pub(crate) fn done(request_id: u64) -> Self {
        Self { request_id, outcome: Outcome::Done }
    }

    pub(crate) fn refused(request_id: u64, refusal: Refusal) -> Self {
        Self { request_id, outcome: Outcome::Refused(shortened(refusal)) }
    }
}

/// A reason is for a log line; it must not break the bound on headers.
fn shortened(refusal: Refusal) -> Refusal {
    let cut = |mut text: String| {
        text.truncate(text.floor_char_boundary(REASON_MAX));
        text
    };
    match refusal {
        Refusal::Malformed(reason) => Refusal::Malformed(cut(reason)),
        Refusal::Failed(reason) => Refusal::Failed(cut(reason)),
        other @ (Refusal::UnknownKind
        | Refusal::WrongShape
        | Refusal::Forbidden
        | Refusal::UnsupportedVersion { .. }
        | Refusal::TooLarge { .. }
        | Refusal::Busy
        | Refusal::DeadlinePassed
        | Refusal::ShuttingDown) => other,
    }
}

/// Length prefix and header, to be followed by the body.
pub(crate) fn head<H: Serialize>(header: &H, body_len: usize) -> Bytes {
    let header = postcard::to_stdvec(header).expect("headers are plain numbers and short texts");
    debug_assert!(header.len() <= HEADER_MAX);
    let length = u32::try_from(header.len() + body_len).expect("limits on bodies stay below 1 GiB");
    let mut head = BytesMut::with_capacity(PREFIX_LEN + header.len());
    head.put_u32(length);
    head.extend_from_slice(&header);
    head.freeze()
}

/// Splits a frame (without its prefix) into header and body.
pub(crate) fn open<'a, H: Deserialize<'a>>(frame: &'a Bytes) -> Result<(H, Bytes), String> {
    let (header, body) = postcard::take_from_bytes::<H>(frame).map_err(|e| e.to_string())?;
    Ok((header, frame.slice_ref(body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn request() -> RequestHeader {
        RequestHeader {
            kind: 1,
            version: 1,
            stream: false,
            request_id: 300,
            deadline_ms: 1500,
            trace: TraceId(0x100),
        }
    }

    #[test]
    fn golden_bytes_of_a_request() {
        let head = head(&request(), 3);
        // length 12 = 9 of header + 3 of body; kind; version; no stream; 300; 1500; trace 256
        assert_eq!(hex(&head), "0000000c010100ac02dc0b8002");
    }

    #[test]
    fn golden_bytes_of_replies() {
        let golden = |header: ReplyHeader| hex(&head(&header, 0));
        assert_eq!(golden(ReplyHeader::done(5)), "000000020500");
        let refusals = [
            (Refusal::UnknownKind, "00000003050100"),
            (Refusal::WrongShape, "00000003050101"),
            (Refusal::Forbidden, "00000003050102"),
            (Refusal::UnsupportedVersion { min: 1, max: 2 }, "000000050501030102"),
            (Refusal::Malformed("no".to_owned()), "00000006050104026e6f"),
            (Refusal::TooLarge { limit: 128 }, "000000050501058001"),
            (Refusal::Busy, "00000003050106"),
            (Refusal::DeadlinePassed, "00000003050107"),
            (Refusal::ShuttingDown, "00000003050108"),
            (Refusal::Failed("x".to_owned()), "000000050501090178"),
        ];
        for (refusal, bytes) in refusals {
            assert_eq!(golden(ReplyHeader::refused(5, refusal.clone())), bytes, "{refusal:?}");
        }
    }

    #[test]
    fn header_and_body_come_apart_again() {
        let mut frame = BytesMut::from(&head(&request(), 4)[PREFIX_LEN..]);
        frame.extend_from_slice(b"body");
        let (header, body) = open::<RequestHeader>(&frame.freeze()).expect("reads");
        assert_eq!(header, request());
        assert_eq!(&body[..], b"body");
    }

    #[test]
    fn cut_or_unknown_headers_are_errors() {
        let whole = head(&request(), 0).slice(PREFIX_LEN..);
        for end in 0..whole.len() {
            assert!(open::<RequestHeader>(&whole.slice(..end)).is_err(), "cut at {end}");
        }
        assert!(open::<ReplyHeader>(&Bytes::from_static(&[5, 2])).is_err(), "unknown outcome");
        assert!(open::<ReplyHeader>(&Bytes::from_static(&[5, 1, 99])).is_err(), "unknown refusal");
    }

    #[test]
    fn a_long_reason_is_cut_at_a_character() {
        let header = ReplyHeader::refused(1, Refusal::Failed("ä".repeat(2000)));
        assert!(head(&header, 0).len() < HEADER_MAX);
        let Outcome::Refused(Refusal::Failed(reason)) = header.outcome else { panic!("refused") };
        assert_eq!(reason.len(), REASON_MAX);
    }
}
