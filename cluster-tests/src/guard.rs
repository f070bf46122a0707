//! Takes away what a run has made outside its own processes (network namespaces, bridges, mounts, control groups), whatever becomes of the run.
//!
//! A small shell process waits until its input ends, which happens when the [`Guard`] is dropped and also when the process that
//! holds it is killed. Then it ends the processes that are left in the run's namespaces, by their ids, and removes namespaces,
//! bridge, control groups and mounts by the name that only this run uses.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// `$1` is the beginning of the names of namespaces, `$2` the bridge, `$3` the folder of the mounts.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
cat >/dev/null
for dir in $(awk '{print $2}' /proc/mounts | grep "^$3/"); do fsfreeze -u "$dir" 2>/dev/null; done
for ns in $(ip netns list | awk '{print $1}' | grep "^$1-"); do
    for pid in $(ip netns pids "$ns"); do kill -9 "$pid"; done
    tries=0
    while [ -n "$(ip netns pids "$ns")" ] && [ $tries -lt 100 ]; do sleep 0.05; tries=$((tries+1)); done
    ip netns delete "$ns"
done
if [ -d /sys/fs/cgroup/memory ]; then
    find /sys/fs/cgroup/memory -depth -type d -name "$1-*" -exec rmdir {} \;
fi
if ip link show "$2" >/dev/null 2>&1; then ip link delete "$2"; fi
for dir in $(awk '{print $2}' /proc/mounts | grep "^$3/"); do umount "$dir" || umount -l "$dir"; done
"#;

/// See the module.
#[derive(Debug)]
pub struct Guard {
    shell: Child,
}

impl Guard {
    /// Makes the folder `mounts` and starts the shell. Call this before anything else is made.
    pub fn start(namespaces: &str, bridge: &str, mounts: &Path) -> io::Result<Guard> {
        // The kernel's list of mounts knows no symbolic links.
        std::fs::create_dir_all(mounts)?;
        let mounts = mounts.canonicalize()?;
        let shell = Command::new("sh")
            .args(["-c", SCRIPT, "guard", namespaces, bridge])
            .arg(mounts)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // Ctrl-C in a terminal is for the run, not for what cleans up behind it.
            .process_group(0)
            .spawn()?;
        Ok(Guard { shell })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        match self.shell.wait() {
            Ok(status) if status.success() => {}
            other => eprintln!("the guard of this run ended with {other:?}"),
        }
    }
}
