//! One shard, asked by hand: every request of the classic protocol with its exact codes, offsets, what operators ask,
//! expiry, bounds, and that replay gives back what was served.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admin;
mod bounds;
mod desk;
mod expiry;
mod membership;
mod offsets;
mod rebalance;
mod replay;
mod statics;
mod take_over;
