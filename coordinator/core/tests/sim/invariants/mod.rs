//! The rules that every run must keep, one file each. Each says what it saw when it is broken.

pub(crate) mod g1_commit_durable;
pub(crate) mod g2_exclusive;
pub(crate) mod g3_converges;
pub(crate) mod g4_static_unique;
pub(crate) mod g5_stale_rejected;
pub(crate) mod g6_single_writer;
pub(crate) mod g7_after_high_watermark;
pub(crate) mod g8_replay_equivalent;
