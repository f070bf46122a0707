//! Apache Kafka's own command-line tools and system-test clients, from its jars: each run, and the last thing it must print.

use super::suite::{LIMIT, Outcome, Prepared, Suite};
use super::{kafka_scripts, kafka_version};
use crate::kafka;
use crate::shell::program;
use crate::subject::Shape;

/// What is run with `bash`, where a pipe fails with any of its programs, with `$K` for the folder of the tools, `$B` for the cluster and `$T` for a topic of the test, and
/// what its output must end with.
const TESTS: &[(&str, &str, &str)] = &[
    (
        "topics",
        "$K/kafka-topics.sh --bootstrap-server $B --create --topic $T --partitions 2 --config retention.ms=3600000 &&
         $K/kafka-topics.sh --bootstrap-server $B --alter --topic $T --partitions 3 &&
         $K/kafka-topics.sh --bootstrap-server $B --describe --topic $T >$T.described && cat $T.described &&
         grep -q 'PartitionCount: 3.*retention.ms=3600000' $T.described && rm $T.described &&
         $K/kafka-topics.sh --bootstrap-server $B --delete --topic $T &&
         $K/kafka-topics.sh --bootstrap-server $B --list >$T.listed && ! grep -x $T $T.listed && rm $T.listed &&
         echo it is gone",
        "it is gone",
    ),
    (
        "configs_of_topics",
        "$K/kafka-topics.sh --bootstrap-server $B --create --topic $T &&
         $K/kafka-configs.sh --bootstrap-server $B --alter --topic $T --add-config max.message.bytes=2000 &&
         $K/kafka-configs.sh --bootstrap-server $B --describe --topic $T | grep -o 'max.message.bytes=2000 sensitive=false' &&
         $K/kafka-configs.sh --bootstrap-server $B --alter --topic $T --delete-config max.message.bytes &&
         $K/kafka-configs.sh --bootstrap-server $B --describe --topic $T >$T.described &&
         ! grep max.message.bytes $T.described && rm $T.described && echo it is gone",
        "it is gone",
    ),
    (
        "configs_of_brokers",
        "$K/kafka-configs.sh --bootstrap-server $B --alter --broker-defaults --add-config log.retention.ms=7200000 &&
         $K/kafka-configs.sh --bootstrap-server $B --describe --broker-defaults | grep -o 'log.retention.ms=7200000 '",
        "log.retention.ms=7200000 ",
    ),
    (
        "console",
        "seq 5 | $K/kafka-console-producer.sh --bootstrap-server $B --topic $T &&
         $K/kafka-console-consumer.sh --bootstrap-server $B --topic $T --from-beginning --max-messages 5 2>/dev/null | sort",
        "1\n2\n3\n4\n5",
    ),
    (
        "console_with_keys_headers_and_codec",
        "printf 'h:1\\tk\\tv\\n' | $K/kafka-console-producer.sh --bootstrap-server $B --topic $T --compression-codec zstd \
           --reader-property parse.key=true --reader-property parse.headers=true &&
         $K/kafka-console-consumer.sh --bootstrap-server $B --topic $T --from-beginning --max-messages 1 \
           --formatter-property print.key=true --formatter-property print.headers=true 2>/dev/null",
        "h:1\tk\tv",
    ),
    (
        "consumer_groups",
        "seq 4 | $K/kafka-console-producer.sh --bootstrap-server $B --topic $T &&
         $K/kafka-console-consumer.sh --bootstrap-server $B --topic $T --group $T --from-beginning --max-messages 4 >/dev/null &&
         $K/kafka-consumer-groups.sh --bootstrap-server $B --describe --group $T 2>/dev/null | grep -o \"$T *0 *4 *4 *0 \" &&
         $K/kafka-consumer-groups.sh --bootstrap-server $B --reset-offsets --to-earliest --execute --group $T --topic $T &&
         $K/kafka-consumer-groups.sh --bootstrap-server $B --delete --group $T &&
         $K/kafka-consumer-groups.sh --bootstrap-server $B --list >$T.listed && ! grep -x $T $T.listed && rm $T.listed &&
         echo it is gone",
        "it is gone",
    ),
    (
        "get_offsets",
        "seq 7 | $K/kafka-console-producer.sh --bootstrap-server $B --topic $T &&
         $K/kafka-get-offsets.sh --bootstrap-server $B --topic $T --time -1",
        "$T:0:7",
    ),
    (
        "delete_records",
        "seq 7 | $K/kafka-console-producer.sh --bootstrap-server $B --topic $T &&
         echo '{\"version\":1,\"partitions\":[{\"topic\":\"'$T'\",\"partition\":0,\"offset\":3}]}' >$T.json &&
         $K/kafka-delete-records.sh --bootstrap-server $B --offset-json-file $T.json && rm $T.json &&
         $K/kafka-get-offsets.sh --bootstrap-server $B --topic $T --time -2",
        "$T:0:3",
    ),
    (
        "log_dirs",
        "seq 7 | $K/kafka-console-producer.sh --bootstrap-server $B --topic $T &&
         $K/kafka-log-dirs.sh --bootstrap-server $B --describe --topic-list $T | grep -o \"\\\"partition\\\":\\\"$T-0\\\"\"",
        "\"partition\":\"$T-0\"",
    ),
    (
        "leader_election",
        "$K/kafka-topics.sh --bootstrap-server $B --create --topic $T &&
         $K/kafka-leader-election.sh --bootstrap-server $B --election-type preferred --topic $T --partition 0",
        "Valid replica already elected for partitions $T-0",
    ),
    (
        "metadata_quorum",
        "$K/kafka-metadata-quorum.sh --bootstrap-server $B describe --status | grep -o '^LeaderId'",
        "LeaderId",
    ),
    (
        "broker_api_versions",
        "$K/kafka-broker-api-versions.sh --bootstrap-server $B | grep -o 'Produce(0): 0 to [0-9]*'",
        "Produce(0): 0 to 13",
    ),
    (
        "verifiable_producer_and_consumer",
        // What was confirmed is what is read, value by value and each where it was said to be.
        "$K/kafka-verifiable-producer.sh --bootstrap-server $B --topic $T --max-messages 500 --acks -1 >$T.sent &&
         $K/kafka-verifiable-consumer.sh --bootstrap-server $B --topic $T --group-id $T --max-messages 500 \
           --reset-policy earliest --verbose >$T.read &&
         grep producer_send_success $T.sent | sed -E 's/.*\"value\":\"([0-9]*)\".*\"offset\":([0-9]*).*/\\1 \\2/' | sort >$T.acked &&
         grep record_data $T.read | sed -E 's/.*\"value\":\"([0-9]*)\".*\"offset\":([0-9]*).*/\\1 \\2/' | sort >$T.consumed &&
         cmp $T.acked $T.consumed && wc -l <$T.acked && rm $T.sent $T.read $T.acked $T.consumed",
        "500",
    ),
    (
        "producer_and_consumer_perf_test",
        "$K/kafka-producer-perf-test.sh --bootstrap-server $B --topic $T --num-records 20000 --record-size 100 --throughput -1 &&
         $K/kafka-consumer-perf-test.sh --bootstrap-server $B --topic $T --num-records 20000 --hide-header | cut -d, -f5",
        " 20000",
    ),
    (
        // All that it tests but access rights, which may be there or not: the next one wants them.
        "client_compatibility",
        "exec 9>newtopic.lock; flock 9
         $K/kafka-topics.sh --bootstrap-server $B --delete --if-exists --topic newtopic
         try() { $K/kafka-client-compatibility.sh --bootstrap-server $B --topic $T-$1 --offsets-for-times-supported true \
           --cluster-id-supported true --expect-record-too-large-exception false --num-cluster-nodes 1 \
           --create-topics-supported true --describe-acls-supported $1 --describe-configs-supported true \
           --idempotent-producer-supported true; }; try true ||
         { $K/kafka-topics.sh --bootstrap-server $B --delete --topic newtopic && try false; }",
        "SUCCESS.",
    ),
    (
        // `newtopic` is a name in its own text, of which there is one at a time.
        "client_compatibility_with_access_rights",
        "exec 9>newtopic.lock; flock 9
         $K/kafka-topics.sh --bootstrap-server $B --delete --if-exists --topic newtopic
         $K/kafka-client-compatibility.sh --bootstrap-server $B --topic $T --offsets-for-times-supported true \
           --cluster-id-supported true --expect-record-too-large-exception false --num-cluster-nodes 1 \
           --create-topics-supported true --describe-acls-supported true --describe-configs-supported true \
           --idempotent-producer-supported true",
        "SUCCESS.",
    ),
];

pub(super) const SUITE: Suite = Suite {
    name: "kafka-tools",
    shape: Shape { nodes: 1, port: None, racks: &[], configs: &[("num.partitions", "1")], of_kafka: &[] },
    at_once: 2,
    limit: LIMIT,
    prepare: |offline| {
        if !offline {
            kafka::fetch_jars()?;
        }
        Ok(Prepared {
            version: kafka_version()?,
            tests: TESTS.iter().map(|(name, ..)| (*name).to_owned()).collect(),
        })
    },
    command: |test, bootstrap| {
        let script = TESTS.iter().find(|(name, ..)| *name == test).map_or("false", |(_, script, _)| script);
        let folder = kafka_scripts()?;
        let mut command = program("bash");
        command.args(["-o", "pipefail", "-c", script]).env("K", folder.join("bin")).current_dir(folder);
        command.env("B", bootstrap).env("T", topic(test));
        Ok(command)
    },
    judge: |test, success, output| {
        let wanted = TESTS.iter().find(|(name, ..)| *name == test).map_or("", |(.., wanted)| wanted);
        let wanted = wanted.replace("$T", &topic(test));
        if success && output.trim_end_matches('\n').ends_with(&wanted) {
            return Outcome::Passed;
        }
        let last: Vec<&str> = output.lines().rev().take(2).collect();
        let how = if success { "" } else { "success and " };
        Outcome::Failed(format!("wanted {how}{wanted:?} at the end of {:?}", last.join(" | ")))
    },
};

fn topic(test: &str) -> String {
    format!("tools-{}-{}", std::process::id(), test.replace('_', "-"))
}
