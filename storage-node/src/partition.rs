//! Partitions on this node: who owns them, how others reach them, what of the metadata they follow.
//!
//! [`Partitions`] opens and drops copies as the metadata says and finds them by id. A [`PartitionHandle`] is how the rest
//! of the node speaks to one copy: writes go through the queue of the log thread that owns it (`crate::disk`), reads go to
//! the log's files directly, guided by the published view. Nothing else knows that there is a channel.

pub(crate) mod batch_times;
pub(crate) mod fetch_wait;
pub(crate) mod handle;
pub(crate) mod metrics;
pub(crate) mod opening;
mod placed;
pub(crate) mod registry;
pub(crate) mod settings;
#[cfg(test)]
pub(crate) mod stalling_disk;
pub(crate) mod tail;
pub(crate) mod validation;

pub(crate) use batch_times::BatchTimes;
pub(crate) use handle::{PartitionHandle, ProduceOutcome, ValidBatch};
pub(crate) use metrics::PartitionMetrics;
pub(crate) use registry::{Lookup, PartitionLimits, Partitions, PartitionsConfig};
pub(crate) use settings::TopicSettings;
