//! The folder of one test: data and logs of the programs that it starts. Removed when the test ends well, kept when it fails.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::workspace;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A folder `target/cluster-tests/<test>-<process>-<n>`.
#[derive(Debug)]
pub struct RunDir(PathBuf);

impl RunDir {
    /// Makes the folder.
    pub fn new(test: &str) -> RunDir {
        let all = workspace::logs_dir();
        fs::create_dir_all(&all).expect("the target folder can be written");
        // Process ids come again: what an earlier run has left is kept, and not gone on with.
        loop {
            let n = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = all.join(format!("{test}-{}-{n}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return RunDir(path),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A file or folder in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the data and logs of this run are in {}", self.0.display());
        } else if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("could not remove {}: {error}", self.0.display());
        }
    }
}
