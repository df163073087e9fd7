// The frame: who is signed in, which view is shown, and the URL, which holds a view's whole state.
import { findSession, may, session, signOut, whenSignedOut } from "./api.js";
import { endQuestions, notice } from "./dialog.js";
import { fill, h } from "./dom.js";
import { VIEWS } from "./views.js";

const main = document.getElementById("main");
let leave = new AbortController();

/** What a view gets: its parameters, the filters in the URL, and what ends when it is left. */
class Context {
  constructor(params, signal) {
    this.params = params;
    this.query = new URLSearchParams(location.search);
    this.signal = signal;
  }

  /** This view's address with other filters; null takes one away. */
  here(changes) {
    const query = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === undefined || value === "") query.delete(name);
      else query.set(name, value);
    }
    const text = query.toString();
    return location.pathname + (text ? `?${text}` : "");
  }

  /** Go to an address of the page. */
  go(address, { replace = false } = {}) {
    history[replace ? "replaceState" : "pushState"](null, "", address);
    return show();
  }

  /** Show the view anew. */
  reload() {
    return show({ keepFocus: true });
  }

  /** Call `action` every `seconds` while the view is shown and the page is in sight; never twice at once. */
  every(seconds, action) {
    const signal = this.signal;
    const step = async () => {
      if (signal.aborted) return;
      if (!document.hidden) await action().catch(ignoreLeaving);
      if (!signal.aborted) setTimeout(step, seconds * 1000);
    };
    setTimeout(step, seconds * 1000);
  }
}

/** A failure in the background: said, unless the view was left meanwhile. */
function ignoreLeaving(error) {
  if (error.name !== "AbortError" && error.status !== 401) notice(error.message, true);
}

function find(path) {
  let parts;
  try {
    parts = path.replace(/^\/admin\/?/, "").replace(/\/$/, "").split("/").map(decodeURIComponent);
  } catch {
    return null; // "%zz" says nothing, so there is no such page
  }
  for (const view of VIEWS) {
    const wanted = view.path.split("/");
    if (wanted.length !== parts.length) continue;
    const params = {};
    const fits = wanted.every((word, at) => {
      if (word[0] === ":") params[word.slice(1)] = parts[at];
      return word[0] === ":" || word === parts[at];
    });
    if (fits) return { view, params };
  }
  return null;
}

async function show({ keepFocus = false } = {}) {
  leave.abort();
  leave = new AbortController();
  const mine = leave.signal;
  endQuestions();
  if (session === null) return showSignIn();
  frame();
  const found = find(location.pathname);
  if (found === null) {
    fill(main, h("div", { class: "panel empty" }, "There is no such page. ", h("a", { href: "/admin" }, "To the start")));
    return undefined;
  }
  document.title = `${found.view.title} · Duly`;
  main.setAttribute("aria-busy", "true");
  try {
    const module = await found.view.load();
    if (mine.aborted) return undefined; // the view was left while its module came
    await module.show(main, new Context(found.params, mine));
  } catch (error) {
    if (mine.aborted || error.name === "AbortError" || error.status === 401) return undefined;
    fill(main,
      h("div", { class: "head" }, h("h1", null, found.view.title)),
      h("p", { class: "problem-box", role: "alert" }, error.message),
      h("button", { type: "button", onclick: () => show() }, "Try again"));
  }
  if (mine.aborted) return undefined;
  main.removeAttribute("aria-busy");
  if (!keepFocus) main.focus({ preventScroll: true });
  return undefined;
}

async function showSignIn() {
  document.title = "Sign in · Duly";
  fill(document.getElementById("nav"));
  fill(document.getElementById("who"));
  const module = await import("./views/sign_in.js");
  module.show(main, () => show());
}

function frame() {
  const here = find(location.pathname)?.view;
  const links = VIEWS.filter((view) => view.name && may(view.role ?? "read")).map((view) =>
    h("a", { href: view.path ? `/admin/${view.path}` : "/admin",
             "aria-current": (here === view || here?.under === view.name) && "page" }, view.name));
  const nav = fill(document.getElementById("nav"), links);
  const current = links.find((link) => link.hasAttribute("aria-current"));
  // On a narrow screen the links are one line that scrolls sideways.
  if (current) nav.scrollLeft = current.offsetLeft - nav.offsetLeft - (nav.clientWidth - current.offsetWidth) / 2;
  const who = document.getElementById("who");
  if (session.name === null) return void fill(who, "No tokens set");
  const out = h("button", { type: "button", onclick: leaveSession }, "Sign out");
  fill(who, h("div", null, session.name, h("div", { class: "dim" }, session.role)), out);
}

async function leaveSession() {
  try {
    await signOut();
  } catch (error) {
    if (error.status !== 401) return notice(error.message, true);
  }
  return show();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  const isPlain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
  if (!link || !isPlain || event.defaultPrevented || link.target || link.origin !== location.origin) return;
  if (link.pathname !== "/admin" && !link.pathname.startsWith("/admin/")) return;
  if (link.hash) return;
  event.preventDefault();
  history.pushState(null, "", link.href);
  scrollTo(0, 0);
  show();
});
addEventListener("popstate", () => show());
whenSignedOut(() => {
  notice("The session has ended.");
  show();
});

async function start() {
  try {
    await findSession();
  } catch (error) {
    fill(main, h("p", { class: "problem-box", role: "alert" }, error.message),
      h("button", { type: "button", onclick: start }, "Try again"));
    return;
  }
  await show();
}

start();
