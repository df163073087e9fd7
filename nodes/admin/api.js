// Calls of the node's API, with the session's cookie.
import { noteClock } from "./format.js";

/** What the API refused, or that it did not answer: `status` is 0 then. */
export class ApiError extends Error {
  constructor(status, problem, retryAfterS) {
    super(problem.detail || problem.title || `status ${status}`);
    this.status = status;
    this.errors = problem.errors ?? [];
    this.retryAfterS = retryAfterS;
  }
}

/** Who is signed in; null before that. */
export let session = null;

const RANKS = ["read", "payload-view", "submit", "admin"];

/** Whether who is signed in has this role or one above it. */
export const may = (role) => session !== null && RANKS.indexOf(session.role) >= RANKS.indexOf(role);

let onSignedOut = () => {};

/** What to do when the session has ended. */
export const whenSignedOut = (action) => { onSignedOut = action; };

async function send(method, path, { body, signal, headers = {} } = {}) {
  const all = { Accept: "application/json", ...headers };
  if (body !== undefined) all["Content-Type"] = "application/json";
  if (method !== "GET" && session?.csrf) all["X-CSRF-Token"] = session.csrf;
  let answer;
  try {
    answer = await fetch(path, { method, headers: all, body, signal, credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { detail: "the node does not answer" });
  }
  noteClock(answer.headers.get("Date"));
  const text = await answer.text();
  if (answer.ok) return text;
  let problem = {};
  try { problem = JSON.parse(text); } catch { problem = { detail: text.slice(0, 200) }; }
  throw new ApiError(answer.status, problem, Number(answer.headers.get("Retry-After")) || undefined);
}

async function call(method, path, options) {
  try {
    return await send(method, path, options);
  } catch (error) {
    if (error.status === 401) end();
    throw error;
  }
}

/** A path with the parameters that have a value. */
export function withQuery(path, query) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

/** GET, decoded. */
export const get = async (path, signal) => JSON.parse(await call("GET", path, { signal }));

const LOOKS_MAX = 5;

/** A page of a list. The work for one is bounded, so it may be empty and yet not the last: then look on a little. */
export async function getPage(path, query, signal) {
  let page = await get(withQuery(path, query), signal);
  for (let looks = 1; !page.items.length && page.next_cursor && looks < LOOKS_MAX; looks += 1) {
    page = await get(withQuery(path, { ...query, cursor: page.next_cursor }), signal);
  }
  return page;
}

/** GET, decoded and as the text that came: for values whose digits matter. */
export async function getExact(path, signal) {
  const text = await call("GET", path, { signal });
  return { value: JSON.parse(text), text };
}

/** A change. `body` is a value, or JSON text as it is to be sent. */
export async function change(method, path, body, headers) {
  const sent = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
  const text = await asBefore(() => call(method, path, { body: sent, headers }));
  return text ? JSON.parse(text) : null;
}

/** Signing in in another tab makes a new session for this one, too: its CSRF token is another. */
async function asBefore(request) {
  const before = session;
  try {
    return await request();
  } catch (error) {
    if (error.status !== 403) throw error;
    const now = await findSession();
    if (now === null || before === null || now.csrf === before.csrf) throw error;
    if (now.name === before.name && now.role === before.role) return request();
    session = before; // and so refused again, until somebody looks who it is
    throw new ApiError(403, { detail: `another tab has signed in as ${now.name} (${now.role}): reload the page` });
  }
}

/** Find out who is signed in. */
export async function findSession() {
  try {
    session = JSON.parse(await send("GET", "/v1/session"));
  } catch (error) {
    if (error.status !== 401) throw error;
    end();
  }
  return session;
}

function end() {
  if (session === null) return;
  session = null;
  onSignedOut();
}

/** Sign in with a token. */
export async function signIn(token) {
  session = JSON.parse(await send("POST", "/v1/session", { body: JSON.stringify({ token }) }));
}

/** Sign out; the cookie goes. */
export async function signOut() {
  await send("DELETE", "/v1/session");
  session = null;
}
