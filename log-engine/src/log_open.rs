//! How a [`Log`] comes to be: recovered from its files, or new.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize};

use log_engine_core::append_times::AppendTimes;
use parking_lot::{Mutex, RwLock};

use crate::LogName;
use crate::config::LogConfig;
use crate::data_dir::DataDir;
use crate::error::OpenError;
use crate::flush::EpochsWritten;
use crate::log::Log;
use crate::log_flush::Dirty;
use crate::reader::Shared;
use crate::recovery::{RecoveryReport, RecoveryWatch, recover};

impl Log {
    /// Opens a log, new or old, in its directory of `data`. Everything that the opened log holds is durable. `now_ms`
    /// is broker time.
    pub fn open(
        data: &DataDir,
        name: LogName,
        config: LogConfig,
        now_ms: i64,
    ) -> Result<(Log, RecoveryReport), OpenError> {
        Self::open_watched(data, name, config, now_ms, &mut |_| true)
    }

    /// The same, with somebody who watches how far the recovery has got and may end it.
    pub fn open_watched(
        data: &DataDir,
        name: LogName,
        config: LogConfig,
        now_ms: i64,
        watch: RecoveryWatch<'_>,
    ) -> Result<(Log, RecoveryReport), OpenError> {
        let opened = Self::recover_and_open(data, name, config, now_ms, watch);
        if let Err(OpenError::Io(_)) = opened {
            // What an earlier process left unflushed is still so: no stop of this one is clean for it.
            data.set_unclean();
        }
        opened
    }

    fn recover_and_open(
        data: &DataDir,
        name: LogName,
        config: LogConfig,
        now_ms: i64,
        watch: RecoveryWatch<'_>,
    ) -> Result<(Log, RecoveryReport), OpenError> {
        let dir = data.path().join(name.to_string());
        let mut recovered = recover(data, name, &dir, &config, now_ms, watch)?;
        let report = recovered.report;
        if data.cleaned().get(name).is_some_and(|cleaned_to| cleaned_to > report.end) {
            // Of another life of this log, or of records that are lost: it must not hold for what is appended now.
            data.cleaned().lower_durably(name, None)?;
            data.dropped().lower_durably(name, Some(report.end - 1))?;
        }
        let active = recovered.segments.last().cloned();
        let shared = Arc::new(Shared {
            name,
            segments: RwLock::new(Arc::new(recovered.segments)),
            start: AtomicI64::new(report.start),
            end: AtomicI64::new(report.end),
            flushed: AtomicI64::new(report.end),
            unpacked_bytes_max: AtomicUsize::new(config.unpacked_batch_bytes_max),
            producers_max: AtomicUsize::new(config.producers_max),
            mended_snapshots: Mutex::default(),
            seal_gate: Mutex::new(0),
            cuts: AtomicU64::new(0),
            met_damage: AtomicBool::new(false),
        });
        recovered.producers.set_opened(now_ms);
        let unsnapshotted = report.end > recovered.snapshot_offset.max(report.start);
        let mut log = Log {
            data: data.clone(),
            name,
            dir,
            config,
            shared,
            active,
            producers: recovered.producers,
            epochs: recovered.epochs,
            snapshots: recovered.snapshots,
            bytes_since_snapshot: u64::from(unsnapshotted),
            dirty: Dirty {
                dir_is_new: recovered.dir_is_new,
                dir_is_missing: recovered.dir_is_missing,
                ..Dirty::default()
            },
            in_flight: None,
            poisoned: None,
            device_failed: false,
            space_failed: false,
            epoch_version: u64::from(!recovered.epochs_written),
            epochs_written: Arc::new(Mutex::new(EpochsWritten::of_file(recovered.epochs_in_file))),
            reserved: 0,
            append_times: AppendTimes::default(),
            ahead_bytes_max: u64::MAX,
            dropped_to: data.dropped().get(name).unwrap_or(-1),
            opened_ms: now_ms,
            append_floor_ms: i64::MIN,
            detached: Vec::new(),
        };
        log.load_append_times(now_ms);
        if report.end > 0 {
            log.note_record();
        }
        Ok((log, report))
    }
}
