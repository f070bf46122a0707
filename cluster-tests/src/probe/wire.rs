//! A blocking TCP connection that sends any bytes and tells an answer from a hang-up and from silence.
//!
//! Silence is seen without waiting: behind each request goes an ApiVersions request with a number of its own, and a server
//! answers in order.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;

/// How long the server may take to answer or to hang up.
const LIMIT: Duration = Duration::from_secs(12);
/// How long a server that lets a member wait for others is watched: it must not answer early.
const QUIET: Duration = Duration::from_millis(300);
/// The number of a probe's request.
pub(super) const CORRELATION_ID: i32 = 41;
/// The number of the request behind it.
const SENTINEL_ID: [u8; 4] = [0x5e, 0x5e, 0x5e, 0x5e];

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// A frame without its length.
    Frame(Bytes),
    /// The server hung up.
    Closed,
    /// Neither within the limit.
    Nothing,
}

/// What a request led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A frame, and whether the connection served the next request.
    Answered(Bytes, bool),
    /// The server hung up without an answer.
    Closed,
    /// The next request was answered, this one not.
    Silence,
    /// Nothing at all within the limit.
    Nothing,
}

impl Outcome {
    pub(super) fn word(&self) -> &'static str {
        match self {
            Outcome::Answered(..) => "answered",
            Outcome::Closed => "closed",
            Outcome::Silence => "silence",
            Outcome::Nothing => "nothing",
        }
    }
}

pub(super) struct Wire {
    stream: TcpStream,
}

impl Wire {
    pub(super) fn open(address: &str) -> Wire {
        let stream = TcpStream::connect(address).unwrap_or_else(|error| panic!("connect {address}: {error}"));
        stream.set_read_timeout(Some(LIMIT)).expect("a limit can be set");
        stream.set_write_timeout(Some(LIMIT)).expect("a limit can be set");
        stream.set_nodelay(true).expect("Nagle can be switched off");
        Wire { stream }
    }

    /// Sends bytes; the server may hang up meanwhile.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        if let Err(error) = self.stream.write_all(bytes) {
            assert!(is_hang_up(error.kind()), "neither sent nor a hang-up: {error}");
        }
    }

    /// The next frame.
    pub(super) fn receive(&mut self) -> Received {
        let mut length = [0; 4];
        let mut read = || {
            self.stream.read_exact(&mut length)?;
            let length = usize::try_from(i32::from_be_bytes(length)).map_err(std::io::Error::other)?;
            let mut frame = vec![0; length];
            self.stream.read_exact(&mut frame)?;
            Ok::<Bytes, std::io::Error>(Bytes::from(frame))
        };
        match read() {
            Ok(frame) => Received::Frame(frame),
            Err(error) if is_hang_up(error.kind()) => Received::Closed,
            Err(error) if is_time_out(error.kind()) => Received::Nothing,
            Err(error) => panic!("neither an answer nor a hang-up: {error}"),
        }
    }

    /// Sends a frame and says what it led to.
    pub(super) fn exchange(&mut self, frame: &[u8]) -> Outcome {
        self.begin(frame);
        self.outcome()
    }

    /// Sends a frame whose answer others have to bring about first.
    pub(super) fn begin(&mut self, frame: &[u8]) {
        self.send(&[frame, &sentinel()].concat());
    }

    /// Whether nothing comes for a while.
    pub(super) fn is_quiet(&self) -> bool {
        self.stream.set_read_timeout(Some(QUIET)).expect("a limit can be set");
        let waiting = self.stream.peek(&mut [0]);
        self.stream.set_read_timeout(Some(LIMIT)).expect("a limit can be set");
        waiting.is_err_and(|error| is_time_out(error.kind()))
    }

    /// What the frame of [`Wire::begin`] led to.
    pub(super) fn outcome(&mut self) -> Outcome {
        match self.receive() {
            Received::Closed => Outcome::Closed,
            Received::Nothing => Outcome::Nothing,
            Received::Frame(frame) if is_sentinel(&frame) => Outcome::Silence,
            Received::Frame(frame) => {
                let open = matches!(self.receive(), Received::Frame(next) if is_sentinel(&next));
                Outcome::Answered(frame, open)
            }
        }
    }
}

/// A body behind its length.
pub(super) fn framed(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("requests of the probe are small");
    [&length.to_be_bytes(), body].concat()
}

/// ApiVersions, version 0, without a client id.
fn sentinel() -> Vec<u8> {
    framed(&[&[0, 18, 0, 0], &SENTINEL_ID[..], &[0xff, 0xff]].concat())
}

fn is_sentinel(frame: &[u8]) -> bool {
    frame.starts_with(&SENTINEL_ID)
}

fn is_hang_up(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

fn is_time_out(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
