//! kcat 1.7.1 as Debian has it, on librdkafka 2.0: an old client, which mistakes tagged fields that have their default.
//!
//! It has no suite; these are its commands as a person types them, with what they must print.

use std::process::Command;

use super::suite::{LIMIT, Outcome, Prepared, Suite};
use crate::shell::{self, Failure, program};
use crate::subject::Shape;

/// What is run with `sh`, with `$B` for the cluster and `$T` for a topic of the test, and what it must print.
const TESTS: &[(&str, &str, &str)] = &[
    ("metadata", "kcat -b $B -L | head -1 | cut -d' ' -f1-2", "Metadata for"),
    (
        "topic_on_first_use",
        "kcat -b $B -L -t $T >/dev/null; kcat -b $B -L -J -t $T | grep -c '\"partition\":0'",
        "1",
    ),
    (
        "produce_and_consume",
        "seq 3 | kcat -b $B -P -t $T && kcat -b $B -C -t $T -o beginning -e -q",
        "1\n2\n3",
    ),
    (
        "keys_headers_and_tombstones",
        "echo k:v | kcat -b $B -P -t $T -K: -H a=b -p 0 && echo k: | kcat -b $B -P -t $T -K: -Z -p 0 && \
         kcat -b $B -C -t $T -o beginning -e -q -f '%k=%s=%S=%h\\n'",
        "k=v=1=a=b\nk==-1=",
    ),
    (
        "every_codec",
        "for z in none gzip snappy lz4; do seq 100 | kcat -b $B -P -t $T -z $z; done && \
         kcat -b $B -C -t $T -o beginning -e -q | wc -l",
        "400",
    ),
    (
        "acks",
        "for a in 0 1 all; do echo $a | kcat -b $B -P -t $T -p 0 -X acks=$a; done && \
         kcat -b $B -C -t $T -o beginning -e -q",
        "0\n1\nall",
    ),
    (
        "idempotent",
        "seq 1000 | kcat -b $B -P -t $T -X enable.idempotence=true && kcat -b $B -C -t $T -o beginning -e -q | wc -l",
        "1000",
    ),
    (
        "read_committed",
        "seq 5 | kcat -b $B -P -t $T && \
         kcat -b $B -C -t $T -o beginning -e -q -X isolation.level=read_committed | wc -l",
        "5",
    ),
    ("offsets_by_time", "seq 4 | kcat -b $B -P -t $T -p 0 && kcat -b $B -Q -t $T:0:1", "$T [0] offset 0"),
    ("offset_of_the_end", "seq 4 | kcat -b $B -P -t $T -p 0 && kcat -b $B -Q -t $T:0:-1", "$T [0] offset 4"),
    ("the_last_two", "seq 9 | kcat -b $B -P -t $T -p 0 && kcat -b $B -C -t $T -p 0 -o -2 -e -q", "8\n9"),
    (
        "group",
        "seq 20 | kcat -b $B -P -t $T && kcat -b $B -G $T-group -X auto.offset.reset=earliest -c 20 -q $T | sort -n | tail -1",
        "20",
    ),
];

pub(super) const SUITE: Suite = Suite {
    name: "kcat",
    shape: Shape { nodes: 1, port: None, racks: &[], configs: &[], of_kafka: &[] },
    at_once: 2,
    limit: LIMIT,
    prepare: |_offline| {
        if !shell::is_installed("kcat", "-V") {
            return Err(Failure("`kcat` is not installed: apt-get install kcat".to_owned()));
        }
        Ok(Prepared {
            version: version()?,
            tests: TESTS.iter().map(|(name, ..)| (*name).to_owned()).collect(),
        })
    },
    command: |test, bootstrap| {
        let script = TESTS.iter().find(|(name, ..)| *name == test).map_or("false", |(_, script, _)| script);
        let mut command = program("sh");
        command.args(["-c", script]).env("B", bootstrap).env("T", topic(test));
        Ok(command)
    },
    judge: |test, _success, output| {
        let wanted = TESTS.iter().find(|(name, ..)| *name == test).map_or("", |(.., wanted)| wanted);
        let wanted = wanted.replace("$T", &topic(test));
        // What kcat says to people goes to the same file; it begins with a percent sign.
        let said: Vec<&str> = output.lines().filter(|line| !line.starts_with('%')).collect();
        if said.join("\n").trim_end() == wanted {
            return Outcome::Passed;
        }
        Outcome::Failed(format!("wanted {wanted:?}, got {:?}", output.chars().take(150).collect::<String>()))
    },
};

/// One that a second try does not share with the first would be better, but clusters live for one run: the name tells them
/// apart, and tests count what they wrote.
fn topic(test: &str) -> String {
    format!("kcat-{}-{test}", std::process::id())
}

fn version() -> Result<String, Failure> {
    let mut command: Command = program("kcat");
    command.arg("-V");
    let text = shell::output(command)?;
    Ok(text.split_whitespace().find(|word| word.starts_with("1.")).unwrap_or("unknown").to_owned())
}
