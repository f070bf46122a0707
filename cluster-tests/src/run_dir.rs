//! The folder of one test: data and logs of the programs that it starts. Removed when the test ends well, kept when it fails.

use std::fs;
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
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = workspace::logs_dir().join(format!("{test}-{}-{n}", std::process::id()));
        fs::create_dir_all(&path).expect("the target folder can be written");
        RunDir(path)
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
