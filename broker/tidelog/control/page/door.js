// The calls of the door, and its stream of changes.

import { $, say } from "./dom.js";

const RETRY_MS = 1000;

// In memory only. A fragment is sent to no server; it is taken out of the address at once.
let token = new URLSearchParams(location.hash.slice(1)).get("token");
if (token) history.replaceState(null, "", location.pathname);

const headers = () => (token ? { Authorization: `Bearer ${token}` } : {});

async function answered(response) {
  if (response.ok) return response.json();
  const problem = await response.json().catch(() => ({ detail: response.statusText }));
  throw new Error(problem.field ? `${problem.field}: ${problem.detail}` : problem.detail);
}

/** Make a call, such as "topics.roll", and return its result. */
export async function ask(call, args = {}) {
  const body = JSON.stringify(args);
  return answered(await fetch(`/v1/${call.replace(".", "/")}`, { method: "POST", headers: headers(), body }));
}

/** Read what a path of the door answers. */
export async function get(path) {
  return answered(await fetch(path, { headers: headers() }));
}

/** Make a call for a button, and say how it ended. */
export async function act(call, args, done, button) {
  button?.setAttribute("aria-busy", "true");
  try {
    await ask(call, args);
    tell(done);
  } catch (error) {
    tell(error.message, { isError: true });
  } finally {
    button?.removeAttribute("aria-busy");
  }
}

export function tell(text, { isError = false } = {}) {
  const said = $("said");
  say(said, text);
  said.classList.toggle("error", isError);
}

function connection(text, isLive) {
  say($("connection"), text);
  $("connection").classList.toggle("live", isLive);
}

function tokenFromUser() {
  const form = $("token-form");
  form.hidden = false;
  $("token").focus();
  return new Promise((resolve) => {
    form.onsubmit = (event) => {
      event.preventDefault();
      form.hidden = true;
      token = $("token").value;
      $("token").value = "";
      resolve();
    };
  });
}

/** Give each change to `take`, and begin again when the stream ends. EventSource sends no headers. */
export async function listen(take) {
  for (;;) {
    try {
      const response = await fetch("/events", { headers: headers() });
      if (response.status === 401) {
        connection(token ? "The token is wrong" : "A token is needed", false);
        await tokenFromUser();
        continue;
      }
      if (!response.ok) await answered(response);
      connection("Live", true);
      await read(response.body, take);
      connection("Closed; connecting again …", false);
    } catch (error) {
      connection(`Not connected: ${error.message}`, false);
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

async function read(body, take) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let isFirst = true;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      take(JSON.parse(event.slice("data: ".length)), isFirst);
      isFirst = false;
    }
  }
}
