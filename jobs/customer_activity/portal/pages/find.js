// Find a customer: results while one types, chosen by mouse or keyboard.

import { amount, byId, count, element } from "./text.js";
import { ask } from "./session.js";

const WAIT_MILLIS = 120;
let choose = () => {}, waiting = null, asking = null, marked = -1;

export function start(chosen) {
  choose = chosen;
  const field = byId("find");
  field.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => search(field.value.trim()), WAIT_MILLIS);
  });
  field.addEventListener("focus", () => field.value.trim() && search(field.value.trim()));
  field.addEventListener("blur", () => setTimeout(close, 150));
  field.addEventListener("keydown", event => {
    const moves = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in moves) { event.preventDefault(); mark(marked + moves[event.key]); }
    else if (event.key === "Enter") options()[Math.max(marked, 0)]?.click();
    else if (event.key === "Escape") { close(); field.blur(); }
  });
  document.addEventListener("keydown", event => {
    const isTyping = event.target.matches("input, textarea");
    if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) { event.preventDefault(); field.focus(); field.select(); }
  });
}

const options = () => [...byId("found").querySelectorAll("[role=option]")];

async function search(text) {
  asking?.abort();
  if (!text) return close();
  asking = new AbortController();
  try {
    const answer = await ask(`/customers?limit=12&q=${encodeURIComponent(text)}`, asking.signal);
    show(answer.customers ?? [], answer.error);
  } catch (error) {
    if (error.name !== "AbortError") show([], "the portal does not answer");
  }
}

function show(rows, error) {
  const list = byId("found");
  const lines = rows.map((row, index) => element("li", {
    role: "option", id: `found-${index}`, "aria-selected": "false",
    onmousedown: event => event.preventDefault(),
    onclick: () => { close(); byId("find").blur(); choose(row.customerId); },
  }, element("b", {}, row.customerId), element("span", { class: "who" }, row.name),
  element("span", { class: "mail" }, row.email ?? ""), element("span", { class: "sum" }, `${count(row.purchaseCount)} · ${amount(row.totalAmount, row.currency)}`)));
  list.replaceChildren(...lines, ...(lines.length ? [] : [element("li", { class: "none" }, error ?? "no customer is found")]));
  list.hidden = false;
  byId("find").setAttribute("aria-expanded", "true");
  mark(lines.length ? 0 : -1);
}

function mark(index) {
  const all = options();
  marked = all.length ? (index + all.length) % all.length : -1;
  all.forEach((option, at) => option.setAttribute("aria-selected", String(at === marked)));
  all[marked]?.scrollIntoView({ block: "nearest" });
  byId("find").setAttribute("aria-activedescendant", marked < 0 ? "" : `found-${marked}`);
}

function close() {
  byId("found").hidden = true;
  byId("find").setAttribute("aria-expanded", "false");
}
