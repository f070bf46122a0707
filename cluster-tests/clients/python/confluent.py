"""The row of confluent-kafka for Python (librdkafka, its newest release)."""

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from table import CODECS, COUNT, GROUP_PARTITIONS, HALF, PATIENCE, Seen, Table, check_lag, key_of, value_of, wait_for


def produce(table, topic, codec="none"):
    producer = Producer({
        "bootstrap.servers": table.bootstrap, "compression.type": codec, "enable.idempotence": True,
        "linger.ms": 5, "partitioner": "murmur2_random",
    })
    failures = []
    told = lambda error, message: failures.append(error) if error else None
    for n in range(COUNT):
        producer.produce(topic, value_of(n), key_of(n), on_delivery=told)
        producer.poll(0)
    left = producer.flush(PATIENCE)
    if left or failures:
        raise AssertionError(f"{left} records not acknowledged, {len(failures)} failed: {failures[:1]}")


def member(table, group):
    return Consumer({
        "bootstrap.servers": table.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    })


def read(consumer, seen, timeout=0.2):
    messages = consumer.consume(500, timeout)
    got = 0
    for message in messages:
        if message.error():
            raise AssertionError(message.error())
        got += seen.add(message.partition(), message.offset(), message.key(), message.value())
    return got


def commit(consumer, topic, seen, partitions):
    offsets = [TopicPartition(topic, p, o) for p, o in seen.positions().items() if p in partitions]
    for result in consumer.commit(offsets=offsets, asynchronous=False):
        if result.error:
            raise AssertionError(result.error)


def create(table):
    admin = AdminClient({"bootstrap.servers": table.bootstrap})
    for future in admin.create_topics([NewTopic(table.topic("create"), num_partitions=3, replication_factor=1)]).values():
        future.result(PATIENCE)
    def there():
        found = admin.list_topics(timeout=PATIENCE).topics.get(table.topic("create"))
        return found is not None and len(found.partitions) == 3
    wait_for("the topic in the metadata", there)


def codec(table, name):
    topic = table.topic(name)
    produce(table, topic, name)
    seen = Seen()
    consumer = member(table, table.topic("assigned"))
    consumer.assign([TopicPartition(topic, p, 0) for p in range(3)])
    wait_for("all records", lambda: read(consumer, seen) == 0 and len(seen) >= COUNT)
    consumer.close()
    seen.check_complete()


def assigned(consumer):
    return {a.partition for a in consumer.assignment()}


def group(table, seen):
    topic, seen.half_only = table.topic("group"), True
    members = [member(table, table.topic("g")) for _ in range(2)]
    for each in members:
        each.subscribe([topic])
    def shared():
        for each in members:
            read(each, seen, 0.05)
        return [len(assigned(each)) for each in members] == [GROUP_PARTITIONS // 2] * 2
    wait_for("two partitions for each member", shared)
    produce(table, topic)
    per_member = [0, 0]
    def half():
        for index, each in enumerate(members):
            per_member[index] += read(each, seen, 0.05)
        return len(seen) >= HALF and all(per_member)
    wait_for("half of the records", half)
    for each in members:
        commit(each, topic, seen, assigned(each))
    for each in members:
        each.close()
    seen.half_only = False
    return f"{per_member} records by two members"


def read_rest(table, group_name, seen):
    consumer = member(table, table.topic(group_name))
    consumer.subscribe([table.topic("group")])
    wait_for("the rest", lambda: read(consumer, seen) == 0 and len(seen) >= COUNT)
    commit(consumer, table.topic("group"), seen, range(GROUP_PARTITIONS))
    consumer.close()
    seen.check_complete()


def resume(table, seen):
    before = len(seen)
    read_rest(table, "g", seen)
    return f"{len(seen) - before} more records after the restart"


def lags(table):
    admin = AdminClient({"bootstrap.servers": table.bootstrap})
    group_id = table.topic("g")
    committed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])[group_id].result(PATIENCE)
    committed = {tp.partition: tp.offset for tp in committed.topic_partitions}
    wanted = {TopicPartition(table.topic("group"), p): OffsetSpec.latest() for p in range(GROUP_PARTITIONS)}
    ends = {tp.partition: f.result(PATIENCE).offset for tp, f in admin.list_offsets(wanted).items()}
    return [ends[p] - committed[p] for p in range(GROUP_PARTITIONS)]


def reset(table):
    admin = AdminClient({"bootstrap.servers": table.bootstrap})
    to = [TopicPartition(table.topic("group"), p, 0) for p in range(GROUP_PARTITIONS)]
    request = [ConsumerGroupTopicPartitions(table.topic("g"), to)]
    done = admin.alter_consumer_group_offsets(request)[table.topic("g")].result(PATIENCE)
    for tp in done.topic_partitions:
        if tp.error:
            raise AssertionError(tp.error)
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
