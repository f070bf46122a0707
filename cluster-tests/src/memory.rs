//! The memory of single processes: control groups (version 1), whose limit can be lowered until the kernel kills.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock::{Stopwatch, wait_until};
use crate::netns::NetworkError;
use crate::process::Process;

const CONTROLLER: &str = "/sys/fs/cgroup/memory";
const LIMIT: &str = "memory.limit_in_bytes";
/// Pause between two steps.
const STEP: Duration = Duration::from_millis(100);
/// How long a process that was killed may take to end: its disk may be slow.
const PATIENCE_OF_THE_DEAD: Duration = Duration::from_secs(30);

/// A group. Its processes must have ended when it is dropped.
#[derive(Debug)]
pub struct MemoryGroup {
    dir: PathBuf,
}

impl MemoryGroup {
    /// Makes a group below the one that this process is in.
    pub fn make(name: &str) -> Result<MemoryGroup, NetworkError> {
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            NetworkError(format!("there are no control groups for memory: {what}: {error}"))
        };
        let groups = fs::read_to_string("/proc/self/cgroup");
        let groups = groups.map_err(|error| failed("/proc/self/cgroup", &error))?;
        let own = groups.lines().find_map(|line| line.split_once(":memory:"));
        let (_, own) = own.ok_or_else(|| failed("/proc/self/cgroup", &"no line `memory`"))?;
        // In a container its own group may be what is shown as the root.
        let below = Path::new(CONTROLLER).join(own.trim_start_matches('/'));
        let below = if below.join(LIMIT).exists() { below } else { PathBuf::from(CONTROLLER) };
        let dir = below.join(name);
        fs::create_dir(&dir).map_err(|error| failed(&dir.display().to_string(), &error))?;
        let group = MemoryGroup { dir };
        match group.dir.join(LIMIT).exists() {
            true => Ok(group),
            false => Err(failed(&group.dir.display().to_string(), &format!("no file {LIMIT}"))),
        }
    }

    /// From now on what a process takes counts here.
    pub fn take(&self, process: &Process) -> Result<(), NetworkError> {
        self.write("cgroup.procs", &process.id().to_string())
    }

    /// Lets it have as much as it likes.
    pub fn relax(&self) -> Result<(), NetworkError> {
        self.write(LIMIT, "-1")
    }

    /// Lowers the limit as far as the kernel goes with it, again and again, until the process is killed for it; says at how many
    /// KiB. None if it lives on for so long.
    pub fn squeeze(&self, process: &mut Process, patience: Duration) -> Result<Option<u64>, NetworkError> {
        let (watch, kills) = (Stopwatch::start(), self.kills()?);
        let (mut limit, mut step) = (self.used()?, 16 << 20);
        while watch.elapsed() < patience {
            // What the kernel cannot take away must be left.
            match self.write(LIMIT, &limit.saturating_sub(step).to_string()) {
                Ok(()) => limit = limit.saturating_sub(step),
                Err(_) => step = (step / 2).max(4 << 10),
            }
            std::thread::sleep(STEP);
            if matches!(process.ended(), Ok(Some(_))) {
                return Ok(Some(limit >> 10));
            }
        }
        // Killed it may be and still wait for its disk.
        if self.kills()? > kills {
            let ended =
                wait_until(PATIENCE_OF_THE_DEAD, || matches!(process.ended(), Ok(Some(_))).then_some(()));
            return Ok(ended.map(|()| limit >> 10));
        }
        Ok(None)
    }

    /// How many processes the kernel has killed for the limit.
    fn kills(&self) -> Result<u64, NetworkError> {
        let path = self.dir.join("memory.oom_control");
        let text = fs::read_to_string(&path).unwrap_or_default();
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        let kills = kills.and_then(|number| number.trim().parse().ok());
        kills.ok_or_else(|| NetworkError(format!("{} tells no number of kills", path.display())))
    }

    fn used(&self) -> Result<u64, NetworkError> {
        let path = self.dir.join("memory.usage_in_bytes");
        let text = fs::read_to_string(&path).ok();
        let used = text.and_then(|text| text.trim().parse().ok());
        used.ok_or_else(|| NetworkError(format!("{} tells no number", path.display())))
    }

    fn write(&self, file: &str, value: &str) -> Result<(), NetworkError> {
        let path = self.dir.join(file);
        let written = fs::write(&path, value);
        written.map_err(|error| NetworkError(format!("write {value} to {}: {error}", path.display())))
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.dir) {
            eprintln!("could not remove {}: {error}", self.dir.display());
        }
    }
}
