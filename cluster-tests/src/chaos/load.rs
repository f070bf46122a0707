//! The clients of a chaos run: Kafka's Java producer and consumer, and programs on librdkafka. Each writes a history file of its
//! own; a client that takes the place of one that was killed writes another one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::faults::index;
use super::{Diary, KEYED_PARTITIONS, KEYED_TOPIC, TOPIC};
use crate::clients::java_command;
use crate::clock::wait_until;
use crate::history::EXTENSION;
use crate::moments::Moments;
use crate::netns::NetworkError;
use crate::replicated_cluster::ReplicatedCluster;
use crate::workspace;

/// A producer ends when every record is answered: at most its delivery time-out.
const FINISH_LIMIT: Duration = Duration::from_secs(150);
/// How far behind a follower may be at the end.
const FOLLOW_LIMIT: Duration = Duration::from_secs(60);
/// How often the histories are looked at.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// Records that each producer of the compacted topic sends in a second; they are large.
const KEYED_PER_SECOND: u64 = 40;

/// How many clients of which kind.
#[derive(Clone, Debug)]
pub struct LoadShape {
    /// Java producers.
    pub java_producers: u64,
    /// Producers on librdkafka.
    pub rdkafka_producers: u64,
    /// Records that each of them sends in a second.
    pub records_per_second: u64,
    /// Producers on librdkafka that write the keys of a compacted topic again and again.
    pub keyed_producers: u64,
    /// Whether a Java consumer and one on librdkafka follow.
    pub followers: bool,
}

impl Default for LoadShape {
    fn default() -> Self {
        LoadShape {
            java_producers: 2,
            rdkafka_producers: 1,
            records_per_second: 300,
            keyed_producers: 2,
            followers: true,
        }
    }
}

/// Folders of what clients wrote down.
#[derive(Debug)]
pub(super) struct Histories {
    pub(super) all: PathBuf,
    /// Of the compacted topic, if it was written.
    pub(super) keyed: Option<PathBuf>,
}

/// Running clients.
#[derive(Debug)]
pub struct Load {
    clients: Vec<Client>,
    dir: PathBuf,
    /// Of the compacted topic.
    keyed_dir: PathBuf,
    partitions: u16,
    watcher: Watcher,
    shape: LoadShape,
    /// Producers and followers that were ever started. Each has a number of its own, and so its own values and history.
    started: u64,
    /// Whoever was killed and has no successor yet.
    killed: Vec<Kind>,
}

#[derive(Debug)]
struct Client {
    name: String,
    child: Child,
    kind: Kind,
}

/// What a client does, and with which library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    JavaProducer,
    RdkafkaProducer,
    JavaFollower,
    RdkafkaFollower,
    JavaFinal,
    RdkafkaFinal,
    KeyedProducer,
    KeyedFinal,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::JavaProducer => "java-producer",
            Kind::RdkafkaProducer => "rdkafka-producer",
            Kind::JavaFollower => "java-follower",
            Kind::RdkafkaFollower => "rdkafka-follower",
            Kind::JavaFinal => "java-final",
            Kind::RdkafkaFinal => "rdkafka-final",
            Kind::KeyedProducer => "keyed-producer",
            Kind::KeyedFinal => "keyed-final",
        }
    }

    fn produces(self) -> bool {
        matches!(self, Kind::JavaProducer | Kind::RdkafkaProducer | Kind::KeyedProducer)
    }

    fn is_keyed(self) -> bool {
        matches!(self, Kind::KeyedProducer | Kind::KeyedFinal)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // It is our own child; if it cannot be ended it has ended.
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

impl Load {
    /// Starts the clients on their own host.
    pub fn start(
        cluster: &ReplicatedCluster,
        dir: &Path,
        partitions: u16,
        shape: &LoadShape,
    ) -> Result<Load, NetworkError> {
        let (dir, keyed_dir) = (dir.join("history"), dir.join("keyed"));
        for dir in [&dir, &keyed_dir] {
            std::fs::create_dir_all(dir).map_err(|e| NetworkError(format!("{}: {e}", dir.display())))?;
        }
        let mut load = Load {
            clients: Vec::new(),
            dir: dir.clone(),
            keyed_dir,
            partitions,
            watcher: Watcher::start(&dir),
            shape: shape.clone(),
            started: 0,
            killed: Vec::new(),
        };
        for _ in 0..shape.java_producers {
            load.launch(cluster, Kind::JavaProducer)?;
        }
        for _ in 0..shape.rdkafka_producers {
            load.launch(cluster, Kind::RdkafkaProducer)?;
        }
        for _ in 0..shape.keyed_producers {
            load.launch(cluster, Kind::KeyedProducer)?;
        }
        if shape.followers {
            load.launch(cluster, Kind::JavaFollower)?;
            if load.uses_rdkafka() {
                load.launch(cluster, Kind::RdkafkaFollower)?;
            }
        }
        Ok(load)
    }

    fn uses_rdkafka(&self) -> bool {
        self.shape.rdkafka_producers > 0
    }

    /// Starts a client.
    fn launch(&mut self, cluster: &ReplicatedCluster, kind: Kind) -> Result<(), NetworkError> {
        self.started += 1;
        let name = format!("{}-{}", kind.name(), self.started);
        let (dir, topic, count, rate) = match kind.is_keyed() {
            true => (&self.keyed_dir, KEYED_TOPIC, KEYED_PARTITIONS, KEYED_PER_SECOND),
            false => (&self.dir, TOPIC, self.partitions, self.shape.records_per_second),
        };
        let file = dir.join(format!("{name}.{EXTENSION}")).display().to_string();
        let (count, number, rate) = (count.to_string(), self.started.to_string(), rate.to_string());
        let bootstrap = cluster.bootstrap();
        let produce = [&bootstrap, topic, &count, &number, &rate, &file];
        let java_consumer =
            |mode: &str| java_command("HistoryConsumer", &[&bootstrap, topic, &count, mode, &file]);
        let consume = [&bootstrap, topic, &count, &file];
        let command = match kind {
            Kind::JavaProducer => java_command("HistoryProducer", &produce),
            Kind::RdkafkaProducer => rdkafka_command(&["produce"], &produce),
            Kind::KeyedProducer => rdkafka_command(&["keyed", "produce"], &produce),
            Kind::KeyedFinal => rdkafka_command(&["keyed", "final"], &consume),
            Kind::JavaFollower => java_consumer("follow"),
            Kind::RdkafkaFollower => rdkafka_command(&["follow"], &consume),
            Kind::JavaFinal => java_consumer("final"),
            Kind::RdkafkaFinal => rdkafka_command(&["final"], &consume),
        };
        self.spawn(cluster, name, &command, kind)
    }

    fn spawn(
        &mut self,
        cluster: &ReplicatedCluster,
        name: String,
        command: &Command,
        kind: Kind,
    ) -> Result<(), NetworkError> {
        let failed = |error| NetworkError(format!("{name} cannot be started: {error}"));
        let log = File::create(self.dir.join(format!("{name}.log"))).map_err(failed)?;
        let mut command = cluster.clients.on(command);
        command.stdin(Stdio::piped()).stdout(log.try_clone().map_err(failed)?).stderr(log);
        let child = command.spawn().map_err(failed)?;
        self.clients.push(Client { name, child, kind });
        Ok(())
    }

    /// `kill -9` of any client. What it wrote down until then is judged: of what it was not answered nobody knows.
    pub(super) fn kill_one(&mut self, chance: &mut Moments) -> String {
        if self.clients.is_empty() {
            return "no client is left to be killed".to_owned();
        }
        let client = self.clients.swap_remove(index(chance, self.clients.len()));
        self.killed.push(client.kind);
        // Dropping it kills it, and waits.
        format!("kill -9 {}", client.name)
    }

    /// Another client for each that was killed.
    pub(super) fn restart_killed(&mut self, cluster: &ReplicatedCluster) -> Result<(), NetworkError> {
        std::mem::take(&mut self.killed).into_iter().try_for_each(|kind| self.launch(cluster, kind))
    }

    /// The folder of the histories; whatever is in it at the end is judged.
    pub fn histories(&self) -> &Path {
        &self.dir
    }

    /// Records acknowledged so far.
    pub fn acknowledged(&self) -> u64 {
        self.watcher.counts.acknowledged.load(Ordering::Relaxed)
    }

    /// Records so far that were refused or of which nobody knows.
    pub fn failed(&self) -> u64 {
        self.watcher.counts.failed.load(Ordering::Relaxed)
    }

    /// Fails unless every follower gets everything that was acknowledged: one that stands still for good sees no fault.
    fn wait_for_followers(&self, diary: &mut Diary) {
        let acknowledged = self.acknowledged();
        for client in self.clients.iter().filter(|client| !client.kind.produces()) {
            let read = || self.watcher.read_by(&client.name);
            if wait_until(FOLLOW_LIMIT, || (read() >= acknowledged).then_some(())).is_none() {
                let (name, read) = (&client.name, read());
                diary.complain(format!("{name} has read {read} of {acknowledged} within {FOLLOW_LIMIT:?}"));
            }
        }
    }

    /// Ends the producers, then the followers, then reads everything once more to the end, by every library. Gives the folders
    /// of the histories.
    pub(super) fn finish(
        mut self,
        cluster: &ReplicatedCluster,
        diary: &mut Diary,
    ) -> Result<Histories, NetworkError> {
        for producers in [true, false] {
            let (mut ending, rest): (Vec<Client>, Vec<Client>) =
                self.clients.drain(..).partition(|client| client.kind.produces() == producers);
            self.clients = rest;
            // The end of their input tells them.
            ending.iter_mut().for_each(|client| drop(client.child.stdin.take()));
            for client in &mut ending {
                self.wait(client, diary);
            }
            if producers {
                self.wait_for_followers(diary);
            }
        }
        self.launch(cluster, Kind::JavaFinal)?;
        if self.uses_rdkafka() {
            self.launch(cluster, Kind::RdkafkaFinal)?;
        }
        if self.shape.keyed_producers > 0 {
            self.launch(cluster, Kind::KeyedFinal)?;
        }
        for mut client in std::mem::take(&mut self.clients) {
            self.wait(&mut client, diary);
        }
        let keyed = (self.shape.keyed_producers > 0).then(|| self.keyed_dir.clone());
        Ok(Histories { all: self.dir.clone(), keyed })
    }

    fn wait(&self, client: &mut Client, diary: &mut Diary) {
        let name = &client.name;
        let log = self.dir.join(format!("{name}.log"));
        match wait_until(FINISH_LIMIT, || client.child.try_wait().transpose()) {
            Some(Ok(status)) if status.success() => {}
            Some(ended) => diary.complain(format!("{name} failed: {ended:?}; see {}", log.display())),
            None => {
                diary.complain(format!("{name} does not end within {FINISH_LIMIT:?}; see {}", log.display()))
            }
        }
    }
}

/// The program on librdkafka, an example of this package.
fn rdkafka_command(mode: &[&str], args: &[&str]) -> Command {
    let mut command = Command::new(workspace::program("examples/history-rdkafka"));
    command.args(mode).args(args);
    command
}

/// Follows the histories and counts.
#[derive(Debug)]
struct Watcher {
    counts: Arc<Counts>,
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Counts {
    acknowledged: AtomicU64,
    failed: AtomicU64,
    /// Records read, by client.
    read: Mutex<BTreeMap<String, u64>>,
}

impl Watcher {
    fn start(dir: &Path) -> Watcher {
        let (counts, stop) = (Arc::<Counts>::default(), Arc::<AtomicBool>::default());
        let thread = std::thread::spawn({
            let (counts, stop, dir) = (Arc::clone(&counts), Arc::clone(&stop), dir.to_owned());
            move || watch(&dir, &counts, &stop)
        });
        Watcher { counts, stop, thread: Mutex::new(Some(thread)) }
    }

    fn read_by(&self, client: &str) -> u64 {
        let read = self.counts.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.get(client).copied().unwrap_or_default()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            eprintln!("the thread that follows the histories failed");
        }
    }
}

fn watch(dir: &Path, counts: &Counts, stop: &AtomicBool) {
    let mut seen: BTreeMap<PathBuf, u64> = BTreeMap::new();
    while !stop.load(Ordering::Relaxed) {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            if path.extension().is_some_and(|extension| extension == EXTENSION) {
                let at = seen.entry(path.clone()).or_default();
                // A file that cannot be read now is read next time; at the end the whole history is read anyway.
                *at = count_from(&path, *at, counts).unwrap_or(*at);
            }
        }
        std::thread::sleep(LOOK_PAUSE);
    }
}

/// Counts the whole lines from byte `at` on; gives where the next begins.
fn count_from(path: &Path, mut at: u64, counts: &Counts) -> std::io::Result<u64> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(at))?;
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    let mut read = 0;
    while reader.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
        match line.first() {
            Some(b'o') => counts.acknowledged.fetch_add(1, Ordering::Relaxed),
            Some(b'u' | b'x') => counts.failed.fetch_add(1, Ordering::Relaxed),
            Some(b'r') => {
                read += 1;
                read
            }
            _ => 0,
        };
        at += line.len() as u64;
        line.clear();
    }
    if read > 0 {
        let client = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        *counts.read.lock().unwrap_or_else(PoisonError::into_inner).entry(client).or_default() += read;
    }
    Ok(at)
}
