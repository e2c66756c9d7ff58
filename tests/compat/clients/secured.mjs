// kafkajs with the configuration that client_config("kafkajs") has: writes a record and reads it.
// Standard input is {"config": ..., "topic": ...}; the last line of the output is the value or the error.
import { Kafka, logLevel } from "kafkajs";
import { readFileSync } from "node:fs";

const { config, topic } = JSON.parse(readFileSync(0));
if (config.sasl?.token) {
  const { token } = config.sasl;
  config.sasl = { mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value: token }) };
}
const kafka = new Kafka({ ...config, logLevel: logLevel.NOTHING, retry: { retries: 0 } });

async function written() {
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic, acks: -1, messages: [{ value: "kafkajs" }] });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: `kafkajs-${topic}`, retry: { retries: 5 } });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const value = await new Promise((resolve, reject) =>
    consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) }).catch(reject),
  );
  await consumer.disconnect();
  return value;
}

try {
  console.log(await written());
} catch (error) {
  const cause = error.originalError ?? error.cause;
  console.log(`error: ${error.message} ${cause ? cause.message : ""}`);
  process.exit(0); // a producer that was refused a topic is still connected
}
