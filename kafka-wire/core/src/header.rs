//! Request and response headers: which API, which version, which question an answer belongs to.
//!
//! Requests: header v1 (client id), or v2 (v1 and tagged fields) for flexible versions of the API. Responses: v0, or v1
//! (with tagged fields) for flexible versions, except ApiVersions, whose answer must be readable by a client that does not
//! know the version: always v0.

use crate::api_key::ApiKey;
use crate::error::{DecodeError, DecodeErrorKind, EncodeError};
use crate::reader::Reader;
use crate::text::Str;
use crate::wire::{NullableWire, WireVersion};
use crate::writer::Writer;

/// What stands in front of every request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHeader {
    /// The API, as its number: it may be one that we do not have.
    pub api_key: i16,
    /// Version of the request's body and of the answer.
    pub api_version: i16,
    /// Comes back in the answer.
    pub correlation_id: i32,
    /// How the client calls itself; what is not UTF-8 is replaced, as Kafka does.
    pub client_id: Option<Str>,
}

impl RequestHeader {
    /// Reads the header and leaves the reader at the body. An unknown API is an error, since then nobody can know where
    /// the header ends; an unknown version is not.
    pub fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Self::decode_fields(r).map_err(|e| e.at("RequestHeader", "fields"))
    }

    fn decode_fields(r: &mut Reader) -> Result<Self, DecodeError> {
        let api_key = r.i16()?;
        let api_version = r.i16()?;
        let key = ApiKey::try_from(api_key).map_err(|code| DecodeErrorKind::UnknownApiKey(code.0))?;
        let correlation_id = r.i32()?;
        // The client id keeps its two-byte length in flexible versions too.
        let client_id = r.string(false)?;
        if key.is_flexible(api_version) {
            r.tagged_fields(|_, _| Ok(false))?;
        }
        Ok(RequestHeader { api_key, api_version, correlation_id, client_id })
    }

    /// Writes the header.
    pub fn encode(&self, w: &mut Writer) -> Result<(), EncodeError> {
        w.i16(self.api_key);
        w.i16(self.api_version);
        w.i32(self.correlation_id);
        let plain = WireVersion { number: 1, flexible: false };
        Str::encode_nullable(self.client_id.as_ref(), w, plain)
            .map_err(|e| e.at("RequestHeader", "client_id"))?;
        if ApiKey::try_from(self.api_key).is_ok_and(|key| key.is_flexible(self.api_version)) {
            w.empty_tagged_fields();
        }
        Ok(())
    }
}

/// What stands in front of every response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseHeader {
    /// That of the request.
    pub correlation_id: i32,
}

impl ResponseHeader {
    /// Reads the header of an answer to `key` in `version`.
    pub fn decode(r: &mut Reader, key: ApiKey, version: i16) -> Result<Self, DecodeError> {
        let mut read = || {
            let correlation_id = r.i32()?;
            if has_tagged_fields(key, version) {
                r.tagged_fields(|_, _| Ok(false))?;
            }
            Ok(ResponseHeader { correlation_id })
        };
        read().map_err(|e: DecodeError| e.at("ResponseHeader", "fields"))
    }

    /// Writes the header of an answer to `key` in `version`.
    pub fn encode(&self, w: &mut Writer, key: ApiKey, version: i16) {
        w.i32(self.correlation_id);
        if has_tagged_fields(key, version) {
            w.empty_tagged_fields();
        }
    }
}

fn has_tagged_fields(key: ApiKey, version: i16) -> bool {
    key != ApiKey::ApiVersions && key.is_flexible(version)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn decode(bytes: &'static [u8]) -> Result<RequestHeader, DecodeErrorKind> {
        RequestHeader::decode(&mut Reader::new(Bytes::from_static(bytes))).map_err(|e| e.kind)
    }

    #[test]
    fn the_first_request_of_a_java_client() {
        // ApiVersions v3, correlation id 1, client id "c", no tagged fields.
        let bytes = &[0, 18, 0, 3, 0, 0, 0, 1, 0, 1, b'c', 0];
        let header = decode(bytes).unwrap();
        assert_eq!(
            header,
            RequestHeader { api_key: 18, api_version: 3, correlation_id: 1, client_id: Some("c".into()) }
        );
        let mut writer = Writer::new();
        header.encode(&mut writer).unwrap();
        assert_eq!(writer.finish().into_bytes().as_deref(), Some(&bytes[..]));
    }

    #[test]
    fn short_headers_and_unknown_apis_are_errors() {
        let whole: &'static [u8] = &[0, 18, 0, 3, 0, 0, 0, 1, 0, 1, b'c', 0];
        for length in 0..whole.len() {
            assert!(decode(&whole[..length]).is_err(), "{length} bytes");
        }
        assert_eq!(
            decode(&[0x7f, 0xff, 0, 0, 0, 0, 0, 1, 0xff, 0xff]),
            Err(DecodeErrorKind::UnknownApiKey(0x7fff))
        );
        assert_eq!(decode(&[0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xfe]), Err(DecodeErrorKind::Length(-2)));
    }

    #[test]
    fn unknown_versions_are_left_to_the_caller() {
        let header = decode(&[0, 18, 0, 99, 0, 0, 0, 1, 0xff, 0xff, 0]).unwrap();
        assert_eq!((header.api_version, header.client_id), (99, None));
        assert!(decode(&[0, 18, 0xff, 0xff, 0, 0, 0, 1, 0xff, 0xff]).is_ok());
    }

    #[test]
    fn only_the_answer_of_api_versions_never_has_tagged_fields() {
        for (key, version, bytes) in [
            (ApiKey::ApiVersions, 3, &[0, 0, 0, 9][..]),
            (ApiKey::Metadata, 8, &[0, 0, 0, 9]),
            (ApiKey::Metadata, 9, &[0, 0, 0, 9, 0]),
        ] {
            let header = ResponseHeader { correlation_id: 9 };
            let mut writer = Writer::new();
            header.encode(&mut writer, key, version);
            let written = writer.finish().into_bytes().unwrap();
            assert_eq!(written, bytes);
            let mut reader = Reader::new(written);
            assert_eq!(ResponseHeader::decode(&mut reader, key, version), Ok(header));
            assert_eq!(reader.finish(), Ok(()));
        }
    }
}
