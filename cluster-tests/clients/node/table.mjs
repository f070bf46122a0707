// What the Node programs of the client table share: the records, the checks, the order of the capabilities and the lines
// that are printed.

import { parseArgs } from 'node:util'
import { setTimeout as sleep } from 'node:timers/promises'

export const COUNT = 10_000
export const HALF = COUNT / 2
export const GROUP_PARTITIONS = 4
const PATIENCE_MS = 60_000

/** The client has no such thing: the cell says n/a. */
export class Lacking extends Error {}

export const keyOf = n => `user-${n % 100}`
export const valueOf = n => `${n}:${`clicked on advert ${n % 7}; `.repeat(3)}`

/** The records that consumers of one topic processed, in the order in which they did. */
export class Seen {
  #places = new Map()
  #numbers = []
  #homes = new Map()
  #last = new Map()
  #failure = null
  halfOnly = false

  /** Takes a record and says whether it counts as processed: the members of a group stop in the middle of each partition. */
  add (partition, offset, key, value) {
    if (this.halfOnly && offset >= HALF / GROUP_PARTITIONS) return false
    const number = Number(value.split(':', 1)[0])
    const known = this.#places.get(partition) ?? new Set()
    this.#places.set(partition, known)
    const home = this.#homes.get(key) ?? partition
    if (key !== keyOf(number) || value !== valueOf(number)) {
      this.#fail(`record ${partition}:${offset} is not what was sent`)
    } else if (known.has(offset)) {
      this.#fail(`record ${partition}:${offset} was processed twice`)
    } else if (home !== partition) {
      this.#fail(`key ${key} is in two partitions`)
    } else if (number <= (this.#last.get(key) ?? -1)) {
      this.#fail(`key ${key}: record ${number} came after ${this.#last.get(key)}`)
    }
    known.add(offset)
    this.#homes.set(key, partition)
    this.#last.set(key, number)
    this.#numbers.push(number)
    return true
  }

  #fail (why) {
    this.#failure ??= new Error(why)
  }

  get length () {
    return this.#numbers.length
  }

  /** Per partition, one past the last offset that was processed. */
  positions () {
    return new Map([...this.#places].map(([partition, offsets]) => [partition, Math.max(...offsets) + 1]))
  }

  check () {
    if (this.#failure) throw this.#failure
  }

  checkComplete () {
    this.check()
    const different = new Set(this.#numbers).size
    if (different !== COUNT || this.length !== COUNT) {
      throw new Error(`${this.length} records, ${different} different ones, of ${COUNT}`)
    }
  }
}

export async function waitFor (what, condition) {
  const end = Date.now() + PATIENCE_MS
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(`waited ${PATIENCE_MS} ms for ${what}`)
    await sleep(20)
  }
}

/**
 * Runs all capabilities of a client: create(topic), produce(topic, codec), readAll(topic, seen), join(group, topic, seen) →
 * member { partitions, got, stop(), commit(), leave() }, lag(group, topic), reset(group, topic), close().
 */
export async function run (connect) {
  const { values } = parseArgs({ options: { bootstrap: { type: 'string' }, prefix: { type: 'string' } } })
  const { bootstrap, prefix } = values
  const client = await connect(bootstrap)
  const [group, topic] = [`${prefix}-g`, `${prefix}-group`]
  const passed = new Set()

  async function row (capability, needs, step) {
    let result = 'pass'
    let detail = ''
    try {
      if (needs && !passed.has(needs)) throw new Error(`builds on ${needs}, which did not pass`)
      detail = (await step()) ?? ''
      passed.add(capability)
    } catch (error) {
      result = error instanceof Lacking ? 'n/a' : 'fail'
      detail = error.message
      if (result === 'fail') console.error(error)
    }
    console.log(JSON.stringify({ capability, result, detail }))
  }

  await row('create', null, () => client.create(`${prefix}-create`))
  for (const codec of ['none', 'gzip', 'snappy', 'lz4', 'zstd']) {
    await row(codec, null, async () => {
      const seen = new Seen()
      await client.produce(`${prefix}-${codec}`, codec)
      await client.readAll(`${prefix}-${codec}`, seen)
      seen.checkComplete()
    })
  }
  const seen = new Seen()
  await row('group', null, () => share(client, group, topic, seen))
  await row('lag', 'group', () => checkLag(client, group, topic, COUNT - seen.length))
  await row('resume', 'group', async () => {
    const before = seen.length
    await readRest(client, group, topic, seen)
    return `${seen.length - before} more records after the restart`
  })
  await row('replay', 'group', () => readRest(client, `${prefix}-g2`, topic, new Seen()))
  await row('reset', 'group', async () => {
    await client.reset(group, topic)
    await checkLag(client, group, topic, COUNT)
    await readRest(client, group, topic, new Seen())
  })
  await client.close()
  process.exit(0)
}

async function share (client, group, topic, seen) {
  seen.halfOnly = true
  const members = await Promise.all([client.join(group, topic, seen), client.join(group, topic, seen)])
  try {
    await waitFor('two partitions for each member', () => members.every(m => m.partitions === GROUP_PARTITIONS / 2))
    await client.produce(topic, 'none')
    await waitFor('half of the records', () => seen.length >= HALF && members.every(m => m.got > 0))
    await Promise.all(members.map(m => m.stop()))
    await Promise.all(members.map(m => m.commit()))
  } finally {
    await Promise.all(members.map(m => m.leave()))
  }
  seen.halfOnly = false
  seen.check()
  return `[${members.map(m => m.got).join(', ')}] records by two members`
}

async function readRest (client, group, topic, seen) {
  const member = await client.join(group, topic, seen)
  try {
    await waitFor('the rest', () => seen.length >= COUNT)
    await member.stop()
    await member.commit()
  } finally {
    await member.leave()
  }
  seen.checkComplete()
}

async function checkLag (client, group, topic, expected) {
  const lag = await client.lag(group, topic)
  if (lag !== expected) throw new Error(`lag is ${lag} and should be ${expected}`)
}
