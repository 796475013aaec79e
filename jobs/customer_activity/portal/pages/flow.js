// The pipeline drawn: topics and tables in columns, the streams between them, with what moves and what lags.

import { byId, count, drawn, duration, element, short } from "./text.js";

const NODE = { width: 162, height: 44, gap: 11 }, STREAM = { width: 90, height: 36, gap: 8 }, GAP = 118, EDGE = 2;
const WELL = new Set(["running", "starting", "held"]);
let shape = "", parts = new Map();

export function showFlow(flow, error) {
  const place = byId("flow");
  if (!flow) { shape = ""; return place.replaceChildren(element("p", { class: "bad" }, error)); }
  const found = JSON.stringify([flow.nodes.map(node => node.id), flow.streams.map(stream => stream.name)]);
  if (found !== shape) {
    shape = found;
    parts = new Map();
    place.replaceChildren(drawing(flow), list(flow), element("ul", { class: "notes", id: "flow-notes" }));
    place.querySelectorAll(".label").forEach(fit);
  }
  flow.nodes.forEach(updateNode);
  flow.streams.forEach(updateStream);
  byId("flow-notes").replaceChildren(...flow.notes.map(note => element("li", {}, note)));
  byId("flow-note").textContent = summary(flow);
}

function summary(flow) {
  const ill = flow.streams.filter(stream => !WELL.has(stream.state));
  if (ill.length) return ill.length === flow.streams.length ? "no stream runs" : `not running: ${ill.map(stream => stream.name).join(", ")}`;
  const view = flow.streams.filter(stream => !stream.isBehind && stream.freshnessSeconds !== null).map(stream => stream.freshnessSeconds);
  return flow.caughtUp ? "everything is processed" : view.length ? `the view is ${duration(Math.max(...view))} behind the input` : "";
}

function drawing(flow) {
  const columns = Math.max(...flow.nodes.map(node => node.column)) + 1;
  const places = new Map(), heights = [];
  for (const node of flow.nodes) {
    const row = heights[node.column] = (heights[node.column] ?? 0) + 1;
    places.set(node.id, { x: EDGE + node.column * (NODE.width + GAP), y: EDGE + (row - 1) * (NODE.height + NODE.gap), column: node.column });
  }
  const rows = Math.max(...heights);
  const streams = placed(flow, places);
  const bottom = Math.max(EDGE + rows * (NODE.height + NODE.gap), ...streams.map(stream => stream.y + STREAM.height + STREAM.gap));
  const width = 2 * EDGE + columns * NODE.width + (columns - 1) * GAP;
  return drawn("svg", { viewBox: `0 0 ${width} ${bottom}`, role: "img", "aria-label": "Topics, streams and tables; the table that follows has the same" },
    ...streams.flatMap(stream => edges(stream, places)), ...flow.nodes.map(node => nodeBox(node, places.get(node.id))), ...streams.map(streamBox));
}

// A stream is after the last column that it reads, as high as what it joins is on average.
function placed(flow, places) {
  const bottoms = [];
  const middle = id => places.get(id).y + NODE.height / 2;
  return flow.streams.map(stream => {
    const slot = Math.max(...stream.reads.map(id => places.get(id).column));
    const writes = stream.writes.filter(id => places.get(id)?.column > slot);
    const ends = [...stream.reads, ...writes].map(middle);
    const wanted = ends.reduce((sum, y) => sum + y, 0) / ends.length - STREAM.height / 2;
    return { ...stream, slot, writes, wanted, x: EDGE + slot * (NODE.width + GAP) + NODE.width + (GAP - STREAM.width) / 2 };
  }).sort((one, other) => one.wanted - other.wanted).map(stream => {
    const y = Math.max(stream.wanted, bottoms[stream.slot] ?? 4);
    bottoms[stream.slot] = y + STREAM.height + STREAM.gap;
    return { ...stream, y };
  });
}

function edges(stream, places) {
  const left = { x: stream.x, y: stream.y + STREAM.height / 2 }, right = { x: stream.x + STREAM.width, y: left.y };
  const made = [
    ...stream.reads.map(id => [id, { x: places.get(id).x + NODE.width, y: places.get(id).y + NODE.height / 2 }, left]),
    ...stream.writes.map(id => [id, right, { x: places.get(id).x, y: places.get(id).y + NODE.height / 2 }]),
  ];
  return made.map(([id, from, to]) => {
    const bend = Math.max(12, (to.x - from.x) / 2);
    const path = drawn("path", { class: "edge", d: `M${from.x} ${from.y}C${from.x + bend} ${from.y} ${to.x - bend} ${to.y} ${to.x} ${to.y}` });
    remember(`edges of ${id}`, path);
    return path;
  });
}

function nodeBox(node, { x, y }) {
  const [layer, name] = node.kind === "topic" ? ["topic", node.label] : node.label.split(".", 2);
  const inset = node.kind === "topic" ? 16 : 11;
  const box = drawn("g", { class: `node ${layer}`, transform: `translate(${x} ${y})` },
    drawn("title", {}, `${node.kind} ${node.label}`),
    drawn("rect", { class: "box", width: NODE.width, height: NODE.height, rx: node.kind === "topic" ? NODE.height / 2 : 7 }),
    drawn("text", { class: "label", x: inset, y: 18 }, name),
    drawn("rect", { class: "layer", x: inset, y: 26, width: 7, height: 7, rx: node.kind === "topic" ? 3.5 : 2 }),
    drawn("text", { class: "count", x: inset + 12, y: 33.5 }),
    drawn("text", { class: "rate", x: NODE.width - inset, y: 33.5, "text-anchor": "end" }));
  remember(node.id, box);
  return box;
}

function streamBox(stream) {
  const box = drawn("g", { class: "stream", transform: `translate(${stream.x} ${stream.y})` },
    drawn("title", {}, ""),
    drawn("rect", { class: "box", width: STREAM.width, height: STREAM.height, rx: 5 }),
    drawn("circle", { class: "dot", cx: 11, cy: 12.5, r: 3.5 }),
    drawn("text", { class: "label", x: 20, y: 16 }, stream.name),
    drawn("text", { class: "lag", x: 20, y: 29 }));
  remember(`stream ${stream.name}`, box);
  return box;
}

// The same as a table: for narrow screens, and for those who hear the page.
function list(flow) {
  const rows = flow.streams.map(stream => {
    const row = element("tr", {}, element("th", { scope: "row" }, stream.name), element("td", { class: "state" }), element("td", { class: "lag" }), element("td", { class: "fresh-by" }));
    remember(`row ${stream.name}`, row);
    return row;
  });
  return element("table", { class: "streams" }, element("thead", {}, element("tr", {}, ...["stream", "state", "to read", "freshness"].map(name => element("th", {}, name)))), element("tbody", {}, ...rows));
}

function remember(name, part) {
  parts.set(name, [...(parts.get(name) ?? []), part]);
}

function updateNode(node) {
  const [box] = parts.get(node.id);
  const isMoving = node.perSecond >= 0.05, unit = isMoving ? "" : node.kind === "topic" ? " records" : " rows";
  text(box, ".count", node.count === null ? "unknown" : `${short(node.count)}${unit}`);
  text(box, ".rate", isMoving ? `+${short(node.perSecond < 10 ? Math.round(node.perSecond * 10) / 10 : Math.round(node.perSecond))}/s` : "");
  for (const edge of parts.get(`edges of ${node.id}`) ?? []) edge.classList.toggle("moving", isMoving);
}

function updateStream(stream) {
  const [box] = parts.get(`stream ${stream.name}`), [row] = parts.get(`row ${stream.name}`);
  const lag = toRead(stream), state = WELL.has(stream.state) ? (stream.state === "held" ? "held" : lag === "current" ? "current" : "behind") : "ill";
  box.dataset.state = row.dataset.state = state;
  text(box, ".lag", state === "ill" || state === "held" ? stream.state : lag);
  text(box, "title", `${stream.name}: ${stream.state}${stream.message ? `, ${stream.message}` : ""}. ${stream.promises}`);
  text(row, ".state", stream.state);
  text(row, ".lag", lag);
  text(row, ".fresh-by", stream.freshnessSeconds === null ? "–" : stream.freshnessSeconds === 0 ? "current" : `${duration(stream.freshnessSeconds)} behind`);
}

function toRead(stream) {
  if (stream.lagRecords) return `${short(stream.lagRecords)} records`;
  if (stream.lagCommits) return `${count(stream.lagCommits)} commit${stream.lagCommits === 1 ? "" : "s"}`;
  return stream.lagRecords === null && stream.lagCommits === null ? "unknown" : "current";
}

function text(box, part, words) {
  const found = box.querySelector(part);
  if (found.textContent !== words) found.textContent = words;
}

// A name that is too long for its box ends in an ellipsis; its title has all of it.
function fit(label) {
  const box = label.parentNode.querySelector(".box");
  const most = box.width.baseVal.value - label.x.baseVal[0].value - 6;
  const name = label.textContent;
  for (let length = name.length - 1; length > 3 && label.getComputedTextLength() > most; length -= 1) label.textContent = `${name.slice(0, length)}…`;
}
