// The row of @platformatic/kafka.

import zlib from 'node:zlib'

import { Admin, Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'

import { COUNT, GROUP_PARTITIONS, Lacking, keyOf, run, valueOf, waitFor } from './table.mjs'

const LATEST = -1n
const PARTITIONS = [...Array(GROUP_PARTITIONS).keys()]

async function join (bootstrapBrokers, groupId, topic, seen) {
  const consumer = new Consumer({
    clientId: 'client-table', groupId, bootstrapBrokers, deserializers: stringDeserializers, autocommit: false, maxWaitTime: 200,
  })
  const stream = await consumer.consume({ topics: [topic], mode: 'committed', fallbackMode: 'earliest', autocommit: false })
  let stopped = false
  let failure = null
  const mine = () => consumer.assignments?.find(one => one.topic === topic)?.partitions ?? []
  const member = {
    got: 0,
    get partitions () { return mine().length },
    async stop () { stopped = true },
    async commit () {
      if (failure) throw failure
      const positions = [...seen.positions()].filter(([partition]) => mine().includes(partition))
      const offsets = positions.map(([partition, offset]) => ({ topic, partition, offset: BigInt(offset), leaderEpoch: -1 }))
      await consumer.commit({ offsets })
    },
    leave: () => consumer.close(true),
  }
  stream.on('error', error => { failure ??= error })
  stream.on('data', ({ partition, offset, key, value }) => {
    // A fetch that was under way in a rebalance still brings records of partitions that another member has now.
    if (stopped || !mine().includes(partition)) return
    member.got += Number(seen.add(partition, Number(offset), key, value))
  })
  return member
}

await run(async bootstrap => {
  const brokers = [bootstrap]
  const admin = new Admin({ clientId: 'client-table', bootstrapBrokers: brokers })
  return {
    async create (topic) {
      const [created] = await admin.createTopics({ topics: [topic], partitions: 3, replicas: 1 })
      if (created.partitions !== 3) throw new Error(`the topic has ${created.partitions} partitions`)
      if (!(await admin.listTopics()).includes(topic)) throw new Error('the topic is not listed')
    },
    async produce (topic, compression) {
      if (compression === 'zstd' && !zlib.zstdCompressSync) throw new Lacking('zstd needs a Node with zstd (22.15)')
      const producer = new Producer({ clientId: 'client-table', bootstrapBrokers: brokers, serializers: stringSerializers })
      for (let from = 0; from < COUNT; from += 1000) {
        const messages = Array.from({ length: 1000 }, (_, n) => ({ topic, key: keyOf(from + n), value: valueOf(from + n) }))
        await producer.send({ messages, acks: -1, compression })
      }
      await producer.close()
    },
    async readAll (topic, seen) {
      const member = await join(brokers, `${topic}-reader`, topic, seen)
      try {
        await waitFor('all records', () => seen.length >= COUNT)
      } finally {
        await member.leave()
      }
    },
    join: (group, topic, seen) => join(brokers, group, topic, seen),
    async lag (group, topic) {
      const [found] = await admin.listConsumerGroupOffsets({ groups: [group] })
      const committed = found.topics.find(one => one.name === topic).partitions
      const [ends] = await admin.listOffsets({
        topics: [{ name: topic, partitions: PARTITIONS.map(partitionIndex => ({ partitionIndex, timestamp: LATEST })) }],
      })
      const sum = (all, field) => all.reduce((total, one) => total + Number(one[field]), 0)
      return sum(ends.partitions, 'offset') - sum(committed, 'committedOffset')
    },
    reset: (groupId, topic) => admin.alterConsumerGroupOffsets({
      groupId, topics: [{ name: topic, partitionOffsets: PARTITIONS.map(partition => ({ partition, offset: 0n })) }],
    }),
    close: () => admin.close(),
  }
})
