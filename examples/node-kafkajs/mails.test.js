// Sign-ups become mails, also while requests fail and days pass.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { Kafka, logLevel } from "kafkajs";
import { Mails } from "./mails.js";
import { Tidelog } from "./tidelog.js";

const ADA = { key: "ada", value: JSON.stringify({ name: "Ada", address: "ada@example.org" }) };
const GRACE = { key: "grace", value: JSON.stringify({ name: "Grace", address: "grace@example.org" }) };
const TO_ADA = { to: "ada@example.org", text: "Welcome, Ada!" };
const TO_GRACE = { to: "grace@example.org", text: "Welcome, Grace!" };
const SHORT = { maxWaitTimeInMs: 100 }; // a consumer ends when its last fetch is answered

let broker, kafka, mails;

before(async () => {
  broker = await Tidelog.start();
  kafka = new Kafka({
    brokers: [broker.bootstrapServers],
    logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 20, maxRetryTime: 200, retries: 100 },
  });
});

after(() => broker.stop());

beforeEach(async () => {
  const config = { "retention.ms": 86_400_000, "message.timestamp.type": "LogAppendTime" };
  for (const name of ["signups", "mails"]) {
    await broker.call("topics/create", { name, config });
  }
  mails = new Mails(kafka, SHORT);
  await mails.start();
});

afterEach(async () => {
  await mails.stop();
  await broker.call("cluster/reset");
});

test("a mail for each sign-up", async () => {
  await signUp(ADA, GRACE);
  assert.deepEqual(await written(2), [TO_ADA, TO_GRACE]);
});

test("one mail when the broker writes it and the answer is lost", async () => {
  const match = { api: "Produce", topic: "mails" };
  const fault = await broker.fault(match, { kind: "drop_connection", after_work: true }, { times: 1 });
  await signUp(ADA);
  await broker.call("faults/wait", { id: fault.id });
  assert.deepEqual(await written(1), [TO_ADA]);
});

test("mails are kept for a day", async () => {
  await signUp(ADA);
  assert.deepEqual(await written(1), [TO_ADA]);
  await broker.call("clock/advance", { hours: 25 });
  await signUp(GRACE);
  assert.deepEqual(await written(2), [TO_GRACE]);
});

async function signUp(...messages) {
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic: "signups", messages });
  await producer.disconnect();
}

// Wait until so many sign-ups are done; return the mails that there are.
async function written(signups) {
  const committed = (group) => group.offsets.map((one) => one.offset);
  const state = await broker.waitFor(({ groups }) =>
    groups.some((group) => group.group_id === "mails" && committed(group).includes(signups)),
  );
  const [log] = state.topics.find(({ name }) => name === "mails").partitions[0].logs;
  const count = log.log_end_offset - log.log_start_offset;
  const reader = kafka.consumer({ groupId: `reader-${randomUUID()}`, ...SHORT });
  const found = [];
  await reader.connect();
  await reader.subscribe({ topic: "mails", fromBeginning: true });
  await new Promise((resolve) => {
    const eachMessage = async ({ message }) => {
      if (found.push(JSON.parse(message.value)) === count) resolve();
    };
    reader.run({ eachMessage });
  });
  await reader.disconnect();
  return found;
}
