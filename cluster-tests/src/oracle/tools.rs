//! The stock command-line tools of Apache Kafka by the names of their scripts, run from the jars.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use super::{OracleError, jars};

/// Script name → main class. `kafka-` in front and `.sh` behind may be left out by the caller.
const TOOLS: &[(&str, &str)] = &[
    ("acls", "org.apache.kafka.tools.AclCommand"),
    ("broker-api-versions", "org.apache.kafka.tools.BrokerApiVersionsCommand"),
    ("client-metrics", "org.apache.kafka.tools.ClientMetricsCommand"),
    ("cluster", "org.apache.kafka.tools.ClusterTool"),
    ("configs", "org.apache.kafka.tools.ConfigCommand"),
    ("console-consumer", "org.apache.kafka.tools.consumer.ConsoleConsumer"),
    ("console-producer", "org.apache.kafka.tools.ConsoleProducer"),
    ("console-share-consumer", "org.apache.kafka.tools.consumer.ConsoleShareConsumer"),
    ("consumer-groups", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"),
    ("consumer-perf-test", "org.apache.kafka.tools.ConsumerPerformance"),
    ("delegation-tokens", "org.apache.kafka.tools.DelegationTokenCommand"),
    ("delete-records", "org.apache.kafka.tools.DeleteRecordsCommand"),
    ("dump-log", "org.apache.kafka.tools.DumpLogSegments"),
    ("e2e-latency", "org.apache.kafka.tools.EndToEndLatency"),
    ("features", "org.apache.kafka.tools.FeatureCommand"),
    ("get-offsets", "org.apache.kafka.tools.GetOffsetShell"),
    ("groups", "org.apache.kafka.tools.GroupsCommand"),
    ("leader-election", "org.apache.kafka.tools.LeaderElectionCommand"),
    ("log-dirs", "org.apache.kafka.tools.LogDirsCommand"),
    ("metadata-quorum", "org.apache.kafka.tools.MetadataQuorumCommand"),
    ("producer-perf-test", "org.apache.kafka.tools.ProducerPerformance"),
    ("reassign-partitions", "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"),
    ("replica-verification", "org.apache.kafka.tools.ReplicaVerificationTool"),
    ("share-consumer-perf-test", "org.apache.kafka.tools.ShareConsumerPerformance"),
    ("share-groups", "org.apache.kafka.tools.consumer.group.ShareGroupCommand"),
    ("storage", "kafka.tools.StorageTool"),
    ("streams-groups", "org.apache.kafka.tools.streams.StreamsGroupCommand"),
    ("topics", "org.apache.kafka.tools.TopicCommand"),
    ("transactions", "org.apache.kafka.tools.TransactionsCommand"),
    ("verifiable-consumer", "org.apache.kafka.tools.VerifiableConsumer"),
    ("verifiable-producer", "org.apache.kafka.tools.VerifiableProducer"),
    ("verifiable-share-consumer", "org.apache.kafka.tools.VerifiableShareConsumer"),
];

/// Flags for a JVM that lives for seconds: a small heap, one collector thread, only the quick compiler.
pub const SHORT_LIVED_JVM: &[&str] =
    &["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"];

/// `java` with the given JVM flags and all of Kafka's jars on the class path; log lines below ERROR are dropped unless
/// `WEIR_KAFKA_LOG` names another level (`info`, `debug` …).
pub fn java(jvm_flags: &[&str]) -> Result<Command, OracleError> {
    let level = std::env::var("WEIR_KAFKA_LOG").unwrap_or_else(|_| "error".to_owned());
    let mut command = Command::new("java");
    command.args(jvm_flags).arg("-cp").arg(jars::class_path()?);
    command.arg(format!("-Dorg.slf4j.simpleLogger.defaultLogLevel={level}"));
    Ok(command)
}

/// A command that runs the tool with this script name; add its arguments.
pub fn command(name: &str) -> Result<Command, OracleError> {
    let mut command = java(SHORT_LIVED_JVM)?;
    command.arg(main_class(name)?);
    Ok(command)
}

/// Runs a tool to its end with `input` on its standard input.
pub fn run(name: &str, args: &[&str], input: &[u8]) -> Result<Output, OracleError> {
    let mut command = command(name)?;
    command.args(args);
    run_with_input(command, input)
}

/// Runs a tool and returns what it printed; fails if the tool does.
pub fn output(name: &str, args: &[&str]) -> Result<String, OracleError> {
    checked(name, run(name, args, b"")?)
}

/// The printed text of a run that must have gone well.
pub fn checked(what: &str, output: Output) -> Result<String, OracleError> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(OracleError::Failed { what: what.to_owned(), output: format!("{text}{errors}") })
}

/// Runs any command to its end with `input` on its standard input; a program that closes its input early is no error.
pub fn run_with_input(mut command: Command, input: &[u8]) -> Result<Output, OracleError> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let what = format!("run {}", command.get_program().to_string_lossy());
    let mut child = command.spawn().map_err(OracleError::io(what.clone()))?;
    let mut stdin = child.stdin.take().expect("the input was asked to be a pipe");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // An early end of the reader shows in its exit status and output, which the caller sees.
            drop(stdin.write_all(input));
        });
        child.wait_with_output().map_err(OracleError::io(what))
    })
}

fn main_class(name: &str) -> Result<&'static str, OracleError> {
    let short = name.strip_prefix("kafka-").unwrap_or(name);
    let short = short.strip_suffix(".sh").unwrap_or(short);
    match TOOLS.binary_search_by_key(&short, |(tool, _)| tool) {
        Ok(index) => Ok(TOOLS[index].1),
        Err(_) => {
            let known: Vec<&str> = TOOLS.iter().map(|(tool, _)| *tool).collect();
            Err(OracleError::UnknownTool { name: name.to_owned(), known: known.join(", ") })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_found_by_short_and_by_script_name() {
        assert!(TOOLS.is_sorted_by_key(|(tool, _)| *tool));
        assert_eq!(main_class("kafka-topics").expect("known"), "org.apache.kafka.tools.TopicCommand");
        assert_eq!(main_class("topics").expect("known"), main_class("kafka-topics.sh").expect("known"));
        assert!(main_class("kafka-nothing").is_err());
    }
}
