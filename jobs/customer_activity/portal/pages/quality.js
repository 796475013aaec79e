// Quality's newest verdict on each rule, and alerts where there are any.

import { amount, byId, count, duration, element, moment } from "./text.js";
import { now } from "./fresh.js";

const GOOD = "passed", LAYERS = ["across", "bronze", "silver", "gold"];

export function showQuality(quality, error) {
  const note = byId("quality-note"), place = byId("quality");
  if (!quality) { note.textContent = ""; return place.replaceChildren(element("p", { class: "bad" }, error)); }
  if (quality.judgedAtEpochMillis === null) {
    note.textContent = "";
    return place.replaceChildren(element("p", { class: "hint" }, "Nothing has been judged yet: `activity quality` does."));
  }
  const failing = quality.rules.filter(rule => rule.outcome !== GOOD), holding = Object.keys(quality.holding);
  note.textContent = `judged ${duration(Math.max(0, (now() - quality.judgedAtEpochMillis) / 1000))} ago`;
  const rank = ([layer]) => (LAYERS.includes(layer) ? LAYERS.indexOf(layer) : LAYERS.length);
  const layers = [...grouped(quality.rules, rule => rule.suite.split("/")[0])].sort((one, other) => rank(one) - rank(other));
  place.replaceChildren(
    element("p", { class: "verdict" },
      element("strong", { class: failing.length ? "bad" : "good" }, `${count(quality.rules.length - failing.length)} of ${count(quality.rules.length)} rules passed`),
      element("span", { class: holding.length ? "bad" : "quiet" }, holding.length ? `publishing is held by ${holding.join(", ")}` : "publishing goes on")),
    element("dl", { class: "suites" }, ...layers.flatMap(([layer, rules]) => [element("dt", {}, layer), element("dd", {}, ...suites(rules))])),
    failing.length ? element("ul", { class: "failing" }, ...failing.map(rule => element("li", {},
      element("b", {}, rule.rule), element("span", { class: `badge ${rule.severity}` }, rule.severity), ` ${rule.found}`,
      quality.overridden[rule.rule] ? element("em", {}, ` overridden: ${quality.overridden[rule.rule]}`) : null))) : "",
  );
}

function suites(rules) {
  return [...grouped(rules, rule => rule.suite.split("/").pop())].map(([suite, own]) => element("span", { class: "suite" },
    element("span", { class: "name" }, suite),
    ...own.map(rule => element("span", { class: `cell ${rule.outcome} ${rule.severity}`, title: `${rule.rule}: ${rule.outcome}${rule.found ? `, ${rule.found}` : ""}` }))));
}

function grouped(rules, by) {
  const groups = new Map();
  rules.forEach(rule => groups.set(by(rule), [...(groups.get(by(rule)) ?? []), rule]));
  return groups;
}

export function showAlerts(alerts, choose) {
  byId("alerts-panel").hidden = !alerts;
  if (!alerts) return;
  byId("alerts-note").textContent = alerts.length ? `newest ${alerts.length}` : "";
  byId("alerts").replaceChildren(alerts.length ? element("table", {},
    element("thead", {}, element("tr", {}, ...["rule", "customer", "purchases", "total", "occurred, UTC"].map(name => element("th", {}, name)))),
    element("tbody", {}, ...alerts.map(alert => element("tr", {},
      element("td", {}, element("span", { class: "badge alert" }, alert.rule.replace("_", " "))),
      element("td", {}, element("button", { type: "button", class: "link", onclick: () => choose(alert.customerId) }, alert.customerId)),
      element("td", { class: "sum" }, count(alert.purchaseCount)),
      element("td", { class: "sum" }, amount(alert.totalAmount, alert.currency)),
      element("td", {}, moment(alert.occurredAtEpochMillis)))))) : element("p", { class: "hint" }, "No alert has been raised."));
}
