//! The room that a data directory has: looked at now and then, counted down in between, so that clients are refused before
//! the reserve is touched.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use log_engine::DataDir;
use proto_types::ids::Millis;
use storage_node_core::space::{Space, SpaceEvent, SpaceWatch};

use crate::disk::metrics::DirectoryMetrics;

/// What is kept free where nothing else is configured; on a small disk less.
pub(crate) const RESERVE_BYTES_DEFAULT: u64 = 256 << 20;
/// How often a directory that cannot be looked at is complained about.
const COMPLAINT_MS: i64 = 60_000;

/// What the copies in a directory ask before they take a client's batch.
#[derive(Debug, Default)]
pub(crate) struct SpaceGate {
    is_closed: AtomicBool,
    room_bytes: AtomicU64,
    /// A batch was refused since the last look.
    has_refused: AtomicBool,
}

impl SpaceGate {
    /// Whether a batch of so many bytes may be written.
    pub(crate) fn admits(&self, bytes: usize) -> bool {
        let admitted = !self.is_closed.load(Ordering::Relaxed)
            && self.room_bytes.load(Ordering::Relaxed) >= bytes as u64;
        if !admitted {
            self.has_refused.store(true, Ordering::Relaxed);
        }
        admitted
    }

    /// Whether so much may be written for ourselves. A refusal is nobody's loss, so it is not noted.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        !self.is_closed.load(Ordering::Relaxed) && self.room_bytes.load(Ordering::Relaxed) >= bytes
    }

    /// What one log may set aside: a small part of what there is, since all of them do.
    pub(crate) fn ahead_bytes_max(&self) -> u64 {
        self.room_bytes.load(Ordering::Relaxed) / 16
    }

    /// So much was written.
    pub(crate) fn on_written(&self, bytes: usize) {
        let left = self.room_bytes.load(Ordering::Relaxed).saturating_sub(bytes as u64);
        self.room_bytes.store(left, Ordering::Relaxed);
    }

    fn set(&self, is_closed: bool, room_bytes: u64) {
        self.is_closed.store(is_closed, Ordering::Relaxed);
        self.room_bytes.store(room_bytes, Ordering::Relaxed);
    }
}

/// Looks after the room of one directory; belongs to its log thread.
pub(crate) struct SpaceKeeper {
    data: DataDir,
    reserve_bytes: u64,
    watch: Option<SpaceWatch>,
    gate: Arc<SpaceGate>,
    metrics: DirectoryMetrics,
    complained: Option<Millis>,
}

impl SpaceKeeper {
    /// Begins with a look.
    pub(crate) fn new(data: DataDir, reserve_bytes: u64, now: Millis, metrics: DirectoryMetrics) -> Self {
        let gate = Arc::default();
        let mut keeper = Self { data, reserve_bytes, watch: None, gate, metrics, complained: None };
        keeper.look(now);
        keeper
    }

    pub(crate) fn gate(&self) -> Arc<SpaceGate> {
        Arc::clone(&self.gate)
    }

    /// Whether clients are refused.
    pub(crate) fn is_low(&self) -> bool {
        self.watch.as_ref().is_some_and(SpaceWatch::is_low)
    }

    /// Looks how much room there is.
    pub(crate) fn look(&mut self, now: Millis) {
        let space = match self.data.disk().space(self.data.path()) {
            Ok(Some(space)) => space,
            // Nothing is known, so nobody is refused for it: the write that follows reports what matters.
            Ok(None) => return self.gate.set(false, u64::MAX),
            Err(error) => {
                if self.complained.is_none_or(|at| now.0 - at.0 >= COMPLAINT_MS) {
                    self.complained = Some(now);
                    let path = self.data.path().display();
                    tracing::warn!(%path, %error, "cannot tell how much room the data directory has");
                }
                return self.gate.set(false, u64::MAX);
            }
        };
        let space = Space { total_bytes: space.total_bytes, available_bytes: space.available_bytes };
        let has_refused = self.gate.has_refused.swap(false, Ordering::Relaxed);
        let event = match &mut self.watch {
            Some(watch) => {
                if has_refused {
                    watch.on_refused();
                }
                watch.look(now, space)
            }
            None => {
                let watch = self.watch.insert(SpaceWatch::new(self.reserve_bytes, now, space));
                watch.is_low().then_some(SpaceEvent::Low)
            }
        };
        let Some(watch) = &self.watch else { return };
        match self.reserve_bytes {
            // The disk itself refuses.
            0 => self.gate.set(false, u64::MAX),
            _ => self.gate.set(watch.is_low(), watch.room_bytes()),
        }
        self.metrics.set_space(space, watch.is_low(), watch.seconds_to_full());
        let (path, free_bytes, reserve_bytes) =
            (self.data.path().display(), space.available_bytes, watch.reserve_bytes());
        match event {
            None => {}
            Some(SpaceEvent::Low) => tracing::error!(
                %path, free_bytes, reserve_bytes,
                "the disk is nearly full: producers are refused, everything else works on; delete topics or records, \
                 shorten retention.ms or retention.bytes, or add space, and writes resume by themselves"
            ),
            Some(SpaceEvent::Enough) => {
                tracing::info!(%path, free_bytes, "there is room again: producers are served");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use log_engine::{DataDirOptions, Disk, OpenMode, SimDisk};
    use std::path::Path;

    #[test]
    fn the_gate_closes_before_the_reserve_and_opens_when_there_is_room_again() {
        let disk = SimDisk::new(1);
        disk.set_capacity(Some(1 << 20));
        let options = DataDirOptions {
            cluster_id: "c".into(),
            node_id: 1,
            new_directory_id: uuid::Uuid::from_u128(1),
            descriptors_max: 10,
        };
        let data = DataDir::open(Arc::clone(&disk) as Arc<dyn Disk>, Path::new("data"), &options).unwrap();
        let filler = disk.open(Path::new("data/filler.tmp"), OpenMode::CreateNew).unwrap();
        let mut keeper = SpaceKeeper::new(data, 1 << 30, Millis(0), DirectoryMetrics::default());
        let gate = keeper.gate();
        // The reserve is a sixteenth.
        assert!(gate.admits(900 << 10) && !gate.admits(1000 << 10));
        gate.on_written(900 << 10);
        assert!(!gate.has_room(100 << 10) && gate.has_room(10 << 10));
        assert!(!gate.admits(100 << 10) && gate.admits(10 << 10), "what was written counts at once");
        filler.set_len(970 << 10).unwrap();
        keeper.look(Millis(1));
        assert!(keeper.is_low() && !gate.admits(1) && !gate.has_room(1));
        filler.set_len(945 << 10).unwrap();
        keeper.look(Millis(2));
        assert!(keeper.is_low() && !gate.admits(1), "hardly more room");
        filler.set_len(900 << 10).unwrap();
        keeper.look(Millis(3));
        assert!(!keeper.is_low() && gate.admits(1));
    }
}
