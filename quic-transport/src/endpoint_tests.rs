//! An endpoint against peers that do not keep the rules: raw QUIC without [`Peer`](crate::Peer) in between.

use crate::backoff::SplitMix;
use crate::config::{EndpointConfig, Limits, PathProfile};
use crate::endpoint::Endpoint;
use crate::envelope::{self, Outcome, ReplyHeader, RequestHeader, TraceId};
use crate::error::{CallError, Refusal};
use crate::identity::{Identity, Role, Roles};
use crate::metrics::TransportMetrics;
use crate::node_keys::NodeKeys;
use crate::peer::{PeerTarget, Transport};
use crate::pki::{CertificateAuthority, Credentials, Validity};
use crate::router::Router;
use crate::testing::TestCluster;
use crate::tls::Tls;
use bytes::Bytes;
use proto_types::message_kind::MessageKind;
use quinn::crypto::rustls::QuicClientConfig;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

const LONG: Duration = Duration::from_secs(20);
const CALL: MessageKind = MessageKind::Controller;
const LIMITS: fn() -> Limits = || Limits { call_bytes_max: 4096, ..Limits::default() };

fn router() -> Router {
    let everybody = Roles::of(&Role::ALL);
    Router::builder()
        .call(CALL, everybody, |call| async move { Ok(call.body) })
        .stream(MessageKind::MetadataFeed, everybody, |_call, sender, _receiver| async move {
            let _finished = sender.finish().await;
        })
        .build()
}

fn serve(config: EndpointConfig) -> Endpoint {
    Endpoint::bind(config, router(), TransportMetrics::unregistered()).expect("binds")
}

fn client(config: EndpointConfig) -> Endpoint {
    Endpoint::bind(config, Router::empty(), TransportMetrics::unregistered()).expect("binds")
}

/// A QUIC client that has the certificates but not the manners.
async fn raw(server: &Endpoint, crypto: QuicClientConfig) -> Result<quinn::Connection, String> {
    let endpoint =
        quinn::Endpoint::client(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).map_err(|e| e.to_string())?;
    let config = quinn::ClientConfig::new(Arc::new(crypto));
    let connecting = endpoint.connect_with(config, server.local_addr(), "x").map_err(|e| e.to_string())?;
    connecting.await.map_err(|e| e.to_string())
}

async fn raw_member(cluster: &TestCluster, server: &Endpoint) -> quinn::Connection {
    let tls = Tls::new(cluster.credentials(Role::Admin, 9)).expect("usable");
    let crypto = tls.client(server.identity().clone()).expect("usable");
    raw(server, crypto).await.expect("connects")
}

/// Writes bytes, ends the stream, reads the reply's outcome; `None` if there is no reply.
async fn outcome(connection: &quinn::Connection, bytes: &[u8]) -> Option<Outcome> {
    let (mut send, mut receive) = connection.open_bi().await.expect("connection lives");
    // The server may refuse before it has read everything.
    let _stopped = send.write_all(bytes).await;
    let _stopped = send.finish();
    let reply = tokio::time::timeout(LONG, receive.read_to_end(1 << 20)).await.expect("the stream ends");
    let reply = Bytes::from(reply.ok()?);
    if reply.is_empty() {
        return None;
    }
    let (header, _body) = envelope::open::<ReplyHeader>(&reply.slice(4..)).expect("a reply header");
    Some(header.outcome)
}

fn request(body: &[u8]) -> Vec<u8> {
    let header = RequestHeader {
        kind: CALL.number(),
        version: 1,
        stream: false,
        request_id: 1,
        deadline_ms: 5000,
        trace: TraceId::default(),
    };
    [&envelope::head(&header, body.len())[..], body].concat()
}

fn is_malformed(outcome: Option<Outcome>) -> bool {
    matches!(outcome, Some(Outcome::Refused(Refusal::Malformed(_))))
}

#[tokio::test]
async fn broken_requests_are_refused_and_harm_nobody() {
    let cluster = TestCluster::new("hostile");
    let server = serve(cluster.config(Role::Controller, 1, LIMITS()));
    let bad = raw_member(&cluster, &server).await;
    assert_eq!(outcome(&bad, &request(b"fine")).await, Some(Outcome::Done));
    assert_eq!(outcome(&bad, b"").await, None);
    assert!(is_malformed(outcome(&bad, &[0, 0]).await), "half a length");
    assert!(is_malformed(outcome(&bad, &[0, 0, 0, 9, 1, 1]).await), "half a frame");
    assert!(is_malformed(outcome(&bad, &[0, 0, 0, 1, 1]).await), "half a header");
    assert!(is_malformed(outcome(&bad, &[&request(b"x")[..], b"more"].concat()).await), "bytes left over");
    let too_large = Some(Outcome::Refused(Refusal::TooLarge { limit: 4096 }));
    assert_eq!(outcome(&bad, &[0xff; 64]).await, too_large, "a length of 4 GiB");
    assert_eq!(outcome(&bad, &request(&[0; 4097])).await, too_large, "a body one byte too long");
    assert_eq!(outcome(&bad, &request(&[0; 4096])).await, Some(Outcome::Done));
    let mut overflow = request(b"");
    overflow[4..7].copy_from_slice(&[0xff, 0xff, 0xff]);
    assert!(is_malformed(outcome(&bad, &overflow).await), "a number out of range");

    let good = client(cluster.config(Role::StorageNode, 2, LIMITS()));
    let good = good.peer(PeerTarget::new(server.local_addr(), server.identity().clone()));
    assert_eq!(good.call(CALL, "x".into(), LONG).await, Ok("x".into()));
}

#[tokio::test]
async fn random_bytes_never_end_the_server() {
    let cluster = TestCluster::new("hostile");
    let server = serve(cluster.config(Role::Controller, 1, LIMITS()));
    let bad = raw_member(&cluster, &server).await;
    let fixed = std::env::var("WEIR_SEED").ok().and_then(|text| text.parse().ok());
    for seed in fixed.map_or(0..300, |seed: u64| seed..seed + 1) {
        println!("WEIR_SEED={seed} cargo test -p quic-transport random_bytes_never_end_the_server");
        let mut random = SplitMix::new(seed);
        let mut bytes = request(&vec![7; random.below(200) as usize]);
        for _ in 0..=random.below(8) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.next() as u8;
        }
        bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
        // Whatever it is, the answer is typed or none, and the connection goes on.
        let _any = outcome(&bad, &bytes).await;
    }
    assert_eq!(outcome(&bad, &request(b"fine")).await, Some(Outcome::Done));
}

#[tokio::test]
async fn a_request_that_does_not_come_is_not_waited_for() {
    let cluster = TestCluster::new("hostile");
    let mut config = cluster.config(Role::Controller, 1, LIMITS());
    config.timing.transfer = Duration::from_millis(50);
    let server = serve(config);
    let bad = raw_member(&cluster, &server).await;
    let (mut send, mut receive) = bad.open_bi().await.expect("connection lives");
    send.write_all(&[0, 0]).await.expect("written");
    let ended = tokio::time::timeout(LONG, receive.read_to_end(1024)).await.expect("given up by the server");
    assert!(ended.is_err() || ended.is_ok_and(|bytes| bytes.is_empty()), "there is nothing to answer");
    let stopped = tokio::time::timeout(LONG, send.stopped()).await.expect("told to stop");
    assert!(stopped.is_ok());
}

#[tokio::test]
async fn only_bidirectional_streams_are_open_to_peers() {
    let cluster = TestCluster::new("hostile");
    let server = serve(cluster.config(Role::Controller, 1, LIMITS()));
    let bad = raw_member(&cluster, &server).await;
    let short = Duration::from_millis(100);
    assert!(tokio::time::timeout(short, bad.open_uni()).await.is_err(), "no credit for one-way streams");
    assert_eq!(bad.max_datagram_size(), None);
    let limits = LIMITS();
    let most = limits.calls_per_peer + limits.streams_per_peer;
    let mut open = Vec::new();
    while let Ok(stream) = tokio::time::timeout(short, bad.open_bi()).await {
        open.push(stream.expect("connection lives"));
    }
    assert_eq!(open.len(), most as usize);
}

#[tokio::test]
async fn the_path_profile_is_in_force() {
    let cluster = TestCluster::new("paths");
    for (path, low, high) in [(PathProfile::LOOPBACK, 64_000, 65_000), (PathProfile::LAN, 1200, 1452)] {
        let mut config = cluster.config(Role::Controller, 1, Limits::default());
        config.path = path;
        let server = serve(config.clone());
        let tls = Tls::new(cluster.credentials(Role::Admin, 9)).expect("usable");
        let mut endpoint = quinn::EndpointConfig::default();
        endpoint.max_udp_payload_size(65_527).expect("in range");
        let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("binds");
        let endpoint = quinn::Endpoint::new(endpoint, None, socket, Arc::new(quinn::TokioRuntime));
        let endpoint = endpoint.expect("endpoint");
        let crypto = tls.client(server.identity().clone()).expect("usable");
        let mut client = quinn::ClientConfig::new(Arc::new(crypto));
        client.transport_config(Arc::new(super::endpoint::common_transport(
            path,
            &config.limits,
            &config.timing,
        )));
        let connecting = endpoint.connect_with(client, server.local_addr(), "x").expect("valid");
        let connection = connecting.await.expect("connects");
        assert_eq!(outcome(&connection, &request(&vec![1; 100_000])).await, Some(Outcome::Done));
        let mtu = connection.stats().path.current_mtu;
        assert!((low..=high).contains(&mtu), "{path:?} gives an MTU of {mtu}");
        let handshake =
            connection.handshake_data().expect("done").downcast::<quinn::crypto::rustls::HandshakeData>();
        assert_eq!(handshake.expect("rustls").protocol.as_deref(), Some(crate::ALPN));
    }
}

/// Calls `server` with `credentials`; the error if there is one.
async fn call_with(server: &Endpoint, credentials: Credentials) -> Result<Bytes, CallError> {
    let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let endpoint = client(EndpointConfig::new(bind, credentials, NodeKeys::random().endpoint("test")));
    let peer = endpoint.peer(PeerTarget::new(server.local_addr(), server.identity().clone()));
    peer.call(CALL, "x".into(), Duration::from_secs(5)).await
}

#[tokio::test]
async fn only_members_with_good_certificates_get_in() {
    let cluster = TestCluster::new("members");
    let server = serve(cluster.config(Role::Controller, 1, Limits::default()));
    assert_eq!(call_with(&server, cluster.credentials(Role::Admin, 1)).await, Ok("x".into()));

    // The same cluster id from another authority: the client does not trust the server, nor the server the client.
    let forged = TestCluster::new("members").credentials(Role::Admin, 1);
    let error = call_with(&server, forged).await.expect_err("another authority");
    assert!(matches!(error, CallError::Unreachable { .. }), "{error:?}");

    let authority = CertificateAuthority::create("dated", TestCluster::validity()).expect("made");
    let issue = |role, id, validity| {
        let identity = Identity::new("dated", role, id).expect("valid");
        authority.issue(&identity, validity).expect("issued")
    };
    let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let keys = NodeKeys::random().endpoint("test");
    let credentials = issue(Role::Controller, 1, TestCluster::validity());
    let server = serve(EndpointConfig::new(bind, credentials, keys));
    let long_ago = Validity {
        not_before: SystemTime::UNIX_EPOCH,
        not_after: SystemTime::UNIX_EPOCH + Duration::from_hours(24),
    };
    assert!(call_with(&server, issue(Role::Admin, 1, TestCluster::validity())).await.is_ok());
    let error = call_with(&server, issue(Role::Admin, 1, long_ago)).await.expect_err("expired");
    assert!(
        matches!(&error, CallError::Closed { reason } | CallError::Unreachable { reason }
            if reason.contains("certificate")),
        "{error:?}"
    );
}

#[tokio::test]
async fn without_certificate_or_protocol_nobody_gets_in() {
    let cluster = TestCluster::new("members");
    let server = serve(cluster.config(Role::Controller, 1, Limits::default()));
    let member = cluster.credentials(Role::Admin, 1);
    let forged = TestCluster::new("members").credentials(Role::Admin, 1);
    let attempts = [(&b"h3"[..], Some(member)), (crate::ALPN, None), (crate::ALPN, Some(forged))];
    for (alpn, credentials) in attempts {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Trusting));
        let mut config = if let Some(credentials) = credentials {
            let (chain, key) = (credentials.chain().expect("readable"), credentials.key().expect("readable"));
            builder.with_client_auth_cert(chain, key).expect("usable")
        } else {
            builder.with_no_client_auth()
        };
        config.alpn_protocols = vec![alpn.to_vec()];
        let crypto = QuicClientConfig::try_from(config).expect("QUIC");
        // TLS 1.3 lets a client believe that it is connected before the server has looked at it.
        if let Ok(connection) = raw(&server, crypto).await {
            let closed = tokio::time::timeout(LONG, connection.closed()).await.expect("thrown out");
            assert!(matches!(closed, quinn::ConnectionError::ConnectionClosed(_)), "{closed:?}");
        }
    }
}

/// T-37: what comes before the handshake is done could be a replay. A member that wants to send early, and remembers what it
/// could resume, finds nothing to do it with.
#[tokio::test]
async fn nothing_can_be_sent_before_the_handshake_is_done() {
    let cluster = TestCluster::new("early");
    let server = serve(cluster.config(Role::Controller, 1, Limits::default()));
    let member = cluster.credentials(Role::Admin, 1);
    let mut config =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Trusting))
            .with_client_auth_cert(member.chain().expect("readable"), member.key().expect("readable"))
            .expect("usable");
    config.alpn_protocols = vec![crate::ALPN.to_vec()];
    config.enable_early_data = true;
    let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(config).expect("QUIC")));
    let endpoint = quinn::Endpoint::client(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("binds");
    let connect = || endpoint.connect_with(config.clone(), server.local_addr(), "x").expect("valid");
    let first = connect().await.expect("a member gets in");
    // Tickets for the next time come before this reply.
    assert_eq!(outcome(&first, &request(b"x")).await, Some(Outcome::Done));
    let Err(connecting) = connect().into_0rtt() else { panic!("the server gave what early data needs") };
    let second = connecting.await.expect("by a full handshake");
    assert_eq!(outcome(&second, &request(b"x")).await, Some(Outcome::Done));
}

/// Between client and server: passes datagrams on, but only small ones once it is told so.
async fn narrow_path(server: SocketAddr, narrow: Arc<AtomicBool>) -> SocketAddr {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let outside = tokio::net::UdpSocket::bind(any).await.expect("binds");
    let inside = tokio::net::UdpSocket::bind(any).await.expect("binds");
    let address = outside.local_addr().expect("bound");
    tokio::spawn(async move {
        let (mut from_client, mut from_server) = (vec![0; 65_536], vec![0; 65_536]);
        let mut client = None;
        let fits = |length: usize| length <= 1200 || !narrow.load(Ordering::Relaxed);
        // A datagram that cannot be passed on is lost, as on any path.
        loop {
            tokio::select! {
                Ok((length, from)) = outside.recv_from(&mut from_client) => {
                    client = Some(from);
                    if fits(length) {
                        let _lost = inside.send_to(&from_client[..length], server).await;
                    }
                }
                Ok((length, _)) = inside.recv_from(&mut from_server) => {
                    if let (Some(client), true) = (client, fits(length)) {
                        let _lost = outside.send_to(&from_server[..length], client).await;
                    }
                }
            }
        }
    });
    address
}

/// T-39: a path that swallows large datagrams, from the beginning or from one moment on, is found out.
#[tokio::test]
async fn a_path_that_swallows_large_datagrams_slows_down_but_does_not_hang() {
    let cluster = TestCluster::new("paths");
    let mut config = cluster.config(Role::Controller, 1, Limits::default());
    // The proxy knows no batches.
    config.path = PathProfile { segmentation_offload: false, ..PathProfile::LAN };
    let server = serve(config.clone());
    let narrow = Arc::new(AtomicBool::new(false));
    let path = narrow_path(server.local_addr(), Arc::clone(&narrow)).await;
    let body = Bytes::from(vec![7; 200_000]);
    for begins_narrow in [false, true] {
        narrow.store(begins_narrow, Ordering::Relaxed);
        let mut config = cluster.config(Role::StorageNode, 2, Limits::default());
        config.path = PathProfile { segmentation_offload: false, ..PathProfile::LAN };
        let endpoint = client(config);
        let peer = endpoint.peer(PeerTarget::new(path, server.identity().clone()));
        assert_eq!(peer.call(CALL, body.clone(), LONG).await.as_ref(), Ok(&body));
        narrow.store(true, Ordering::Relaxed);
        for _ in 0..3 {
            assert_eq!(peer.call(CALL, body.clone(), LONG).await.as_ref(), Ok(&body));
        }
        endpoint.shutdown(Duration::from_secs(1)).await;
    }
}

/// Believes any server.
#[derive(Debug)]
struct Trusting;

impl rustls::client::danger::ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _end_entity: &rustls_pki_types::CertificateDer<'_>,
        _intermediates: &[rustls_pki_types::CertificateDer<'_>],
        _server_name: &rustls_pki_types::ServerName<'_>,
        _ocsp_response: &[u8],
        _now: rustls_pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &rustls_pki_types::CertificateDer<'_>,
        _signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &rustls_pki_types::CertificateDer<'_>,
        _signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        vec![rustls::SignatureScheme::ED25519]
    }
}

#[tokio::test]
async fn under_load_an_address_must_be_proven_first() {
    let cluster = TestCluster::new("retry");
    let limits = Limits { handshakes_before_retry: 0, ..Limits::default() };
    let mut registry = prometheus_client::registry::Registry::default();
    let metrics = TransportMetrics::register(&mut registry);
    let config = cluster.config(Role::Controller, 1, limits);
    let server = Endpoint::bind(config, router(), metrics).expect("binds");
    assert_eq!(call_with(&server, cluster.credentials(Role::Admin, 1)).await, Ok("x".into()));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("encodes");
    assert!(
        text.contains("transport_retries_total ") && !text.contains("transport_retries_total 0\n"),
        "{text}"
    );
}

#[tokio::test]
async fn connections_per_peer_are_bounded() {
    let cluster = TestCluster::new("bounded");
    let limits = Limits { connections_per_peer: 1, ..Limits::default() };
    let server = serve(cluster.config(Role::Controller, 1, limits));
    let target = PeerTarget::new(server.local_addr(), server.identity().clone());
    let first = client(cluster.config(Role::StorageNode, 2, Limits::default()));
    let held = first.peer(target.clone());
    assert!(held.call(CALL, "x".into(), LONG).await.is_ok());
    let second = client(cluster.config(Role::StorageNode, 2, Limits::default()));
    let refused = second.peer(target.clone());
    let error = refused.call(CALL, "x".into(), Duration::from_secs(5)).await.expect_err("one too many");
    assert!(error.to_string().contains("too many connections"), "{error:?}");
    let other = client(cluster.config(Role::StorageNode, 3, Limits::default()));
    assert!(other.peer(target).call(CALL, "x".into(), LONG).await.is_ok(), "another peer has its own count");
    first.shutdown(Duration::ZERO).await;
    let begun = tokio::time::Instant::now();
    while refused.call(CALL, "x".into(), Duration::from_secs(1)).await.is_err() {
        assert!(begun.elapsed() < LONG, "the place of a closed connection is free again");
    }
}

#[tokio::test]
async fn lanes_are_connections_of_their_own_and_handles_share() {
    let cluster = TestCluster::new("lanes");
    let limits = Limits { connections_per_peer: 2, ..Limits::default() };
    let server = serve(cluster.config(Role::StorageNode, 1, limits));
    let endpoint = client(cluster.config(Role::StorageNode, 2, Limits::default()));
    let target = PeerTarget::new(server.local_addr(), server.identity().clone());
    let lane = PeerTarget { lane: 1, ..target.clone() };
    let (one, same, other) = (endpoint.peer(target.clone()), endpoint.peer(target), endpoint.peer(lane));
    assert!(one.call(CALL, "x".into(), LONG).await.is_ok());
    assert!(same.is_connected() && !other.is_connected());
    assert!(other.call(CALL, "x".into(), LONG).await.is_ok());
    other.disconnect("test");
    assert!(same.is_connected());
}

#[tokio::test]
async fn the_wildcard_of_ip_version_6_answers_both_families() {
    let cluster = TestCluster::new("families");
    let mut config = cluster.config(Role::Controller, 1, Limits::default());
    config.bind = "[::]:0".parse().expect("an address");
    config.path = PathProfile::LAN;
    let server = serve(config);
    let port = server.local_addr().port();
    for (local, remote) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "[::1]"), ("[::]:0", "127.0.0.1")] {
        let mut config = cluster.config(Role::Admin, 1, Limits::default());
        config.bind = local.parse().expect("an address");
        let endpoint = client(config);
        let address = format!("{remote}:{port}").parse().expect("an address");
        let peer = endpoint.peer(PeerTarget::new(address, server.identity().clone()));
        assert_eq!(peer.call(CALL, "x".into(), LONG).await, Ok("x".into()), "{local} to {remote}");
    }
}

#[test]
fn settings_that_cannot_work_are_named() {
    use crate::config::ConfigError;
    let cluster = TestCluster::new("config");
    let check = |change: fn(&mut EndpointConfig)| {
        let mut config = cluster.config(Role::Controller, 1, Limits::default());
        change(&mut config);
        config.validate()
    };
    assert_eq!(check(|_| {}), Ok(()));
    assert_eq!(check(|c| c.path = PathProfile::LAN), Ok(()));
    assert_eq!(check(|c| c.path = PathProfile { mtu: 6550, segmentation_offload: true }), Ok(()));
    assert_eq!(
        check(|c| c.path = PathProfile { mtu: 6551, segmentation_offload: true }),
        Err(ConfigError::MtuTooLargeForOffload(6551))
    );
    assert_eq!(
        check(|c| c.path = PathProfile { mtu: 1199, segmentation_offload: false }),
        Err(ConfigError::MtuOutOfRange(1199))
    );
    assert_eq!(
        check(|c| c.path = PathProfile { mtu: 65_001, segmentation_offload: false }),
        Err(ConfigError::MtuOutOfRange(65_001))
    );
    assert_eq!(check(|c| c.limits.calls_total = 0), Err(ConfigError::Zero("calls_total")));
    assert_eq!(check(|c| c.timing.idle = Duration::ZERO), Err(ConfigError::Zero("idle")));
    assert_eq!(check(|c| c.timing.keep_alive = Duration::from_secs(3)), Err(ConfigError::KeepAliveTooRare));
    assert_eq!(
        check(|c| c.limits.stream_window_bytes = c.limits.receive_window_bytes + 1),
        Err(ConfigError::StreamWindowTooLarge)
    );
    assert_eq!(
        check(|c| c.limits.frame_bytes_max = usize::MAX),
        Err(ConfigError::TooLarge("frame_bytes_max"))
    );
    assert_eq!(
        check(|c| c.limits.call_bytes_max = c.limits.call_memory_bytes + 1),
        Err(ConfigError::TooLarge("call_bytes_max"))
    );
}
