// Writes three records with kafkajs and prints what a group reads: node written_and_read.mjs HOST:PORT,...
import { Kafka, logLevel } from "kafkajs";

const kafka = new Kafka({ brokers: process.argv[2].split(","), logLevel: logLevel.ERROR });
const admin = kafka.admin();
await admin.connect();
await admin.createTopics({ topics: [{ topic: "orders", numPartitions: 1, replicationFactor: 3 }] });
await admin.disconnect();

const producer = kafka.producer();
await producer.connect();
for (const value of ["a", "b", "c"]) {
  await producer.send({ topic: "orders", acks: -1, messages: [{ value }] });
}
await producer.disconnect();

const consumer = kafka.consumer({ groupId: "g" });
await consumer.connect();
await consumer.subscribe({ topic: "orders", fromBeginning: true });
let count = 0;
await new Promise((resolve) =>
  consumer.run({
    eachMessage: async ({ message }) => {
      console.log(message.value.toString());
      count += 1;
      if (count === 3) resolve();
    },
  }),
);
await consumer.disconnect();
