//! `cargo xtask conformance`: suites that others wrote, against Weir or Apache Kafka, compared with the lists in
//! `cluster-tests/conformance/`.
//!
//! A suite is fetched from its registry into `target/conformance`, built there, and run test by test: one process and one
//! limit of time each. What Apache Kafka passes is what counts; its results are the first half of the suite's list. The other
//! half says what Weir passes, which may only grow, and names what it does not pass yet, each with its reason. A test of the
//! list that fails twice in a row fails the command.

pub(crate) mod docker;
mod franz_go;
mod go;
mod kafka_go;
mod kafka_python;
mod kafka_tools;
mod kcat;
mod librdkafka;
mod list;
mod report;
mod runner;
mod rust;
mod sarama;
mod share;
mod suite;
mod wire;

use std::fs;
use std::path::{Path, PathBuf};

use crate::rotation::Day;
use crate::shell::{self, Failure};
use crate::subject::{Against, Subject};
use list::List;
use suite::{Prepared, SUITES, Suite};
use wire::{WIRES, Wire};

const USAGE: &str = "\
usage: cargo xtask conformance [SUITE...] [--against weir|kafka] [--test NAME]... [--bootstrap HOST:PORT,...]
                               [--update] [--rotating [--day DAY]] [--offline] [--install-only]
  SUITE           a row of the table: a suite, or `probe` or `witness`; all if none is named
  --against       start Weir (the default) or Apache Kafka
  --test          only these tests of the one suite
  --bootstrap     use a cluster that runs already (not for `probe` and `witness`)
  --update        write the results into the suite's list; what Weir passes is only added to
  --rotating      a share of some minutes, chosen by the day; --day 2026-11-30, or that in WEIR_ROTATION_DAY, chooses
                  as on that day
  --offline       install nothing: fail if something is missing
  --install-only  install, run nothing";

pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let options = Options::parse(args)?;
    let (suites, wires) = options.chosen()?;
    let mut prepared = Vec::new();
    for suite in suites {
        prepared.push((suite, (suite.prepare)(options.offline)?));
    }
    for wire in &wires {
        (wire.prepare)(options.offline)?;
    }
    if options.install_only {
        return Ok(());
    }
    let mut rows = Vec::new();
    for (suite, prepared) in &prepared {
        rows.push(run_suite(suite, prepared, &options)?);
    }
    for wire in wires {
        rows.push(wire::run(wire, options.against, &logs().join(wire.name).join(options.against.name()))?);
    }
    print!("\n{}", report::table(&rows));
    let complaints: Vec<String> = rows.iter().flat_map(|row| row.complaints.clone()).collect();
    if complaints.is_empty() {
        return Ok(());
    }
    Err(Failure(format!("{}\nThe tests' output is in {}", complaints.join("\n"), logs().display())))
}

/// Installs what the rotating share needs, so that the test can run it offline.
pub(crate) fn install_rotating(day: Day) -> Result<(), Failure> {
    run(&["--rotating", "--day", &day.to_string(), "--install-only"].map(str::to_owned))
}

fn run_suite(suite: &Suite, prepared: &Prepared, options: &Options) -> Result<report::Row, Failure> {
    let mut list = List::read(suite.name)?;
    let chosen = match options.tests.is_empty() {
        false => options.tests.clone(),
        true if options.rotating => share::choose(suite, &list, prepared, options.day()?),
        true => prepared.tests.clone(),
    };
    if let Some(unknown) = chosen.iter().find(|test| !prepared.tests.contains(test)) {
        return Err(Failure(format!("{} has no test {unknown}", suite.name)));
    }
    println!("\n== {} {}, {} tests", suite.name, prepared.version, chosen.len());
    let dir = logs().join(suite.name).join(options.against.name());
    let subject = match options.bootstrap.clone() {
        Some(bootstrap) => Subject::running(bootstrap),
        None => Subject::start(options.against, suite.shape, &dir)?,
    };
    let is_known = |test: &str| !options.update && list.names(options.against, test);
    let results = runner::run(suite, &chosen, subject.bootstrap(), &dir, &is_known)?;
    let stopped = subject.stop();
    let mut row = report::Row::new(suite.name, options.against, &list, &results);
    if let Err(Failure(failure)) = stopped {
        row.complaints.push(format!("{}: {failure}", suite.name));
    }
    if options.update {
        match options.against {
            Against::Kafka => list.take_kafka(&prepared.version, &kafka_version()?, &results),
            Against::Weir => list.take_weir(&results),
        }
        list.write(suite.name)?;
        list::raise_floors(&[suite.name])?;
    }
    row.complaints.extend(list.complaints(suite.name, prepared, &kafka_version()?));
    Ok(row)
}

#[derive(Default)]
struct Options {
    suites: Vec<String>,
    tests: Vec<String>,
    against: Against,
    bootstrap: Option<String>,
    update: bool,
    rotating: bool,
    day: Option<String>,
    offline: bool,
    install_only: bool,
}

impl Options {
    fn parse(args: &[String]) -> Result<Options, Failure> {
        let usage = || Failure(USAGE.to_owned());
        let mut options = Options::default();
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            match arg.as_str() {
                "--against" => options.against = Against::parse(rest.next()).ok_or_else(usage)?,
                "--test" => options.tests.push(rest.next().ok_or_else(usage)?.clone()),
                "--bootstrap" => options.bootstrap = Some(rest.next().ok_or_else(usage)?.clone()),
                "--update" => options.update = true,
                "--rotating" => options.rotating = true,
                "--day" => options.day = Some(rest.next().ok_or_else(usage)?.clone()),
                "--offline" => options.offline = true,
                "--install-only" => options.install_only = true,
                flag if flag.starts_with('-') => return Err(usage()),
                name => options.suites.push(name.to_owned()),
            }
        }
        Ok(options)
    }

    fn day(&self) -> Result<Day, Failure> {
        Day::chosen(self.day.as_deref())
    }

    fn chosen(&self) -> Result<(Vec<&'static Suite>, Vec<&'static Wire>), Failure> {
        if self.rotating {
            let day = self.day()?;
            println!("the share of {day}");
            let (suites, wire) = share::of(day);
            return Ok((suites, wire.into_iter().collect()));
        }
        let is_named = |name: &str| self.suites.is_empty() || self.suites.iter().any(|named| named == name);
        // They start a cluster themselves, and have no single tests.
        let are_wires_asked = !self.suites.is_empty() || (self.bootstrap.is_none() && self.tests.is_empty());
        let known = SUITES.iter().map(|suite| suite.name).chain(WIRES.iter().map(|wire| wire.name));
        let known: Vec<&str> = known.collect();
        if let Some(unknown) = self.suites.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(Failure(format!("no suite is called {unknown}; there are {}", known.join(", "))));
        }
        let suites = SUITES.iter().filter(|suite| is_named(suite.name)).collect();
        let wires: Vec<&Wire> = WIRES.iter().filter(|wire| are_wires_asked && is_named(wire.name)).collect();
        if let (Some(wire), Some(_)) = (wires.first(), &self.bootstrap) {
            return Err(Failure(format!("{} starts a cluster itself: no --bootstrap", wire.name)));
        }
        Ok((suites, wires))
    }
}

/// What an installed suite was made of: it is made anew if this becomes another.
fn stamp(version: &str, changes: &[(&str, &str)]) -> Vec<u8> {
    let changes = changes.iter().map(|(from, to)| format!("\n{from:?} -> {to:?}"));
    format!("{version}{}", changes.collect::<String>()).into_bytes()
}

/// `target/conformance`, independent of `CARGO_TARGET_DIR` like the folder of Kafka's jars.
fn installed() -> PathBuf {
    shell::root().join("target/conformance")
}

fn logs() -> PathBuf {
    installed().join("logs")
}

/// The version of the Kafka beside us, from the one place that states it.
fn kafka_version() -> Result<String, Failure> {
    let path = shell::root().join("cluster-tests/oracle/pom.xml");
    let text =
        fs::read_to_string(&path).map_err(|error| Failure(format!("read {}: {error}", path.display())))?;
    let version = text.split_once("<kafka.version>").and_then(|(_, rest)| rest.split_once("</"));
    version
        .map(|(version, _)| version.to_owned())
        .ok_or_else(|| Failure(format!("{} states no version of Kafka", path.display())))
}

/// A folder whose `bin/` has those of Kafka's scripts that suites call, and whose `libs` are its jars.
fn kafka_scripts() -> Result<PathBuf, Failure> {
    let tools = [
        ("kafka-acls", "AclCommand"),
        ("kafka-broker-api-versions", "BrokerApiVersionsCommand"),
        ("kafka-client-compatibility", "ClientCompatibilityTest"),
        ("kafka-configs", "ConfigCommand"),
        ("kafka-console-consumer", "consumer.ConsoleConsumer"),
        ("kafka-console-producer", "ConsoleProducer"),
        ("kafka-consumer-groups", "consumer.group.ConsumerGroupCommand"),
        ("kafka-consumer-perf-test", "ConsumerPerformance"),
        ("kafka-delete-records", "DeleteRecordsCommand"),
        ("kafka-get-offsets", "GetOffsetShell"),
        ("kafka-leader-election", "LeaderElectionCommand"),
        ("kafka-log-dirs", "LogDirsCommand"),
        ("kafka-metadata-quorum", "MetadataQuorumCommand"),
        ("kafka-producer-perf-test", "ProducerPerformance"),
        ("kafka-topics", "TopicCommand"),
        ("kafka-verifiable-consumer", "VerifiableConsumer"),
        ("kafka-verifiable-producer", "VerifiableProducer"),
    ];
    let dir = installed().join("kafka");
    let libs = shell::root().join("target/kafka/libs");
    let write = |name: &str, class: &str| -> std::io::Result<()> {
        let path = dir.join("bin").join(format!("{name}.sh"));
        let text = format!(
            "#!/bin/sh\nexec java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto \\\n    \
             -Dorg.slf4j.simpleLogger.defaultLogLevel=error -cp \"${{CLASSPATH:+$CLASSPATH:}}{}/*\" {class} \"$@\"\n",
            libs.display()
        );
        if fs::read_to_string(&path).is_ok_and(|there| there == text) {
            return Ok(());
        }
        fs::create_dir_all(dir.join("bin"))?;
        fs::write(&path, text)?;
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
    };
    let failed = |what: &str, error| Failure(format!("write {what} in {}: {error}", dir.display()));
    for (name, class) in tools {
        let class = format!("org.apache.kafka.tools.{class}");
        write(name, &class).map_err(|error| failed(&format!("{name}.sh"), error))?;
    }
    // Runs what its arguments say.
    write("kafka-run-class", "").map_err(|error| failed("kafka-run-class.sh", error))?;
    link(&libs, &dir.join("libs")).map_err(|error| failed("libs", error))?;
    Ok(dir)
}

/// Makes the link, or another's into ours: the tree may have moved.
fn link(goal: &Path, link: &Path) -> std::io::Result<()> {
    if fs::read_link(link).is_ok_and(|there| there == goal) {
        return Ok(());
    }
    if link.is_symlink() {
        fs::remove_file(link)?;
    }
    std::os::unix::fs::symlink(goal, link)
}

/// Replaces text in all files below `dir` whose names end so: some suites have the address of their broker in their sources.
fn replace(dir: &Path, extension: &str, pairs: &[(&str, &str)]) -> Result<(), Failure> {
    let in_files = || -> std::io::Result<Vec<PathBuf>> {
        let mut folders = Vec::new();
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                let text = fs::read_to_string(&path)?;
                fs::write(&path, pairs.iter().fold(text, |text, (from, to)| text.replace(from, to)))?;
            }
        }
        Ok(folders)
    };
    let folders = in_files().map_err(|error| Failure(format!("change {}: {error}", dir.display())))?;
    folders.iter().try_for_each(|folder| replace(folder, extension, pairs))
}
