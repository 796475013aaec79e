// One customer's row as it changes: what changed is marked, with what it was before.

import { byId, count, duration, element, label, moment, said, amount } from "./text.js";
import { ask } from "./session.js";
import { now } from "./fresh.js";

const MARKED_SECONDS = 30, WINDOWS_MILLIS = 4000;
const FACTS = ["email", "address", "loyaltyStatus", "profileUpdatedAtEpochMillis", "firstPurchaseAtEpochMillis", "lastPurchaseAtEpochMillis"];
const FIGURES = ["purchaseCount", "totalAmount"];
const QUIET = new Set(["customerId", "name", "currency", "viewVersion", "asOfEpochMillis", ...FACTS, ...FIGURES]);

let customerId = null, row = null, isRemoved = false, took = null, windows = null, askedAt = 0;
let marks = new Map(); // by field: when it changed, and what it was

export function open(id) {
  customerId = id;
  row = null; took = null; windows = null; isRemoved = false; askedAt = 0;
  marks = new Map();
  draw();
}

// The row as it is when one begins to look.
export function begin(found) {
  const before = row;
  row = found;
  isRemoved = false;
  if (before && found) note(Object.keys(found).filter(field => before[field] !== found[field]), before);
  draw();
  lookForWindows();
}

export function change(found) {
  if (found.customerId !== customerId) return;
  if (row !== null && found.row !== null && found.row.viewVersion < row.viewVersion) return; // it came while the row was read
  const before = row;
  isRemoved = found.row === null;
  if (found.row !== null) {
    row = found.row;
    took = (found.atEpochMillis - row.asOfEpochMillis) / 1000;
    note(found.fields, before);
  }
  draw();
  lookForWindows();
}

function note(fields, before) {
  for (const field of fields) {
    if (field !== "viewVersion" && field !== "asOfEpochMillis") marks.set(field, { at: now(), was: before ? said(field, before) : null });
  }
}

function draw() {
  const card = byId("customer");
  if (customerId === null) {
    card.replaceChildren(element("p", { class: "hint" }, "Find a customer, or choose one of those that change. The row is shown as other services get it from the view topic, and changes as it does."));
    return;
  }
  if (row === null) {
    card.replaceChildren(element("p", { class: "hint" }, `The view has no row of ${customerId}. It is shown here as soon as there is one.`));
    return;
  }
  const unknown = Object.keys(row).filter(field => !QUIET.has(field));
  card.replaceChildren(
    element("div", { class: `who ${mark("name")}` }, element("strong", {}, row.name), element("code", {}, customerId), loyalty(), was("name")),
    element("div", { class: "figures" }, ...FIGURES.map(field => element("div", { class: mark(field) }, element("span", { class: "big" }, said(field, row)), element("span", { class: "name" }, label(field)), was(field)))),
    element("div", { class: "sides" },
      element("dl", {}, ...[...FACTS, ...unknown].filter(field => field in row && field !== "loyaltyStatus").flatMap(fact)),
      windowsTable()),
    element("p", { class: "as-of", id: "as-of" }),
  );
  tick();
}

const fact = field => [element("dt", {}, label(field)), element("dd", { class: mark(field) }, said(field, row), was(field))];
const loyalty = () => row.loyaltyStatus === null || row.loyaltyStatus === undefined ? null
  : element("span", { class: `badge ${mark("loyaltyStatus")}` }, row.loyaltyStatus);
const isMarked = field => marks.has(field) && now() - marks.get(field).at < MARKED_SECONDS * 1000;
const mark = field => (isMarked(field) ? "changed" : "");
const was = field => (isMarked(field) && marks.get(field).was !== null && marks.get(field).was !== said(field, row)
  ? element("del", {}, marks.get(field).was) : null);

function windowsTable() {
  const [table] = Object.keys(windows ?? {}).filter(name => windows[name].some(each => each.isFinal !== undefined));
  if (!table) return null;
  const rows = windows[table].slice(0, 5);
  return element("table", { class: "windows" }, element("caption", {}, table),
    element("tbody", {}, ...rows.map(each => element("tr", {},
      element("td", {}, each.day ?? each.firstDay ?? moment(each.sessionStartEpochMillis)),
      element("td", { class: "sum" }, count(each.purchaseCount)), element("td", { class: "sum" }, amount(each.totalAmount, row.currency)),
      element("td", { class: "quiet" }, each.isFinal ? "final" : "running")))));
}

async function lookForWindows() {
  if (customerId === null || row === null || performance.now() - askedAt < WINDOWS_MILLIS) return;
  askedAt = performance.now();
  const asked = customerId;
  try {
    const answer = await ask(`/windows?customer=${encodeURIComponent(asked)}`);
    if (asked === customerId && answer.windows) { windows = answer.windows; draw(); }
  } catch { /* the row stands without them */ }
}

function tick() {
  const line = byId("as-of");
  if (!line || row === null) return;
  const age = Math.max(0, (now() - row.asOfEpochMillis) / 1000);
  const parts = [`reflects input up to ${moment(row.asOfEpochMillis)} UTC, ${duration(age)} ago`];
  if (took !== null) parts.push(`in the view ${duration(took)} after its input`);
  line.textContent = isRemoved ? "This row was removed from the view." : parts.join(" · ");
  line.classList.toggle("bad", isRemoved);
}

setInterval(() => {
  tick();
  if ([...marks.keys()].some(field => !isMarked(field))) {
    marks = new Map([...marks].filter(([field]) => isMarked(field)));
    draw();
  }
}, 1000);
