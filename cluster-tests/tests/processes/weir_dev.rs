//! `weir dev`: what it prints, how it ends, what it keeps, and what it refuses to start on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use cluster_tests::clients::{all_output, java_command, kafka_tool, kcat, kcat_read};
use cluster_tests::clock::wait_until;
use cluster_tests::local_cluster::{WeirDev, spawn_dev};
use cluster_tests::ports::free_port;
use cluster_tests::run_dir::RunDir;
use cluster_tests::workspace;
use rustix::process::Signal;

const END_LIMIT: Duration = Duration::from_secs(30);

/// Runs `weir dev` on a directory that it must refuse, and gives what it said.
fn refusal(data: &Path, log: &Path) -> String {
    let mut process = spawn_dev(data, free_port(), log).expect("weir can be started");
    let ended = wait_until(END_LIMIT, || process.ended().transpose());
    let status =
        ended.unwrap_or_else(|| panic!("it runs on:\n{}", process.output())).expect("it can be waited for");
    assert_eq!(status.code(), Some(1), "{}", process.output());
    process.output()
}

fn fill(dev: &WeirDev) {
    let at = dev.bootstrap();
    kafka_tool("kafka-topics", &at, &["--create", "--topic", "kept", "--partitions", "2"], b"");
    kcat(&at, &["-P", "-t", "kept", "-p", "0", "-X", "acks=all"], b"one\ntwo\nthree\n");
}

fn values(dev: &WeirDev) -> Vec<String> {
    kcat_read(&dev.bootstrap(), "kept").into_iter().map(|record| record.value).collect()
}

#[test]
fn ctrl_c_ends_it_well_and_the_data_stays() {
    let mut dev = WeirDev::start("dev_stop");
    // The door opens a moment before the lines are written.
    let said = wait_until(END_LIMIT, || Some(dev.process().output()).filter(|said| said.contains("weir -b")));
    assert!(said.is_some_and(|said| said.contains(&dev.bootstrap())), "it says what to try");
    fill(&dev);
    for signal in [Signal::INT, Signal::TERM] {
        dev.process().signal(signal).expect("it runs");
        let ended = wait_until(END_LIMIT, || dev.process().ended().transpose());
        let status = ended.expect("it ends").expect("it can be waited for");
        assert!(status.success(), "{status}: {}", dev.process().output());
        dev.start_again();
        assert_eq!(values(&dev), ["one", "two", "three"]);
    }
}

#[test]
fn reset_begins_anew() {
    let mut dev = WeirDev::start("dev_reset");
    fill(&dev);
    assert!(dev.stop().success());
    let output = with_reset(dev.data(), &dev.run_dir().join("reset.log"));
    assert!(!output.contains("kept"), "{output}");
    dev.start_again();
    let topics = kafka_tool("kafka-topics", &dev.bootstrap(), &["--list"], b"");
    assert!(!topics.contains("kept"), "{topics}");
}

/// Starts `weir dev --reset`, lists the topics, and stops it.
fn with_reset(data: &Path, log: &Path) -> String {
    let port = free_port();
    let mut command = Command::new(workspace::program("weir"));
    command
        .args(["dev", "--reset", "--http-port", "0", "--kafka-port", &port.to_string(), "--data"])
        .arg(data);
    let mut process =
        cluster_tests::process::Process::start("weir dev", command, log).expect("weir can be started");
    cluster_tests::local_cluster::wait_for_answer(&mut process, port);
    let topics = kafka_tool("kafka-topics", &format!("127.0.0.1:{port}"), &["--list"], b"");
    process.terminate(END_LIMIT).expect("it ends");
    topics
}

#[test]
fn reset_touches_nothing_that_is_not_weirs() {
    let run_dir = RunDir::new("dev_foreign");
    let data = run_dir.join("holiday-photos");
    fs::create_dir(&data).expect("the run folder can be written");
    fs::write(data.join("beach.jpg"), "sand").expect("the run folder can be written");
    let mut command = Command::new(workspace::program("weir"));
    command.args(["dev", "--reset", "--http-port", "0", "--kafka-port", "0", "--data"]).arg(&data);
    let output: Output = command.output().expect("weir can be started");
    assert!(!output.status.success(), "{}", all_output(&output));
    assert_eq!(fs::read_to_string(data.join("beach.jpg")).expect("it is still there"), "sand");
}

#[test]
fn a_directory_in_use_is_refused() {
    let dev = WeirDev::start("dev_in_use");
    fill(&dev);
    let said = refusal(dev.data(), &dev.run_dir().join("second.log"));
    assert!(said.contains(&dev.data().display().to_string()) && said.contains("in use"), "{said}");
    assert_eq!(values(&dev), ["one", "two", "three"]);
}

#[test]
fn data_of_another_cluster_is_refused() {
    let mut ours = WeirDev::start("dev_ours");
    let mut theirs = WeirDev::start("dev_theirs");
    fill(&ours);
    fill(&theirs);
    assert!(ours.stop().success() && theirs.stop().success());
    let ours_node = ours.data().join("storage-node");
    fs::rename(&ours_node, ours.run_dir().join("set-aside")).expect("same disk");
    fs::rename(theirs.data().join("storage-node"), &ours_node).expect("same disk");
    let said = refusal(ours.data(), &ours.run_dir().join("refused.log"));
    assert!(said.contains("cluster"), "{said}");
    // Put back, it works again: the refusal changed nothing.
    fs::remove_dir_all(&ours_node).expect("it can be removed");
    fs::rename(ours.run_dir().join("set-aside"), &ours_node).expect("same disk");
    ours.start_again();
    assert_eq!(values(&ours), ["one", "two", "three"]);
}

/// Files under `dir` whose name passes, in order.
fn files(dir: &Path, passes: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![dir.to_path_buf()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir).expect("it can be listed").flatten() {
            let path = entry.path();
            if path.is_dir() {
                waiting.push(path);
            } else if passes(&entry.file_name().to_string_lossy()) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).expect("it can be read");
    bytes[at] ^= 0x40;
    fs::write(path, bytes).expect("it can be written");
}

#[test]
fn a_damaged_directory_is_refused_with_the_name_of_the_file() {
    let mut dev = WeirDev::start("dev_damaged");
    fill(&dev);
    assert!(dev.stop().success());
    let log = dev.run_dir().join("refused.log");
    // The identity of the data directory, and the log of the metadata quorum in its middle.
    let meta = files(dev.data(), |name| name == "meta.properties");
    assert!(!meta.is_empty());
    let raft = files(&dev.data().join("controller"), |name| name.ends_with(".raft"));
    assert!(!raft.is_empty(), "{:?}", files(dev.data(), |_| true));
    for (path, at) in [(&meta[0], 5), (&raft[0], 120)] {
        let good = fs::read(path).expect("it can be read");
        assert!(good.len() > at, "{}: {} bytes", path.display(), good.len());
        flip(path, at);
        let said = refusal(dev.data(), &log);
        let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
        assert!(said.contains(&name), "damage of {}: {said}", path.display());
        fs::write(path, good).expect("it can be written");
        fs::remove_file(&log).expect("it was written");
    }
    dev.start_again();
    assert_eq!(values(&dev), ["one", "two", "three"]);
}

#[test]
fn a_damaged_record_is_never_read_as_good() {
    let mut dev = WeirDev::start("dev_rot");
    fill(&dev);
    assert!(dev.stop().success());
    let segments = files(&dev.data().join("storage-node"), |name| name.ends_with("0000.log"));
    let full: Vec<&PathBuf> =
        segments.iter().filter(|path| fs::metadata(path).is_ok_and(|file| file.len() > 0)).collect();
    assert_eq!(full.len(), 1, "{segments:?}");
    flip(full[0], 70);
    dev.start_again();
    // The checksum travels with the batch from producer to consumer: a client reads an error, not the damaged record.
    let read = java_command("ConsumeAll", &[&dev.bootstrap(), "kept"]).output().expect("java is installed");
    assert!(!read.status.success(), "{}", all_output(&read));
    assert!(all_output(&read).contains("corrupt"), "{}", all_output(&read));
    // And the rest of the node works.
    kafka_tool("kafka-topics", &dev.bootstrap(), &["--create", "--topic", "other", "--partitions", "1"], b"");
    kcat(&dev.bootstrap(), &["-P", "-t", "other", "-X", "acks=all"], b"fine\n");
    assert_eq!(kcat_read(&dev.bootstrap(), "other").len(), 1);
}
