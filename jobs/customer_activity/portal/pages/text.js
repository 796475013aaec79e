// Data as text: elements are made here and nowhere from markup, and what would hide or reorder text is shown escaped.

// Unicode's control, format and surrogate characters, and line and paragraph separators, as terminals get them too.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

export function visible(value) {
  return String(value).replace(HIDDEN, character => {
    const code = character.codePointAt(0).toString(16);
    return code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, "0")}`;
  });
}

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  fill(made, attributes, children);
  return made;
}

export function drawn(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(made, attributes, children);
  return made;
}

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter(child => child !== null && child !== undefined)
    .map(child => (child instanceof Node ? child : visible(child))));
}

export function byId(id) {
  return document.getElementById(id);
}

export function count(number) {
  return number === null || number === undefined ? "–" : Number(number).toLocaleString("en");
}

export function short(number) {
  if (number === null || number === undefined) return "–";
  const options = number >= 100_000 ? { notation: "compact", maximumSignificantDigits: 3 } : { maximumFractionDigits: 1 };
  return new Intl.NumberFormat("en", options).format(number);
}

// An amount is the text that is on the topic: its cents are never rounded.
export function amount(text, currency) {
  if (text === null || text === undefined) return "–";
  const [whole, cents = ""] = String(text).split(".");
  return `${whole.replace(/\B(?=(\d{3})+$)/g, ",")}${cents ? `.${cents}` : ""} ${currency ?? ""}`.trim();
}

export function moment(millis) {
  if (millis === null || millis === undefined) return "–";
  const at = new Date(millis);
  return Number.isNaN(at.getTime()) ? String(millis) : at.toISOString().replace("T", " ").slice(0, 19);
}

export function clock(millis) {
  return new Date(millis).toLocaleTimeString("en-GB");
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} days`;
}

export const LABELS = {
  name: "Name", email: "E-mail", address: "Address", loyaltyStatus: "Loyalty", purchaseCount: "Purchases",
  totalAmount: "Total", currency: "Currency", profileUpdatedAtEpochMillis: "Profile updated",
  firstPurchaseAtEpochMillis: "First purchase", lastPurchaseAtEpochMillis: "Last purchase",
};

export function label(field) {
  return LABELS[field] ?? field;
}

// A field's value as it is read.
export function said(field, row) {
  const value = row?.[field];
  if (value === null || value === undefined) return "–";
  if (field === "totalAmount") return amount(value, row.currency);
  if (field === "purchaseCount") return count(value);
  if (field.endsWith("EpochMillis")) return moment(value);
  return String(value);
}
