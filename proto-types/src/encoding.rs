//! postcard with the strictness that a protocol needs: every byte must be used.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The bytes are not a whole message of the expected type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end early or hold a value that the type does not have.
    #[error("malformed message: {0}")]
    Malformed(String),
    /// The message is whole but more bytes follow it.
    #[error("{0} bytes left over after the message")]
    Leftover(usize),
}

/// Encodes a message. In-memory values of our own types always encode.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("our message types have no unencodable state")
}

/// Decodes a message that must fill `bytes` exactly.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    let (value, rest) =
        postcard::take_from_bytes(bytes).map_err(|e| DecodeError::Malformed(e.to_string()))?;
    if rest.is_empty() { Ok(value) } else { Err(DecodeError::Leftover(rest.len())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftover_bytes_are_an_error() {
        let mut bytes = encode(&(7_u32, "name".to_owned()));
        assert_eq!(decode::<(u32, String)>(&bytes), Ok((7, "name".to_owned())));
        bytes.push(0);
        assert_eq!(decode::<(u32, String)>(&bytes), Err(DecodeError::Leftover(1)));
    }

    #[test]
    fn a_hostile_length_is_an_error_and_not_an_allocation() {
        let bytes = [0xff, 0xff, 0xff, 0xff, 0x0f, 1, 2];
        assert!(matches!(decode::<Vec<u64>>(&bytes), Err(DecodeError::Malformed(_))));
    }
}
