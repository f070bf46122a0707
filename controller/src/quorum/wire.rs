//! What controllers say to each other, in our own form: the bodies of the raft calls. Frozen like everything on the wire.
//!
//! Every question and every answer comes signed with its sender's data directory ([`Signed`]).

use super::stored::{BorrowedEntry, StoredEntry, StoredLogId, StoredSnapshotMeta, StoredVote};
use proto_types::feature::LevelRange;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A message and whose it is.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Signed<T> {
    /// The sender's data directory.
    pub(crate) directory: Uuid,
    pub(crate) message: T,
}

/// An answer, or why none is given: we are not taken for who we were.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Heard<T> {
    Answer(Signed<T>),
    OtherDirectory(String),
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AppendAsk {
    pub(crate) vote: StoredVote,
    pub(crate) prev_log_id: Option<StoredLogId>,
    pub(crate) leader_commit: Option<StoredLogId>,
    pub(crate) entries: Vec<StoredEntry>,
}

/// [`AppendAsk`] for encoding without copies: the same bytes.
#[derive(Serialize)]
pub(crate) struct BorrowedAppendAsk<'a> {
    pub(crate) vote: StoredVote,
    pub(crate) prev_log_id: Option<StoredLogId>,
    pub(crate) leader_commit: Option<StoredLogId>,
    pub(crate) entries: Vec<BorrowedEntry<'a>>,
}

/// Append-only.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum AppendReply {
    Success,
    PartialSuccess(Option<StoredLogId>),
    Conflict,
    HigherVote(StoredVote),
}

/// Of a vote and of a pre-vote.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VoteAsk {
    pub(crate) vote: StoredVote,
    pub(crate) last_log_id: Option<StoredLogId>,
    pub(crate) leadership_transfer: bool,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VoteReply {
    pub(crate) vote: StoredVote,
    pub(crate) granted: bool,
    pub(crate) last_log_id: Option<StoredLogId>,
}

/// Opens the stream of a snapshot; frames with its bytes follow, then the receiver answers with one [`SnapshotReply`].
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SnapshotHello {
    pub(crate) vote: StoredVote,
    pub(crate) meta: StoredSnapshotMeta,
    pub(crate) bytes: u64,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SnapshotReply {
    pub(crate) vote: StoredVote,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TransferAsk {
    pub(crate) from: StoredVote,
    pub(crate) to: u64,
    pub(crate) last_log_id: Option<StoredLogId>,
}

/// Append-only.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TransferReply {
    Accepted,
    VoteChanged { expected: StoredVote, actual: StoredVote },
    LogNotFlushed { expected: Option<StoredLogId>, actual: Option<StoredLogId> },
}

/// Which feature levels a controller supports.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LevelsReply {
    pub(crate) levels: LevelRange,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::stored::{StoredMembers, StoredPayload};
    use proto_types::feature::FeatureLevel;
    use proto_types::{decode, encode};
    use serde::de::DeserializeOwned;
    use std::fmt::Debug;

    fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T, expected: &str) {
        let bytes = encode(&value);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected, "{value:?}");
        assert_eq!(decode::<T>(&bytes).expect("own bytes decode"), value);
    }

    #[test]
    fn golden_bytes() {
        let vote = StoredVote { term: 3, node: 2, committed: true };
        let id = StoredLogId { term: 3, node: 2, index: 300 };
        check(
            AppendAsk {
                vote,
                prev_log_id: Some(id),
                leader_commit: None,
                entries: vec![StoredEntry { id, payload: StoredPayload::Blank }],
            },
            "030201010302ac0200010302ac0200",
        );
        let directory = Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
        check(
            Heard::Answer(Signed { directory, message: AppendReply::Success }),
            "00100102030405060708090a0b0c0d0e0f1000",
        );
        check(Heard::<AppendReply>::OtherDirectory("m".into()), "01016d");
        check(AppendReply::Success, "00");
        check(AppendReply::PartialSuccess(Some(id)), "01010302ac02");
        check(AppendReply::Conflict, "02");
        check(AppendReply::HigherVote(vote), "03030201");
        check(VoteAsk { vote, last_log_id: Some(id), leadership_transfer: true }, "030201010302ac0201");
        check(VoteReply { vote, granted: true, last_log_id: None }, "0302010100");
        let membership = StoredMembers { configs: vec![vec![1]], members: vec![(1, "a:1".into())] };
        let meta = StoredSnapshotMeta { last_log_id: Some(id), membership_log_id: Some(id), membership };
        check(SnapshotHello { vote, meta, bytes: 300 }, "030201010302ac02010302ac02010101010103613a31ac02");
        check(SnapshotReply { vote }, "030201");
        check(TransferAsk { from: vote, to: 2, last_log_id: None }, "0302010200");
        check(TransferReply::Accepted, "00");
        check(TransferReply::VoteChanged { expected: vote, actual: vote }, "01030201030201");
        let levels = LevelRange { min: FeatureLevel(1), max: FeatureLevel(3) };
        check(LevelsReply { levels }, "0206");
        check(TransferReply::LogNotFlushed { expected: Some(id), actual: None }, "02010302ac0200");
    }

    #[test]
    fn the_borrowed_form_has_the_same_bytes() {
        let vote = StoredVote { term: 3, node: 2, committed: true };
        let id = StoredLogId { term: 3, node: 2, index: 300 };
        let stored = StoredEntry { id, payload: StoredPayload::Changes(vec![]) };
        let entry = stored.clone().into_entry().expect("valid");
        let borrowed = BorrowedAppendAsk {
            vote,
            prev_log_id: None,
            leader_commit: Some(id),
            entries: vec![BorrowedEntry::from(&entry)],
        };
        let owned = AppendAsk { vote, prev_log_id: None, leader_commit: Some(id), entries: vec![stored] };
        assert_eq!(encode(&borrowed), encode(&owned));
    }
}
