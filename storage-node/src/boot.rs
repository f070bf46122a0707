//! Which run of the machine this is, and what its last end may have taken.
//!
//! A process that dies leaves what it wrote to the operating system; a machine that dies takes with it what was not on
//! disk. For topics with `weir.flush=os` that may be acknowledged records, so the controllers must know before they
//! count this node's copies as complete. A directory remembers the machine's run only after they do.

use log_engine::{DataDir, FileError};
use proto_types::ids::BrokerEpoch;
use tokio::sync::watch;

/// The kernel's id of its present run.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The machine's present run; `None` where the system does not tell. Reads a file.
pub(crate) fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string(BOOT_ID).ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// Whether acknowledged but unflushed writes may be gone from one of the directories. Reads files.
pub(crate) fn may_lack_unflushed(directories: &[DataDir]) -> Result<bool, FileError> {
    let Some(boot) = boot_id() else { return Ok(false) };
    let mut lacking = false;
    for directory in directories {
        lacking |= directory.may_lack_unflushed(&boot)?;
    }
    Ok(lacking)
}

/// Remembers the machine's run as soon as the node is registered.
pub(crate) async fn remember(
    directories: Vec<DataDir>,
    mut broker_epoch: watch::Receiver<Option<BrokerEpoch>>,
) {
    if broker_epoch.wait_for(Option::is_some).await.is_err() {
        return;
    }
    let remembered = tokio::task::spawn_blocking(move || {
        let Some(boot) = boot_id() else { return Ok(()) };
        directories.iter().try_for_each(|directory| directory.remember_boot(&boot))
    });
    if let Ok(Err(error)) = remembered.await {
        tracing::warn!(%error, "the next start will take the machine to have restarted");
    }
}
