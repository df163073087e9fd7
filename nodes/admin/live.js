// The node's event stream, one for the whole page, open while a view listens.
import { findSession } from "./api.js";

const KINDS = ["task", "stats", "state", "dropped", "alert"];
const AGAIN_MS = 3000;

const listeners = new Set();
let source = null;
let state = { live: false, detail: "connecting" };

/**
 * Listen until `signal` ends: `on` holds a function for each kind of event it wants (`task`, `stats`,
 * `state`, `dropped`, `alert`). `state` is told at once, and whenever the stream breaks off or comes back.
 */
export function listen(signal, on) {
  listeners.add(on);
  signal.addEventListener("abort", () => {
    listeners.delete(on);
    if (!listeners.size) close();
  });
  on.state?.(state);
  if (isWanted()) open();
}

/** Call `action` soon after a task that `fits` has changed: once for many changes, never twice at a time. */
export function onChange(context, fits, action, everyMs = 1000) {
  let waiting = false;
  let again = false;
  const step = async () => {
    again = false;
    if (!document.hidden) await action().catch(() => {}); // the view's own round says what is wrong
    setTimeout(() => {
      waiting = false;
      if (again && !context.signal.aborted) begin();
    }, everyMs);
  };
  const begin = () => {
    waiting = true;
    setTimeout(step, 150);
  };
  listen(context.signal, {
    task: (event) => {
      if (!fits(event)) return;
      if (waiting) again = true;
      else begin();
    },
  });
}

/** Whether a stream is to be opened. A browser keeps six connections to a node for all of its tabs: one that nobody sees has none. */
const isWanted = () => listeners.size > 0 && source === null && !document.hidden;

function open() {
  source = new EventSource("/v1/events");
  for (const kind of KINDS) {
    source.addEventListener(kind, (event) => {
      const data = JSON.parse(event.data);
      if (kind === "state") tellState(data);
      else tell(kind, data);
    });
  }
  source.onerror = () => {
    tellState({ live: false, detail: "the node does not answer" });
    // A refusal ends the source for good; a lost connection it mends by itself.
    if (source?.readyState === EventSource.CLOSED) {
      close();
      setTimeout(comeBack, AGAIN_MS);
    }
  };
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden && source !== null) {
    close();
    tellState({ live: false, detail: "while it is out of sight" });
  } else if (isWanted()) {
    open();
  }
});

async function comeBack() {
  if (!isWanted()) return;
  const isSignedIn = await findSession().catch(() => true); // what is wrong, the stream finds out too
  if (isSignedIn && isWanted()) open(); // meanwhile the page may have been hidden, or have opened one
}

function close() {
  source?.close();
  source = null;
  state = { live: false, detail: "connecting" };
}

function tellState(now) {
  state = now;
  tell("state", now);
}

function tell(kind, data) {
  for (const on of [...listeners]) on[kind]?.(data);
}
