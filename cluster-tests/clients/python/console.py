"""The row of Apache Kafka's own command-line tools, run from their jars."""

import re
import subprocess
import threading

from table import CODECS, COUNT, GROUP_PARTITIONS, HALF, PATIENCE, Seen, Table, check_lag, lines, run, wait_for

TOOLS = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "producer": "org.apache.kafka.tools.ConsoleProducer",
    "consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
}
JVM = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
PRINT = ["print.key=true", "print.offset=true", "print.partition=true"]


def command(table, tool, *args):
    log = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return ["java", *JVM, "-cp", table.java_class_path, log, TOOLS[tool], "--bootstrap-server", table.bootstrap, *args]


def consumer_command(table, topic, *args):
    prints = [word for one in PRINT for word in ("--formatter-property", one)]
    return command(table, "consumer", "--topic", topic, "--from-beginning", *prints, *args)


def add(seen, line):
    partition, offset, key, value = line.rstrip("\n").split("\t")
    seen.add(int(partition.removeprefix("Partition:")), int(offset.removeprefix("Offset:")), key, value)


def produce(table, topic, codec="none"):
    keyed = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=\t"]
    run(command(table, "producer", "--topic", topic, "--compression-codec", codec, *keyed), lines())


def create(table):
    topic = table.topic("create")
    run(command(table, "topics", "--create", "--topic", topic, "--partitions", "3"))
    told = run(command(table, "topics", "--describe", "--topic", topic))
    if "PartitionCount: 3" not in told:
        raise AssertionError(told)


def codec(table, name):
    topic = table.topic(name)
    produce(table, topic, name)
    seen = Seen()
    for line in run(consumer_command(table, topic, "--max-messages", str(COUNT), "--timeout-ms", "30000")).splitlines():
        add(seen, line)
    seen.check_complete()


class Member:
    """A console consumer in a group that ends, with a commit, after a number of records."""

    def __init__(self, table, group, topic, seen, count):
        args = ["--group", group, "--max-messages", str(count), "--timeout-ms", "60000"]
        self.seen, self.got, self.error, self.words = seen, 0, None, []
        self.process = subprocess.Popen(
            consumer_command(table, topic, *args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.readers = [threading.Thread(target=self.read), threading.Thread(target=self.listen)]
        for reader in self.readers:
            reader.start()

    def read(self):
        for line in self.process.stdout:
            try:
                add(self.seen, line)
                self.got += 1
            except Exception as error:  # noqa: BLE001 - told by end()
                self.error = error

    def listen(self):
        self.words.extend(self.process.stderr)

    def end(self):
        code = self.process.wait(PATIENCE)
        for reader in self.readers:
            reader.join()
        if self.error:
            raise self.error
        if code != 0:
            raise AssertionError(f"the console consumer ended with {code}: {''.join(self.words)[-1500:]}")


def shares(table, group):
    """The number of partitions of each member, as the group tool tells."""
    done = subprocess.run(
        command(table, "groups", "--describe", "--members", "--group", group), capture_output=True, text=True, timeout=PATIENCE)
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(group)]
    return sorted(int(row[-1]) if row[-1].isdigit() else int(row[4]) for row in rows)


def group(table, seen):
    topic, name = table.topic("group"), table.topic("g")
    members = [Member(table, name, topic, seen, HALF // 2) for _ in range(2)]
    try:
        wait_for("two partitions for each member", lambda: shares(table, name) == [GROUP_PARTITIONS // 2] * 2)
        produce(table, topic)
        for member in members:
            member.end()
    finally:
        for member in members:
            member.process.kill()
    if len(seen) != HALF:
        raise AssertionError(f"{len(seen)} records were printed, not {HALF}")
    return f"{[m.got for m in members]} records by two members"


def read_rest(table, group_name, seen):
    member = Member(table, table.topic(group_name), table.topic("group"), seen, COUNT - len(seen))
    try:
        member.end()
    finally:
        member.process.kill()
    seen.check_complete()


def resume(table, seen):
    before = len(seen)
    read_rest(table, "g", seen)
    check_lag(lags(table), 0)
    return f"{len(seen) - before} more records after the restart"


def lags(table):
    told = run(command(table, "groups", "--describe", "--group", table.topic("g")))
    rows = [re.split(r"\s+", line) for line in told.splitlines() if line.startswith(table.topic("g"))]
    header = next(re.split(r"\s+", line) for line in told.splitlines() if line.startswith("GROUP"))
    if len(rows) != GROUP_PARTITIONS:
        raise AssertionError(told)
    return [int(row[header.index("LAG")]) for row in rows]


def reset(table):
    to = ["--reset-offsets", "--to-earliest", "--execute", "--topic", table.topic("group")]
    run(command(table, "groups", "--group", table.topic("g"), *to))
    check_lag(lags(table), COUNT)
    read_rest(table, "g", Seen())


def main():
    table = Table.of_arguments()
    table.row("create", lambda: create(table))
    for name in CODECS:
        table.row(name, lambda: codec(table, name))
    seen = Seen()
    table.row("group", lambda: group(table, seen))
    table.row("lag", lambda: check_lag(lags(table), COUNT - len(seen)), needs="group")
    table.row("resume", lambda: resume(table, seen), needs="group")
    table.row("replay", lambda: read_rest(table, "g2", Seen()), needs="group")
    table.row("reset", lambda: reset(table), needs="group")


main()
