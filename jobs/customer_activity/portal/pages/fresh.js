// How fresh the page is: told by each event, and counted on between two; a warning when it is not to be relied on.

import { byId, count, duration } from "./text.js";

const TICK_MILLIS = 200;
let told = null, toldAt = 0, lostAt = null, serverAhead = 0;

export function tell(freshness) {
  told = freshness;
  toldAt = performance.now();
  if (freshness.completeUntilEpochMillis !== null) {
    serverAhead = freshness.completeUntilEpochMillis + freshness.behindSeconds * 1000 - Date.now();
  }
  show();
}

export function lose(isLost) {
  if (!isLost) lostAt = null;
  else lostAt ??= performance.now();
  show();
}

// Milliseconds since 1970 by the portal's clock: that of this machine may be another.
export const now = () => Date.now() + serverAhead;

const since = () => (performance.now() - toldAt) / 1000;

function show() {
  const pill = byId("fresh"), warning = byId("warning");
  const lostSeconds = lostAt === null ? 0 : (performance.now() - lostAt) / 1000;
  const state = lostSeconds > 1.5 ? "lost" : told?.state ?? "connecting";
  pill.dataset.state = state;
  pill.querySelector(".words").textContent = words(state);
  const message = problem(state, lostSeconds);
  warning.hidden = !message;
  if (warning.textContent !== message) warning.textContent = message;
}

function words(state) {
  if (state === "connecting") return "connecting …";
  if (state === "lost") return "no connection";
  if (state === "restoring") return `restoring from the topic: ${Math.floor(told.restored * 100)} %`;
  const behind = told.behindSeconds === null ? "not complete yet" : `complete up to ${duration(told.behindSeconds + since())} ago`;
  const lag = told.lagRecords ? ` · ${count(told.lagRecords)} records behind` : "";
  return `${behind}${lag}`;
}

function problem(state, lostSeconds) {
  if (state === "lost") return `The portal has not answered for ${duration(lostSeconds)}: what is shown is from before.`;
  if (state === "silent") {
    const heard = told.heardSecondsAgo === null ? "has not answered yet" : `has not answered for ${duration(told.heardSecondsAgo + since())}`;
    return `Kafka ${heard}: what is shown may be out of date.${told.problem ? ` (${told.problem})` : ""}`;
  }
  if (state === "behind") return `The portal is ${duration(told.behindSeconds)} behind the view topic: what is shown is out of date.${told.problem ? ` (${told.problem})` : ""}`;
  return "";
}

setInterval(show, TICK_MILLIS);
