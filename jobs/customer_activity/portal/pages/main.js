// Puts the page together: signs in, listens, asks again and again while somebody looks.

import { byId } from "./text.js";
import { ask, hasToken, listen, Refused, signIn, signOut } from "./session.js";
import * as fresh from "./fresh.js";
import * as find from "./find.js";
import * as customer from "./customer.js";
import * as changes from "./changes.js";
import { showFlow } from "./flow.js";
import { showAlerts, showQuality } from "./quality.js";

const FLOW_MILLIS = 2000, ALERTS_MILLIS = 5000, QUALITY_MILLIS = 15_000;
const THEME = "theme";
const looks = [];
let listening = null, chosen = null, hasChanges = false;

function choose(id, { isNew = true } = {}) {
  chosen = id;
  if (isNew) history.replaceState(null, "", `#customer=${encodeURIComponent(id)}`);
  customer.open(id);
  connect();
}

function fromAddress() {
  const found = /^#customer=(.+)$/.exec(location.hash);
  if (!found) return;
  try { choose(decodeURIComponent(found[1]), { isNew: false }); } catch { /* no id */ }
}

// One stream for everything: a browser opens six connections to a host, over all of its tabs.
function connect() {
  listening?.abort();
  if (document.hidden) return;
  listening = new AbortController();
  const path = chosen === null ? "/events" : `/events?others=true&customer=${encodeURIComponent(chosen)}`;
  listen(path, listening.signal, heard, fresh.lose);
  if (!hasChanges) loadChanges();
}

async function loadChanges() {
  try {
    const answer = await ask("/changes?limit=40");
    if (answer.changes) { hasChanges = true; changes.begin(answer.changes); }
  } catch { /* the next event stream tries again */ }
}

function heard(name, data) {
  if (name === "refused") return askForToken("");
  if (name === "role") document.documentElement.dataset.role = data.role;
  if (name === "freshness" || name === "restoring") {
    fresh.tell(data);
    if (name === "freshness" && !hasChanges) loadChanges();
  } else if (name === "row") {
    customer.begin(data.row);
  } else if (name === "changes") {
    changes.add(data.changes);
    data.changes.forEach(customer.change);
  }
}

// Asks again and again while somebody looks.
function again(millis, path, show) {
  let waiting = null;
  const look = async () => {
    clearTimeout(waiting);
    if (!document.hidden && !byId("content").hidden) {
      try { show(await ask(path)); } catch { /* fresh.js says that the portal does not answer */ }
    }
    waiting = setTimeout(look, millis);
  };
  looks.push(look);
}

function askForToken(words) {
  listening?.abort();
  signOut();
  byId("content").hidden = true;
  byId("leave").hidden = true;
  byId("sign-in").hidden = false;
  byId("refused").textContent = words;
  byId("token").focus();
}

async function enter(words = "") {
  try {
    await ask("/changes?limit=1");
  } catch (error) {
    if (error instanceof Refused) return askForToken(words);
  }
  byId("sign-in").hidden = true;
  byId("content").hidden = false;
  byId("leave").hidden = !hasToken();
  customer.open(null);
  if (location.hash) fromAddress();
  if (chosen === null) connect();
  looks.forEach(look => look());
}

function theme() {
  const kept = localStorage.getItem(THEME);
  if (kept) document.documentElement.dataset.theme = kept;
  byId("theme").addEventListener("click", () => {
    const isDark = getComputedStyle(document.documentElement).colorScheme === "dark";
    document.documentElement.dataset.theme = isDark ? "light" : "dark";
    localStorage.setItem(THEME, document.documentElement.dataset.theme);
  });
}

theme();
find.start(choose);
changes.start(choose);
byId("sign-in").addEventListener("submit", event => {
  event.preventDefault();
  signIn(byId("token").value.trim());
  byId("token").value = "";
  enter("This token is not known here.");
});
byId("leave").addEventListener("click", () => { askForToken(""); location.reload(); });
document.addEventListener("visibilitychange", () => { if (!byId("content").hidden) { hasChanges = false; connect(); looks.forEach(look => look()); } });
addEventListener("hashchange", fromAddress);
again(FLOW_MILLIS, "/flow", answer => showFlow(answer.flow, answer.error));
again(QUALITY_MILLIS, "/quality", answer => showQuality(answer.quality, answer.error));
again(ALERTS_MILLIS, "/alerts?limit=8", answer => showAlerts(answer.alerts, choose));
await enter();
