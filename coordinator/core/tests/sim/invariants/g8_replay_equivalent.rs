//! G8: replaying the compacted log, replaying the whole log, and the state of the owner are one and the same.

use coordinator_core::ShardOwner;

use crate::log::ModelLog;

/// Compares if the owner has nothing under way; says whether it did.
pub(crate) fn check(log: &ModelLog, owner: &ShardOwner) -> bool {
    let (Some(shard), Some(pipeline)) = (owner.shard(), owner.log()) else { return false };
    shard.check().unwrap_or_else(|rule| panic!("G8: {rule}"));
    if !pipeline.is_settled() {
        return false;
    }
    let end = pipeline.end();
    let whole = log.replay(end, false);
    assert_eq!(&whole, shard.state(), "G8: the owner's state is not that of its log up to {end}");
    // Beyond `end` another owner may have written, which compaction counts.
    if end == log.end() {
        assert_eq!(log.replay(end, true), whole, "G8: compaction changed the state up to {end}");
    }
    true
}
