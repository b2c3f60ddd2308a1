// Goes through what programs do with kafkajs and prints one line of JSON for each scenario.
// node scenarios.js BOOTSTRAP
const assert = require('node:assert/strict')
const { Kafka, CompressionTypes, ConfigResourceTypes, PartitionAssigners, logLevel } = require('kafkajs')
const { installCodecs } = require('./codecs')

const BOOTSTRAP = process.argv[2]
const TIMEOUT_MS = 30000

const kafka = new Kafka({ clientId: 'kafkajs-scenarios', brokers: [BOOTSTRAP], logLevel: logLevel.NOTHING })
let opened = []

async function open(client) {
  await client.connect()
  opened.push(client)
  return client
}

const producer = (options = {}) => open(kafka.producer({ allowAutoTopicCreation: true, ...options }))
const admin = () => open(kafka.admin({ retry: { retries: 1 } }))
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

async function until(what, done) {
  for (const deadline = Date.now() + TIMEOUT_MS; ; await pause(20)) {
    if (await done()) return
    assert.ok(Date.now() < deadline, `${what} did not come in time`)
  }
}

async function createTopic(topic, numPartitions = 1) {
  await (await admin()).createTopics({ waitForLeaders: true, topics: [{ topic, numPartitions, replicationFactor: 1 }] })
}

const numbered = (count) => Array.from({ length: count }, (_, number) => ({ value: `v${number}` }))

/** A member of a group that gathers what it reads; `options` are those of the consumer and of run(). */
async function member(groupId, topics, options = {}) {
  const { run = {}, ...settings } = options
  const consumer = await open(
    kafka.consumer({ groupId, heartbeatInterval: 300, rebalanceTimeout: 3000, maxWaitTimeInMs: 100, ...settings })
  )
  const state = { consumer, records: [], assignment: {} }
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => (state.assignment = payload.memberAssignment))
  await consumer.subscribe({ topics, fromBeginning: true })
  await consumer.run({
    eachMessage: async ({ topic, partition, message }) => state.records.push({ topic, partition, ...message }),
    ...run,
  })
  state.has = (count) => until(`${count} records`, () => state.records.length >= count)
  state.values = () => state.records.map((record) => String(record.value))
  return state
}

const scenarios = {
  async produce_every_compression() {
    await createTopic('js-compression')
    const sender = await producer()
    const sent = []
    for (const [name, compression] of Object.entries(CompressionTypes)) {
      const messages = Array.from({ length: 100 }, (_, number) => ({ key: 'k', value: `${name} ${number} ${'x'.repeat(50)}` }))
      sent.push(...messages.map((message) => message.value))
      await sender.send({ topic: 'js-compression', compression, messages })
    }
    const reader = await member('js-compression', ['js-compression'])
    await reader.has(500)
    assert.deepEqual(reader.values(), sent)
  },

  async headers_keys_nulls_and_timestamps() {
    await createTopic('js-headers')
    const messages = [
      { value: 'no key', timestamp: '1600000000123', headers: { trace: ['a', 'b'], empty: '' } },
      { key: 'tombstone', value: null },
    ]
    const [answer] = await (await producer()).send({ topic: 'js-headers', messages })
    assert.equal(answer.baseOffset, '0')
    const reader = await member('js-headers', ['js-headers'])
    await reader.has(2)
    const [first, second] = reader.records
    assert.deepEqual(first.headers.trace.map(String), ['a', 'b'])
    assert.equal(first.headers.empty.length, 0)
    assert.deepEqual([first.key, first.timestamp, second.value], [null, '1600000000123', null])
  },

  async idempotent_producer_and_batches() {
    await createTopic('js-idempotent-a')
    await createTopic('js-idempotent-b')
    const sender = await producer({ idempotent: true, maxInFlightRequests: 1 })
    for (let round = 0; round < 20; round++) {
      const topicMessages = ['a', 'b'].map((name) => ({ topic: `js-idempotent-${name}`, messages: numbered(50) }))
      await sender.sendBatch({ topicMessages, acks: -1 })
    }
    const offsets = await (await admin()).fetchTopicOffsets('js-idempotent-a')
    assert.deepEqual(offsets, [{ partition: 0, offset: '1000', high: '1000', low: '0' }])
  },

  async acks_none_and_leader() {
    await createTopic('js-acks')
    const sender = await producer()
    for (const acks of [0, 1]) await sender.send({ topic: 'js-acks', acks, messages: [{ value: `${acks}` }] })
    const reader = await member('js-acks', ['js-acks'])
    await reader.has(2)
    assert.deepEqual(reader.values(), ['0', '1'])
  },

  async too_large_records_are_refused() {
    await createTopic('js-too-large')
    const sender = await producer({ retry: { retries: 0 } })
    const messages = [{ value: Buffer.alloc(2000000) }]
    await assert.rejects(sender.send({ topic: 'js-too-large', messages }), (error) =>
      /larger than the max/.test(error.message + error.cause?.message)
    )
  },

  async groups_of_two_share_partitions() {
    await createTopic('js-group', 4)
    const options = { partitionAssigners: [PartitionAssigners.roundRobin] }
    const first = await member('js-group', ['js-group'], options)
    await until('all partitions', () => first.assignment['js-group']?.length === 4)
    const second = await member('js-group', ['js-group'], options)
    await until('half of them', () => first.assignment['js-group']?.length === 2 && second.assignment['js-group']?.length === 2)
    assert.deepEqual([...first.assignment['js-group'], ...second.assignment['js-group']].sort(), [0, 1, 2, 3])
    const { groups } = await (await admin()).describeGroups(['js-group'])
    assert.deepEqual([groups[0].state, groups[0].protocol, groups[0].members.length], ['Stable', 'RoundRobinAssigner', 2])
    await second.consumer.disconnect()
    await until('all partitions again', () => first.assignment['js-group']?.length === 4)
  },

  async commits_by_hand_and_goes_on() {
    await createTopic('js-commits')
    const sender = await producer()
    await sender.send({ topic: 'js-commits', messages: numbered(10) })
    const first = await member('js-commits', ['js-commits'], { run: { autoCommit: false } })
    await first.has(10)
    await first.consumer.commitOffsets([{ topic: 'js-commits', partition: 0, offset: '4', metadata: 'note' }])
    const committed = await (await admin()).fetchOffsets({ groupId: 'js-commits', topics: ['js-commits'] })
    assert.deepEqual(committed[0].partitions, [{ partition: 0, offset: '4', metadata: 'note' }])
    await first.consumer.disconnect()
    const second = await member('js-commits', ['js-commits'])
    await second.has(6)
    assert.equal(second.values()[0], 'v4')
  },

  async commits_by_itself() {
    await createTopic('js-auto')
    await (await producer()).send({ topic: 'js-auto', messages: numbered(10) })
    const reader = await member('js-auto', ['js-auto'], { run: { autoCommitInterval: 50 } })
    await reader.has(10)
    const client = await admin()
    await until('a commit', async () => {
      await (await producer()).send({ topic: 'js-auto', messages: numbered(1) })
      const [{ partitions }] = await client.fetchOffsets({ groupId: 'js-auto', topics: ['js-auto'] })
      return Number(partitions[0].offset) >= 10
    })
  },

  async each_batch_seek_pause_and_resume() {
    await createTopic('js-seek', 2)
    const sender = await producer()
    for (const partition of [0, 1]) {
      await sender.send({ topic: 'js-seek', messages: numbered(5).map((message) => ({ ...message, partition })) })
    }
    const seen = []
    const eachBatch = async ({ batch, resolveOffset, heartbeat }) => {
      for (const message of batch.messages) {
        seen.push(`${batch.partition}:${message.offset}`)
        resolveOffset(message.offset)
      }
      await heartbeat()
    }
    const { consumer } = await member('js-seek', ['js-seek'], { run: { eachMessage: undefined, eachBatch } })
    await until('all records', () => seen.length === 10)
    consumer.pause([{ topic: 'js-seek', partitions: [1] }])
    assert.deepEqual(consumer.paused(), [{ topic: 'js-seek', partitions: [1] }])
    await sender.send({ topic: 'js-seek', messages: [{ partition: 1, value: 'while paused' }] })
    consumer.seek({ topic: 'js-seek', partition: 0, offset: '3' })
    await until('records after seek', () => seen.length === 12)
    assert.deepEqual(seen.slice(10), ['0:3', '0:4'])
    consumer.resume([{ topic: 'js-seek', partitions: [1] }])
    await until('the paused record', () => seen.includes('1:5'))
  },

  async regex_subscription() {
    await createTopic('js-regex-a')
    await createTopic('js-noregex')
    const sender = await producer()
    await sender.send({ topic: 'js-regex-a', messages: [{ value: 'yes' }] })
    await sender.send({ topic: 'js-noregex', messages: [{ value: 'no' }] })
    const reader = await member('js-regex', [/^js-regex-.*/])
    await reader.has(1)
    assert.deepEqual(Object.keys(reader.assignment), ['js-regex-a'])
  },

  async topics_created_by_mention() {
    await (await producer()).send({ topic: 'js-mentioned', messages: [{ value: 'v' }] })
    const reader = await member('js-mentioned', ['js-mentioned'])
    await reader.has(1)
  },

  async admin_topics_and_configs() {
    const client = await admin()
    const topics = [{ topic: 'js-admin', numPartitions: 2, configEntries: [{ name: 'retention.ms', value: '60000' }] }]
    assert.equal(await client.createTopics({ topics, validateOnly: true, waitForLeaders: false }), true)
    assert.equal(await client.createTopics({ topics }), true)
    assert.equal(await client.createTopics({ topics }), false)
    await client.createPartitions({ topicPartitions: [{ topic: 'js-admin', count: 3 }] })
    const { topics: described } = await client.fetchTopicMetadata({ topics: ['js-admin'] })
    assert.deepEqual(described[0].partitions.map(({ leader, replicas, isr }) => [leader, replicas, isr]), Array(3).fill([1, [1], [1]]))
    const resource = { type: ConfigResourceTypes.TOPIC, name: 'js-admin' }
    const value = async () => {
      const { resources } = await client.describeConfigs({ resources: [{ ...resource, configNames: ['retention.ms'] }] })
      return resources[0].configEntries[0].configValue
    }
    assert.equal(await value(), '60000')
    await client.alterConfigs({ resources: [{ ...resource, configEntries: [{ name: 'retention.ms', value: '70000' }] }] })
    assert.equal(await value(), '70000')
    await client.deleteTopics({ topics: ['js-admin'] })
    assert.ok(!(await client.listTopics()).includes('js-admin'))
    await assert.rejects(client.fetchTopicMetadata({ topics: ['js-admin-never-was'] }))
  },

  async admin_offsets_and_records() {
    await createTopic('js-offsets')
    const messages = [1000, 5000, 3000].map((moment) => ({ value: 'v', timestamp: `${moment}` }))
    await (await producer()).send({ topic: 'js-offsets', messages })
    const client = await admin()
    const at = await client.fetchTopicOffsetsByTimestamp('js-offsets', 2000)
    assert.deepEqual(at, [{ partition: 0, offset: '1' }])
    await client.deleteTopicRecords({ topic: 'js-offsets', partitions: [{ partition: 0, offset: '2' }] })
    assert.equal((await client.fetchTopicOffsets('js-offsets'))[0].low, '2')
    const partitions = [{ partition: 0, offset: '2' }]
    await client.setOffsets({ groupId: 'js-offsets', topic: 'js-offsets', partitions })
    const fetched = await client.fetchOffsets({ groupId: 'js-offsets', topics: ['js-offsets'] })
    assert.equal(fetched[0].partitions[0].offset, '2')
  },

  async admin_groups_and_cluster() {
    await createTopic('js-groups')
    const reader = await member('js-groups', ['js-groups'])
    await until('an assignment', () => reader.assignment['js-groups'])
    const client = await admin()
    const { groups } = await client.listGroups()
    assert.ok(groups.some((group) => group.groupId === 'js-groups' && group.protocolType === 'consumer'))
    await assert.rejects(client.deleteGroups(['js-groups']))
    await reader.consumer.disconnect()
    await until('an empty group', async () => (await client.describeGroups(['js-groups'])).groups[0].state === 'Empty')
    assert.deepEqual(await client.deleteGroups(['js-groups']), [{ groupId: 'js-groups', errorCode: 0 }])
    const cluster = await client.describeCluster()
    assert.deepEqual([cluster.clusterId.length, cluster.controller], [22, 1])
    assert.deepEqual(await client.listPartitionReassignments({}), { topics: [] })
  },
}

async function main() {
  await installCodecs()
  for (const [scenario, run] of Object.entries(scenarios)) {
    const start = Date.now()
    let error = null
    try {
      await run()
    } catch (failure) {
      error = String(failure.stack).split('\n').slice(0, 6).join(' | ')
    }
    await Promise.allSettled(opened.map((client) => client.disconnect()))
    opened = []
    console.log(JSON.stringify({ scenario, error, seconds: (Date.now() - start) / 1000 }))
  }
  process.exit(0)
}

main()
