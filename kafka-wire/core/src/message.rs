//! The traits of a whole request or response.

use std::fmt::Debug;
use std::ops::RangeInclusive;

use bytes::Bytes;

use crate::api_key::ApiKey;
use crate::error::{DecodeError, DecodeErrorKind, EncodeError, EncodeErrorKind};
use crate::header::{RequestHeader, ResponseHeader};
use crate::reader::Reader;
use crate::text::Str;
use crate::wire::{Wire, WireVersion};
use crate::writer::{Gathered, Writer};

/// A top-level request or response; derive it with [`KafkaMessage`](crate::KafkaMessage).
pub trait Message: Wire + Default + Clone + Debug + PartialEq + Send + Sync + 'static {
    /// Kafka's name of the message, e.g. `FetchRequest`.
    const NAME: &'static str;
    /// The versions that the codec knows.
    const VERSIONS: RangeInclusive<i16>;

    /// Whether the version has compact lengths and tagged fields.
    fn is_flexible(version: i16) -> bool;

    /// The version as its parts see it; `None` if the codec does not know it.
    #[must_use]
    fn wire_version(version: i16) -> Option<WireVersion> {
        Self::VERSIONS
            .contains(&version)
            .then(|| WireVersion { number: version, flexible: Self::is_flexible(version) })
    }

    /// Reads the message; what follows it is left to the caller.
    fn decode(r: &mut Reader, version: i16) -> Result<Self, DecodeError> {
        let v = Self::wire_version(version).ok_or_else(|| {
            DecodeError::from(DecodeErrorKind::UnknownVersion(version)).at(Self::NAME, "version")
        })?;
        Self::decode_wire(r, v)
    }

    /// Reads a message that fills `bytes` to the last.
    fn decode_exact(bytes: Bytes, version: i16) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let message = Self::decode(&mut reader, version)?;
        reader.finish().map_err(|e| e.at(Self::NAME, "end"))?;
        Ok(message)
    }

    /// Writes the message.
    fn encode(&self, w: &mut Writer, version: i16) -> Result<(), EncodeError> {
        let v = Self::wire_version(version).ok_or_else(|| {
            EncodeError::from(EncodeErrorKind::UnknownVersion(version)).at(Self::NAME, "version")
        })?;
        self.encode_wire(w, v)
    }
}

/// A request, with its place in the protocol.
pub trait Request: Message {
    /// The API that it calls.
    const KEY: ApiKey;
    /// What is answered, in the same version.
    type Response: Message;

    /// A whole frame: length, header, body.
    fn to_frame(
        &self,
        version: i16,
        correlation_id: i32,
        client_id: Option<Str>,
    ) -> Result<Gathered, EncodeError> {
        let mut writer = Writer::frame();
        RequestHeader { api_key: Self::KEY.code(), api_version: version, correlation_id, client_id }
            .encode(&mut writer)?;
        self.encode(&mut writer, version)?;
        writer.finish_frame()
    }

    /// A whole frame with the answer to this API: length, header, body.
    fn response_frame(
        response: &Self::Response,
        version: i16,
        correlation_id: i32,
    ) -> Result<Gathered, EncodeError> {
        let mut writer = Writer::frame();
        ResponseHeader { correlation_id }.encode(&mut writer, Self::KEY, version);
        response.encode(&mut writer, version)?;
        writer.finish_frame()
    }
}
