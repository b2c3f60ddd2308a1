// Produces and consumes through kafkajs, which tells brokers apart by host:port.
// node round_trip.js BOOTSTRAP TOPIC PARTITIONS COUNT: prints one JSON object.
const { Kafka, logLevel } = require('kafkajs')

async function main() {
  const [bootstrap, topic, partitions, count] = process.argv.slice(2)
  const kafka = new Kafka({ clientId: 'kafkajs-test', brokers: bootstrap.split(','), logLevel: logLevel.ERROR })
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: Number(partitions), replicationFactor: 1 }] })
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  const sent = []
  for (let start = 0; start < Number(count); start += 100) {
    const messages = []
    for (let number = start; number < Math.min(start + 100, Number(count)); number++) {
      messages.push({ key: `key-${number}`, value: `value-${number}`, headers: { n: String(number) } })
      sent.push(`value-${number}`)
    }
    await producer.send({ topic, messages, acks: -1 })
  }
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: `group-${topic}` })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const got = []
  await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`only ${got.length} of ${count} records came`)), 30000)
    consumer.run({
      eachMessage: async ({ message }) => {
        got.push(message.value.toString())
        if (got.length >= Number(count)) {
          clearTimeout(timer)
          resolve()
        }
      },
    })
  })
  const offsets = await admin.fetchTopicOffsets(topic)
  const cluster = await admin.describeCluster()
  await consumer.disconnect()
  await admin.disconnect()
  console.log(
    JSON.stringify({
      equal: JSON.stringify(sent.sort()) === JSON.stringify(got.sort()),
      total: offsets.reduce((sum, partition) => sum + Number(partition.high), 0),
      brokers: cluster.brokers.map((broker) => `${broker.host}:${broker.port}`).sort(),
    })
  )
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
