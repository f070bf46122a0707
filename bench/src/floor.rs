//! The floor: the least that any log behind a socket must do, so that Weir's cost can be told from the machine's.
//!
//! A blocking server on one thread. Produce: frames of `{u32 length, u32 crc32c, payload}` are read, checked, written to
//! a file in the page cache and acknowledged. Fetch: the file comes back by `sendfile`. No records, no index, no flush.

use crate::Failure;
use crate::clock;
use crate::cpu::cpu_seconds;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub(crate) const FRAME: usize = 1 << 20;
const IN_FLIGHT: usize = 4;
const PRODUCE: u8 = 1;
const FETCH: u8 = 2;

/// MB/s (10^6 bytes) and the server's CPU seconds per GB (10^9 bytes).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) megabytes_per_second: f64,
    pub(crate) cpu_seconds_per_gb: f64,
}

impl Cost {
    pub(crate) fn of(bytes: u64, seconds: f64, cpu: f64) -> Self {
        Cost {
            megabytes_per_second: bytes as f64 / 1e6 / seconds,
            cpu_seconds_per_gb: cpu / (bytes as f64 / 1e9),
        }
    }
}

/// The server's main: prints its port, serves one connection after the other until its parent closes its input.
pub(crate) fn serve(directory: &Path) -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", listener.local_addr()?.port())?;
    out.flush()?;
    let file = File::options()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(directory.join("floor.log"))?;
    let mut end = 0_u64;
    for stream in listener.incoming() {
        let mut stream = stream?;
        rustix::net::sockopt::set_tcp_congestion(&stream, "cubic").ok();
        let mut kind = [0_u8];
        stream.read_exact(&mut kind)?;
        if kind[0] == PRODUCE {
            end = receive(&mut stream, &file)?;
        } else {
            send(&mut stream, &file, end)?;
        }
    }
    Ok(())
}

fn receive(stream: &mut TcpStream, file: &File) -> Result<u64, Failure> {
    let mut end = 0_u64;
    let mut header = [0_u8; 8];
    let mut payload = vec![0_u8; FRAME];
    while stream.read_exact(&mut header).is_ok() {
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let crc = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        let frame = payload.get_mut(..length).ok_or("frame longer than the floor's frames")?;
        stream.read_exact(frame)?;
        if crc_fast::crc32_iscsi(frame) != crc {
            return Err("checksum differs".into());
        }
        file.write_all_at(frame, end)?;
        end += length as u64;
        stream.write_all(&[1])?;
    }
    Ok(end)
}

fn send(stream: &mut TcpStream, file: &File, end: u64) -> Result<(), Failure> {
    let mut request = [0_u8];
    let mut offset = 0_u64;
    while stream.read_exact(&mut request).is_ok() {
        let target = end.min(offset + FRAME as u64);
        stream.write_all(&u32::try_from(target - offset)?.to_le_bytes())?;
        while offset < target {
            let remaining = usize::try_from(target - offset)?;
            rustix::fs::sendfile(&*stream, file, Some(&mut offset), remaining)?;
        }
    }
    Ok(())
}

/// A floor server as a child process.
pub(crate) struct Floor {
    child: Child,
    port: u16,
}

impl Floor {
    pub(crate) fn start(directory: &Path) -> Result<Self, Failure> {
        Self::start_as("floor-broker", directory)
    }

    /// The floor of three copies, see [`crate::floor_of_copies`].
    pub(crate) fn start_with_copies(directory: &Path) -> Result<Self, Failure> {
        Self::start_as("floor-of-copies", directory)
    }

    fn start_as(program: &str, directory: &Path) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(program)
            .arg(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or("the floor has no output")?;
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line)?;
        Ok(Floor { port: line.trim().parse()?, child })
    }

    /// Sends `bytes` in frames of 1 MiB with four in flight.
    pub(crate) fn produce(&self, bytes: u64) -> Result<Cost, Failure> {
        let payload = vec![7_u8; FRAME];
        let crc = crc_fast::crc32_iscsi(&payload);
        let mut stream = self.connect(PRODUCE)?;
        let (cpu, start) = (cpu_seconds(self.child.id())?, clock::now());
        let frames = bytes.div_ceil(FRAME as u64);
        let mut acked = 0_u64;
        let mut ack = [0_u8];
        for sent in 0..frames {
            stream.write_all(&(FRAME as u32).to_le_bytes())?;
            stream.write_all(&crc.to_le_bytes())?;
            stream.write_all(&payload)?;
            if sent - acked >= IN_FLIGHT as u64 {
                stream.read_exact(&mut ack)?;
                acked += 1;
            }
        }
        while acked < frames {
            stream.read_exact(&mut ack)?;
            acked += 1;
        }
        Ok(Cost::of(
            frames * FRAME as u64,
            start.elapsed().as_secs_f64(),
            cpu_seconds(self.child.id())? - cpu,
        ))
    }

    /// Reads everything back, 1 MiB a request, two requests in flight.
    pub(crate) fn fetch(&self) -> Result<Cost, Failure> {
        let mut stream = self.connect(FETCH)?;
        let (cpu, start) = (cpu_seconds(self.child.id())?, clock::now());
        let mut buffer = vec![0_u8; FRAME];
        let mut bytes = 0_u64;
        stream.write_all(&[1, 1])?;
        loop {
            let mut length = [0_u8; 4];
            stream.read_exact(&mut length)?;
            let length = u32::from_le_bytes(length) as usize;
            if length == 0 {
                break;
            }
            stream.read_exact(buffer.get_mut(..length).ok_or("answer longer than asked")?)?;
            bytes += length as u64;
            stream.write_all(&[1])?;
        }
        Ok(Cost::of(bytes, start.elapsed().as_secs_f64(), cpu_seconds(self.child.id())? - cpu))
    }

    fn connect(&self, kind: u8) -> Result<TcpStream, Failure> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_nodelay(true)?;
        rustix::net::sockopt::set_tcp_congestion(&stream, "cubic").ok();
        stream.write_all(&[kind])?;
        Ok(stream)
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        // Only fails when the child is gone already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
