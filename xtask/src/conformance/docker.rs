//! A `docker` for suites whose tests call one: as much of it as they ask for, with the nodes of our cluster as its services.
//!
//! It is this program under another name. A service `kafka-2` is node 2; what is executed in one runs beside the cluster, with
//! Kafka's tools from the jars that the harness fetches.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::kafka_scripts;
use crate::shell::{Failure, program};
use crate::subject::nodes::{FOLDER, Node};

/// The name under which this program is `docker`.
pub(crate) const NAME: &str = "docker";

/// Where the tools of Kafka lie in the image, with its version behind.
const TOOLS: &str = "/opt/kafka-";
/// Where a node listens for what runs in the image.
const INNER_PORT: u16 = 9091;
/// In its container a number that a test has written down can only be of a process of its own.
const KILL_TOOLS_ONLY: &str =
    "kill() { grep -qaF org.apache.kafka.tools. \"/proc/$2/cmdline\" && command kill \"$@\"; }\n";

const KNOWN: &str = "`compose stop SERVICE`, `compose start SERVICE`, `compose logs --since TIME SERVICE` and \
                     `compose exec -T SERVICE PROGRAM ARGS...`, where the program is a tool of Kafka, or `bash -c`";

pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let unknown = || Failure(format!("this docker knows {KNOWN}, not `docker {}`", args.join(" ")));
    match words.as_slice() {
        ["compose", "stop", service] => node(service)?.stop(),
        ["compose", "start", service] => node(service)?.start(),
        ["compose", "logs", "--since", since, service] if is_time(since) => print_log(&node(service)?, since),
        ["compose", "exec", "-T", service, command @ ..] => {
            node(service)?;
            let mut command = Translation::new()?.command(command).ok_or_else(unknown)?;
            let error = command.exec();
            Err(Failure(format!("cannot start {command:?}: {error}")))
        }
        _ => Err(unknown()),
    }
}

fn folder() -> Result<PathBuf, Failure> {
    let folder = std::env::var_os(FOLDER);
    folder.map(PathBuf::from).ok_or_else(|| Failure(format!("{FOLDER} names no cluster of the harness")))
}

fn node(service: &str) -> Result<Node, Failure> {
    let id = service.strip_prefix("kafka-").and_then(|id| id.parse().ok());
    let id = id.ok_or_else(|| Failure(format!("{service} is no node: they are kafka-1, kafka-2 ...")))?;
    Node::read(&folder()?, id)
}

fn print_log(node: &Node, since: &str) -> Result<(), Failure> {
    let log = fs::read(&node.log)
        .map_err(|error| Failure(format!("read the log {}: {error}", node.log.display())))?;
    for line in lines_since(&String::from_utf8_lossy(&log), since) {
        println!("{line}");
    }
    Ok(())
}

/// `2026-11-30T20:11:22`: so much of a time in UTC is compared.
const TO_THE_SECOND: usize = 19;

fn is_time(text: &str) -> bool {
    let is_digit_where = |(at, byte): (usize, &u8)| match at {
        4 | 7 => *byte == b'-',
        10 => *byte == b'T',
        13 | 16 => *byte == b':',
        _ => byte.is_ascii_digit(),
    };
    text.len() > TO_THE_SECOND
        && text.is_ascii()
        && text.ends_with('Z')
        && text.as_bytes().iter().take(TO_THE_SECOND).enumerate().all(is_digit_where)
}

/// The lines from the first one on that has this time or a later one. Not each line has its time.
fn lines_since<'a>(log: &'a str, since: &str) -> impl Iterator<Item = &'a str> {
    let since = since.get(..TO_THE_SECOND).unwrap_or(since).to_owned();
    let is_before = move |line: &&str| {
        let time = line.split(' ').next().filter(|time| is_time(time));
        time.is_none_or(|time| time < since.as_str())
    };
    log.lines().skip_while(is_before)
}

/// What stands in the commands of a test, and what it is here.
struct Translation {
    scripts: PathBuf,
    pairs: Vec<(String, String)>,
}

impl Translation {
    fn new() -> Result<Translation, Failure> {
        let folder = folder()?;
        let version = std::env::var("KAFKA_VERSION").unwrap_or_default();
        let addresses: Vec<String> =
            (1..).map_while(|id| Node::read(&folder, id).ok()).map(|node| node.address).collect();
        Ok(Translation::of(kafka_scripts()?.join("bin"), &version, folder, &addresses))
    }

    fn of(scripts: PathBuf, version: &str, files: PathBuf, addresses: &[String]) -> Translation {
        // What the folders of this machine are called must not be taken for what stands in a command: they come last.
        let nodes = (1..).zip(addresses);
        let mut pairs: Vec<(String, String)> =
            nodes.map(|(id, address)| (format!("kafka-{id}:{INNER_PORT}"), address.clone())).collect();
        pairs.push(("/tmp/".to_owned(), format!("{}/", files.display())));
        pairs.push((format!("{TOOLS}{version}/bin/"), format!("{}/", scripts.display())));
        Translation { scripts, pairs }
    }

    fn text(&self, text: &str) -> String {
        self.pairs.iter().fold(text.to_owned(), |text, (there, here)| text.replace(there, here))
    }

    /// The command, which begins with a tool of Kafka or is a script; `None` for any other.
    fn command(&self, words: &[&str]) -> Option<Command> {
        let (name, args) = words.split_first()?;
        let name = self.text(name);
        let mut command = program(&name);
        match args {
            ["-c", script, args @ ..] if name == "bash" => {
                command.args(["-c", &format!("{KILL_TOOLS_ONLY}{}", self.text(script))]);
                command.args(args.iter().map(|arg| self.text(arg)));
            }
            args if Path::new(&name).parent() == Some(&self.scripts) => {
                command.args(args.iter().map(|arg| self.text(arg)));
            }
            _ => return None,
        }
        Some(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_words(words: &str) -> String {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        run(&words).map_or_else(|Failure(why)| why, |()| "it did".to_owned())
    }

    #[test]
    fn what_it_does_not_know_is_refused() {
        for words in ["ps", "compose up -d", "compose stop", "compose kill kafka-1", "compose logs kafka-1"] {
            let why = run_words(words);
            assert!(why.starts_with("this docker knows `compose stop SERVICE`"), "{why}");
            assert!(why.ends_with(&format!("not `docker {words}`")), "{why}");
        }
        let why = run_words("compose logs --since 10m kafka-1");
        assert!(why.ends_with("not `docker compose logs --since 10m kafka-1`"), "{why}");
        assert_eq!(
            run_words("compose stop toxiproxy"),
            "toxiproxy is no node: they are kafka-1, kafka-2 ..."
        );
    }

    #[test]
    fn commands_in_a_container_become_commands_here() {
        let addresses = ["127.0.0.1:71".to_owned(), "127.0.0.1:72".to_owned()];
        let here = Translation::of("/tmp/t/bin".into(), "4.1.0", "/tmp/n".into(), &addresses);
        let line = |words: &[&str]| {
            here.command(words).map(|command| {
                let words = std::iter::once(command.get_program()).chain(command.get_args());
                words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
            })
        };
        let tool = ["/opt/kafka-4.1.0/bin/kafka-topics.sh", "-b", "kafka-2:9091,kafka-1:9091"];
        assert_eq!(line(&tool).as_deref(), Some("/tmp/t/bin/kafka-topics.sh -b 127.0.0.1:72,127.0.0.1:71"));
        let script = ["bash", "-c", "echo $$ >/tmp/a; exec /opt/kafka-4.1.0/bin/k.sh \"$@\"", "bash", "-x"];
        let expected =
            format!("bash -c {KILL_TOOLS_ONLY}echo $$ >/tmp/n/a; exec /tmp/t/bin/k.sh \"$@\" bash -x");
        assert_eq!(line(&script), Some(expected));
        for other in [&["bash"][..], &["rm", "-r", "/tmp/"], &["kafka-topics.sh"], &["/opt/kafka-9/bin/k.sh"]]
        {
            assert_eq!(line(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_process_that_is_no_tool_is_not_killed() {
        let mut child = program("sleep").arg("60").spawn().unwrap();
        let here = Translation::of("/b".into(), "1", "/n".into(), &[]);
        let script = format!("kill -KILL {}", child.id());
        let mut command = here.command(&["bash", "-c", &script]).unwrap();
        assert!(!command.status().unwrap().success());
        assert_eq!(child.try_wait().unwrap(), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_log_is_told_from_a_time_on() {
        let log = "banner\n2026-11-30T20:11:21.9Z a\n\tat b\n2026-11-30T20:11:22.0Z c\n\tat d\n2026-11-30T20:11:23Z e";
        let told: Vec<&str> = lines_since(log, "2026-11-30T20:11:22Z").collect();
        assert_eq!(told, ["2026-11-30T20:11:22.0Z c", "\tat d", "2026-11-30T20:11:23Z e"]);
        assert_eq!(lines_since(log, "2026-12-01T00:00:00Z").count(), 0);
        assert!(is_time("2026-11-30T20:11:22Z") && !is_time("2026-11-30 20:11:22Z") && !is_time("Z"));
    }
}
