//! How sessions of many partitions should travel between two storage nodes: on a few lanes, each a stream with a connection of
//! its own that carries the sessions of many partitions (as they do), or on one stream for each partition over one
//! connection.
//!
//! Transport alone: no log, no disk. Both ends run in this process, each on a thread of its own; a leader pushes batches as
//! far as each session's credit goes, a follower acknowledges each. Loaded: all partitions at once. Idle: one partition
//! alone, one small batch at a time, from push to acknowledgement.

use crate::clock::now;
use crate::cpu::{cpu_seconds, resident_mib};
use crate::loopback::{self, OPEN_MAX, bind, on_runtime};
use crate::report::{percentile, print_table, spread};
use crate::{Failure, report};
use bytes::Bytes;
use proto_types::ids::Offset;
use proto_types::replication_api::{Batches, FollowerFrame, LeaderFrame, Marks, SessionAck, SessionId};
use quic_transport::pki::Credentials;
use quic_transport::{FrameReceiver, FrameSender, MessageKind, PeerTarget, Role, Roles, Router, Transport};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};

const LANES: u16 = 2;

/// Options of `bench lanes`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Partitions, one table row for each number.
    #[arg(long, value_delimiter = ',', default_value = "1,100,1000")]
    partitions: Vec<usize>,
    /// Bytes of each loaded run, in MiB.
    #[arg(long, default_value_t = 512)]
    mib: u64,
    /// Bytes of a batch, in KiB.
    #[arg(long, default_value_t = 16)]
    batch_kib: usize,
    /// Batches that a session may have on their way.
    #[arg(long, default_value_t = 4)]
    credit: u64,
    /// Round trips of the idle run.
    #[arg(long, default_value_t = 2_000)]
    round_trips: usize,
    /// Rounds; the two ways take turns in each.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Lanes,
    Streams,
}

impl Way {
    fn streams(self, partitions: usize) -> usize {
        match self {
            Way::Lanes => usize::from(LANES),
            Way::Streams => partitions,
        }
    }
}

/// What one run took.
struct Cost {
    megabytes_per_second: f64,
    cpu_seconds_per_gb: f64,
    resident_mib: f64,
    p50_us: f64,
    p99_us: f64,
}

/// Runs the measurement and prints a table.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let head = ["way", "partitions", "MB/s", "CPU s/GB, both ends", "MiB more", "idle p50 us", "idle p99 us"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for &partitions in &args.partitions {
        let mut costs = [Vec::new(), Vec::new()];
        for _ in 0..args.rounds {
            for (way, costs) in [Way::Lanes, Way::Streams].into_iter().zip(&mut costs) {
                costs.push(measure(way, partitions, args)?);
            }
        }
        for (way, costs) in [Way::Lanes, Way::Streams].into_iter().zip(&costs) {
            let column = |value: fn(&Cost) -> f64| costs.iter().map(value).collect::<Vec<f64>>();
            rows.push(vec![
                format!("{way:?}"),
                partitions.to_string(),
                spread(&column(|c| c.megabytes_per_second), 0),
                spread(&column(|c| c.cpu_seconds_per_gb), 2),
                format!("{:.0}", report::median(&column(|c| c.resident_mib))),
                spread(&column(|c| c.p50_us), 0),
                spread(&column(|c| c.p99_us), 0),
            ]);
        }
    }
    print_table(&rows);
    Ok(())
}

fn measure(way: Way, partitions: usize, args: &Args) -> Result<Cost, Failure> {
    let authority = loopback::authority()?;
    let me = std::process::id();
    let resident_before = resident_mib(me)?;
    let batches = (args.mib << 20) / (args.batch_kib as u64 * 1024);
    let leader = Arc::new(Leader::new(way, partitions, args, batches));
    let (bound, address) = std::sync::mpsc::channel();
    let (stop_leader, leader_stopped) = tokio::sync::oneshot::channel::<()>();
    let (serving, credentials) = (Arc::clone(&leader), loopback::credentials(&authority, 1)?);
    let leading = std::thread::spawn(move || -> Result<(), String> {
        on_runtime(async move {
            let router = Router::builder()
                .stream(
                    MessageKind::ReplicationLane,
                    Roles::of(&[Role::StorageNode]),
                    move |call, sender, receiver| {
                        let leader = Arc::clone(&serving);
                        let stream = call.decode::<u32>().unwrap_or_default() as usize;
                        async move { leader.serve(stream, sender, receiver).await }
                    },
                )
                .build();
            let endpoint = bind(credentials, router)?;
            bound.send(endpoint.local_addr()).map_err(|error| error.to_string())?;
            // The sender is dropped at the end.
            let _end = leader_stopped.await;
            endpoint.shutdown(Duration::ZERO).await;
            Ok(())
        })
    });
    let address = address.recv_timeout(OPEN_MAX)?;
    let credentials = loopback::credentials(&authority, 2)?;
    let streams = way.streams(partitions);
    let following = Arc::clone(&leader);
    let outcome =
        std::thread::spawn(move || on_runtime(follow(way, streams, address, credentials, following)));
    let (cpu, seconds, resident) =
        outcome.join().map_err(|_| "the follower's thread failed")?.map_err(Failure::from)?;
    drop(stop_leader);
    leading.join().map_err(|_| "the leader's thread failed")?.map_err(Failure::from)?;
    let gigabytes = (args.mib << 20) as f64 / 1e9;
    let trips = leader.round_trips();
    Ok(Cost {
        megabytes_per_second: gigabytes * 1e3 / seconds,
        cpu_seconds_per_gb: cpu / gigabytes,
        resident_mib: resident - resident_before,
        p50_us: percentile(&trips, 0.5),
        p99_us: percentile(&trips, 0.99),
    })
}

/// The loaded run, then the idle one. CPU seconds and seconds of the first, and resident memory at its end.
async fn follow(
    way: Way,
    streams: usize,
    address: SocketAddr,
    credentials: Credentials,
    leader: Arc<Leader>,
) -> Result<(f64, f64, f64), String> {
    let endpoint = bind(credentials, Router::empty())?;
    let identity = loopback::identity(1).map_err(|error| error.to_string())?;
    let (done, mut ended) = mpsc::channel::<String>(1);
    for stream in 0..streams {
        let lane = match way {
            Way::Lanes => u16::try_from(stream).map_err(|error| error.to_string())?,
            Way::Streams => 0,
        };
        let peer = endpoint.peer(PeerTarget { lane, ..PeerTarget::new(address, identity.clone()) });
        let number = u32::try_from(stream).map_err(|error| error.to_string())?;
        let hello = Bytes::from(proto_types::encode(&number));
        let opened = peer.open_stream(MessageKind::ReplicationLane, hello, OPEN_MAX).await;
        let (sender, receiver) = opened.map_err(|error| error.to_string())?;
        let done = done.clone();
        tokio::spawn(async move {
            if let Err(error) = acknowledge(sender, receiver).await {
                // Only the first counts.
                let _full = done.try_send(error);
            }
        });
    }
    let me = std::process::id();
    let (cpu, begun) = (cpu_seconds(me).map_err(|error| error.to_string())?, now());
    leader.load.notify_waiters();
    leader.begun.store(1, Ordering::Release);
    tokio::select! {
        () = leader.loaded.notified() => {}
        error = ended.recv() => return Err(error.unwrap_or_default()),
    }
    let seconds = begun.elapsed().as_secs_f64();
    let used = cpu_seconds(me).map_err(|error| error.to_string())? - cpu;
    let resident = resident_mib(me).map_err(|error| error.to_string())?;
    tokio::select! {
        () = leader.idled.notified() => {}
        error = ended.recv() => return Err(error.unwrap_or_default()),
    }
    endpoint.shutdown(Duration::ZERO).await;
    Ok((used, seconds, resident))
}

/// A follower's side of a stream: every batch is acknowledged.
async fn acknowledge(mut sender: FrameSender, mut receiver: FrameReceiver) -> Result<(), String> {
    loop {
        match receiver.recv_message::<LeaderFrame>().await.map_err(|error| error.to_string())? {
            Some(LeaderFrame::Batches(batches)) => {
                let records = receiver.recv().await.map_err(|error| error.to_string())?;
                let credit_bytes = records.map_or(0, |records| records.len() as u64);
                let (session, end) = (batches.session, Offset(batches.from.0 + 1));
                let ack = SessionAck { session, appended: end, flushed: end, credit_bytes };
                sender.send_message(&FollowerFrame::Ack(ack)).await.map_err(|error| error.to_string())?;
            }
            Some(LeaderFrame::Answer { .. } | LeaderFrame::Marks { .. } | LeaderFrame::Closed { .. }) => {}
            None => return Ok(()),
        }
    }
}

/// The leader's side of all streams.
struct Leader {
    way: Way,
    partitions: usize,
    credit: u64,
    records: Bytes,
    small: Bytes,
    /// Batches that are left to be pushed, and to be acknowledged.
    to_push: AtomicU64,
    to_ack: AtomicU64,
    trips_wanted: usize,
    trips: std::sync::Mutex<Vec<f64>>,
    begun: AtomicU64,
    load: Notify,
    loaded: Notify,
    idled: Notify,
}

impl Leader {
    fn new(way: Way, partitions: usize, args: &Args, batches: u64) -> Self {
        Self {
            way,
            partitions,
            credit: args.credit.max(1),
            records: Bytes::from(vec![7; args.batch_kib * 1024]),
            small: Bytes::from_static(&[7; 1024]),
            to_push: AtomicU64::new(batches),
            to_ack: AtomicU64::new(batches),
            trips_wanted: args.round_trips,
            trips: std::sync::Mutex::default(),
            begun: AtomicU64::new(0),
            load: Notify::new(),
            loaded: Notify::new(),
            idled: Notify::new(),
        }
    }

    fn round_trips(&self) -> Vec<f64> {
        self.trips.lock().map(|trips| trips.clone()).unwrap_or_default()
    }

    /// The partitions that a stream carries.
    fn sessions(&self, stream: usize) -> Vec<u64> {
        let all = 0..self.partitions;
        let of = |partition: &usize| match self.way {
            Way::Lanes => partition % usize::from(LANES) == stream,
            Way::Streams => *partition == stream,
        };
        all.filter(of).map(|partition| partition as u64).collect()
    }

    async fn serve(&self, stream: usize, mut sender: FrameSender, mut receiver: FrameReceiver) {
        let mut idle: VecDeque<u64> = VecDeque::new();
        for session in self.sessions(stream) {
            idle.extend(std::iter::repeat_n(session, usize::try_from(self.credit).unwrap_or(1)));
        }
        while self.begun.load(Ordering::Acquire) == 0 {
            let load = self.load.notified();
            if self.begun.load(Ordering::Acquire) == 0 {
                // The load may have begun between the two looks.
                let _timeout = tokio::time::timeout(Duration::from_millis(5), load).await;
            }
        }
        loop {
            let mut frames = Vec::new();
            while frames.len() < 128
                && let Some(session) = idle.pop_front()
            {
                let left = self
                    .to_push
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
                if left.is_err() {
                    idle.clear();
                    break;
                }
                frames.extend(push(session, &self.records));
            }
            if !frames.is_empty() && sender.send_all(frames).await.is_err() {
                return;
            }
            match receiver.recv_message::<FollowerFrame>().await {
                Ok(Some(FollowerFrame::Ack(ack))) => {
                    idle.push_back(ack.session.0);
                    if self.to_ack.fetch_sub(1, Ordering::AcqRel) == 1 {
                        self.loaded.notify_one();
                        self.idle(stream, ack.session, &mut sender, &mut receiver).await;
                        return;
                    }
                }
                Ok(Some(
                    FollowerFrame::Open(_) | FollowerFrame::Close { .. } | FollowerFrame::LogStart { .. },
                )) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// One small batch after the other on the stream that was the last to be loaded.
    async fn idle(
        &self,
        _stream: usize,
        session: SessionId,
        sender: &mut FrameSender,
        receiver: &mut FrameReceiver,
    ) {
        let mut trips = Vec::with_capacity(self.trips_wanted);
        for _ in 0..self.trips_wanted {
            let begun: Instant = now();
            if sender.send_all(push(session.0, &self.small).to_vec()).await.is_err() {
                return;
            }
            if receiver.recv_message::<FollowerFrame>().await.is_err() {
                return;
            }
            trips.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        if let Ok(mut all) = self.trips.lock() {
            *all = trips;
        }
        self.idled.notify_one();
    }
}

fn push(session: u64, records: &Bytes) -> [Bytes; 2] {
    let marks = Marks { log_start: Offset(0), high_watermark: Offset(0) };
    let header = LeaderFrame::Batches(Batches { session: SessionId(session), from: Offset(0), marks });
    [Bytes::from(proto_types::encode(&header)), records.clone()]
}
