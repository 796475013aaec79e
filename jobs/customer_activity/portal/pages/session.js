// What is asked of the portal, with the token of this tab; and its events, which come until the page is left.

const TOKEN = "token";
const AGAIN_MILLIS = 1000;
// Amounts have more digits than a number of JavaScript's: they stay the text that they were.
const EXACT = new Set(["totalAmount"]);

export class Refused extends Error {}

let token = sessionStorage.getItem(TOKEN);

export function signIn(given) {
  token = given;
  sessionStorage.setItem(TOKEN, given);
}

export function signOut() {
  token = null;
  sessionStorage.removeItem(TOKEN);
}

export const hasToken = () => token !== null;

export function parse(text) {
  return JSON.parse(text, (name, value, context) => (EXACT.has(name) && typeof value === "number" ? context?.source ?? String(value) : value));
}

async function asked(path, signal) {
  const headers = token === null ? {} : { Authorization: `Bearer ${token}` };
  const answer = await fetch(path, { headers, signal, cache: "no-store" });
  if (answer.status === 401) throw new Refused();
  return answer;
}

// Returns the answer's parts; those of an error have `error`.
export async function ask(path, signal) {
  return parse(await (await asked(path, signal)).text());
}

// Calls on(name, data) for each event, and lost(true) while the portal does not answer, until the signal is given.
export async function listen(path, signal, on, lost) {
  while (!signal.aborted) {
    try {
      const answer = await asked(path, signal);
      if (!answer.ok) throw new Error(answer.statusText);
      lost(false);
      await read(answer.body.pipeThrough(new TextDecoderStream()).getReader(), on);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refused) return on("refused", {});
    }
    lost(true);
    await new Promise(resolve => setTimeout(resolve, AGAIN_MILLIS));
  }
}

async function read(reader, on) {
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const lines = event.split("\n");
      const name = lines.find(line => line.startsWith("event: "))?.slice(7);
      const data = lines.find(line => line.startsWith("data: "))?.slice(6);
      if (name && data) on(name, parse(data));
    }
  }
}
