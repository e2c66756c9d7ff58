// Scenarios of KIP-101 and KIP-405 step by step, the older rule beside today's.

import { $, h, say } from "./dom.js";
import { get, tell } from "./door.js";

const NAMES = { out_of_sync: "out of sync" };
const MARKS = { lost: "lost", diverged: "differs" };

let played = null;
let at = 0;
let offsets = { from: 0, count: 0 };

const sides = (step) => [step.old, step.new].filter(Boolean);

/** The offsets that any log of a play ever has: one column each, the same in all steps. */
function columns(steps) {
  const all = steps.flatMap(sides).flatMap((side) =>
    [...side.brokers, ...(side.remote ?? [])].flatMap((one) => (one.records ?? []).map((row) => row.offset)));
  const from = Math.min(...all, 0);
  return { from, count: Math.max(...all, 0) - from + 1 };
}

function cell(record, { highWatermark, isLost = false }) {
  const mark = isLost ? "lost" : record.mark;
  const isCommitted = highWatermark !== undefined && record.offset < highWatermark;
  const node = h("span", { class: `record ${record.epoch % 2 ? "odd" : "even"} ${mark ?? ""} ${isCommitted ? "committed" : ""}` },
    h("small", {}, `${record.offset}`), h("b", {}, record.value), h("small", {}, mark ? MARKS[mark] : `epoch ${record.epoch}`));
  node.style.gridColumn = String(record.offset - offsets.from + 2);
  if (record.offset + 1 === highWatermark) node.classList.add("last-committed");
  return node;
}

function row(name, facts, records, options) {
  const cells = records.map((record) => cell(record, options));
  const line = h("div", { class: "log-row", role: "group", "aria-label": `${name}: ${records.map((one) => `${one.offset} ${one.value}`).join(", ") || "no records"}` },
    h("div", { class: "log-name" }, h("b", {}, name), h("small", {}, facts)), ...cells);
  line.style.gridTemplateColumns = `10.5rem repeat(${offsets.count}, minmax(2.9rem, 4.6rem))`;
  return line;
}

function brokerRow(broker, lost) {
  const role = NAMES[broker.role] ?? broker.role;
  const facts = broker.high_watermark === undefined ? role : `${role} · high watermark ${broker.high_watermark}`;
  const line = row(`Broker ${broker.name}`, facts, broker.records ?? [], { highWatermark: broker.high_watermark });
  line.classList.toggle("stopped", broker.role === "stopped");
  const taken = new Set((broker.records ?? []).map((one) => one.offset));
  if (broker.role === "leader") {
    line.append(...lost.filter((one) => !taken.has(one.offset)).map((one) => cell(one, { isLost: true })));
  }
  return line;
}

const listed = (records) => records.map((one) => `${one.value} at offset ${one.offset}`).join(", ");

function verdict(side) {
  const found = [];
  if (side.lost.length) found.push(`Lost although acknowledged: ${listed(side.lost)}`);
  if (side.misread.length) found.push(`Read although not in the leader's log: ${listed(side.misread)}`);
  const differs = side.brokers.flatMap((broker) => (broker.records ?? []).filter((one) => one.mark === "diverged").map((one) => ({ ...one, broker: broker.name })));
  if (differs.length) found.push(`Not as in the leader's log: ${differs.map((one) => `${one.value} at offset ${one.offset} of ${one.broker}`).join(", ")}`);
  return found;
}

function sideView(kind, rule, side) {
  const bad = verdict(side);
  const changes = side.changes.map(([place, what]) => h("li", {}, h("b", {}, place === "isr" ? "In sync" : place), ` ${what}`));
  return h("article", { class: "side card", "data-side": kind },
    h("h3", {}, kind === "old" ? "Old rule: " : "Today: ", rule.title),
    h("dl", { class: "said-in-play" }, ...side.said.flatMap(([word, text]) => [h("dt", {}, word), h("dd", {}, text)])),
    h("div", { class: "logs", tabindex: "0", role: "region", "aria-label": `Logs under ${rule.title}` },
      ...side.brokers.map((broker) => brokerRow(broker, side.lost)),
      ...(side.remote ?? []).map((one) => row("Remote tier", `${one.id} · ${String(one.state ?? "not in the metadata").replaceAll("_", " ").toLowerCase()}`, one.records ?? [], {}))),
    bad.length ? h("ul", { class: "verdict bad" }, ...bad.map((text) => h("li", {}, text)))
      : h("p", { class: "verdict good" }, "Nothing is lost, all agree with the leader."),
    h("details", { open: true }, h("summary", {}, "What this step changed"),
      changes.length ? h("ul", { class: "changes" }, ...changes) : h("p", { class: "quiet" }, "nothing")));
}

function draw() {
  const steps = played.steps;
  const step = steps[at];
  offsets = columns(steps);
  say($("step-number"), `Step ${at} of ${steps.length - 1}`);
  say($("step-title"), step.title);
  say($("step-note"), step.note);
  $("step-back").disabled = at === 0;
  $("step-next").disabled = at === steps.length - 1;
  $("sides").replaceChildren(...[["old", step.old], ["new", step.new]].filter(([, side]) => side)
    .map(([kind, side]) => sideView(kind, played.rules[kind], side)));
  [...$("steps").children].forEach((item, index) => item.firstChild.setAttribute("aria-current", index === at ? "step" : "false"));
}

function go(to) {
  if (!played || to < 0 || to >= played.steps.length) return;
  at = to;
  draw();
}

function show(play) {
  played = play;
  const rules = [play.rules.old, play.rules.new].filter(Boolean);
  say($("play-title"), play.title);
  $("play-rules").replaceChildren(...rules.map((rule) => h("p", {}, h("b", {}, `${rule.title}: `), rule.text)),
    ...(play.no_old_rule ? [h("p", {}, play.no_old_rule)] : []),
    h("p", { class: "quiet" }, play.sources.join("; ")));
  $("steps").replaceChildren(...play.steps.map((step, index) => {
    const isWorse = step.old !== null && verdict(step.old).some((text) => !verdict(step.new).includes(text));
    return h("li", {}, h("button", { type: "button", click: () => go(index) }, step.title, isWorse ? h("span", { class: "bad" }, " ✕ worse under the old rule") : ""));
  }));
  $("play").hidden = false;
  go(0);
}

async function fill() {
  const select = $("scenario");
  if (select.options.length) return;
  try {
    const all = await get("/v1/scenarios");
    select.replaceChildren(...all.map((one) => h("option", { value: one.name }, `${one.name}: ${one.title}`)));
  } catch (error) {
    tell(error.message, { isError: true });
  }
}

/** The view of scenarios; the function it returns fills the list when it is opened. */
export function scenariosView() {
  $("scenario-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const name = $("scenario").value;
    if (!name) return fill();
    const button = $("play-button");
    button.disabled = true;
    say($("play-state"), `Playing ${name} on clusters of its own …`);
    try {
      show(await get(`/v1/scenarios/${encodeURIComponent(name)}`));
      say($("play-state"), "");
    } catch (error) {
      say($("play-state"), error.message);
    } finally {
      button.disabled = false;
    }
  });
  $("step-back").addEventListener("click", () => go(at - 1));
  $("step-next").addEventListener("click", () => go(at + 1));
  $("play").addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") go(at - 1);
    if (event.key === "ArrowRight") go(at + 1);
  });
  return fill;
}
