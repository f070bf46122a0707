//! A blocking TCP connection that sends any bytes and tells whether the server answered or hung up.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use kafka_wire_core::messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use kafka_wire_core::{ErrorCode, Message, Reader, Request, ResponseHeader};

/// How long the server may take to answer or to hang up.
const LIMIT: Duration = Duration::from_secs(20);

pub(crate) struct RawConnection {
    stream: TcpStream,
}

impl RawConnection {
    pub(crate) fn open(bootstrap: &str) -> RawConnection {
        let stream = TcpStream::connect(bootstrap).expect("the server listens");
        stream.set_read_timeout(Some(LIMIT)).expect("a limit can be set");
        stream.set_write_timeout(Some(LIMIT)).expect("a limit can be set");
        RawConnection { stream }
    }

    /// Sends bytes; the server may hang up meanwhile.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        if let Err(error) = self.stream.write_all(bytes) {
            assert!(is_hang_up(error.kind()), "{error}");
        }
    }

    /// The body of the next frame; none if the server hung up.
    pub(crate) fn receive(&mut self) -> Option<Bytes> {
        let mut length = [0; 4];
        if !self.fill(&mut length) {
            return None;
        }
        let length = usize::try_from(i32::from_be_bytes(length)).expect("lengths are positive");
        let mut frame = vec![0; length];
        assert!(self.fill(&mut frame), "the server hung up inside a frame");
        Some(Bytes::from(frame))
    }

    fn fill(&mut self, buffer: &mut [u8]) -> bool {
        match self.stream.read_exact(buffer) {
            Ok(()) => true,
            Err(error) if is_hang_up(error.kind()) => false,
            Err(error) => panic!("neither an answer nor a hang-up: {error}"),
        }
    }

    /// Sends a request and decodes the answer; none if the server hung up.
    pub(crate) fn call<R: Request>(&mut self, request: &R, version: i16) -> Option<R::Response> {
        self.send(&frame(request, version));
        let mut reader = Reader::new(self.receive()?);
        let header = ResponseHeader::decode(&mut reader, R::KEY, version).expect("the header is readable");
        assert_eq!(header.correlation_id, CORRELATION_ID);
        let response = R::Response::decode(&mut reader, version).expect("the answer is readable");
        reader.finish().expect("nothing is left over");
        Some(response)
    }

    /// Asks for the versions, as any client does first; fails unless the server answers well.
    pub(crate) fn assert_alive(&mut self) -> ApiVersionsResponse {
        let request = ApiVersionsRequest {
            client_software_name: "raw".into(),
            client_software_version: "1".into(),
            ..ApiVersionsRequest::default()
        };
        let response = self.call(&request, 3).expect("the server serves a well-behaved client");
        assert_eq!(response.error_code, ErrorCode::None);
        response
    }
}

pub(crate) const CORRELATION_ID: i32 = 41;

/// A whole frame as bytes.
pub(crate) fn frame<R: Request>(request: &R, version: i16) -> Bytes {
    let gathered =
        request.to_frame(version, CORRELATION_ID, Some("raw".into())).expect("the version can say it");
    gathered.into_bytes().expect("requests hold bytes only")
}

fn is_hang_up(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}
