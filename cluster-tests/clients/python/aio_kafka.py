"""The row of aiokafka (asyncio)."""

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from table import CODECS, COUNT, GROUP_PARTITIONS, HALF, PATIENCE, Lacking, Seen, Table, check_lag, key_of, value_of


async def wait_for(what, condition):
    async def until():
        while not condition():
            await asyncio.sleep(0.02)
    try:
        await asyncio.wait_for(until(), PATIENCE)
    except asyncio.TimeoutError:
        raise TimeoutError(f"waited {PATIENCE} s for {what}") from None


async def produce(table, topic, codec="none"):
    producer = AIOKafkaProducer(
        bootstrap_servers=table.bootstrap, enable_idempotence=True, linger_ms=5,
        compression_type=None if codec == "none" else codec,
    )
    await producer.start()
    try:
        sent = [await producer.send(topic, value_of(n).encode(), key_of(n).encode()) for n in range(COUNT)]
        await asyncio.wait_for(asyncio.gather(*sent), PATIENCE)
    finally:
        await producer.stop()


def consumer(table, group, *topics):
    return AIOKafkaConsumer(
        *topics, bootstrap_servers=table.bootstrap, group_id=group, auto_offset_reset="earliest",
        enable_auto_commit=False,
    )


async def read(reader, seen):
    got = 0
    for messages in (await reader.getmany(timeout_ms=100)).values():
        for message in messages:
            got += seen.add(message.partition, message.offset, message.key, message.value)
    return got


async def read_all(reader, seen):
    async def until():
        while await read(reader, seen) or len(seen) < COUNT:
            pass
    await asyncio.wait_for(until(), PATIENCE)


async def commit(reader, topic, seen, partitions):
    await reader.commit({TopicPartition(topic, p): o for p, o in seen.positions().items() if p in partitions})


async def create(table):
    admin = AIOKafkaAdminClient(bootstrap_servers=table.bootstrap)
    await admin.start()
    try:
        answer = await admin.create_topics([NewTopic(table.topic("create"), 3, 1)])
        errors = [error for error in answer.topic_errors if error[1] != 0]
        if errors or table.topic("create") not in await admin.list_topics():
            raise AssertionError(f"not created: {answer}")
    finally:
        await admin.close()


async def codec(table, name):
    topic = table.topic(name)
    await produce(table, topic, name)
    seen, reader = Seen(), consumer(table, None)
    await reader.start()
    try:
        reader.assign([TopicPartition(topic, p) for p in range(3)])
        await reader.seek_to_beginning()
        await read_all(reader, seen)
    finally:
        await reader.stop()
    seen.check_complete()


async def group(table, seen):
    topic, got, seen.half_only = table.topic("group"), [0, 0], True
    members = [consumer(table, table.topic("g"), topic) for _ in range(2)]
    stop = asyncio.Event()

    async def consume(index):
        while not stop.is_set():
            got[index] += await read(members[index], seen)

    shared = lambda: [len(m.assignment()) for m in members] == [GROUP_PARTITIONS // 2] * 2
    await asyncio.gather(*(member.start() for member in members))
    tasks = [asyncio.create_task(consume(index)) for index in range(2)]
    failed = lambda: any(task.done() for task in tasks)
    try:
        await wait_for("two partitions for each member", lambda: shared() or failed())
        await produce(table, topic)
        await wait_for("half of the records", lambda: len(seen) >= HALF and all(got) or failed())
        stop.set()
        await asyncio.gather(*tasks)
        for member in members:
            await commit(member, topic, seen, {tp.partition for tp in member.assignment()})
    finally:
        stop.set()
        for member in members:
            await member.stop()
    seen.half_only = False
    return f"{got} records by two members"


async def read_rest(table, group_name, seen):
    topic = table.topic("group")
    reader = consumer(table, table.topic(group_name), topic)
    await reader.start()
    try:
        await read_all(reader, seen)
        await commit(reader, topic, seen, range(GROUP_PARTITIONS))
    finally:
        await reader.stop()
    seen.check_complete()


async def resume(table, seen):
    before = len(seen)
    await read_rest(table, "g", seen)
    return f"{len(seen) - before} more records after the restart"


async def lag(table, expected):
    partitions = [TopicPartition(table.topic("group"), p) for p in range(GROUP_PARTITIONS)]
    admin, reader = AIOKafkaAdminClient(bootstrap_servers=table.bootstrap), consumer(table, None)
    await admin.start()
    await reader.start()
    try:
        committed = await admin.list_consumer_group_offsets(table.topic("g"))
        ends = await reader.end_offsets(partitions)
    finally:
        await reader.stop()
        await admin.close()
    check_lag([ends[tp] - committed[tp].offset for tp in partitions], expected)


def lacking(why):
    raise Lacking(why)


def main():
    table = Table.of_arguments()
    table.row("create", lambda: asyncio.run(create(table)))
    for name in CODECS:
        table.row(name, lambda: asyncio.run(codec(table, name)))
    seen = Seen()
    table.row("group", lambda: asyncio.run(group(table, seen)))
    table.row("lag", lambda: asyncio.run(lag(table, COUNT - len(seen))), needs="group")
    table.row("resume", lambda: asyncio.run(resume(table, seen)), needs="group")
    table.row("replay", lambda: asyncio.run(read_rest(table, "g2", Seen())), needs="group")
    table.row("reset", lambda: lacking("the admin client of aiokafka cannot change offsets"))


main()
