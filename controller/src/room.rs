//! The room that the controller's disk has. A reserve is kept for what must go on when the disk fills up: deletions and all
//! that the cluster does by itself. Below it, what clients would add (topics, partitions) is refused.

use crate::metrics::ControllerMetrics;
use proto_types::error::{Reason, Rejection};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Pause between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// On a small disk the reserve is this part of it: half of what a storage node keeps free that may share the disk.
const RESERVE_PART_MAX: u64 = 32;

/// Whether there is room for more metadata. A clone says the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Room {
    is_low: Arc<AtomicBool>,
}

/// Room of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) total_bytes: u64,
    pub(crate) available_bytes: u64,
}

/// Tells how much room there is where a directory lies. May wait for the disk.
pub(crate) type SpaceOf = fn(&Path) -> io::Result<Space>;

impl Room {
    /// Refuses what makes more metadata while the reserve is touched.
    pub(crate) fn check(&self) -> Result<(), Rejection> {
        if !self.is_low.load(Ordering::Relaxed) {
            return Ok(());
        }
        let message =
            "The disk of the controller is nearly full: topics can be deleted, but neither topics nor \
                       partitions created. Make room on it, and this will be possible again."
                .to_owned();
        Err(Rejection { reason: Reason::PolicyViolation, message })
    }

    /// Takes in how much room there is. Between the reserve and a quarter more it stays as it was.
    fn look(&self, space: Space, reserve_bytes_max: u64) {
        let reserve = reserve_bytes_max.min(space.total_bytes / RESERVE_PART_MAX);
        let was_low = self.is_low.load(Ordering::Relaxed);
        let needed = if was_low { reserve + reserve / 4 } else { reserve };
        let is_low = space.available_bytes < needed;
        if is_low != was_low {
            self.is_low.store(is_low, Ordering::Relaxed);
            let (free_bytes, reserve_bytes) = (space.available_bytes, reserve);
            match is_low {
                true => tracing::error!(
                    free_bytes,
                    reserve_bytes,
                    "the disk is nearly full: topics can be deleted, but neither topics nor partitions created; make room on it"
                ),
                false => tracing::info!(free_bytes, "there is room again"),
            }
        }
    }

    /// Looks until `stop`.
    pub(crate) async fn watch(
        self,
        path: PathBuf,
        (space_of, reserve_bytes_max): (SpaceOf, u64),
        metrics: ControllerMetrics,
        stop: CancellationToken,
    ) {
        let mut complained = false;
        loop {
            let at = path.clone();
            match tokio::task::spawn_blocking(move || space_of(&at)).await {
                Ok(Ok(space)) => {
                    self.look(space, reserve_bytes_max);
                    metrics.show_room(space.available_bytes, self.is_low.load(Ordering::Relaxed));
                }
                Ok(Err(error)) if !complained => {
                    complained = true;
                    tracing::warn!(path = %path.display(), %error, "cannot tell how much room the disk has");
                }
                Ok(Err(_)) | Err(_) => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }
}

/// What the system says.
pub(crate) fn space_of(path: &Path) -> io::Result<Space> {
    let stat = rustix::fs::statvfs(path)?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Ok(Space { total_bytes: bytes(stat.f_blocks), available_bytes: bytes(stat.f_bavail) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_created_below_the_reserve_and_not_at_its_edge() {
        let room = Room::default();
        let look = |available_bytes, reserve| {
            room.look(Space { total_bytes: 32_000, available_bytes }, reserve);
            room.check().is_ok()
        };
        assert!(look(1_000, 1 << 30), "a part of the disk is the reserve");
        assert!(!look(999, 1 << 30));
        assert!(!look(1_249, 1 << 30), "hardly more");
        assert!(look(1_250, 1 << 30));
        assert!(look(999, 500));
        assert!(look(0, 0), "no reserve");
        assert!(!look(99, 100));
    }

    #[test]
    fn the_system_tells() {
        let dir = tempfile::tempdir().unwrap();
        let space = space_of(dir.path()).unwrap();
        assert!(space.total_bytes >= space.available_bytes && space.total_bytes > 0);
    }
}
