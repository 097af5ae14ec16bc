// The control API: requests with the token, and the live stream.
//
// The stream is read by `fetch`, because an EventSource cannot send the token's header. Where the server has
// no stream, the status is asked for once a second.

const TOKEN_KEY = "hemi-token";
const RETRY_MS = [250, 500, 1000, 2000, 5000];
const POLL_MS = 1000;
const POLLS = 60;
/** Time without a word after which a stream counts as dead: the server sends four times a second. */
const SILENCE_MS = 5000;

/** An answer that says no. */
export class Refused extends Error {
  constructor(status, body) {
    super(body?.what ?? `hemi answered ${status}`);
    this.status = status;
    this.wayOut = body?.way_out ?? "";
  }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN_KEY),
  set: (value) => sessionStorage.setItem(TOKEN_KEY, value),
  forget: () => sessionStorage.removeItem(TOKEN_KEY),
};

/** Takes the token from the address, where `hemi dashboard` has put it. */
export async function takeFromAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (!given.has("token")) return;
  history.replaceState(null, "", location.pathname);
  token.set(given.get("token"));
}

async function send(path, options = {}) {
  const headers = { ...options.headers };
  if (token.get()) headers.authorization = `Bearer ${token.get()}`;
  const answer = await fetch(path, { ...options, headers, cache: "no-store", redirect: "error" });
  if (answer.ok) return answer;
  throw new Refused(answer.status, await answer.json().catch(() => null));
}

/** Reads a path; `null` if the server does not have it. */
export async function get(path) {
  try {
    return await (await send(path, { signal: AbortSignal.timeout(10_000) })).json();
  } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
}

/** Asks for a change, and waits until it is done. */
export async function post(path, body) {
  const headers = { "content-type": "application/json" };
  await send(path, { method: "POST", headers, body: JSON.stringify(body) });
}

const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/**
 * Follows the volume forever. `on` has `status(status)`, `event(event)`, `link(state)` with "live", "poll" or
 * "lost", `closed(error)` while the volume is not open, and `denied()`, after which it ends.
 */
export async function follow(on) {
  let failures = 0;
  for (;;) {
    try {
      const said = () => { failures = 0; };
      if (!(await stream(on, said))) await poll(on);
    } catch (error) {
      if (error.status === 401 || error.status === 403) return on.denied(error);
      if (error.status === 503) on.closed(error);
      else on.link("lost");
    }
    await sleep(RETRY_MS[Math.min(failures, RETRY_MS.length - 1)]);
    failures += 1;
  }
}

/** Reads server-sent events until the stream ends; false if there is none. */
async function stream(on, said) {
  const patience = new AbortController();
  let timer = 0;
  const wait = () => {
    clearTimeout(timer);
    timer = setTimeout(() => patience.abort(), SILENCE_MS);
  };
  wait();
  try {
    const answer = await send("v1/live", { signal: patience.signal });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return true;
      wait();
      text += value.replaceAll("\r", "");
      for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
        dispatch(on, text.slice(0, end));
        said();
        text = text.slice(end + 2);
      }
    }
  } catch (error) {
    // It has none, or as many viewers as it takes.
    if ([404, 429, 503].includes(error.status)) return false;
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

function dispatch(on, message) {
  let name = "message";
  const data = [];
  for (const line of message.split("\n")) {
    const colon = line.indexOf(":");
    const field = line.slice(0, colon);
    const value = line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") name = value;
    if (field === "data") data.push(value);
  }
  if (data.length === 0) return;
  const body = JSON.parse(data.join("\n"));
  if (name === "status") {
    on.link("live");
    on.status(body);
  } else if (name === "event") on.event(body);
}

/** Asks for the status again and again, until it is time to try for a stream. */
async function poll(on) {
  for (let asked = 0; asked < POLLS; asked += 1) {
    const status = await get("v1/status");
    on.link("poll");
    on.status(status);
    await sleep(POLL_MS);
  }
}
