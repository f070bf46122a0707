//! Which run of the machine this is, and what its last end may have taken.
//!
//! A process that dies leaves what it wrote to the operating system; a machine that dies takes with it what was not on
//! disk. For topics with `weir.flush=os` that may be acknowledged records, so the controllers must know before they
//! count this node's copies as complete. A directory remembers the machine's run only after they do. The same goes for a
//! directory that has lost its record of flushed ends, whatever its topics promise.

use log_engine::{DataDir, FileError};
use proto_types::ids::BrokerEpoch;
use std::path::PathBuf;
use tokio::sync::watch;
use uuid::Uuid;

/// The kernel's id of its present run.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The machine's present run; `None` where the system does not tell. Reads a file.
pub(crate) fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string(BOOT_ID).ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// Whether acknowledged but unflushed writes may be gone from one of the directories. Reads files.
pub(crate) fn may_lack_unflushed(directories: &[DataDir]) -> bool {
    lacks_unflushed(directories, boot_id().as_deref())
}

/// Where the present run is not known, or a directory's last one cannot be read, it is taken for another one.
fn lacks_unflushed(directories: &[DataDir], boot: Option<&str>) -> bool {
    let mut lacking = false;
    for directory in directories {
        lacking |= directory.may_lack_unflushed(boot).unwrap_or_else(|error| {
            tracing::warn!(%error, "what an earlier run of the machine took is not known: it may be anything");
            true
        });
    }
    lacking
}

/// Remembers the machine's run, and the node's directories, as soon as the node is registered. What an operator has said of
/// lost disks is done with when everything that was on them is missed.
pub(crate) async fn remember(
    (directories, known): (Vec<DataDir>, Vec<(Uuid, PathBuf)>),
    mut broker_epoch: watch::Receiver<Option<BrokerEpoch>>,
    mut lost_missed: watch::Receiver<bool>,
) {
    if broker_epoch.wait_for(Option::is_some).await.is_err() {
        return;
    }
    let all = directories.clone();
    let remembered =
        tokio::task::spawn_blocking(move || (remember_siblings(&all, &known), remember_all(&all)));
    let Ok((all_know, remembered)) = remembered.await else { return };
    if let Err(error) = remembered {
        tracing::warn!(%error, "the next start will take the machine to have restarted");
    }
    if !all_know || lost_missed.wait_for(|missed| *missed).await.is_err() {
        return;
    }
    let noted = tokio::task::spawn_blocking(move || remove_notes(&directories)).await;
    if let Ok(Err(error)) = noted {
        tracing::warn!(%error, "the next start will take the disk to have been replaced once more");
    }
}

/// Whether every directory knows all others, and which are lost. Writes files.
pub(crate) fn remember_siblings(directories: &[DataDir], known: &[(Uuid, PathBuf)]) -> bool {
    let mut all = true;
    for directory in directories {
        if let Err(error) = directory.remember_siblings(known) {
            tracing::warn!(%error, "if another data directory cannot be read, the next start will not know its id");
            all = false;
        }
    }
    all
}

/// All directories know that lost ones were replaced, and nobody counts on what was on those. Removes files.
pub(crate) fn remove_notes(directories: &[DataDir]) -> Result<(), FileError> {
    directories.iter().try_for_each(DataDir::remove_lost_disk_note)
}

/// The controllers know everything that the directories had to tell. Writes files.
pub(crate) fn remember_all(directories: &[DataDir]) -> Result<(), FileError> {
    for directory in directories {
        if let Err(error) = directory.told_of_lost_ends() {
            tracing::warn!(%error, "the next start will report the lost ends of logs once more");
        }
    }
    let Some(boot) = boot_id() else { return Ok(()) };
    directories.iter().try_for_each(|directory| directory.remember_boot(&boot))
}

#[cfg(test)]
mod tests {
    use super::*;
    use log_engine::{DataDirOptions, Disk, SimDisk};
    use std::path::Path;
    use std::sync::Arc;

    #[test]
    fn a_run_that_is_not_known_may_have_lost_what_a_crash_left() {
        let disk = SimDisk::new(1);
        let open = || {
            let options = DataDirOptions {
                cluster_id: "c".into(),
                node_id: 1,
                new_directory_id: uuid::Uuid::from_u128(1),
                descriptors_max: 10,
            };
            DataDir::open(Arc::clone(&disk) as Arc<dyn Disk>, Path::new("data"), &options).unwrap()
        };
        let data = open();
        data.remember_boot("this").unwrap();
        data.close_clean().unwrap();
        drop(data);
        let data = [open()];
        assert_eq!([Some("this"), Some("other"), None].map(|run| lacks_unflushed(&data, run)), [false; 3]);
        drop(data);
        let data = [open()];
        assert_eq!(
            [Some("this"), Some("other"), None].map(|run| lacks_unflushed(&data, run)),
            [false, true, true]
        );
    }
}
