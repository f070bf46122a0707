// The row of kafkajs, with the codecs that its users plug in.

import kafkajs from 'kafkajs'
import SnappyCodec from 'kafkajs-snappy'
import lz4 from 'lz4-napi'
import zstd from '@toondepauw/node-zstd'

import { COUNT, keyOf, run, valueOf, waitFor } from './table.mjs'

const { CompressionCodecs, CompressionTypes, Kafka, Partitioners, logLevel } = kafkajs

CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: encoder => lz4.compressFrame(encoder.buffer),
  decompress: buffer => lz4.decompressFrame(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => new zstd.Encoder(3).encode(encoder.buffer),
  decompress: async buffer => new zstd.Decoder().decode(buffer),
})
const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

async function join (kafka, groupId, topic, seen) {
  const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 200 })
  const member = { partitions: 0, got: 0, stopped: false, mine: new Set() }
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    member.mine = new Set(payload.memberAssignment[topic] ?? [])
    member.partitions = member.mine.size
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      if (member.stopped) return
      const counts = seen.add(partition, Number(message.offset), message.key.toString(), message.value.toString())
      member.got += Number(counts)
    },
  })
  member.stop = async () => { member.stopped = true }
  member.commit = () => {
    const mine = [...seen.positions()].filter(([partition]) => member.mine.has(partition))
    return consumer.commitOffsets(mine.map(([partition, offset]) => ({ topic, partition, offset: String(offset) })))
  }
  member.leave = () => consumer.disconnect()
  return member
}

await run(async bootstrap => {
  const kafka = new Kafka({ clientId: 'client-table', brokers: [bootstrap], logLevel: logLevel.ERROR })
  const admin = kafka.admin()
  await admin.connect()
  return {
    async create (topic) {
      await admin.createTopics({ topics: [{ topic, numPartitions: 3 }], waitForLeaders: true })
      const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
      if (topics[0].partitions.length !== 3) throw new Error(`the topic has ${topics[0].partitions.length} partitions`)
    },
    async produce (topic, codec) {
      const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner })
      await producer.connect()
      for (let from = 0; from < COUNT; from += 1000) {
        const messages = Array.from({ length: 1000 }, (_, n) => ({ key: keyOf(from + n), value: valueOf(from + n) }))
        await producer.send({ topic, messages, acks: -1, compression: CODECS[codec] })
      }
      await producer.disconnect()
    },
    async readAll (topic, seen) {
      const member = await join(kafka, `${topic}-reader`, topic, seen)
      try {
        await waitFor('all records', () => seen.length >= COUNT)
      } finally {
        await member.leave()
      }
    },
    join: (group, topic, seen) => join(kafka, group, topic, seen),
    async lag (groupId, topic) {
      // Its reset to the beginning commits -2, the number that asks for the first offset.
      const committed = (await admin.fetchOffsets({ groupId, topics: [topic] }))[0].partitions
      const ends = await admin.fetchTopicOffsets(topic)
      const sum = (all, field) => all.reduce((total, one) => total + Math.max(0, Number(one[field])), 0)
      return sum(ends, 'high') - sum(committed, 'offset')
    },
    reset: (groupId, topic) => admin.resetOffsets({ groupId, topic, earliest: true }),
    close: () => admin.disconnect(),
  }
})
