// Brokers with their state and clock, and the buttons that kill, start and freeze them.

import { $, Keyed, count, h, moment, say, span } from "./dom.js";
import { act } from "./door.js";

const CONNECTIONS_MAX = 50;

function clockWords(clock) {
  if (!clock) return "";
  const ahead = Math.abs(clock.ahead_ms) < 1000 ? "" : ` · ${span(clock.ahead_ms)} ${clock.ahead_ms > 0 ? "ahead" : "behind"}`;
  const skew = clock.skew_ms ? ` · skew ${count(clock.skew_ms)} ms` : "";
  return `${ahead}${skew}`.replace(/^ · /, "");
}

function brokerView(key) {
  const id = Number(key.slice("broker/".length));
  const status = h("span", { class: "status" });
  const time = h("time");
  const moved = h("span", { class: "quiet" });
  const address = h("code");
  const parked = h("dd");
  const connections = h("ul", { class: "plain" });
  const connectionsTitle = h("summary");
  const failure = h("p", { class: "failure" });
  const buttons = {};
  for (const [name, label, done] of [
    ["start", "Start", "Started"],
    ["stop", "Stop", "Stopped"],
    ["kill", "Kill", "Killed"],
    ["freeze", "Freeze", "Froze"],
    ["thaw", "Thaw", "Thawed"],
  ]) {
    const button = h("button", { type: "button", "aria-label": `${label} broker ${id}`, class: name === "kill" ? "danger" : null }, label);
    button.addEventListener("click", () => act(`brokers.${name}`, { broker: id }, `${done} broker ${id}`, button));
    buttons[name] = button;
  }
  const more = h("div", {},
    h("p", { class: "clock" }, time, " ", moved),
    h("dl", { class: "facts" }, h("dt", {}, "Address"), h("dd", {}, address), h("dt", {}, "Parked"), parked),
    h("details", {}, connectionsTitle, connections));
  const node = h("article", { class: "card", "data-broker": id, "aria-label": `Broker ${id}` },
    h("h3", {}, `Broker ${id} `, status), more, failure, h("div", { class: "controls" }, ...Object.values(buttons)));
  return {
    node,
    update({ broker, clock, isController }) {
      const state = broker.is_frozen ? "frozen" : broker.is_running ? "running" : broker.failure ? "failed" : "stopped";
      node.dataset.state = state;
      say(status, `${state}${isController ? " · controller" : ""}`);
      more.hidden = !broker.is_running;
      if (clock) {
        say(time, `${moment(clock.wall_ms)} UTC`);
        time.dateTime = new Date(clock.wall_ms).toISOString();
      }
      say(moved, clockWords(clock));
      say(address, broker.address ?? "");
      const purgatories = Object.entries(broker.purgatories ?? {});
      say(parked, purgatories.map(([kind, number]) => `${kind} ${number}`).join(" · ") || "unknown");
      const all = broker.connections ?? [];
      say(connectionsTitle, all.length === 1 ? "1 connection" : `${count(all.length)} connections`);
      connections.replaceChildren(...all.slice(0, CONNECTIONS_MAX).map((one) =>
        h("li", {}, `${one.client_host}:${one.client_port} ${one.software} ${one.waiting.length ? `waits: ${one.waiting.join(", ")}` : ""}`)));
      say(failure, broker.failure ?? "");
      const focused = Object.values(buttons).find((each) => each === document.activeElement);
      buttons.start.hidden = broker.is_running;
      buttons.stop.hidden = buttons.kill.hidden = !broker.is_running;
      buttons.freeze.hidden = !broker.is_running || broker.is_frozen;
      buttons.thaw.hidden = !broker.is_frozen;
      if (focused?.hidden) Object.values(buttons).find((each) => !each.hidden).focus();
    },
  };
}

/** The section of brokers and their clock; the function it returns draws it. */
export function brokersView() {
  const brokers = new Keyed($("brokers"), brokerView);
  let speed = 1;
  $("clock-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const [amount, unit] = [Number($("amount").value), $("unit").value];
    act("clock.advance", { [unit]: amount }, `Advanced all brokers by ${amount} ${unit}`, $("advance"));
  });
  $("freeze-time").addEventListener("click", () => {
    const isFrozen = speed === 0;
    act(isFrozen ? "clock.resume" : "clock.freeze", {}, isFrozen ? "Time passes again" : "Time stands still", $("freeze-time"));
  });
  $("start-all").addEventListener("click", () => act("cluster.start_brokers", {}, "Started all brokers", $("start-all")));
  return (state) => {
    const cluster = state.get("cluster");
    speed = cluster?.speed ?? 1;
    say($("speed"), speed === 0 ? "Time stands still" : speed === 1 ? "" : `Time passes ${speed} times as fast`);
    say($("freeze-time"), speed === 0 ? "Resume time" : "Freeze time");
    say($("servers"), cluster?.bootstrap_servers || "none");
    const entries = [...state].filter(([key]) => key.startsWith("broker/"));
    $("start-all").hidden = entries.filter(([, broker]) => !broker.is_running).length < 2;
    entries.sort(([, a], [, b]) => a.node_id - b.node_id);
    brokers.show(entries.map(([key, broker]) => [key, {
      broker,
      clock: state.get(`clock/${broker.node_id}`),
      isController: cluster?.controller === broker.node_id,
    }]));
  };
}
