// The page of the control door: takes changes, and draws the sections that they touch.

import { brokersView } from "./brokers.js";
import { $ } from "./dom.js";
import { listen, tell } from "./door.js";
import { faultsView } from "./faults.js";
import { groupsView, showRequests, showTransactions } from "./lists.js";
import { scenariosView } from "./scenarios.js";
import { topicsView } from "./topics.js";

const SECTIONS = [
  [["broker", "clock", "cluster"], brokersView()],
  [["topic", "partition"], topicsView()],
  [["group"], groupsView()],
  [["transaction"], showTransactions],
  [["fault", "link", "device"], faultsView()],
  [["requests"], showRequests],
];

const state = new Map();
const fillScenarios = scenariosView();

function follow() {
  const view = location.hash === "#scenarios" ? "scenarios" : "cluster";
  for (const each of ["cluster", "scenarios"]) {
    $(`${each}-view`).hidden = each !== view;
    if (each === view) $(`to-${each}`).setAttribute("aria-current", "page");
    else $(`to-${each}`).removeAttribute("aria-current");
  }
  if (view === "scenarios") fillScenarios();
}

window.addEventListener("hashchange", follow);
follow();

listen((changes, isFirst) => {
  const touched = new Set();
  if (isFirst) {
    for (const key of state.keys()) touched.add(key.split("/")[0]);
    state.clear();
  }
  for (const [key, value] of Object.entries(changes)) {
    touched.add(key.split("/")[0]);
    if (value === null) state.delete(key);
    else state.set(key, value);
  }
  if (changes.error === null) tell("");
  if (changes.error) tell(`The state was not read: ${changes.error}`, { isError: true });
  for (const [prefixes, draw] of SECTIONS) {
    if (prefixes.some((prefix) => touched.has(prefix))) draw(state);
  }
  document.body.dataset.drawn = String(Number(document.body.dataset.drawn ?? 0) + 1);
});
