//! Small file systems in files, one for each daemon: they can be full, stand still, and lose their power.
//!
//! A power cut is the system call that file systems have for it (`FS_IOC_SHUTDOWN` without a flush of the journal): what was not
//! synced is gone, and every later access fails until the file system is mounted again. This needs root and a loop device.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::clock::wait_until;
use crate::netns::{NetworkError, run};

/// Asks the kernel for the shutdown; no safe interface of the libraries that we use has it.
const SHUTDOWN: &str = "import fcntl, os, struct, sys\n\
    fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))";
/// How long files may stay open after the daemon has ended.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);
/// The file that takes all space.
const FILLER: &str = "filler";

/// File systems below a folder.
#[derive(Clone, Debug)]
pub struct Disks {
    images: PathBuf,
    mounts: PathBuf,
}

impl Disks {
    /// Images in one folder, mounts in another; a guard must know the latter.
    pub fn new(images: &Path, mounts: &Path) -> Disks {
        Disks { images: images.to_owned(), mounts: mounts.to_owned() }
    }

    /// Makes and mounts a file system of `mib` MiB; its folder is `<mounts>/<name>`.
    pub fn make(&self, name: &str, mib: u64) -> Result<PathBuf, NetworkError> {
        let failed = |error: std::io::Error| NetworkError(format!("make the disk {name}: {error}"));
        fs::create_dir_all(&self.images).map_err(failed)?;
        let image = self.image(name);
        File::create(&image).and_then(|file| file.set_len(mib << 20)).map_err(failed)?;
        run(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&image))?;
        let dir = self.dir(name);
        fs::create_dir_all(&dir).map_err(failed)?;
        self.mount(name)?;
        fs::remove_dir(dir.join("lost+found")).map_err(failed)?;
        Ok(dir)
    }

    /// What was not synced is lost, and the file system fails from now on. Stop those that use it before.
    pub fn cut_power(&self, name: &str) -> Result<(), NetworkError> {
        run(Command::new("python3").args(["-c", SHUTDOWN]).arg(self.dir(name)))
    }

    /// Mounts the file system again after [`Disks::cut_power`]. Nobody may have a file of it open.
    pub fn restore_power(&self, name: &str) -> Result<(), NetworkError> {
        // Whoever handed it on to a daemon ([`crate::failing_disk`]) closes its files a moment later than that.
        let unmounted = || run(Command::new("umount").arg(self.dir(name))).ok();
        wait_until(CLOSE_LIMIT, unmounted)
            .ok_or_else(|| NetworkError(format!("the disk {name} is still in use")))?;
        self.mount(name)
    }

    /// From now on whoever writes to it or syncs waits, and cannot be killed before [`Disks::release`].
    pub fn stall(&self, name: &str) -> Result<(), NetworkError> {
        run(Command::new("fsfreeze").arg("-f").arg(self.dir(name)))
    }

    /// Lets everything go that waits since [`Disks::stall`].
    pub fn release(&self, name: &str) -> Result<(), NetworkError> {
        run(Command::new("fsfreeze").arg("-u").arg(self.dir(name)))
    }

    /// Takes all space that is free now, beside what it has taken before.
    pub fn fill(&self, name: &str) -> Result<(), NetworkError> {
        let path = self.dir(name).join(FILLER);
        let failed = |error: std::io::Error| NetworkError(format!("fill the disk {name}: {error}"));
        let file = File::options().write(true).create(true).truncate(false).open(path).map_err(failed)?;
        let mut at = file.metadata().map_err(failed)?.len();
        // In ever smaller steps, so that nothing is left.
        for step in [16 << 20, 1 << 20, 64 << 10, 4 << 10, 1 << 10] {
            while rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), at, step).is_ok() {
                at += step;
            }
        }
        Ok(())
    }

    /// Bytes that are free.
    pub fn free_bytes(&self, name: &str) -> Result<u64, NetworkError> {
        let stat = rustix::fs::statvfs(self.dir(name));
        let stat = stat.map_err(|error| NetworkError(format!("look at the disk {name}: {error}")))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Gives the space back.
    pub fn free(&self, name: &str) -> Result<(), NetworkError> {
        match fs::remove_file(self.dir(name).join(FILLER)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(NetworkError(format!("free the disk {name}: {error}")))
            }
            _ => Ok(()),
        }
    }

    fn image(&self, name: &str) -> PathBuf {
        self.images.join(format!("{name}.img"))
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.mounts.join(name)
    }

    fn mount(&self, name: &str) -> Result<(), NetworkError> {
        run(Command::new("mount").args(["-o", "loop"]).arg(self.image(name)).arg(self.dir(name)))
    }
}
