//! One connection of the client: ApiVersions first, then one request at a time.
//!
//! A request that fails half-way (time-out, dropped future, broken bytes) takes the socket with it: what comes later on
//! that socket would answer another request.

use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Bytes, BytesMut};
use kafka_wire_core::messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use kafka_wire_core::{ErrorCode, Message, Part, Reader, Request, ResponseHeader, Str};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::api_versions::WEIR_SOFTWARE;
use crate::client::{ClientConfig, ClientError};
use crate::config::HostPort;

/// Bytes of a response that are allocated before they have come.
const FIRST_ALLOCATION_BYTES: usize = 64 << 10;
/// Newest version of ApiVersions that the client begins with: later ones state the cluster that is expected.
const API_VERSIONS_FIRST: i16 = 4;

/// A connection to one node.
#[derive(Debug)]
pub struct Connection {
    address: HostPort,
    config: ClientConfig,
    socket: Mutex<Option<Socket>>,
    open: AtomicBool,
    versions: BTreeMap<i16, RangeInclusive<i16>>,
}

#[derive(Debug)]
struct Socket {
    stream: TcpStream,
    next_correlation_id: i32,
}

impl Connection {
    /// Connects and asks for the node's versions.
    pub async fn open(address: HostPort, config: &ClientConfig) -> Result<Self, ClientError> {
        let after = config.connect_timeout;
        let connecting = async {
            let stream = TcpStream::connect((address.host.as_str(), address.port))
                .await
                .map_err(|source| ClientError::Io { address: address.clone(), source })?;
            stream
                .set_nodelay(true)
                .map_err(|source| ClientError::Io { address: address.clone(), source })?;
            let mut connection = Self {
                address: address.clone(),
                config: config.clone(),
                socket: Mutex::new(Some(Socket { stream, next_correlation_id: 0 })),
                open: true.into(),
                versions: BTreeMap::new(),
            };
            connection.negotiate().await?;
            Ok(connection)
        };
        match timeout(after, connecting).await {
            Ok(result) => result,
            Err(_elapsed) => Err(ClientError::Timeout { address, during: "connecting", after }),
        }
    }

    /// The node's address.
    pub fn address(&self) -> &HostPort {
        &self.address
    }

    /// Whether the connection can still be used.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// The versions of each API key that the node announced.
    pub fn announced(&self) -> &BTreeMap<i16, RangeInclusive<i16>> {
        &self.versions
    }

    /// The highest version of `R` that both sides know.
    pub fn version<R: Request>(&self) -> Result<i16, ClientError> {
        let (min, max) = (*R::VERSIONS.start(), *R::VERSIONS.end());
        self.versions
            .get(&R::KEY.code())
            .map(|theirs| (min.max(*theirs.start()), max.min(*theirs.end())))
            .filter(|(low, high)| low <= high)
            .map(|(_, high)| high)
            .ok_or_else(|| ClientError::UnsupportedVersion {
                address: self.address.clone(),
                api: R::KEY.name(),
                min,
                max,
            })
    }

    /// Calls at the highest common version.
    pub async fn call<R: Request>(&self, request: &R) -> Result<R::Response, ClientError> {
        self.call_version(request, self.version::<R>()?).await
    }

    /// Calls in this very version, announced or not.
    pub async fn call_version<R: Request>(
        &self,
        request: &R,
        version: i16,
    ) -> Result<R::Response, ClientError> {
        let body = self.exchange(request, version).await?;
        R::Response::decode_exact(body, version).map_err(|error| self.decode_error::<R>(error))
    }

    async fn negotiate(&mut self) -> Result<(), ClientError> {
        let newest = (*ApiVersionsRequest::VERSIONS.end()).min(API_VERSIONS_FIRST);
        let mut response = self.ask_versions(newest).await?;
        if response.error_code == ErrorCode::UnsupportedVersion {
            let key = ApiVersionsRequest::KEY.code();
            let theirs = response.api_keys.iter().find(|entry| entry.api_key == key);
            let version = theirs.map_or(0, |entry| entry.max_version.clamp(0, newest));
            response = self.ask_versions(version).await?;
        }
        if !response.error_code.is_none() {
            let what = format!("{} refused ApiVersions", self.address);
            return Err(ClientError::Kafka { what, code: response.error_code });
        }
        self.versions = response
            .api_keys
            .iter()
            .map(|entry| (entry.api_key, entry.min_version..=entry.max_version))
            .collect();
        Ok(())
    }

    /// The node's versions; a node that does not know `version` answers in version 0.
    async fn ask_versions(&self, version: i16) -> Result<ApiVersionsResponse, ClientError> {
        let request = ApiVersionsRequest {
            client_software_name: Str::from_static(WEIR_SOFTWARE),
            client_software_version: Str::from_static(env!("CARGO_PKG_VERSION")),
            ..ApiVersionsRequest::default()
        };
        let body = self.exchange(&request, version).await?;
        let unsupported = body.starts_with(&ErrorCode::UnsupportedVersion.code().to_be_bytes());
        let version = if unsupported { 0 } else { version };
        ApiVersionsResponse::decode_exact(body, version)
            .map_err(|error| self.decode_error::<ApiVersionsRequest>(error))
    }

    fn decode_error<R: Request>(&self, error: kafka_wire_core::DecodeError) -> ClientError {
        ClientError::Decode { address: self.address.clone(), api: R::KEY.name(), error }
    }

    /// Sends the request and returns the body of its response.
    async fn exchange<R: Request>(&self, request: &R, version: i16) -> Result<Bytes, ClientError> {
        let api = R::KEY.name();
        let closed = || ClientError::Closed { address: self.address.clone(), during: api };
        let mut place = self.socket.lock().await;
        let mut socket = place.take().ok_or_else(closed)?;
        let mut broken = MarkBroken { open: &self.open, armed: true };
        let correlation_id = socket.next_correlation_id;
        socket.next_correlation_id = correlation_id.wrapping_add(1);
        let client_id = Some(Str::from(&self.config.client_id));
        let frame = request
            .to_frame(version, correlation_id, client_id)
            .map_err(|error| ClientError::Encode { api, version, error });
        let after = self.config.request_timeout;
        let exchanged = match frame {
            Ok(frame) => timeout(after, self.send_and_receive(&mut socket.stream, &frame.parts)).await,
            Err(error) => {
                // Nothing was sent: the socket is as good as before.
                broken.armed = false;
                *place = Some(socket);
                return Err(error);
            }
        };
        let frame = match exchanged {
            Ok(Ok(frame)) => frame,
            Ok(Err(Broken::Socket(source))) if is_close(&source) => return Err(closed()),
            Ok(Err(Broken::Socket(source))) => {
                return Err(ClientError::Io { address: self.address.clone(), source });
            }
            Ok(Err(Broken::Protocol(what))) => {
                return Err(ClientError::Protocol { address: self.address.clone(), what });
            }
            Err(_elapsed) => {
                return Err(ClientError::Timeout { address: self.address.clone(), during: api, after });
            }
        };
        let mut reader = Reader::new(frame);
        let header = ResponseHeader::decode(&mut reader, R::KEY, version)
            .map_err(|error| self.decode_error::<R>(error))?;
        if header.correlation_id != correlation_id {
            let what = format!("request {correlation_id} was answered by {}", header.correlation_id);
            return Err(ClientError::Protocol { address: self.address.clone(), what });
        }
        broken.armed = false;
        *place = Some(socket);
        Ok(reader.rest())
    }

    async fn send_and_receive(&self, stream: &mut TcpStream, parts: &[Part]) -> Result<Bytes, Broken> {
        for part in parts {
            match part {
                Part::Bytes(bytes) => stream.write_all(bytes).await?,
                Part::Region(_) => return Err(Broken::Protocol("a request holds a file region".to_owned())),
            }
        }
        let announced = stream.read_i32().await?;
        let max = self.config.response_bytes_max;
        let size = usize::try_from(announced).ok().filter(|size| *size <= max).ok_or_else(|| {
            Broken::Protocol(format!("a response announces {announced} bytes, limit {max}"))
        })?;
        let mut frame = BytesMut::with_capacity(size.min(FIRST_ALLOCATION_BYTES));
        let mut rest = (&mut *stream).take(size as u64);
        while frame.len() < size {
            if rest.read_buf(&mut frame).await? == 0 {
                return Err(Broken::Socket(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        Ok(frame.freeze())
    }
}

/// Marks the connection as unusable unless the exchange came to its end.
struct MarkBroken<'a> {
    open: &'a AtomicBool,
    armed: bool,
}

impl Drop for MarkBroken<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.open.store(false, Ordering::Relaxed);
        }
    }
}

/// How an exchange broke.
enum Broken {
    Socket(io::Error),
    Protocol(String),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Socket(error)
    }
}

fn is_close(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}
