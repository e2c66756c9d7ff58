// Writes a mail for each sign-up, with kafkajs.

export class Mails {
  constructor(kafka, options = {}) {
    this.producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
    this.consumer = kafka.consumer({ groupId: "mails", ...options });
  }

  async start() {
    await this.producer.connect();
    await this.consumer.connect();
    await this.consumer.subscribe({ topic: "signups", fromBeginning: true });
    await this.consumer.run({
      autoCommitThreshold: 1,
      eachMessage: async ({ message }) => {
        const { name, address } = JSON.parse(message.value);
        const value = JSON.stringify({ to: address, text: `Welcome, ${name}!` });
        await this.producer.send({ topic: "mails", messages: [{ key: address, value }] });
      },
    });
  }

  async stop() {
    await this.consumer.disconnect();
    await this.producer.disconnect();
  }
}
