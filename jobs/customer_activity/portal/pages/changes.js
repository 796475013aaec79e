// Customers that change, as they do; one is opened by choosing it.

import { byId, clock, count, element, label, said } from "./text.js";

const SHOWN = 40, FEW = 8, FIELDS_SHOWN = 3, RATE_SECONDS = 10;
let choose = () => {}, seen = [];

export function start(chosen) {
  choose = chosen;
  setInterval(showRate, 1000);
}

export function begin(changes) {
  byId("changes").replaceChildren(...changes.slice(0, SHOWN).map(line));
}

export function add(changes) {
  seen.push([performance.now(), changes.length]);
  const newest = [...changes].reverse().slice(0, SHOWN).map(line);
  if (newest.length <= FEW) newest.forEach(item => item.classList.add("new")); // of many it would be a flicker
  const list = byId("changes");
  list.prepend(...newest);
  while (list.children.length > SHOWN) list.lastChild.remove();
}

function line(change) {
  return element("li", {}, element("button", { type: "button", onclick: () => choose(change.customerId) },
    element("time", {}, clock(change.atEpochMillis)), element("b", {}, change.customerId), element("span", { class: "what" }, ...what(change))));
}

function what(change) {
  if (change.kind === "removed") return [element("em", {}, "removed")];
  if (change.kind === "added") return [element("em", {}, "added"), ` ${change.row.name}`];
  const shown = change.fields.filter(field => !field.startsWith("lastPurchase") && !field.startsWith("profileUpdated"));
  if (change.kind === "restored" || !shown.length) return [`${count(change.row.purchaseCount)} purchases, ${said("totalAmount", change.row)}`];
  const parts = shown.slice(0, FIELDS_SHOWN).flatMap(field => [element("i", {}, label(field)), ` ${said(field, change.row)}  `]);
  return shown.length > FIELDS_SHOWN ? [...parts, `+${shown.length - FIELDS_SHOWN}`] : parts;
}

function showRate() {
  const since = performance.now() - RATE_SECONDS * 1000;
  seen = seen.filter(([at]) => at > since);
  const rate = seen.reduce((sum, [, changes]) => sum + changes, 0) / RATE_SECONDS;
  byId("change-rate").textContent = seen.length ? `${rate < 10 ? rate.toFixed(1) : count(Math.round(rate))} a second` : "none in the last seconds";
}
