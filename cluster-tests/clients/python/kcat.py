"""The row of kcat (librdkafka in C, Debian's package)."""

import re
import subprocess
import threading

from table import CODECS, GROUP_PARTITIONS, HALF, Lacking, PATIENCE, Seen, Table, lines, run, wait_for

FORMAT = "%p\t%o\t%k\t%s\n"
ASSIGNED = re.compile(r"rebalanced \(memberid [^)]*\): assigned: (.*)")


class Member:
    """A kcat that is a member of a group: its records go to `seen`, its assignment is read from what it says."""

    def __init__(self, table, group, topic, seen, more=()):
        command = ["kcat", "-b", table.bootstrap, "-u", "-f", FORMAT, *more]
        command += ["-X", "auto.offset.reset=earliest", "-G", group, topic]
        self.partitions, self.seen, self.errors, self.said = 0, seen, [], []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.readers = [threading.Thread(target=self.read_records), threading.Thread(target=self.read_words)]
        for reader in self.readers:
            reader.start()

    def read_records(self):
        for line in self.process.stdout:
            try:
                partition, offset, key, value = line.rstrip("\n").split("\t")
                self.seen.add(int(partition), int(offset), key, value)
            except Exception as error:  # noqa: BLE001 - told at the end
                self.errors.append(error)

    def read_words(self):
        for line in self.process.stderr:
            self.said.append(line)
            if found := ASSIGNED.search(line):
                self.partitions = found.group(1).count("[")

    def end(self):
        code = self.process.wait(PATIENCE)
        for reader in self.readers:
            reader.join()
        if self.errors:
            raise self.errors[0]
        if code != 0:
            raise AssertionError(f"kcat ended with {code}: {''.join(self.said)[-1500:]}")


def codec(table, name):
    topic = table.topic(name)
    produce(table, topic, name)
    seen = Seen()
    for line in run(["kcat", "-b", table.bootstrap, "-q", "-C", "-t", topic, "-o", "beginning", "-e", "-f", FORMAT]).splitlines():
        partition, offset, key, value = line.split("\t")
        seen.add(int(partition), int(offset), key, value)
    seen.check_complete()


def produce(table, topic, codec_name="none"):
    command = ["kcat", "-b", table.bootstrap, "-q", "-P", "-t", topic, "-K", "\t", "-z", codec_name]
    run([*command, "-X", "acks=all", "-X", "enable.idempotence=true", "-X", "partitioner=murmur2_random"], lines())


def group(table, seen):
    topic = table.topic("group")
    members = [Member(table, table.topic("g"), topic, seen, ["-c", str(HALF // 2)]) for _ in range(2)]
    try:
        wait_for("two partitions for each member", lambda: [m.partitions for m in members] == [GROUP_PARTITIONS // 2] * 2)
        produce(table, topic)
        for member in members:
            member.end()
    finally:
        for member in members:
            member.process.kill()
    if len(seen) != HALF:
        raise AssertionError(f"{len(seen)} records were printed, not {HALF}")
    return f"{len(seen)} records by two members"


def read_rest(table, group_name, seen):
    member = Member(table, table.topic(group_name), table.topic("group"), seen, ["-e"])
    try:
        member.end()
    finally:
        member.process.kill()
    seen.check_complete()


def resume(table, seen):
    before = len(seen)
    read_rest(table, "g", seen)
    return f"{len(seen) - before} more records after the restart"


def lacking(why):
    raise Lacking(why)


def main():
    table = Table.of_arguments()
    table.row("create", lambda: lacking("kcat has no admin commands"))
    for name in CODECS:
        table.row(name, lambda: codec(table, name))
    seen = Seen()
    table.row("group", lambda: group(table, seen))
    table.row("resume", lambda: resume(table, seen), needs="group")
    table.row("replay", lambda: read_rest(table, "g2", Seen()), needs="group")
    table.row("reset", lambda: lacking("kcat has no admin commands"))
    table.row("lag", lambda: lacking("kcat cannot ask for committed offsets"))


main()
