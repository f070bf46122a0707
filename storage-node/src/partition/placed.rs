//! Which data directory each copy lies in when a node starts.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use log_engine::{DataDir, DetachedLog, FileError, SettledMoves};
use proto_types::ids::TopicPartition;
use uuid::Uuid;

use crate::disk::log_thread::partition_of;

/// Where the copies of a node are. Directories are given by their places in the configuration.
#[derive(Default)]
pub(super) struct Placed {
    /// The directory of each copy.
    pub(super) directories: HashMap<TopicPartition, usize>,
    /// The directories of those that lie in several. Which of them is newer nobody knows, so none is opened.
    pub(super) in_doubt: BTreeMap<TopicPartition, Vec<usize>>,
    /// Copies that may be in a directory that is not open. They are placed where their old files are.
    pub(super) elsewhere: BTreeSet<TopicPartition>,
    /// Old files of copies that were moved. They go as soon as the copy is open.
    pub(super) left: Vec<(TopicPartition, DetachedLog)>,
}

/// The data directory of each copy, once what moves have left is settled; `given_up` are the ids of directories that are lost. A
/// copy whose folder is gone, or was moved to a directory that is not open, belongs where it was: another directory, which never
/// had it, would take it for new and let it lead without its records.
pub(super) fn where_copies_are(directories: &[DataDir], given_up: &[Uuid]) -> Result<Placed, FileError> {
    let SettledMoves { left, elsewhere } = log_engine::settle_moves(directories, given_up)?;
    let mut placed = Placed::default();
    for (place, data) in directories.iter().enumerate() {
        for name in data.list()? {
            let id = partition_of(name);
            let first = *placed.directories.entry(id).or_insert(place);
            if first != place {
                placed.in_doubt.entry(id).or_insert_with(|| vec![first]).push(place);
            }
        }
    }
    for (id, places) in &placed.in_doubt {
        let folders: Vec<_> =
            places.iter().map(|&place| directories[place].path().join(id.to_string())).collect();
        tracing::error!(
            partition = %id, ?folders,
            "several data directories have a copy, and no move explains it: it stays offline until the node is started with one \
             of the folders only (docs/damage.md)"
        );
    }
    for (name, place) in elsewhere {
        placed.directories.entry(partition_of(name)).or_insert(place);
        placed.elsewhere.insert(partition_of(name));
    }
    for (place, data) in directories.iter().enumerate() {
        for name in data.known_logs() {
            placed.directories.entry(partition_of(name)).or_insert_with(|| {
                tracing::error!(
                    partition = %name, directory = %data.path().display(), "the folder of a copy is gone"
                );
                place
            });
        }
    }
    placed.left = left.into_iter().map(|(name, files)| (partition_of(name), files)).collect();
    Ok(placed)
}
