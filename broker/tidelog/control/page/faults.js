// Faults of requests, links and devices, with their switches.

import { $, Keyed, count, h, say, valuesOf } from "./dom.js";
import { act, ask, tell } from "./door.js";

const set = (values) => Object.entries(values).filter(([, value]) => value !== null && value !== false);

export function faultWords(rule) {
  const { kind, ...rest } = rule.effect;
  const effect = [kind.replaceAll("_", " "), ...set(rest).map(([name, value]) =>
    (name === "error" ? value : value === true ? name.replaceAll("_", " ") : `${value} ${name}`))].join(" ");
  const match = set(rule.match).map(([name, value]) => (name === "api" ? value : `${name.replaceAll("_", " ")} ${value}`));
  return [effect, match.length ? `on ${match.join(", ")}` : "on any request", ...triggerWords(rule.trigger)].join(" · ");
}

function triggerWords(trigger) {
  return set(trigger).filter(([name]) => name !== "seed" || trigger.probability !== null)
    .map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`);
}

function faultView(key) {
  const id = Number(key.slice("fault/".length));
  const words = h("span", { class: "fault-words" });
  const hits = h("span", { class: "quiet hits" });
  const toggle = h("button", { type: "button", role: "switch", class: "switch" }, h("span", { class: "knob" }), h("span", { class: "switch-text" }));
  toggle.addEventListener("click", () => {
    const isOn = toggle.getAttribute("aria-checked") === "true";
    act(isOn ? "faults.disable" : "faults.enable", { id }, `Fault ${id} is ${isOn ? "off" : "on"}`, toggle);
  });
  const remove = h("button", { type: "button", "aria-label": `Remove fault ${id}` }, "Remove");
  remove.addEventListener("click", () => act("faults.remove", { id }, `Removed fault ${id}`, remove));
  return {
    node: h("div", { class: "fault", "data-fault": id }, toggle, words, hits, remove),
    update(rule) {
      say(words, faultWords(rule));
      say(hits, `${count(rule.hits)} of ${count(rule.calls)} requests`);
      toggle.setAttribute("aria-checked", String(rule.is_enabled));
      toggle.setAttribute("aria-label", `Fault ${id}: ${faultWords(rule)}`);
      say(toggle.lastChild, rule.is_enabled ? "on" : "off");
    },
  };
}

// -- links and devices: each is healed as a whole ---------------------------------------------------

function linkWords({ broker, other, holds, seconds }) {
  const how = {
    nothing: `slow, ${seconds} seconds`,
    both: "cut both ways",
    sent: `cut, what broker ${broker} sends waits`,
    received: `cut, what broker ${broker} receives waits`,
  }[holds];
  return `broker ${broker} and ${other === "clients" ? other : `broker ${other}`}: ${how}`;
}

function deviceWords({ broker, device, kind, operations, seconds, bytes_per_second, topic, trigger }) {
  const how = { full: "full", fails: `fails, ${operations}`, slow: `slow, ${operations}, ${seconds} seconds`, throttled: `throttled, ${bytes_per_second} bytes a second` }[kind];
  return [`${device} of broker ${broker}: ${how}`, ...(topic ? [`topic ${topic}`] : []), ...triggerWords(trigger)].join(" · ");
}

function healedView(key) {
  const [what, first, second] = key.split("/");
  const other = second === "clients" ? second : Number(second);
  const [name, call, args, words] = what === "link"
    ? [`link ${first} to ${second}`, "network.heal", { broker: Number(first), other }, linkWords]
    : [`${second} of broker ${first}`, "devices.heal", { broker: Number(first), device: second }, deviceWords];
  const list = h("ul", { class: "fault-words" });
  const hits = h("span", { class: "quiet hits" });
  const heal = h("button", { type: "button", "aria-label": `Heal ${name}` }, "Heal");
  heal.addEventListener("click", () => act(call, args, `Healed ${name}`, heal));
  return {
    node: h("div", { class: "fault", "data-healed": `${what}/${first}/${second}` }, list, hits, heal),
    update(found) {
      list.replaceChildren(...found.map((one) => h("li", {}, words(one))));
      say(hits, `${count(found.reduce((sum, one) => sum + one.hits, 0))} hits`);
    },
  };
}

// -- the sections ---------------------------------------------------------------------------------

export function faultsView() {
  const faults = new Keyed($("faults"), faultView);
  const healed = new Keyed($("healed"), healedView);
  const kind = $("fault-kind");
  const follow = () => {
    $("fault-error").hidden = kind.value !== "error";
    $("fault-seconds").hidden = !["delay", "delay_answer", "throttle"].includes(kind.value);
  };
  kind.addEventListener("change", follow);
  follow();
  $("fault-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const effect = { kind: kind.value };
    if (kind.value === "drop_after_work") Object.assign(effect, { kind: "drop_connection", after_work: true });
    if (!$("fault-error").hidden) effect.error = $("fault-error").value.trim() || "NOT_LEADER_OR_FOLLOWER";
    if (!$("fault-seconds").hidden) effect.seconds = Number($("fault-seconds").value || 1);
    const match = {};
    for (const name of ["api", "topic"]) {
      const value = $(`fault-${name}`).value.trim();
      if (value) match[name] = value;
    }
    const times = Number($("fault-times").value);
    try {
      const rule = await ask("faults.add", { effect, match, trigger: times ? { times } : {} });
      tell(`Added fault ${rule.id}`);
    } catch (error) {
      tell(error.message, { isError: true });
    }
  });
  return (state) => {
    faults.show(valuesOf(state, "fault/"));
    const others = [...valuesOf(state, "link/"), ...valuesOf(state, "device/")];
    healed.show(others);
    $("healed-none").hidden = others.length > 0;
  };
}
