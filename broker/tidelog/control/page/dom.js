// Elements of the page, made once by key and updated in place: focus stays where it is.

export const $ = (id) => document.getElementById(id);

/** Make an element; attributes that are functions listen to events, null ones are left out. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

/** Set the text of an element, if it is another one. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** The children of `parent`, one for each key in the order given; `make(key)` returns {node, update}. */
export class Keyed {
  #parent;
  #make;
  #made = new Map();

  constructor(parent, make) {
    this.#parent = parent;
    this.#make = make;
  }

  show(entries) {
    const keys = new Set(entries.map(([key]) => key));
    for (const [key, { node }] of this.#made) {
      if (!keys.has(key)) {
        node.remove();
        this.#made.delete(key);
      }
    }
    let before = null;
    for (const [key, value] of entries) {
      let made = this.#made.get(key);
      if (!made) this.#made.set(key, (made = this.#make(key)));
      made.update(value);
      const place = before ? before.nextSibling : this.#parent.firstChild;
      if (place !== made.node) this.#parent.insertBefore(made.node, place);
      before = made.node;
    }
  }
}

/** The entries of the state whose keys begin with a prefix. */
export const valuesOf = (state, prefix) => [...state].filter(([key]) => key.startsWith(prefix));

export const count = (number) => number.toLocaleString("en-US");

/** A moment in UTC: date and time, or the time with milliseconds. */
export function moment(ms, { precise = false } = {}) {
  const text = new Date(ms).toISOString();
  return precise ? text.slice(11, 23) : `${text.slice(0, 10)} ${text.slice(11, 19)}`;
}

/** A length of time in its two largest units. */
export function span(ms) {
  const units = [["d", 86400000], ["h", 3600000], ["min", 60000], ["s", 1000]];
  const parts = [];
  let left = Math.round(Math.abs(ms) / 1000) * 1000;
  for (const [name, length] of units) {
    const whole = Math.floor(left / length);
    left -= whole * length;
    if (whole) parts.push(`${whole} ${name}`);
  }
  return parts.slice(0, 2).join(" ") || "0 s";
}
