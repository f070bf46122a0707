//! Record data on its way through: opaque to the codec, never copied.
//!
//! A decoded message holds slices of its frame. A message to be encoded may hold bytes, a region of a file that the
//! connection sends by `sendfile`, or several of both.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// A piece of something that only the shell can read, normally a file.
#[derive(Clone)]
pub struct Region {
    /// What to read from; the connection downcasts it to what it can send (`std::fs::File`).
    pub source: Arc<dyn Any + Send + Sync>,
    /// First byte of the region in the source.
    pub offset: u64,
    /// Bytes of the region.
    pub len: usize,
}

impl PartialEq for Region {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.source, &other.source) && (self.offset, self.len) == (other.offset, other.len)
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} + {})", self.offset, self.len)
    }
}

/// One entry of a gather list.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Bytes in memory.
    Bytes(Bytes),
    /// Bytes that the shell reads when it sends them.
    Region(Region),
}

impl Part {
    /// Bytes of this part.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Part::Bytes(bytes) => bytes.len(),
            Part::Region(region) => region.len,
        }
    }

    /// Whether it holds no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The record batches of one partition in a Produce request or Fetch response.
#[derive(Clone, Debug)]
pub enum Records {
    /// Bytes in memory; the only form that decoding yields.
    Bytes(Bytes),
    /// A region of a file.
    Region(Region),
    /// Several of both, in order.
    Gather(Vec<Part>),
}

impl Records {
    /// Bytes of all batches together.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Records::Bytes(bytes) => bytes.len(),
            Records::Region(region) => region.len,
            Records::Gather(parts) => parts.iter().map(Part::len).sum(),
        }
    }

    /// Whether there is no batch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, if all of them are in memory in one piece.
    #[must_use]
    pub fn as_bytes(&self) -> Option<&Bytes> {
        match self {
            Records::Bytes(bytes) => Some(bytes),
            Records::Region(_) | Records::Gather(_) => None,
        }
    }

    fn parts(&self) -> Vec<Part> {
        match self {
            Records::Bytes(bytes) => vec![Part::Bytes(bytes.clone())],
            Records::Region(region) => vec![Part::Region(region.clone())],
            Records::Gather(parts) => parts.clone(),
        }
    }
}

impl Default for Records {
    fn default() -> Self {
        Records::Bytes(Bytes::new())
    }
}

impl PartialEq for Records {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Records::Bytes(ours), Records::Bytes(theirs)) => ours == theirs,
            _ => self.parts() == other.parts(),
        }
    }
}

impl From<Bytes> for Records {
    fn from(bytes: Bytes) -> Self {
        Records::Bytes(bytes)
    }
}

impl From<Region> for Records {
    fn from(region: Region) -> Self {
        Records::Region(region)
    }
}

impl From<Vec<Part>> for Records {
    fn from(parts: Vec<Part>) -> Self {
        Records::Gather(parts)
    }
}
