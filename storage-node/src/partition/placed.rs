//! Which data directory each copy lies in when a node starts.

use std::collections::HashMap;

use log_engine::{DataDir, FileError};
use proto_types::ids::TopicPartition;

use crate::disk::log_thread::partition_of;

/// The data directory of each copy. One whose folder is gone belongs where it was: another directory, which never had it, would
/// take it for new and let it lead without its records.
pub(super) fn where_copies_are(directories: &[DataDir]) -> Result<HashMap<TopicPartition, usize>, FileError> {
    log_engine::settle_moves(directories)?;
    let mut placed = HashMap::new();
    for (place, data) in directories.iter().enumerate() {
        for name in data.list()? {
            let first = *placed.entry(partition_of(name)).or_insert(place);
            if first != place {
                tracing::error!(partition = %name, "two data directories hold a copy; the first one counts");
            }
        }
    }
    for (place, data) in directories.iter().enumerate() {
        for name in data.known_logs() {
            placed.entry(partition_of(name)).or_insert_with(|| {
                tracing::error!(
                    partition = %name, directory = %data.path().display(), "the folder of a copy is gone"
                );
                place
            });
        }
    }
    Ok(placed)
}
