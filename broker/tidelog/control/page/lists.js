// Groups, transactions and the last requests.

import { $, Keyed, count, h, moment, say, span, valuesOf } from "./dom.js";

const GROUPS_MAX = 100;
const ROWS_MAX = 100;

const cells = (...values) => h("tr", {}, ...values.map((value) => h("td", {}, value)));

// -- groups ---------------------------------------------------------------------------------------

function groupView(key) {
  const id = key.slice("group/".length);
  const facts = h("span", { class: "quiet" });
  const lag = h("span", { class: "lag" });
  const members = h("p", { class: "quiet" });
  const rows = h("tbody");
  const heads = ["Partition", "Committed", "Lag"].map((name) => h("th", { scope: "col" }, name));
  const node = h("details", { "data-group": id },
    h("summary", {}, h("span", { class: "topic-name" }, id), lag, facts), members,
    h("table", {}, h("thead", {}, h("tr", {}, ...heads)), rows));
  return {
    node,
    update(group) {
      if (node.shown === group) return;
      node.shown = group;
      const places = [...group.offsets, ...group.shares];
      const total = places.reduce((sum, one) => sum + (one.lag ?? 0), 0);
      say(lag, `lag ${count(total)}`);
      lag.classList.toggle("behind", total > 0);
      say(facts, `${group.state} · ${group.members.length} members · coordinator ${group.coordinator}`);
      say(members, group.members.map((one) => one.client_id).join(", "));
      rows.replaceChildren(...places.slice(0, ROWS_MAX).map((one) =>
        cells(`${one.topic}-${one.partition}`, count(one.offset ?? one.start_offset), lagOf(one))));
    },
  };
}

function lagOf({ lag, acquired }) {
  if (lag === null) return "unknown";
  return acquired ? `${count(lag)}, ${count(acquired)} of them held` : count(lag);
}

export function groupsView() {
  const groups = new Keyed($("groups"), groupView);
  return (state) => {
    const found = valuesOf(state, "group/").sort(([a], [b]) => (a < b ? -1 : 1));
    groups.show(found.slice(0, GROUPS_MAX));
    $("groups-none").hidden = found.length > 0;
  };
}

// -- transactions ---------------------------------------------------------------------------------

export function showTransactions(state) {
  const found = valuesOf(state, "transaction/").map(([, value]) => value);
  const now = Math.max(0, ...valuesOf(state, "clock/").map(([, clock]) => clock.wall_ms));
  const isOpen = (one) => one.state === "Ongoing" || one.state.startsWith("Prepare");
  found.sort((a, b) => isOpen(b) - isOpen(a) || (a.transactional_id < b.transactional_id ? -1 : 1));
  $("transactions").tBodies[0].replaceChildren(...found.slice(0, ROWS_MAX).map((one) => {
    const row = cells(one.transactional_id, one.state, `${one.producer_id}, epoch ${one.producer_epoch}`,
      isOpen(one) && one.start_ms > 0 ? span(now - one.start_ms) : "–",
      one.partitions.map((each) => `${each.topic}-${each.partition}`).join(", ") || "–");
    if (isOpen(one)) row.classList.add("open");
    return row;
  }));
  $("transactions").hidden = !found.length;
  $("transactions-none").hidden = found.length > 0;
}

// -- requests -------------------------------------------------------------------------------------

export function showRequests(state) {
  const requests = [...(state.get("requests") ?? [])].reverse();
  $("requests").tBodies[0].replaceChildren(...requests.map((one) => {
    const row = cells(moment(one.ended_ms, { precise: true }), `${one.client_id ?? "–"} (${one.client})`, String(one.broker), `${one.api} v${one.version}`,
      one.latency_ms.toFixed(1), one.error === "NONE" ? "–" : one.error);
    row.children[4].classList.add("number");
    if (one.error !== "NONE") row.classList.add("refused");
    return row;
  }));
}
