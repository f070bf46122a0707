//! Topics out of the subscription that a consumer sends in JoinGroup; all else in it is the members' own business.

use std::collections::BTreeSet;

use bytes::Bytes;
use kafka_wire_core::{DecodeError, Reader, Str};

/// Topics of a consumer's subscription; `None` if the bytes are not one.
pub(crate) fn topics(subscription: &Bytes) -> Option<BTreeSet<Str>> {
    read(subscription).ok().flatten()
}

fn read(subscription: &Bytes) -> Result<Option<BTreeSet<Str>>, DecodeError> {
    let mut reader = Reader::new(subscription.clone());
    if reader.i16()? < 0 {
        return Ok(None);
    }
    let count = reader.i32()?;
    let mut topics = BTreeSet::new();
    // Each turn reads at least two bytes, so the bytes bound the count.
    for _ in 0..count {
        let length = reader.u16()?;
        let name = reader.slice(usize::from(length))?;
        topics.insert(Str::from_utf8_lossy(name).detach());
    }
    Ok((count >= 0).then_some(topics))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_topics_and_refuses_nonsense() {
        let bytes = Bytes::from_static(b"\0\x01\0\0\0\x02\0\x01a\0\x02bc\xff\xff\xff\xff");
        assert_eq!(topics(&bytes), Some(BTreeSet::from(["a".into(), "bc".into()])));
        assert_eq!(topics(&Bytes::from_static(b"\xff\xff\0\0\0\0")), None);
        assert_eq!(topics(&Bytes::from_static(b"\0\0\x7f\xff\xff\xff\0\x01a")), None);
        assert_eq!(topics(&Bytes::from_static(b"\0\0\xff\xff\xff\xff")), None);
        assert_eq!(topics(&Bytes::new()), None);
    }
}
