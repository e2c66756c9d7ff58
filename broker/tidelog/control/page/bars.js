// One partition: the log of each replica as a bar, one below the other, on one scale of offsets.

import { count, h, say } from "./dom.js";

const SEGMENTS_MAX = 80;
const LABEL_PERCENT_MIN = 9;

/** The parts of a log by where their records are: [kind, first offset, end offset]. */
export function parts(log, remoteEnd) {
  const local = Math.max(log.local_log_start_offset, log.log_start_offset);
  const end = log.log_end_offset;
  const copied = Math.min(Math.max(remoteEnd, local), end);
  return [
    ["remote", log.log_start_offset, local],
    ["both", local, copied],
    ["local", copied, end],
  ].filter(([, from, to]) => to > from);
}

const NAMES = { remote: "remote only", both: "remote and local", local: "local only" };

/** A log in words, for readers that see no bar. */
function words(log, kinds) {
  const spans = kinds.map(([kind, from, to]) => `${NAMES[kind]} ${from} to ${to - 1}`);
  return [
    ...(spans.length ? spans : ["no records"]),
    `high watermark ${log.high_watermark}`,
    `last stable offset ${log.last_stable_offset}`,
    `log end ${log.log_end_offset}`,
    `epochs ${log.epochs.map((one) => `${one.epoch} from ${one.start_offset}`).join(", ") || "none"}`,
  ].join("; ");
}

function at(element, percent, width) {
  element.style.left = `${percent}%`;
  if (width !== undefined) element.style.width = `${width}%`;
  return element;
}

function track(log, kinds, percent) {
  const bar = h("div", { class: "track", role: "img", "aria-label": words(log, kinds) });
  for (const [kind, from, to] of kinds) {
    const width = percent(to) - percent(from);
    const label = width >= LABEL_PERCENT_MIN ? (kind === "both" ? "remote + local" : kind) : "";
    bar.append(at(h("span", { class: `part ${kind}` }, h("b", {}, label)), percent(from), width));
  }
  if (!kinds.length) bar.append(h("span", { class: "empty" }, "empty"));
  for (const segment of log.segments.slice(1, SEGMENTS_MAX)) {
    bar.append(at(h("i", { class: "segment" }), percent(segment.base_offset)));
  }
  bar.append(at(h("i", { class: "mark last-stable" }), percent(log.last_stable_offset)));
  bar.append(at(h("i", { class: "mark high-watermark" }), percent(log.high_watermark)));
  return bar;
}

function bands(log, percent) {
  const strip = h("div", { class: "epochs", "aria-hidden": "true" });
  const epochs = log.epochs;
  epochs.forEach(({ epoch, start_offset: from }, index) => {
    const end = index + 1 < epochs.length ? epochs[index + 1].start_offset : log.log_end_offset;
    const begin = Math.max(from, log.log_start_offset);
    if (end <= begin) return;
    const width = percent(end) - percent(begin);
    const text = width >= LABEL_PERCENT_MIN ? `epoch ${epoch}` : width > 2 ? `${epoch}` : "";
    const band = h("span", { class: index % 2 ? "odd" : "even", title: `epoch ${epoch} from ${from}` }, text);
    strip.append(at(band, percent(begin), width));
  });
  return strip;
}

function numbers(log) {
  const all = [
    ["start", log.log_start_offset],
    ["local", log.local_log_start_offset],
    ["stable", log.last_stable_offset],
    ["high watermark", log.high_watermark],
    ["end", log.log_end_offset],
  ];
  return h("dl", { class: "numbers" }, ...all.map(([name, value]) =>
    h("div", { "data-offset": name }, h("dt", {}, name), h("dd", {}, count(value)))));
}

function replica(broker, partition, log, scale) {
  const role = broker === partition.leader ? "leader" : partition.isr.includes(broker) ? "in sync" : "out of sync";
  const name = h("div", { class: "replica-name" }, `Broker ${broker} `, h("span", { class: `role ${role.replaceAll(" ", "-")}` }, role));
  const row = h("div", { class: "replica", "data-broker": broker }, name);
  if (!log) {
    row.append(h("p", { class: "quiet" }, "no log on a running broker"));
    return row;
  }
  const percent = (offset) => (100 * (Math.min(Math.max(offset, scale.from), scale.to) - scale.from)) / (scale.to - scale.from || 1);
  const remoteEnd = scale.remoteEnd;
  const kinds = parts(log, remoteEnd);
  row.append(h("div", { class: "bar" }, track(log, kinds, percent), bands(log, percent)), numbers(log));
  return row;
}

/** A partition with its replicas; `update(partition)` draws it. */
export function partitionView() {
  const title = h("h4");
  const replicas = h("div", { class: "replicas" });
  const node = h("article", { class: "partition" }, title, replicas);
  return {
    node,
    update(partition) {
      if (node.shown === partition) return;
      node.shown = partition;
      node.dataset.partition = partition.partition;
      const leader = partition.leader < 0 ? "no leader" : `leader ${partition.leader}`;
      say(title, `Partition ${partition.partition} · ${leader} · epoch ${partition.leader_epoch} · in sync ${partition.isr.join(", ") || "none"}`);
      const logs = new Map(partition.logs.map((log) => [log.broker, log]));
      const finished = partition.remote.filter((one) => one.state === "COPY_SEGMENT_FINISHED");
      const scale = {
        from: Math.min(...partition.logs.map((log) => log.log_start_offset)),
        to: Math.max(...partition.logs.map((log) => log.log_end_offset)),
        remoteEnd: Math.max(0, ...finished.map((one) => one.end_offset + 1)),
      };
      replicas.replaceChildren(...partition.replicas.map((broker) => replica(broker, partition, logs.get(broker), scale)));
    },
  };
}
