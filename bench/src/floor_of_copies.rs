//! The floor of three copies: the least that any log must do that flushes three files before it acknowledges and encrypts what
//! the copies say to each other.
//!
//! One process with a thread for each copy. The first copy reads frames of [`floor`](crate::floor) from a socket, checks and writes
//! them, and pushes them on a stream of Weir's transport to each of the other two. Each copy flushes what was written meanwhile
//! in one go, on a thread of its own. A frame is acknowledged when it is durable three times. No records, no index.

use crate::Failure;
use crate::floor::FRAME;
use crate::loopback::{self, OPEN_MAX, bind, on_runtime};
use bytes::{Bytes, BytesMut};
use quic_transport::pki::{CertificateAuthority, Credentials};
use quic_transport::{FrameReceiver, FrameSender, MessageKind, PeerTarget, Role, Roles, Router, Transport};
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

const FOLLOWERS: [u64; 2] = [2, 3];
/// Frames on the way to a follower; the client has no more of them in flight.
const FRAMES_ON_THE_WAY: usize = 8;

/// The program's main: prints its port, serves one connection after the other until it is killed.
pub(crate) fn serve(directory: &Path) -> Result<(), Failure> {
    let authority = loopback::authority()?;
    let mut followers = Vec::new();
    for node in FOLLOWERS {
        let (bound, address) = std::sync::mpsc::channel();
        let credentials = loopback::credentials(&authority, node)?;
        let file = Arc::new(create(directory, node)?);
        std::thread::spawn(move || on_runtime(follow(credentials, file, bound)));
        followers.push((node, address.recv_timeout(OPEN_MAX)?));
    }
    let file = Arc::new(create(directory, 1)?);
    on_runtime(lead(&authority, file, followers)).map_err(Failure::from)
}

fn create(directory: &Path, node: u64) -> Result<File, Failure> {
    Ok(File::create(directory.join(format!("floor-{node}.log")))?)
}

/// What a copy has on disk: how much is written, and how much of that is durable, in bytes.
struct Copy {
    file: Arc<File>,
    written: watch::Sender<u64>,
    durable: watch::Receiver<u64>,
}

impl Copy {
    /// Starts the thread that flushes; it ends with the copy.
    fn of(file: Arc<File>) -> Self {
        let (written, mut to_flush) = watch::channel(0_u64);
        let (flushed, durable) = watch::channel(0_u64);
        let syncing = Arc::clone(&file);
        tokio::spawn(async move {
            while to_flush.changed().await.is_ok() {
                let end = *to_flush.borrow_and_update();
                let file = Arc::clone(&syncing);
                let synced = tokio::task::spawn_blocking(move || file.sync_data()).await;
                if !matches!(synced, Ok(Ok(()))) || flushed.send(end).is_err() {
                    return;
                }
            }
        });
        Self { file, written, durable }
    }

    fn write(&self, frame: &[u8]) -> Result<(), String> {
        let end = *self.written.borrow();
        self.file.write_all_at(frame, end).map_err(|error| error.to_string())?;
        self.written.send_replace(end + frame.len() as u64);
        Ok(())
    }
}

/// A follower: writes what its leader pushes and says how much of it is durable.
async fn follow(
    credentials: Credentials,
    file: Arc<File>,
    bound: std::sync::mpsc::Sender<SocketAddr>,
) -> Result<(), String> {
    let router = Router::builder()
        .stream(
            MessageKind::ReplicationLane,
            Roles::of(&[Role::StorageNode]),
            move |_call, sender, receiver| {
                let copy = Copy::of(Arc::clone(&file));
                async move {
                    if let Err(error) = receive(copy, sender, receiver).await {
                        eprintln!("bench: a follower of the floor: {error}");
                    }
                }
            },
        )
        .build();
    let endpoint = bind(credentials, router)?;
    bound.send(endpoint.local_addr()).map_err(|error| error.to_string())?;
    std::future::pending().await
}

async fn receive(copy: Copy, mut sender: FrameSender, mut receiver: FrameReceiver) -> Result<(), String> {
    let mut durable = copy.durable.clone();
    let telling = async move {
        while durable.changed().await.is_ok() {
            let end = *durable.borrow_and_update();
            sender.send_message(&end).await.map_err(|error| error.to_string())?;
        }
        Ok(())
    };
    let writing = async move {
        while let Some(frame) = receiver.recv().await.map_err(|error| error.to_string())? {
            copy.write(&frame)?;
        }
        Ok(())
    };
    tokio::try_join!(telling, writing).map(|_: ((), ())| ())
}

/// The leader: a socket for the client, a stream to each follower.
async fn lead(
    authority: &CertificateAuthority,
    file: Arc<File>,
    followers: Vec<(u64, SocketAddr)>,
) -> Result<(), String> {
    let credentials = loopback::credentials(authority, 1).map_err(|error| error.to_string())?;
    let endpoint = bind(credentials, Router::empty())?;
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
    let port = listener.local_addr().map_err(|error| error.to_string())?.port();
    let mut out = std::io::stdout();
    writeln!(out, "{port}").and_then(|()| out.flush()).map_err(|error| error.to_string())?;
    loop {
        let (client, _) = listener.accept().await.map_err(|error| error.to_string())?;
        let mut streams = Vec::new();
        for &(node, address) in &followers {
            let identity = loopback::identity(node).map_err(|error| error.to_string())?;
            let peer = endpoint.peer(PeerTarget::new(address, identity));
            let opened = peer.open_stream(MessageKind::ReplicationLane, Bytes::new(), OPEN_MAX).await;
            streams.push(opened.map_err(|error| error.to_string())?);
        }
        serve_client(client, Copy::of(Arc::clone(&file)), streams).await?;
    }
}

async fn serve_client(
    client: TcpStream,
    copy: Copy,
    streams: Vec<(FrameSender, FrameReceiver)>,
) -> Result<(), String> {
    rustix::net::sockopt::set_tcp_congestion(&client, "cubic").ok();
    let (mut from_client, to_client) = client.into_split();
    let (mut pushes, mut ends) = (Vec::new(), vec![copy.durable.clone()]);
    for (sender, receiver) in streams {
        let (push, frames) = mpsc::channel(FRAMES_ON_THE_WAY);
        let (durable, end) = watch::channel(0_u64);
        tokio::spawn(pushing(sender, frames));
        tokio::spawn(hearing(receiver, durable));
        pushes.push(push);
        ends.push(end);
    }
    tokio::spawn(acknowledging(to_client, ends));
    // The first byte says that frames come; nothing else is served here.
    from_client.read_u8().await.map_err(|error| error.to_string())?;
    while let Ok(length) = from_client.read_u32_le().await {
        let crc = from_client.read_u32_le().await.map_err(|error| error.to_string())?;
        if length as usize > FRAME {
            return Err("frame longer than the floor's frames".to_owned());
        }
        let mut frame = BytesMut::zeroed(length as usize);
        from_client.read_exact(&mut frame).await.map_err(|error| error.to_string())?;
        if crc_fast::crc32_iscsi(&frame) != crc {
            return Err("checksum differs".to_owned());
        }
        let frame = frame.freeze();
        for push in &pushes {
            push.send(frame.clone()).await.map_err(|_| "a follower of the floor is gone")?;
        }
        copy.write(&frame)?;
    }
    Ok(())
}

async fn pushing(mut sender: FrameSender, mut frames: mpsc::Receiver<Bytes>) {
    while let Some(frame) = frames.recv().await {
        if sender.send(frame).await.is_err() {
            return;
        }
    }
    // The follower is gone with the program, or reads the end.
    sender.finish().await.ok();
}

async fn hearing(mut receiver: FrameReceiver, durable: watch::Sender<u64>) {
    while let Ok(Some(end)) = receiver.recv_message::<u64>().await {
        durable.send_replace(end);
    }
}

/// One byte for each whole frame that is durable in every copy.
async fn acknowledging(mut client: OwnedWriteHalf, mut ends: Vec<watch::Receiver<u64>>) {
    let mut acknowledged = 0;
    loop {
        let durable = ends.iter().map(|end| *end.borrow() / FRAME as u64).min().unwrap_or_default();
        let new = usize::try_from(durable - acknowledged).unwrap_or_default();
        if client.write_all(&vec![1; new]).await.is_err() {
            return;
        }
        acknowledged = durable;
        // The slowest copy is the one to wait for.
        let Some(slowest) = ends.iter_mut().min_by_key(|end| *end.borrow()) else { return };
        if slowest.changed().await.is_err() {
            return;
        }
    }
}
