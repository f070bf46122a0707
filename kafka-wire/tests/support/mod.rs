//! A server with a small fake table, and a raw client that sees every byte.

#![allow(dead_code, unreachable_pub, reason = "a module of each test file, which uses its part")]

use std::collections::HashMap;
use std::fs::File;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_wire::{
    ApiTable, Features, Limits, ListenerConfig, OnWritten, Reply, RequestContext, Server, WireMetrics, route,
    staged,
};
use kafka_wire_core::messages::describe_group_offsets::{
    DescribeGroupOffsetsRequest, DescribeGroupOffsetsResponse, DescribedGroupOffsetsTopic,
};
use kafka_wire_core::messages::fetch::{FetchRequest, FetchResponse, FetchableTopicResponse, PartitionData};
use kafka_wire_core::messages::metadata::{MetadataRequest, MetadataResponse, MetadataResponseBroker};
use kafka_wire_core::messages::produce::{ProduceRequest, ProduceResponse};
use kafka_wire_core::{ErrorCode, Message, Part, Reader, Records, Region, Request, ResponseHeader, Str};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};

/// No wait of a test is longer.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What the fake Fetch does, chosen by the request's session id.
pub mod fetch_kind {
    pub const REGION: i32 = 0;
    pub const BYTES: i32 = 1;
    pub const GATHER: i32 = 2;
    pub const SHORT_FILE: i32 = 3;
    pub const PANIC: i32 = 4;
    pub const UNTIL_DRAIN: i32 = 5;
    pub const NOT_A_FILE: i32 = 6;
    pub const CANNOT_ENCODE: i32 = 7;
    pub const FOREVER: i32 = 8;
}

/// The state of the fake handlers.
pub struct Fake {
    /// One line per step of a handler.
    pub steps: watch::Sender<Vec<String>>,
    /// Staged requests wait here, by correlation id.
    pub gates: Mutex<HashMap<i32, oneshot::Sender<()>>>,
    pub file: Arc<File>,
    pub file_bytes: Bytes,
}

impl Fake {
    pub fn step(&self, line: String) {
        self.steps.send_modify(|steps| steps.push(line));
    }

    pub async fn saw(&self, line: &str) {
        let mut steps = self.steps.subscribe();
        let seen = steps.wait_for(|steps| steps.iter().any(|step| step == line));
        tokio::time::timeout(PATIENCE, seen).await.expect(line).unwrap();
    }

    pub fn release(&self, correlation_id: i32) {
        self.gates.lock().remove(&correlation_id).expect("queued").send(()).unwrap();
    }
}

async fn produce(
    fake: Arc<Fake>,
    context: RequestContext,
    request: ProduceRequest,
) -> impl Future<Output = Reply<ProduceResponse>> {
    let (id, arrived) = (context.correlation_id, context.arrived);
    let (open, gate) = oneshot::channel();
    fake.gates.lock().insert(id, open);
    tokio::task::yield_now().await;
    fake.step(format!("queued {id}"));
    async move {
        if request.acks == 0 {
            return match request.transactional_id.as_deref() {
                Some("fail") => Reply::Close("acks=0 and an error".into()),
                _ => Reply::Silence,
            };
        }
        let _cut = gate.await;
        fake.step(format!("answered {id}"));
        if request.transactional_id.as_deref() == Some("observe") {
            let response = ProduceResponse { throttle_time_ms: id, ..ProduceResponse::default() };
            let observe = move |written| {
                assert!(written >= arrived);
                fake.step(format!("written {id}"));
            };
            return Reply::Observed(response, OnWritten::new(observe));
        }
        Reply::Response(ProduceResponse { throttle_time_ms: id, ..ProduceResponse::default() })
    }
}

async fn fetch(fake: Arc<Fake>, context: RequestContext, request: FetchRequest) -> FetchResponse {
    let len = usize::try_from(request.max_bytes).unwrap();
    let file: Arc<dyn std::any::Any + Send + Sync> = fake.file.clone();
    let records = match request.session_id {
        fetch_kind::REGION => Records::Region(Region { source: file, offset: 1000, len }),
        fetch_kind::BYTES => Records::Bytes(fake.file_bytes.slice(1000..1000 + len)),
        fetch_kind::GATHER => Records::Gather(vec![
            Part::Bytes(fake.file_bytes.slice(1000..1010)),
            Part::Region(Region { source: file, offset: 1010, len: len - 20 }),
            Part::Bytes(fake.file_bytes.slice(1000 + len - 10..1000 + len)),
        ]),
        fetch_kind::SHORT_FILE => {
            Records::Region(Region { source: file, offset: fake.file_bytes.len() as u64 - 10, len })
        }
        fetch_kind::PANIC => panic!("a handler that panics"),
        fetch_kind::UNTIL_DRAIN => {
            fake.step(format!("polling {}", context.correlation_id));
            context.draining.cancelled().await;
            Records::default()
        }
        fetch_kind::NOT_A_FILE => Records::Region(Region { source: Arc::new(7_u8), offset: 0, len }),
        fetch_kind::CANNOT_ENCODE => Records::Region(Region { source: file, offset: 0, len: usize::MAX }),
        fetch_kind::FOREVER => {
            fake.step(format!("polling {}", context.correlation_id));
            let _dropped = StepOnDrop(fake.clone(), format!("dropped {}", context.correlation_id));
            std::future::pending().await
        }
        other => panic!("unknown kind {other}"),
    };
    FetchResponse {
        responses: vec![FetchableTopicResponse {
            topic: Str::from("t"),
            partitions: vec![PartitionData { records: Some(records), ..PartitionData::default() }],
            ..FetchableTopicResponse::default()
        }],
        ..FetchResponse::default()
    }
}

struct StepOnDrop(Arc<Fake>, String);

impl Drop for StepOnDrop {
    fn drop(&mut self) {
        self.0.step(std::mem::take(&mut self.1));
    }
}

async fn metadata(fake: Arc<Fake>, context: RequestContext, _request: MetadataRequest) -> MetadataResponse {
    let id = context.correlation_id;
    fake.step(format!("begin {id}"));
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
    fake.step(format!("end {id}"));
    MetadataResponse {
        brokers: vec![MetadataResponseBroker {
            node_id: 1,
            host: Str::from(&context.listener.advertised.host),
            port: i32::from(context.listener.advertised.port),
            ..MetadataResponseBroker::default()
        }],
        cluster_id: context.software.map(|software| Str::from(&software.name)),
        controller_id: 1,
        ..MetadataResponse::default()
    }
}

async fn describe_group_offsets(
    _fake: Arc<Fake>,
    _context: RequestContext,
    request: DescribeGroupOffsetsRequest,
) -> DescribeGroupOffsetsResponse {
    let topic = DescribedGroupOffsetsTopic { name: request.group_id, ..Default::default() };
    DescribeGroupOffsetsResponse { topics: vec![topic], ..Default::default() }
}

pub fn table() -> Arc<ApiTable<Fake>> {
    let rows = vec![
        staged(3..=13, produce),
        route(4..=17, fetch),
        route(0..=13, metadata),
        route(0..=0, describe_group_offsets),
    ];
    let features = Features {
        supported: vec![("a.version".to_owned(), 1, 3), ("b.version".to_owned(), 0, 2)],
        finalized: vec![("a.version".to_owned(), 2)],
        epoch: 7,
    };
    Arc::new(ApiTable::new(rows).unwrap().with_identity("cluster", 1).with_features(move || features.clone()))
}

/// A running server with its fake.
pub struct Door {
    pub server: Server,
    pub fake: Arc<Fake>,
    pub metrics: Arc<WireMetrics>,
    pub address: SocketAddr,
}

pub fn listener(name: &str, bind: &str) -> ListenerConfig {
    ListenerConfig { name: name.to_owned(), bind: bind.parse().unwrap(), advertised: None }
}

pub fn open_door(limits: Limits) -> Door {
    open_door_at(limits, &[listener("PLAINTEXT", "127.0.0.1:0")])
}

pub fn open_door_at(limits: Limits, listeners: &[ListenerConfig]) -> Door {
    let mut bytes = BytesMut::zeroed(5 << 20);
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = (index.wrapping_mul(2_654_435_761) >> 13) as u8;
    }
    // On the disk of the build directory: a temporary directory may be memory, which is never cold.
    let mut file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::io::Write::write_all(&mut file, &bytes).unwrap();
    let fake = Arc::new(Fake {
        steps: watch::Sender::new(Vec::new()),
        gates: Mutex::default(),
        file: Arc::new(file),
        file_bytes: bytes.freeze(),
    });
    let metrics = WireMetrics::detached();
    let server = Server::bind(listeners, table(), Arc::clone(&fake), limits, Arc::clone(&metrics)).unwrap();
    let address = server.listeners()[0].bound;
    Door { server, fake, metrics, address }
}

impl Door {
    /// Waits until this many connections are open at the server.
    pub async fn wait_open(&self, count: i64) {
        let waiting = async {
            while self.metrics.connections_open() != count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| {
            panic!("{} connections open, expected {count}", self.metrics.connections_open())
        });
    }

    /// A request on a fresh connection is answered.
    pub async fn assert_alive(&self) {
        let mut raw = Raw::connect(self.address).await;
        raw.send(&MetadataRequest::default(), 12, 77).await;
        raw.receive::<MetadataRequest>(12, 77).await;
    }
}

/// A client that writes and reads frames without any cleverness.
pub struct Raw(pub TcpStream);

impl Raw {
    pub async fn connect(address: SocketAddr) -> Self {
        Self(tokio::time::timeout(PATIENCE, TcpStream::connect(address)).await.unwrap().unwrap())
    }

    pub async fn send<R: Request>(&mut self, request: &R, version: i16, correlation_id: i32) {
        let frame = frame(request, version, correlation_id);
        self.send_bytes(&frame).await;
    }

    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        tokio::time::timeout(PATIENCE, self.0.write_all(bytes)).await.unwrap().unwrap();
    }

    /// The next frame as it comes, without its length.
    pub async fn receive_frame(&mut self) -> Option<Bytes> {
        let receiving = async {
            let size = self.0.read_i32().await.ok()?;
            let mut frame = vec![0; usize::try_from(size).unwrap()];
            self.0.read_exact(&mut frame).await.ok()?;
            Some(Bytes::from(frame))
        };
        tokio::time::timeout(PATIENCE, receiving).await.expect("a frame or the end in time")
    }

    pub async fn receive<R: Request>(&mut self, version: i16, correlation_id: i32) -> R::Response {
        let frame = self.receive_frame().await.expect("a response");
        let mut reader = Reader::new(frame);
        let header = ResponseHeader::decode(&mut reader, R::KEY, version).unwrap();
        assert_eq!(header.correlation_id, correlation_id);
        R::Response::decode_exact(reader.rest(), version).unwrap()
    }

    pub async fn expect_closed(&mut self) {
        assert_eq!(self.receive_frame().await, None, "the connection is closed without a response");
    }
}

pub fn frame<R: Request>(request: &R, version: i16, correlation_id: i32) -> Bytes {
    request.to_frame(version, correlation_id, Some(Str::from("test"))).unwrap().into_bytes().unwrap()
}

pub fn produce_request(acks: i16) -> ProduceRequest {
    ProduceRequest { acks, timeout_ms: 1000, ..ProduceRequest::default() }
}

pub fn fetch_request(kind: i32, len: usize) -> FetchRequest {
    FetchRequest { session_id: kind, max_bytes: i32::try_from(len).unwrap(), ..FetchRequest::default() }
}

pub fn records_of(response: &FetchResponse) -> &Bytes {
    assert_eq!(response.error_code, ErrorCode::None);
    response.responses[0].partitions[0].records.as_ref().unwrap().as_bytes().unwrap()
}
