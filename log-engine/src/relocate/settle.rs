//! What crashes and failures leave of moves, and who ends it: the copy of a log that did not get its name, and the old files of
//! one that did.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::LogName;
use crate::data_dir::{DataDir, remove_dir_and_files};
use crate::delete::DetachedLog;
use crate::disk::Disk;
use crate::error::FileError;
use crate::flushed_ends::FlushedEnds;
use crate::log::is_disk_full;
use crate::relocate::MOVING_SUFFIX;

/// Stands between the name of a log and the id of the directory that it was moved to.
const MOVED_TO: &str = ".moved-to.";

/// The files of a log in the directory that it was moved from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MovedAway {
    pub(crate) name: LogName,
    /// Id of the directory that it was moved to.
    pub(crate) to: Uuid,
}

impl MovedAway {
    fn parse(text: &str) -> Option<MovedAway> {
        let (name, to) = text.split_once(MOVED_TO)?;
        let parsed = MovedAway { name: LogName::parse(name)?, to: Uuid::parse_str(to).ok()? };
        (parsed.to_string() == text).then_some(parsed)
    }

    pub(crate) fn path_in(&self, dir: &Path) -> PathBuf {
        dir.join(self.to_string())
    }
}

impl fmt::Display for MovedAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{MOVED_TO}{}", self.name, self.to)
    }
}

/// The logs that were moved away from a directory and have files there still.
pub(crate) fn moved_away(disk: &dyn Disk, dir: &Path) -> Result<Vec<MovedAway>, FileError> {
    let entries = disk.list(dir).map_err(|e| FileError::new("list", dir, e))?;
    Ok(entries.iter().filter(|e| e.is_dir).filter_map(|e| MovedAway::parse(&e.name)).collect())
}

/// What one of them still has there; there is never more than one of a log.
pub(crate) fn moved_away_log(
    disk: &dyn Disk,
    dir: &Path,
    name: LogName,
) -> Result<Option<MovedAway>, FileError> {
    Ok(moved_away(disk, dir)?.into_iter().find(|away| away.name == name))
}

/// Forgets what was noted for a log that did not get its name.
pub(super) fn forget_end(ends: &FlushedEnds, name: LogName) -> Result<(), FileError> {
    match ends.remove_durably(name) {
        // It is written when there is room.
        Err(error) if is_disk_full(&error.source) => Ok(()),
        done => done,
    }
}

/// What moves into this directory left that a crash ended before the log got its name.
pub(crate) fn remove_unfinished(disk: &dyn Disk, dir: &Path, ends: &FlushedEnds) -> Result<(), FileError> {
    let entries = disk.list(dir).map_err(|e| FileError::new("list", dir, e))?;
    let here = |name: LogName| entries.iter().any(|e| e.is_dir && LogName::parse(&e.name) == Some(name));
    let mut changed = false;
    for entry in entries.iter().filter(|entry| entry.is_dir) {
        let Some(name) = entry.name.strip_suffix(MOVING_SUFFIX).and_then(LogName::parse) else { continue };
        changed = true;
        if !here(name) {
            forget_end(ends, name)?;
        }
        remove_dir_and_files(disk, &dir.join(&entry.name))?;
    }
    if changed {
        disk.sync_dir(dir).map_err(|e| FileError::new("sync", dir, e))?;
    }
    Ok(())
}

/// What earlier moves between a node's data directories left.
#[derive(Default)]
pub struct SettledMoves {
    /// Old files of logs that another directory has. They are to be removed as soon as the log was opened there, not before.
    pub left: Vec<(LogName, DetachedLog)>,
    /// Logs whose newest files may be in a directory that is not open, with the place of the one that they were moved away from.
    /// [`Log::open`](crate::Log::open) refuses them there, and they must not be made anew elsewhere.
    pub elsewhere: Vec<(LogName, usize)>,
}

/// Decides on each log that was moved away from one of a node's open data directories. A log that no directory has goes back, if
/// it is sure not to have come to where it was moved: that directory is open and has not got it, or it is `given_up` for lost.
/// Called before logs are looked for. What goes wrong with one log is told and keeps it offline, and nothing else.
///
/// # Errors
/// A directory cannot be listed.
pub fn settle_moves(directories: &[DataDir], given_up: &[Uuid]) -> Result<SettledMoves, FileError> {
    let mut moved: BTreeMap<LogName, Vec<(usize, MovedAway)>> = BTreeMap::new();
    for (place, data) in directories.iter().enumerate() {
        for away in moved_away(&**data.disk(), data.path())? {
            moved.entry(away.name).or_default().push((place, away));
        }
    }
    let mut settled = SettledMoves::default();
    if moved.is_empty() {
        return Ok(settled);
    }
    let lists = directories.iter().map(|data| Ok(data.list()?.into_iter().collect()));
    let settling = Settling {
        directories,
        given_up,
        lists: lists.collect::<Result<_, FileError>>()?,
        known: directories.iter().map(|data| data.known_logs().into_iter().collect()).collect(),
    };
    for (name, from) in moved {
        settling.settle(name, &from, &mut settled);
    }
    Ok(settled)
}

/// What is known of a node's directories, by their places.
struct Settling<'a> {
    directories: &'a [DataDir],
    given_up: &'a [Uuid],
    lists: Vec<BTreeSet<LogName>>,
    known: Vec<BTreeSet<LogName>>,
}

impl Settling<'_> {
    fn settle(&self, name: LogName, from: &[(usize, MovedAway)], settled: &mut SettledMoves) {
        let mut is_here = self.is_here(name, from);
        if !is_here && let Some((place, away)) = self.newest(name, from) {
            is_here = self.may_go_back(away) && self.put_back(place, away);
        }
        for &(place, away) in from {
            let files = away.path_in(self.directories[place].path());
            match is_here {
                // Nothing is left of what went back.
                true if self.directories[place].disk().list(&files).is_err() => {}
                true => {
                    tracing::info!(log = %name, path = %files.display(), "a log was moved: its old files go when it is open");
                    let data = self.directories[place].clone();
                    settled.left.push((name, DetachedLog::moved(data, name, files)));
                }
                false => {
                    tracing::error!(
                        log = %name, path = %files.display(), directory = %away.to,
                        "a log was moved to a data directory that has not got it or is not open: it is offline"
                    );
                    settled.elsewhere.push((name, place));
                }
            }
        }
    }

    /// Whether some directory has the log, or had it after all moves and misses it.
    fn is_here(&self, name: LogName, from: &[(usize, MovedAway)]) -> bool {
        let moved_away = |at: usize| from.iter().any(|(place, _)| *place == at);
        let has =
            |at: usize| self.lists[at].contains(&name) || (self.known[at].contains(&name) && !moved_away(at));
        (0..self.directories.len()).any(has)
    }

    /// Of several the one whose move has not come to its end: the others have forgotten the log. Otherwise nobody knows.
    fn newest(&self, name: LogName, from: &[(usize, MovedAway)]) -> Option<(usize, MovedAway)> {
        let mut may_be =
            from.iter().filter(|(place, _)| from.len() == 1 || self.known[*place].contains(&name));
        may_be.next().copied().filter(|_| may_be.next().is_none())
    }

    /// Whether no directory can have the log that is not looked at now. It may have moved on from where it was moved to.
    fn may_go_back(&self, away: MovedAway) -> bool {
        let is_looked_at = |id: &Uuid| {
            self.directories.iter().any(|data| data.directory_id() == *id) || self.given_up.contains(id)
        };
        let mut siblings = self.directories.iter().flat_map(DataDir::siblings);
        is_looked_at(&away.to) && siblings.all(|(id, _)| is_looked_at(&id))
    }

    fn put_back(&self, place: usize, away: MovedAway) -> bool {
        let (data, name) = (&self.directories[place], away.name);
        let (files, back) = (away.path_in(data.path()), data.path().join(name.to_string()));
        if let Err(error) = data.disk().rename(&files, &back) {
            tracing::error!(log = %name, path = %files.display(), %error, "a log could not be put back");
            return false;
        }
        tracing::info!(log = %name, directory = %data.path().display(), "a log that was to be moved is where it was");
        if let Err(error) = data.disk().sync_dir(data.path()) {
            // Under its other name the next start puts it back again.
            tracing::warn!(log = %name, %error, "a data directory could not be synced");
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_log_that_was_moved_tells_where_it_went() {
        let away = MovedAway { name: LogName::new(Uuid::from_u128(7), 12), to: Uuid::from_u128(9) };
        assert_eq!(MovedAway::parse(&away.to_string()), Some(away));
        let name = away.name.to_string();
        for other in
            [name.clone(), format!("{name}.moved-to."), format!("{name}.moved-to.9"), format!("{away}x")]
        {
            assert_eq!(MovedAway::parse(&other), None, "{other}");
        }
        assert_eq!(
            MovedAway::parse(&format!("{name}.moved-to.{}", away.to.simple())),
            None,
            "it has one name"
        );
    }
}
