//! [`Str`]: UTF-8 text that is a slice of the frame it came in.
//!
//! Cloning is cheap and keeps the whole frame alive. Whoever stores one beyond the request calls [`Str::detach`] (or
//! `to_string`), else a topic name of ten bytes pins a produce request of megabytes.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use bytes::Bytes;

/// Immutable, cheaply cloned UTF-8 text.
#[derive(Clone, Default, Eq, PartialOrd, Ord)]
pub struct Str(Bytes);

impl Str {
    /// Text that lives in the program; costs nothing.
    #[must_use]
    pub const fn from_static(text: &'static str) -> Self {
        Str(Bytes::from_static(text.as_bytes()))
    }

    /// Text over received bytes; `None` unless they are UTF-8.
    #[must_use]
    pub fn from_utf8(bytes: Bytes) -> Option<Self> {
        match std::str::from_utf8(&bytes) {
            Ok(_) => Some(Str(bytes)),
            Err(_) => None,
        }
    }

    /// Text over received bytes; what is not UTF-8 becomes U+FFFD, as Kafka does it.
    #[must_use]
    pub fn from_utf8_lossy(bytes: Bytes) -> Self {
        match std::str::from_utf8(&bytes) {
            Ok(_) => Str(bytes),
            Err(_) => Str::from(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("checked when it was made, and bytes do not change")
    }

    /// The bytes of the text; shares them.
    #[must_use]
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// A copy that holds nothing but the text; for storing beyond the request.
    #[must_use]
    pub fn detach(&self) -> Self {
        Str(Bytes::copy_from_slice(&self.0))
    }
}

impl Deref for Str {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Str {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Str {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

// As `str` hashes, so that maps with `Str` keys can be asked by `&str`.
impl Hash for Str {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl From<&str> for Str {
    fn from(text: &str) -> Self {
        Str(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<String> for Str {
    fn from(text: String) -> Self {
        Str(Bytes::from(text))
    }
}

impl From<&String> for Str {
    fn from(text: &String) -> Self {
        Str::from(text.as_str())
    }
}

impl From<Str> for String {
    fn from(text: Str) -> Self {
        text.as_str().to_owned()
    }
}

// Copies of one text, as keys made from one request are, are told by where they are.
impl PartialEq for Str {
    fn eq(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && (self.0.as_ptr() == other.0.as_ptr() || self.0 == other.0)
    }
}

impl PartialEq<str> for Str {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for Str {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<String> for Str {
    fn eq(&self, other: &String) -> bool {
        self.0 == other.as_bytes()
    }
}

impl fmt::Debug for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn maps_with_str_keys_are_asked_by_text() {
        let map = HashMap::from([(Str::from("orders"), 1)]);
        assert_eq!(map.get("orders"), Some(&1));
    }

    #[test]
    fn what_is_not_utf8_is_refused_or_replaced() {
        let bytes = Bytes::from_static(b"a\xffb");
        assert_eq!(Str::from_utf8(bytes.clone()), None);
        assert_eq!(Str::from_utf8_lossy(bytes), "a\u{fffd}b");
    }
}
