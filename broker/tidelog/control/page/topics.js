// Topics with their partitions. A folded topic draws nothing; an open one draws so many partitions.

import { partitionView } from "./bars.js";
import { $, Keyed, count, h, say } from "./dom.js";
import { act } from "./door.js";

const TOPICS_STEP = 30;
const PARTITIONS_STEP = 24;
const OPEN_MAX = 6; // partitions of a topic that is open at first

function topicView(name, partitionsOf) {
  const title = h("span", { class: "topic-name" }, name);
  const facts = h("span", { class: "quiet" });
  const summary = h("summary", {}, title, facts);
  const list = h("div");
  const more = h("button", { type: "button", hidden: true });
  const act_ = (label, call, done) => {
    const button = h("button", { type: "button", "aria-label": `${label} ${name}` }, label);
    button.addEventListener("click", () => act(call, { topic: name }, `${done} ${name}`, button));
    return button;
  };
  const copy = act_("Copy", "tier.copy", "Copied all sealed segments of");
  const buttons = h("div", { class: "controls" }, act_("Roll", "topics.roll", "Rolled"), copy, act_("Retain", "topics.retain", "Ran retention on"));
  const details = h("details", { class: "topic", "data-topic": name }, summary, list, more);
  const node = h("div", { class: "topic-row" }, details, buttons);
  const partitions = new Keyed(list, () => partitionView());
  let limit = PARTITIONS_STEP;
  let isNew = true;
  const draw = () => {
    const all = details.open ? partitionsOf(name) : [];
    partitions.show(all.slice(0, limit).map((one) => [one.partition, one]));
    more.hidden = all.length <= limit;
    say(more, `Show more of ${count(all.length)} partitions`);
  };
  more.addEventListener("click", () => {
    limit += PARTITIONS_STEP;
    draw();
  });
  details.addEventListener("toggle", draw);
  return {
    node,
    update(topic) {
      if (isNew) details.open = topic.partitions <= OPEN_MAX;
      isNew = false;
      const isTiered = topic.config["remote.storage.enable"] === "true";
      copy.hidden = !isTiered;
      const settings = Object.entries(topic.config).map(([key, value]) => `${key}=${value}`).join(" ");
      const partitionsText = topic.partitions === 1 ? "1 partition" : `${count(topic.partitions)} partitions`;
      say(facts, `${partitionsText}${settings ? ` · ${settings}` : ""}`);
      draw();
    },
  };
}

/** The section of topics; `show(state)` draws it. */
export function topicsView() {
  let partitions = new Map();
  let state = new Map();
  let limit = TOPICS_STEP;
  const topics = new Keyed($("topics"), (name) => topicView(name, (topic) => partitions.get(topic) ?? []));
  const show = () => {
    const wanted = $("filter").value.trim();
    partitions = new Map();
    const found = [];
    for (const [key, value] of state) {
      if (key.startsWith("topic/") && value.name.includes(wanted)) found.push([value.name, value]);
      else if (key.startsWith("partition/")) {
        if (!partitions.has(value.topic)) partitions.set(value.topic, []);
        partitions.get(value.topic).push(value);
      }
    }
    found.sort(([a], [b]) => (a < b ? -1 : 1));
    for (const each of partitions.values()) each.sort((a, b) => a.partition - b.partition);
    topics.show(found.slice(0, limit));
    $("topics-none").hidden = found.length > 0;
    say($("topics-none"), wanted ? `No topic has “${wanted}” in its name.` : "No topics.");
    $("more-topics").hidden = found.length <= limit;
    say($("more-topics"), `Show more of ${count(found.length)} topics`);
  };
  $("filter").addEventListener("input", show);
  $("topic-form").addEventListener("submit", (event) => event.preventDefault());
  $("more-topics").addEventListener("click", () => {
    limit += TOPICS_STEP;
    show();
  });
  return (newState) => {
    state = newState;
    show();
  };
}
