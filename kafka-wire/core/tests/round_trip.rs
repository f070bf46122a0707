//! Every message in every version comes back from its bytes as it was, alone and through the `kafka-protocol` crate.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod seed;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey as TheirKey, RequestKind, ResponseKind};
use kafka_wire_core::messages::{Visitor, visit};
use kafka_wire_core::sample::{Sample, Sampler};
use kafka_wire_core::{ApiKey, Message, Reader, Request, Writer};

const SAMPLES: usize = 100;

/// What a check sees: the message, its version and its bytes.
trait Check {
    fn check<M: Message>(&mut self, key: ApiKey, is_request: bool, version: i16, message: &M, bytes: &Bytes);
}

struct Samples<C> {
    sampler: Sampler,
    check: C,
}

impl<C: Check> Samples<C> {
    fn message<M: Message + Sample>(&mut self, key: ApiKey, is_request: bool) {
        for version in M::VERSIONS {
            for _ in 0..SAMPLES {
                let message: M = self.sampler.message(version).unwrap();
                let mut writer = Writer::new();
                message
                    .encode(&mut writer, version)
                    .unwrap_or_else(|e| panic!("v{version}: {e}: {message:?}"));
                let bytes = writer.finish().into_bytes().unwrap();
                self.check.check(key, is_request, version, &message, &bytes);
            }
        }
    }
}

impl<C: Check> Visitor for Samples<C> {
    fn api<R>(&mut self)
    where
        R: Request + Sample,
        R::Response: Sample,
    {
        self.message::<R>(R::KEY, true);
        self.message::<R::Response>(R::KEY, false);
    }
}

struct ComesBack;

impl Check for ComesBack {
    fn check<M: Message>(&mut self, _: ApiKey, _: bool, version: i16, message: &M, bytes: &Bytes) {
        let context = || format!("{} v{version}", M::NAME);
        let v = M::wire_version(version).unwrap();
        assert!(M::min_size(v) <= bytes.len(), "{}: smallest size is too large", context());
        let decoded =
            M::decode_exact(bytes.clone(), version).unwrap_or_else(|e| panic!("{}: {e}", context()));
        assert_eq!(&decoded, message, "{}", context());
        // Every shorter prefix is an error: no field is optional at the end.
        let cut = bytes.len() / 2;
        if cut < bytes.len() {
            assert!(M::decode_exact(bytes.slice(..cut), version).is_err(), "{}: cut", context());
        }
        let mut longer = BytesMut::from(&bytes[..]);
        longer.extend_from_slice(&[0]);
        assert!(M::decode_exact(longer.freeze(), version).is_err(), "{}: longer", context());
    }
}

#[test]
fn every_version_of_every_message_comes_back() {
    let sampler = seed::sampler("round_trip", "every_version_of_every_message_comes_back");
    visit(&mut Samples { sampler, check: ComesBack });
}

/// The versions that the `kafka-protocol` crate decodes; its own table of versions is wider than its decoders.
fn they_know(key: ApiKey, version: i16) -> Option<TheirKey> {
    let theirs = TheirKey::try_from(key.code()).ok()?;
    let last = match key {
        ApiKey::InitProducerId => 5,
        ApiKey::OffsetCommit | ApiKey::OffsetFetch => 9,
        _ => theirs.valid_versions().max,
    };
    (theirs.valid_versions().min..=last).contains(&version).then_some(theirs)
}

#[derive(Default)]
struct SameAsTheirs {
    /// What that crate does not know, so that nothing was compared.
    unknown: std::collections::BTreeSet<(ApiKey, i16)>,
}

impl Check for SameAsTheirs {
    fn check<M: Message>(&mut self, key: ApiKey, is_request: bool, version: i16, message: &M, bytes: &Bytes) {
        let Some(their_key) = they_know(key, version) else {
            self.unknown.insert((key, version));
            return;
        };
        let context = || format!("{} v{version}: {message:?}", M::NAME);
        let (mut input, mut output) = (bytes.clone(), BytesMut::new());
        if is_request {
            RequestKind::decode(their_key, &mut input, version)
                .and_then(|theirs| theirs.encode(&mut output, version))
        } else {
            ResponseKind::decode(their_key, &mut input, version)
                .and_then(|theirs| theirs.encode(&mut output, version))
        }
        .unwrap_or_else(|e| panic!("{}: {e}", context()));
        assert!(input.is_empty(), "{}: they left {} bytes", context(), input.len());
        assert_eq!(output, bytes, "{}", context());
        let decoded =
            M::decode_exact(output.freeze(), version).unwrap_or_else(|e| panic!("{}: {e}", context()));
        assert_eq!(&decoded, message);
    }
}

#[test]
fn the_kafka_protocol_crate_reads_and_writes_the_same() {
    let sampler = seed::sampler("round_trip", "the_kafka_protocol_crate_reads_and_writes_the_same");
    let mut samples = Samples { sampler, check: SameAsTheirs::default() };
    visit(&mut samples);
    // The newest versions of a few APIs, and those of Weir's own; all else is compared.
    let unknown = [
        (ApiKey::ListOffsets, 11),
        (ApiKey::OffsetCommit, 10),
        (ApiKey::OffsetFetch, 10),
        (ApiKey::ApiVersions, 5),
        (ApiKey::InitProducerId, 6),
        (ApiKey::DescribeLogDirs, 5),
        (ApiKey::DeleteGroups, 3),
        (ApiKey::AddRaftVoter, 1),
        (ApiKey::DescribeGroupOffsets, 0),
        (ApiKey::DescribeFollowers, 0),
    ];
    assert_eq!(samples.check.unknown, unknown.into());
}

#[test]
fn every_api_is_visited() {
    struct Count(usize);
    impl Visitor for Count {
        fn api<R: Request>(&mut self) {
            self.0 += 1;
            assert_eq!(R::NAME, format!("{}Request", R::KEY));
            assert_eq!(R::Response::NAME, format!("{}Response", R::KEY));
            assert_eq!(R::VERSIONS, R::Response::VERSIONS);
            let stable = R::KEY.versions();
            assert!(R::VERSIONS.contains(stable.start()) && R::VERSIONS.contains(stable.end()));
            for version in R::VERSIONS {
                assert_eq!(R::is_flexible(version), R::KEY.is_flexible(version), "{} v{version}", R::KEY);
                assert_eq!(R::Response::is_flexible(version), R::KEY.is_flexible(version));
            }
        }
    }
    let mut count = Count(0);
    visit(&mut count);
    let modules =
        include_str!("../src/messages.rs").lines().filter(|line| line.starts_with("pub mod ")).count();
    assert_eq!(count.0, modules);
}

#[test]
fn frames_carry_header_and_body() {
    let mut sampler = seed::sampler("round_trip", "frames_carry_header_and_body");
    struct Frames<'a>(&'a mut Sampler);
    impl Visitor for Frames<'_> {
        fn api<R>(&mut self)
        where
            R: Request + Sample,
            R::Response: Sample,
        {
            for version in R::VERSIONS {
                let request: R = self.0.message(version).unwrap();
                let frame = request.to_frame(version, 77, Some("client".into())).unwrap();
                let mut reader = Reader::new(body(frame));
                let header = kafka_wire_core::RequestHeader::decode(&mut reader).unwrap();
                assert_eq!((header.api_key, header.api_version), (R::KEY.code(), version));
                assert_eq!((header.correlation_id, header.client_id), (77, Some("client".into())));
                assert_eq!(R::decode(&mut reader, version), Ok(request));
                assert_eq!(reader.finish(), Ok(()));

                let response: R::Response = self.0.message(version).unwrap();
                let frame = R::response_frame(&response, version, 78).unwrap();
                let mut reader = Reader::new(body(frame));
                let header = kafka_wire_core::ResponseHeader::decode(&mut reader, R::KEY, version).unwrap();
                assert_eq!(header.correlation_id, 78);
                assert_eq!(R::Response::decode(&mut reader, version), Ok(response));
                assert_eq!(reader.finish(), Ok(()));
            }
        }
    }
    fn body(frame: kafka_wire_core::Gathered) -> Bytes {
        let mut buffer = BytesMut::from(&frame.into_bytes().unwrap()[..]);
        let body = kafka_wire_core::frame::split(&mut buffer, usize::MAX).unwrap().unwrap();
        assert!(buffer.is_empty());
        body
    }
    visit(&mut Frames(&mut sampler));
}
