//! Whether the files of a data directory itself are what was written: those that stand beside the logs. They are read as the
//! next start will read them.

use std::collections::BTreeSet;
use std::path::Path;

use super::{Finding, Severity};
use crate::LogName;
use crate::compact::cleaned_ends::{self, FileState};
use crate::data_dir::{BOOT_FILE, CLEAN_FILE, META_FILE, Meta};
use crate::disk::Disk;
use crate::error::{DataDirError, FileError};
use crate::flushed_ends;
use crate::lost_disk::{REPLACES_LOST_DISK, lost_disk_note};
use crate::{relocate, siblings};

/// Files that nobody else has in a directory of logs; Kafka has some of the others.
const OURS: [&str; 4] =
    [flushed_ends::FILE_NAME, siblings::FILE_NAME, cleaned_ends::DROPPED_FILE_NAME, REPLACES_LOST_DISK];

/// Reads the files of a data directory that are not of one log; the logs are for [`verify_log`](super::verify_log). `None` if
/// it is no data directory of Weir, but one of Kafka's or of a single log.
pub fn verify_data_dir(disk: &dyn Disk, dir: &Path) -> Result<Option<Vec<Finding>>, FileError> {
    let entries = disk.list(dir).map_err(|e| FileError::new("list", dir, e))?;
    let (dirs, files): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry.is_dir);
    let files: BTreeSet<String> = files.into_iter().map(|entry| entry.name).collect();
    let logs: BTreeSet<LogName> = dirs.iter().filter_map(|entry| LogName::parse(&entry.name)).collect();
    if logs.is_empty() && !OURS.iter().any(|name| files.contains(*name)) {
        return Ok(None);
    }
    let mut verify = VerifyDir { disk, dir, files, logs, findings: Vec::new() };
    verify.note_of_lost_disk()?;
    if verify.files.contains(META_FILE) || !verify.files.contains(REPLACES_LOST_DISK) {
        verify.meta()?;
        let generation = verify.flushed_ends()?;
        verify.compacted_ends(generation);
        verify.siblings();
        verify.last_stop();
    }
    Ok(Some(verify.findings))
}

struct VerifyDir<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    files: BTreeSet<String>,
    logs: BTreeSet<LogName>,
    findings: Vec<Finding>,
}

impl VerifyDir<'_> {
    fn find(&mut self, severity: Severity, name: &str, reason: impl Into<String>) {
        let path = self.dir.join(name);
        self.findings.push(Finding { severity, path, position: None, reason: reason.into() });
    }

    fn meta(&mut self) -> Result<(), FileError> {
        if !self.files.contains(META_FILE) {
            self.find(Severity::Damage, META_FILE, "it is missing: nobody knows whose the directory is");
            return Ok(());
        }
        match Meta::read(self.disk, self.dir) {
            Ok(meta) if meta.is_checked => {}
            Ok(_) => self.find(Severity::Note, META_FILE, "it has no checksum: the next start adds it"),
            Err(DataDirError::Io(error)) => return Err(error),
            Err(DataDirError::Damaged { reason, .. }) => self.find(Severity::Damage, META_FILE, reason),
            Err(error) => self.find(Severity::Damage, META_FILE, error.to_string()),
        }
        Ok(())
    }

    /// Also answers how often the file of what was dropped had been written at least.
    fn flushed_ends(&mut self) -> Result<u64, FileError> {
        const NAME: &str = flushed_ends::FILE_NAME;
        let lost = "all copies of the node leave the in-sync sets, and every log is read from end to end";
        let Some(stored) = flushed_ends::read(self.disk, &self.dir.join(NAME))? else {
            self.find(Severity::Rebuildable, NAME, format!("it is missing or cannot be read: {lost}"));
            return Ok(0);
        };
        if stored.has_lost_records() {
            self.find(Severity::Rebuildable, NAME, format!("records in it are damaged: {lost}"));
        }
        if stored.torn > 0 {
            let reason =
                format!("{} records at its end are torn: of their logs, those before count", stored.torn);
            self.find(Severity::Note, NAME, reason);
        }
        // A log that was moved away is known until its old files go.
        let moved: Vec<LogName> =
            relocate::moved_away(self.disk, self.dir)?.iter().map(|away| away.name).collect();
        for (log, end) in &stored.ends {
            if !self.logs.contains(log) && !moved.contains(log) {
                let reason = format!("the log is missing: it was on disk up to offset {}", end.end);
                self.find(Severity::Damage, &log.to_string(), reason);
            }
        }
        Ok(stored.dropped_generation)
    }

    /// How far logs are compacted, and up to where compaction has dropped tombstones.
    fn compacted_ends(&mut self, least: u64) {
        const DROPPED: &str = cleaned_ends::DROPPED_FILE_NAME;
        if let FileState::Damaged = cleaned_ends::state(self.disk, &self.dir.join(cleaned_ends::FILE_NAME)) {
            let reason = "it is damaged: more is compacted again than need be";
            self.find(Severity::Rebuildable, cleaned_ends::FILE_NAME, reason);
        }
        let what = match cleaned_ends::state(self.disk, &self.dir.join(DROPPED)) {
            FileState::Whole { generation } if generation >= least => return,
            FileState::Whole { .. } => "is an older version",
            FileState::Damaged => "is damaged",
            FileState::Missing => "is missing",
        };
        let reason = format!("it {what}: copies of compacted logs that are not in sync begin anew");
        self.find(Severity::Rebuildable, DROPPED, reason);
    }

    fn siblings(&mut self) {
        match siblings::read(self.disk, self.dir) {
            Ok(Some(_)) => {}
            Err(siblings::Damaged) => {
                let reason = "it is damaged: it is written again when the node has registered";
                self.find(Severity::Rebuildable, siblings::FILE_NAME, reason);
            }
            Ok(None) => {
                let reason = "there is none: it is written when the node has registered";
                self.find(Severity::Note, siblings::FILE_NAME, reason);
            }
        }
    }

    /// What the next start makes of the last stop.
    fn last_stop(&mut self) {
        if !self.files.contains(CLEAN_FILE) {
            let reason = "there is none: the node runs, or did not stop cleanly";
            self.find(Severity::Note, CLEAN_FILE, reason);
        }
        if !self.files.contains(BOOT_FILE) {
            let reason = "there is none: after a crash it counts as one of the machine";
            self.find(Severity::Note, BOOT_FILE, reason);
        }
    }

    fn note_of_lost_disk(&mut self) -> Result<(), FileError> {
        match lost_disk_note(self.disk, self.dir) {
            Ok(None) => {}
            Ok(Some(ids)) if ids.is_empty() => {
                let reason = "the directory takes the place of one whose disk is lost";
                self.find(Severity::Note, REPLACES_LOST_DISK, reason);
            }
            Ok(Some(ids)) => {
                let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
                let reason = format!("the directory takes the place of {}", ids.join(" and "));
                self.find(Severity::Note, REPLACES_LOST_DISK, reason);
            }
            Err(DataDirError::Io(error)) => return Err(error),
            Err(error) => self.find(Severity::Damage, REPLACES_LOST_DISK, error.to_string()),
        }
        Ok(())
    }
}
