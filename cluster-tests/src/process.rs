//! A child process whose output goes to a file: started, waited for, ended softly or hard, always by its own id.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::clock::wait_until;

/// A running child; ended hard when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with its output appended to `log` and nothing on its input.
    pub fn start(name: &str, mut command: Command, log: &Path) -> io::Result<Process> {
        let out = File::options().create(true).append(true).open(log)?;
        let err = out.try_clone()?;
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn()?;
        Ok(Process { name: name.to_owned(), child, log: log.to_path_buf() })
    }

    /// The name given at the start.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// All that the process has written so far.
    pub fn output(&self) -> String {
        std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The exit status, if the process has ended by itself.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Ends the process at once (SIGKILL) and waits until it is gone.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends `signal`.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let id = id.ok_or_else(|| io::Error::other("the process id does not fit"))?;
        Ok(rustix::process::kill_process(id, signal)?)
    }

    /// Asks the process to end (SIGTERM) and waits; after `limit` it is ended hard and the call fails.
    pub fn terminate(&mut self, limit: Duration) -> io::Result<ExitStatus> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(status);
        }
        self.signal(Signal::TERM)?;
        match wait_until(limit, || self.child.try_wait().transpose()) {
            Some(status) => status,
            None => {
                self.kill()?;
                Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("{} did not end within {limit:?}", self.name),
                ))
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) && self.kill().is_err() {
            eprintln!("could not end {} (process {})", self.name, self.child.id());
        }
    }
}
