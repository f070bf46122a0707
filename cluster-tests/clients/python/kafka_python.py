"""The row of kafka-python (an implementation of its own, in Python).

Its consumer, as of 3.0.12, forgets that it joins when a poll's time is over between the answers to JoinGroup and SyncGroup:
it never takes its partitions, and says nothing more to the group. So a poll during which it joins gets all the time there is.
"""

import threading

from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic, OffsetSpec
from kafka.structs import OffsetAndMetadata

from table import CODECS, COUNT, GROUP_PARTITIONS, HALF, PATIENCE, Seen, Table, check_lag, key_of, value_of, wait_for

JOIN_MS = PATIENCE * 1000


def produce(table, topic, codec="none"):
    producer = KafkaProducer(
        bootstrap_servers=table.bootstrap, acks="all", linger_ms=5,
        compression_type=None if codec == "none" else codec,
    )
    sent = [producer.send(topic, key=key_of(n).encode(), value=value_of(n).encode()) for n in range(COUNT)]
    producer.flush(PATIENCE)
    for future in sent:
        future.get(PATIENCE)
    producer.close()


def consumer(table, group, topics=()):
    return KafkaConsumer(
        *topics, bootstrap_servers=table.bootstrap, group_id=group, auto_offset_reset="earliest",
        enable_auto_commit=False,
    )


def read(reader, seen, timeout_ms=200):
    got = 0
    for messages in reader.poll(timeout_ms=timeout_ms).values():
        for message in messages:
            got += seen.add(message.partition, message.offset, message.key, message.value)
    return got


def commit(reader, topic, seen, partitions):
    reader.commit({
        TopicPartition(topic, p): OffsetAndMetadata(o, "", -1)
        for p, o in seen.positions().items() if p in partitions
    })


class Partitions(ConsumerRebalanceListener):
    """The partitions that a member has, also while it waits for records."""

    def __init__(self):
        self.now = set()

    def on_partitions_assigned(self, assigned):
        self.now |= {tp.partition for tp in assigned}

    def on_partitions_revoked(self, revoked):
        self.now -= {tp.partition for tp in revoked}


class Member(threading.Thread):
    """A member of the group in a thread: reads until told to stop, commits what it processed, leaves."""

    def __init__(self, table, group, topic, seen):
        super().__init__(daemon=True)
        self.table, self.group, self.topic, self.seen = table, group, topic, seen
        self.partitions, self.got, self.error, self.stop = Partitions(), 0, None, threading.Event()
        self.start()

    def run(self):
        try:
            reader = consumer(self.table, self.group)
            reader.subscribe([self.topic], listener=self.partitions)
            while not self.stop.is_set():
                # Records come when the group is complete.
                self.got += read(reader, self.seen, 100 if self.got else JOIN_MS)
            commit(reader, self.topic, self.seen, self.partitions.now)
            self.stopped_together.wait(PATIENCE)
            reader.close()
        except Exception as error:  # noqa: BLE001 - told by end()
            self.error = error

    def end(self):
        self.join(PATIENCE)
        if self.error:
            raise self.error


def create(table):
    admin = KafkaAdminClient(bootstrap_servers=table.bootstrap)
    admin.create_topics([NewTopic(table.topic("create"), 3, 1)])
    wait_for("the topic in the metadata", lambda: table.topic("create") in admin.list_topics())
    admin.close()


def codec(table, name):
    topic = table.topic(name)
    produce(table, topic, name)
    seen = Seen()
    reader = consumer(table, None)
    reader.assign([TopicPartition(topic, p) for p in range(3)])
    reader.seek_to_beginning()
    wait_for("all records", lambda: read(reader, seen) == 0 and len(seen) >= COUNT)
    reader.close()
    seen.check_complete()


def group(table, seen):
    topic, seen.half_only = table.topic("group"), True
    Member.stopped_together = threading.Barrier(2)
    members = [Member(table, table.topic("g"), topic, seen) for _ in range(2)]
    failed = lambda: any(m.error for m in members)
    shared = lambda: [len(m.partitions.now) for m in members] == [GROUP_PARTITIONS // 2] * 2
    try:
        wait_for("two partitions for each member", lambda: shared() or failed())
        produce(table, topic)
        wait_for("half of the records", lambda: len(seen) >= HALF and all(m.got for m in members) or failed())
    finally:
        for member in members:
            member.stop.set()
        for member in members:
            member.end()
    seen.half_only = False
    return f"{[m.got for m in members]} records by two members"


def read_rest(table, group_name, seen):
    topic = table.topic("group")
    reader = consumer(table, table.topic(group_name), [topic])
    read(reader, seen, JOIN_MS)
    wait_for("the rest", lambda: read(reader, seen) == 0 and len(seen) >= COUNT)
    commit(reader, topic, seen, range(GROUP_PARTITIONS))
    reader.close()
    seen.check_complete()


def resume(table, seen):
    before = len(seen)
    read_rest(table, "g", seen)
    return f"{len(seen) - before} more records after the restart"


def lags(table):
    admin = KafkaAdminClient(bootstrap_servers=table.bootstrap)
    committed = admin.list_group_offsets([table.topic("g")])[table.topic("g")]
    partitions = [TopicPartition(table.topic("group"), p) for p in range(GROUP_PARTITIONS)]
    ends = admin.list_partition_offsets({tp: OffsetSpec.LATEST for tp in partitions})
    admin.close()
    return [ends[tp].offset - committed[tp].offset for tp in partitions]


def reset(table):
    admin = KafkaAdminClient(bootstrap_servers=table.bootstrap)
    partitions = [TopicPartition(table.topic("group"), p) for p in range(GROUP_PARTITIONS)]
    admin.reset_group_offsets(table.topic("g"), {tp: OffsetSpec.EARLIEST for tp in partitions})
    admin.close()
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
