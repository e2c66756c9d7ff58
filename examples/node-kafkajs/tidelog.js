// A Kafka broker for tests: starts `tidelog serve` and controls it over HTTP.
// Copy this file. The calls and their arguments are in `/openapi.json` of the broker's control door.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

const READY = /^tidelog ready bootstrap\.servers=(\S+) control=(\S+)$/;

export class Tidelog {
  // Further arguments are those of `tidelog serve`: "--brokers", "3".
  static async start(...args) {
    const fixed = ["serve", "--port", "0", "--control", "127.0.0.1:0", "--until-stdin-ends"];
    const process = spawn("tidelog", [...fixed, ...args], { stdio: ["pipe", "pipe", "inherit"] });
    const failed = once(process, "error").then(([error]) => {
      throw new Error("pip install 'tidelog[control]' comes first", { cause: error });
    });
    const lines = createInterface({ input: process.stdout })[Symbol.asyncIterator]();
    const { value } = await Promise.race([lines.next(), failed]);
    const ready = READY.exec(value);
    if (ready === null) throw new Error(`tidelog did not start: ${value}`);
    return new Tidelog(process, ready[1], ready[2]);
  }

  constructor(process, bootstrapServers, control) {
    Object.assign(this, { process, bootstrapServers, control });
  }

  async call(name, args = {}) {
    const request = { method: "POST", body: JSON.stringify(args) };
    const response = await fetch(`${this.control}/v1/${name}`, request);
    const answer = await response.json();
    if (!response.ok) throw new Error(`${name}: ${answer.field ?? ""} ${answer.detail}`);
    return answer;
  }

  // Requests of an API go wrong; see docs/testing.md of tidelog for matches, effects and triggers.
  fault(match, effect, trigger = {}) {
    return this.call("faults/add", { match, effect, trigger });
  }

  // Poll the state until a condition holds.
  async waitFor(isSo, seconds = 30) {
    for (const end = Date.now() + 1000 * seconds; Date.now() < end; ) {
      const state = await this.call("cluster/state");
      if (isSo(state)) return state;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    throw new Error(`not within ${seconds} s: ${isSo}`);
  }

  async stop() {
    this.process.stdin.end();
    if (this.process.exitCode === null) await once(this.process, "exit");
  }
}
