//! The tree of arguments; what a command does stands in `commands/`.

use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use kafka_wire::{Client, ClientConfig, HostPort};

use crate::commands::{
    cluster, config, consume, controller, dev, feature, group, log, node, partition, produce, topic,
};
use crate::failure::{EXIT_CODES, Failure};
use crate::output::Format;

/// The port of a bootstrap address that names none.
const DEFAULT_PORT: u16 = 9092;

/// Weir, a durable and replayable commit log that speaks the Kafka protocol.
#[derive(Debug, Parser)]
#[command(name = "weir", version, after_help = EXIT_CODES, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Arguments of every command.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// Brokers to begin with, HOST[:PORT], several separated by commas
    #[arg(
        short,
        long = "bootstrap-server",
        env = "WEIR_BOOTSTRAP",
        default_value = "127.0.0.1:9092",
        value_delimiter = ',',
        value_parser = bootstrap_address,
        value_name = "HOST:PORT",
        global = true
    )]
    pub(crate) bootstrap: Vec<HostPort>,
    /// Text for people, or JSON for programs
    #[arg(long, value_enum, default_value = "table", value_name = "FORMAT", global = true)]
    pub(crate) output: Format,
    /// Seconds to wait for an answer
    #[arg(long, default_value = "30", value_parser = seconds, value_name = "SECONDS", global = true)]
    pub(crate) timeout: Duration,
}

impl Global {
    /// Connects to the first broker that answers.
    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        let mut config = ClientConfig::new(self.bootstrap.clone());
        config.request_timeout = self.timeout;
        config.connect_timeout = config.connect_timeout.min(self.timeout);
        Ok(Client::connect(config).await?)
    }

    /// Time-out of changes, for the cluster to keep: a little shorter than ours, so that its answer still arrives.
    pub(crate) fn change_timeout_ms(&self) -> i32 {
        i32::try_from(self.timeout.as_millis() * 9 / 10).unwrap_or(i32::MAX)
    }

    /// The bootstrap list as librdkafka takes it.
    pub(crate) fn bootstrap_list(&self) -> String {
        self.bootstrap.iter().map(HostPort::to_string).collect::<Vec<_>>().join(",")
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a whole cluster in this process, for development
    Dev(dev::DevArgs),
    /// Create, list, describe, alter and delete topics
    #[command(subcommand)]
    Topic(topic::TopicCommand),
    /// Send records, one per line of a file or of standard input
    Produce(produce::ProduceArgs),
    /// Read records from the beginning, an offset or a time, or as they come
    Consume(consume::ConsumeArgs),
    /// List, describe, reset and delete groups of consumers
    #[command(subcommand)]
    Group(group::GroupCommand),
    /// Move partitions to other nodes, let other replicas lead
    #[command(subcommand)]
    Partition(partition::PartitionCommand),
    /// Take storage nodes out of the cluster
    #[command(subcommand)]
    Node(node::NodeCommand),
    /// Show and change the voters of the metadata quorum
    #[command(subcommand)]
    Controller(controller::ControllerCommand),
    /// Show and raise the levels of features that the cluster's daemons have agreed on
    #[command(subcommand)]
    Feature(feature::FeatureCommand),
    /// Show nodes and their health; make the files of a cluster
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Show and check the files of logs, offline
    #[command(subcommand)]
    Log(log::LogCommand),
    /// Show and change configs of topics and nodes
    #[command(subcommand)]
    Config(config::ConfigCommand),
}

fn bootstrap_address(text: &str) -> Result<HostPort, String> {
    let text = text.trim();
    let bare = !text.is_empty() && !text.contains(':');
    if bare { Ok(HostPort::new(text, DEFAULT_PORT)) } else { text.parse().map_err(|e| format!("{e}")) }
}

/// Seconds with an optional fraction.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    text.parse::<f64>()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|duration| (Duration::from_millis(1)..=Duration::from_secs(86_400)).contains(duration))
        .ok_or_else(|| format!("{text:?} is no number of seconds between 0.001 and 86400"))
}

/// `name=value` of a config.
pub(crate) fn config_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err(format!("{text:?} is not NAME=VALUE")),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_tree_of_arguments_is_sound() {
        Cli::command().debug_assert();
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("no broker could be reached"), "exit codes are in the help");
    }

    #[test]
    fn addresses_seconds_and_configs_are_checked() {
        assert_eq!(bootstrap_address("a"), Ok(HostPort::new("a", 9092)));
        assert_eq!(bootstrap_address("[::1]:1"), Ok(HostPort::new("::1", 1)));
        assert!(bootstrap_address("a:x").is_err());
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        assert!(seconds("-1").is_err() && seconds("0").is_err() && seconds("nan").is_err());
        assert_eq!(config_pair("a = b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(config_pair("=x").is_err());
    }

    #[test]
    fn commands_are_read_as_the_readme_writes_them() {
        for line in [
            "weir topic create ad-events --partitions 3",
            "weir produce ad-events --key-separator :",
            "weir produce flights --file f --key-field tailnum --codec lz4",
            "weir consume ad-events --from-beginning --count 3 --print key,partition,offset,timestamp",
            "weir consume flights --from-beginning --count 336776 --output json",
            "weir consume a --since 15m --partition 0 --partition 1",
            "weir topic describe ad-events -b h:1,g:2",
            "weir cluster status --output json",
            "weir cluster init d --controllers a,b,c:9 --storage-nodes n --etc /etc/weir --plan",
            "weir consume a --group readers --from-beginning --count 3",
            "weir group list",
            "weir group describe readers analytics --output json",
            "weir group reset readers --topic ad-events --to-earliest --execute",
            "weir group reset readers --topic a:0,2 --topic b --shift-by -10",
            "weir group reset readers --all-topics --by-duration 2h",
            "weir group delete readers --plan",
            "weir cluster extend d --storage-nodes n4,n5 --controllers c4 --plan",
            "weir partition move t:0,1 --replicas 2,3,1 --throttle 50MiB --wait",
            "weir partition move t u:3 --onto 1,2,3,4 --plan",
            "weir partition move --cancel",
            "weir partition move t:0 --cancel --plan",
            "weir partition moves --end-throttle --output json",
            "weir partition elect t:0 --unclean --plan",
            "weir partition elect --all",
            "weir node drain 3 --onto 1,2 --wait --throttle 1GB",
            "weir node remove 3 --plan",
            "weir controller list",
            "weir controller add 4 c4.example:9183 --plan",
            "weir controller remove 2",
            "weir feature describe",
            "weir feature upgrade weir.version=2 other=1 --plan",
            "weir log verify /var/lib/weir/data --output json",
            "weir log dump 00000000000000000000.log --records",
            "weir dev --nodes 3",
            "weir dev --data d --reset --kafka-port 19092 --http-port 0",
        ] {
            Cli::try_parse_from(line.split(' ')).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        for line in [
            "weir consume a --from-beginning --offset 3",
            "weir produce a --key-separator : --key-field b",
            "weir topic create",
            "weir dev --nodes 0",
            "weir partition move t",
            "weir partition move --replicas 1",
            "weir partition move t --replicas 1,1",
            "weir partition move t --replicas 1 --onto 2",
            "weir partition move t --cancel --wait",
            "weir partition elect",
            "weir partition elect --all --unclean",
            "weir controller add 0 c:1",
            "weir controller add 4 c",
            "weir feature upgrade",
            "weir feature upgrade weir.version",
            "weir node drain",
            "weir log dump",
            "weir consume a --print size",
            "weir consume a --group readers --offset 3",
            "weir consume a --group readers --partition 0",
            "weir group reset readers --topic a",
            "weir group reset readers --to-latest",
            "weir group reset readers --topic a --all-topics --to-latest",
            "weir group reset readers --topic a --to-latest --to-earliest",
        ] {
            assert_eq!(Cli::try_parse_from(line.split(' ')).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
