// The API as /openapi.json describes it, as a page that needs nothing of another host.

import { byId, element } from "./text.js";

const described = await (await fetch("/openapi.json", { cache: "no-store" })).json();
const schemas = described.components?.schemas ?? {};

byId("routes").replaceChildren(
  element("p", { class: "hint" }, described.info.description, " Requests only read. Where the portal asks for tokens: ",
    element("code", {}, "Authorization: Bearer TOKEN"), "."),
  ...Object.entries(described.paths).map(([path, { get }]) => route(path, get)),
  element("section", { class: "panel" }, element("h2", {}, "Parts of answers"),
    ...Object.entries(schemas).filter(([, schema]) => schema.properties).map(([name, schema]) => part(name, schema))),
);

function route(path, { summary, description = "", parameters = [], responses }) {
  return element("section", { class: "panel" },
    element("h2", {}, element("code", {}, `GET ${path}`), element("span", { class: "figure" }, summary)),
    ...description.split(/\n\s*\n/).map(text => element("p", {}, text.replace(/\s+/g, " "))),
    parameters.length ? table(["parameter", "type", "default", ""], parameters.map(each => [
      element("code", {}, each.name), type(each.schema), each.required ? "required" : each.schema.default ?? "", each.description ?? ""])) : null,
    table(["status", "answer", ""], Object.entries(responses).map(([status, { description: words, content = {} }]) => [
      status, ...answer(content), words])));
}

function answer(content) {
  const [kind, { schema } = {}] = Object.entries(content)[0] ?? ["", {}];
  return [schema && Object.keys(schema).length ? type(schema) : kind];
}

function part(name, schema) {
  return element("div", { id: name }, element("h3", {}, name), element("p", { class: "hint" }, schema.description ?? ""),
    table(["field", "type", ""], Object.entries(schema.properties).map(([field, value]) => [element("code", {}, field), type(value), value.description ?? ""])));
}

function type(schema) {
  if (schema.$ref) { const name = schema.$ref.split("/").pop(); return element("a", { href: `#${name}` }, name); }
  if (schema.anyOf) return joined(schema.anyOf.map(type), " or ");
  if (schema.type === "array") return joined([type(schema.items ?? {})], "", " …");
  if (schema.enum) return schema.enum.join(", ");
  return schema.type ?? "any";
}

function joined(parts, between, after = "") {
  const made = element("span");
  parts.forEach((each, index) => made.append(...(index ? [between] : []), each));
  made.append(after);
  return made;
}

function table(heads, rows) {
  return element("table", {}, element("thead", {}, element("tr", {}, ...heads.map(head => element("th", {}, head)))),
    element("tbody", {}, ...rows.map(row => element("tr", {}, ...row.map(cell => element("td", {}, cell))))));
}
