//! What a process has used, read from `/proc`: CPU seconds (user and system, all threads), resident memory, bytes read.

use crate::Failure;
use std::fs;

/// CPU seconds that the process has used since it started.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64, Failure> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The command name may hold spaces and parentheses: fields are counted after its last one.
    let rest = stat.rsplit_once(')').ok_or("unexpected format of /proc/PID/stat")?.1;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |index: usize| -> Result<f64, Failure> {
        Ok(fields.get(index).ok_or("short /proc/PID/stat")?.parse::<f64>()?)
    };
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    Ok((ticks(11)? + ticks(12)?) / per_second)
}

/// Resident memory of the process, MiB.
pub(crate) fn resident_mib(pid: u32) -> Result<f64, Failure> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm"))?;
    let pages: f64 = statm.split_whitespace().nth(1).ok_or("short /proc/PID/statm")?.parse()?;
    Ok(pages * rustix::param::page_size() as f64 / (1024.0 * 1024.0))
}

/// Threads of the process.
pub(crate) fn threads(pid: u32) -> Result<usize, Failure> {
    Ok(fs::read_dir(format!("/proc/{pid}/task"))?.count())
}

/// Open descriptors of the process.
pub(crate) fn descriptors(pid: u32) -> Result<usize, Failure> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// What a process has read so far, MiB.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadMib {
    /// By its calls.
    pub(crate) asked: f64,
    /// From devices, for it; read-ahead included.
    pub(crate) device: f64,
}

/// What the process has read.
pub(crate) fn read_mib(pid: u32) -> Result<ReadMib, Failure> {
    let io = fs::read_to_string(format!("/proc/{pid}/io"))?;
    let mib = |name: &str| -> Result<f64, Failure> {
        let value = io.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        Ok(value.ok_or("unexpected format of /proc/PID/io")?.trim().parse::<f64>()? / f64::from(1 << 20))
    };
    Ok(ReadMib { asked: mib("rchar")?, device: mib("read_bytes")? })
}
