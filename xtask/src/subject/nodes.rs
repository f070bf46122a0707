//! The nodes of a cluster that we started, for tests that stop one and start it again.
//!
//! Each has a file beside the cluster's log that says which process it is and how it was started, so that the `docker` of such
//! a test (`conformance/docker.rs`), which is another process, can do it. What that one has started is not the cluster's child,
//! and is ended by us.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::clock::Stopwatch;
use crate::shell::{self, Failure};

/// Names the folder of the files to what a test starts.
pub(crate) const FOLDER: &str = "WEIR_NODES";
/// A node that does not end softly within this is ended hard.
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// So soon a process has its command, if it has not ended by then.
const START_LIMIT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);

/// A node and its process.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    file: PathBuf,
    /// Where clients reach it.
    pub(crate) address: String,
    pid: u32,
    /// What was started, word by word.
    command: Vec<String>,
    /// Our own variables of its environment.
    environment: Vec<(String, String)>,
    folder: PathBuf,
    /// Where its output goes.
    pub(crate) log: PathBuf,
    /// Of the process that started the cluster: Ctrl-C in its terminal is for all.
    group: i32,
}

/// Writes the files of the nodes, which are numbered from 1 on.
pub(super) fn record(dir: &Path, addresses: &str, pids: &[u32]) -> Result<(), Failure> {
    for ((id, pid), address) in (1..).zip(pids).zip(addresses.split(',')) {
        Node::of_process(*pid, address, file(dir, id))?.write()?;
    }
    Ok(())
}

/// Ends those that were started again, and waits until they are gone; that one is gone already is a failure.
pub(super) fn end_restarted(dir: &Path, first_pids: &[u32]) -> Result<(), Failure> {
    let nodes: Vec<Node> = (1..=first_pids.len()).map(|id| Node::read(dir, id)).collect::<Result<_, _>>()?;
    let restarted: Vec<&Node> = nodes.iter().filter(|node| !first_pids.contains(&node.pid)).collect();
    let gone = restarted.iter().find(|node| !node.runs());
    // All at once: the last of a quorum cannot end its work alone.
    restarted.iter().try_for_each(|node| node.signal("-TERM"))?;
    restarted.iter().try_for_each(|node| node.stop())?;
    match gone {
        Some(Node { address, log, .. }) => Err(Failure(format!(
            "the node at {address} was started again and has ended; see {}",
            log.display()
        ))),
        None => Ok(()),
    }
}

fn file(dir: &Path, id: usize) -> PathBuf {
    dir.join(format!("{id}.json"))
}

impl Node {
    /// Reads a node's file.
    pub(crate) fn read(dir: &Path, id: usize) -> Result<Node, Failure> {
        let file = file(dir, id);
        let text = fs::read_to_string(&file).map_err(|error| {
            Failure(format!("read what is known of node {id}, {}: {error}", file.display()))
        })?;
        let value: Value = serde_json::from_str(&text)
            .map_err(|error| Failure(format!("read {}: {error}", file.display())))?;
        Node::from_json(&value, file.clone())
            .ok_or_else(|| Failure(format!("{} does not describe a node", file.display())))
    }

    fn of_process(pid: u32, address: &str, file: PathBuf) -> Result<Node, Failure> {
        let look = || -> std::io::Result<Node> {
            let process = PathBuf::from(format!("/proc/{pid}"));
            let ours = words(&fs::read(process.join("environ"))?).into_iter();
            let ours = ours.filter(|variable| variable.starts_with("WEIR_"));
            let pair = |variable: String| variable.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()));
            Ok(Node {
                file,
                address: address.to_owned(),
                pid,
                command: words(&fs::read(process.join("cmdline"))?),
                environment: ours.filter_map(pair).collect(),
                folder: fs::read_link(process.join("cwd"))?,
                log: fs::read_link(process.join("fd/1"))?,
                group: group_in(&fs::read_to_string("/proc/self/stat")?).unwrap_or_default(),
            })
        };
        look().map_err(|error| Failure(format!("look at process {pid}, the node at {address}: {error}")))
    }

    fn write(&self) -> Result<(), Failure> {
        let path = |path: &Path| path.display().to_string();
        let value = json!({
            "address": self.address,
            "pid": self.pid,
            "command": self.command,
            "environment": self.environment,
            "folder": path(&self.folder),
            "log": path(&self.log),
            "group": self.group,
        });
        shell::create(&self.file)?;
        fs::write(&self.file, value.to_string())
            .map_err(|error| Failure(format!("write {}: {error}", self.file.display())))
    }

    fn from_json(value: &Value, file: PathBuf) -> Option<Node> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let pair = |pair: &Value| Some((text(&pair[0])?, text(&pair[1])?));
        Some(Node {
            file,
            address: text(&value["address"])?,
            pid: value["pid"].as_u64()?.try_into().ok()?,
            command: value["command"].as_array()?.iter().map(text).collect::<Option<_>>()?,
            environment: value["environment"].as_array()?.iter().map(pair).collect::<Option<_>>()?,
            folder: text(&value["folder"])?.into(),
            log: text(&value["log"])?.into(),
            group: value["group"].as_i64()?.try_into().ok()?,
        })
    }

    /// Whether its process is there: one that has ended has no command any more, and one that has got its id has another.
    fn runs(&self) -> bool {
        fs::read(format!("/proc/{}/cmdline", self.pid)).is_ok_and(|there| words(&there) == self.command)
    }

    /// Ends it softly and waits until it is gone. No failure if it is already.
    pub(crate) fn stop(&self) -> Result<(), Failure> {
        self.signal("-TERM")?;
        if self.is_gone_within(STOP_LIMIT) {
            return Ok(());
        }
        self.signal("-KILL")?;
        if self.is_gone_within(STOP_LIMIT) {
            return Ok(());
        }
        Err(Failure(format!("process {}, the node at {}, does not end", self.pid, self.address)))
    }

    /// Starts it as it was started before, unless it runs. Does not wait until it is ready.
    pub(crate) fn start(mut self) -> Result<(), Failure> {
        if self.runs() {
            return Ok(());
        }
        let failed = |error| Failure(format!("start the node at {}: {error}", self.address));
        let (program, args) = self.command.split_first().ok_or_else(|| Failure("no command".to_owned()))?;
        let output = File::options().append(true).open(&self.log).map_err(failed)?;
        let mut command = Command::new(program);
        command.args(args).envs(self.environment.iter().cloned()).current_dir(&self.folder);
        command.stdin(Stdio::null()).stderr(output.try_clone().map_err(failed)?).stdout(output);
        // Not the test's group, which is ended with the test.
        command.process_group(self.group);
        self.pid = command.spawn().map_err(failed)?.id();
        // At once, as whoever waits here may be ended with a test.
        self.write()?;
        // By its command it is known, which it has a moment later.
        let watch = Stopwatch::start();
        while !self.runs() && watch.elapsed() < START_LIMIT {
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn signal(&self, signal: &str) -> Result<(), Failure> {
        if !self.runs() {
            return Ok(());
        }
        let mut kill = shell::program("kill");
        kill.args([signal, &self.pid.to_string()]);
        // It may have ended since.
        shell::run(kill).or_else(|failure| if self.runs() { Err(failure) } else { Ok(()) })
    }

    fn is_gone_within(&self, limit: Duration) -> bool {
        let watch = Stopwatch::start();
        while self.runs() {
            if watch.elapsed() > limit {
                return false;
            }
            thread::sleep(PAUSE);
        }
        true
    }
}

/// The words of a command, or the variables of an environment, as the kernel tells them.
fn words(bytes: &[u8]) -> Vec<String> {
    let words = bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    let mut words: Vec<String> = words.collect();
    words.pop();
    words
}

/// The process group in the line that the kernel tells of a process: the third word behind its name, which may hold anything.
fn group_in(stat: &str) -> Option<i32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Child;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let dir = std::env::temp_dir().join(format!("xtask-nodes-{name}-{}", std::process::id()));
            fs::create_dir_all(&dir).unwrap();
            Folder(dir)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// A process that says that it was started, and waits for what nobody will write.
    fn start(dir: &Path) -> Child {
        let mut command = Command::new("sh");
        command
            .args(["-c", "[ -p wait ] || mkfifo wait; echo \"$WEIR_OF_TEST\"; exec 3<>wait; read -r x <&3"]);
        command.current_dir(dir).env("WEIR_OF_TEST", "here").stdin(Stdio::null());
        let child = command.stdout(File::create(dir.join("log")).unwrap()).process_group(0).spawn().unwrap();
        assert_eq!(said(dir, 1), "here\n");
        child
    }

    /// Ends it, and tells the signal that has ended it.
    fn end(mut child: Child) -> Option<i32> {
        child.kill().unwrap();
        child.wait().unwrap().signal()
    }

    /// What has been said once it is so many lines.
    fn said(dir: &Path, lines: usize) -> String {
        let watch = Stopwatch::start();
        loop {
            let said = fs::read_to_string(dir.join("log")).unwrap();
            if said.lines().count() == lines || watch.elapsed() > STOP_LIMIT {
                return said;
            }
            thread::sleep(PAUSE);
        }
    }

    #[test]
    fn a_node_is_stopped_started_as_it_was_and_ended_with_the_cluster() {
        let folder = Folder::new("again");
        let child = start(&folder.0);
        let first = child.id();
        record(&folder.0, "127.0.0.1:7", &[first]).unwrap();
        let node = Node::read(&folder.0, 1).unwrap();
        assert!(node.runs());
        assert_eq!(node.address, "127.0.0.1:7");
        node.stop().unwrap();
        assert!(!node.runs());
        assert_eq!(end(child), Some(15), "softly");
        node.start().unwrap();
        let again = Node::read(&folder.0, 1).unwrap();
        assert!(again.runs() && again.pid != first);
        assert_eq!(said(&folder.0, 2), "here\nhere\n");
        end_restarted(&folder.0, &[first]).unwrap();
        assert!(!again.runs());
        let Failure(why) = end_restarted(&folder.0, &[first]).unwrap_err();
        assert!(why.contains("the node at 127.0.0.1:7 was started again and has ended"), "{why}");
    }

    #[test]
    fn what_has_a_nodes_id_and_is_not_the_node_is_left_alone() {
        let folder = Folder::new("other");
        let mut child = start(&folder.0);
        record(&folder.0, "127.0.0.1:7", &[child.id()]).unwrap();
        let mut node = Node::read(&folder.0, 1).unwrap();
        node.command.push("more".to_owned());
        node.stop().unwrap();
        assert_eq!(child.try_wait().unwrap(), None);
        assert_eq!(end(child), Some(9));
    }

    #[test]
    fn the_group_is_behind_the_name_whatever_that_is() {
        assert_eq!(group_in("12 (a) b) c) S 1 77 77 0 -1"), Some(77));
        assert_eq!(words(b"a\0b c\0\0"), ["a", "b c", ""]);
    }
}
