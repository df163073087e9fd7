// Why a task has not run: what holds it now, and what would hold it next.
import { get } from "../api.js";
import { h, refresh } from "../dom.js";
import { duration, time } from "../format.js";

const TIMES = new Set(["due", "until", "since", "next_token_at", "finished_at"]);
const KINDS = { running: "busy", in_stream: "busy", claimed: "busy", due_now: "busy", not_due: "still", backoff: "still", finished: "good" };

/** A panel that keeps itself up to date while the task is open. */
export class Explain {
  constructor(path) {
    this.path = `${path}/explain`;
    this.body = h("div", { "aria-live": "polite" });
    this.element = h("section", { class: "panel", "aria-labelledby": "explain" }, h("h2", { id: "explain" }, "Why it does not run now"), this.body);
    this.shown = "";
  }

  async update(task, signal) {
    this.element.hidden = Boolean(task.finished_at);
    if (task.finished_at) return;
    const { reasons } = await get(this.path, signal);
    const key = JSON.stringify(reasons, (name, value) => (name === "silent_s" || name === "message" ? undefined : value));
    if (key === this.shown) return;
    this.shown = key;
    refresh(this.body, h("ol", { class: "reasons" }, reasons.map((reason) =>
      h("li", null, h("span", { class: `badge ${KINDS[reason.code] ?? "warn"}` }, reason.message), facts(reason)))));
  }
}

function facts({ code: _code, message: _message, ...rest }) {
  const given = Object.entries(rest).filter(([, value]) => value !== null && !(Array.isArray(value) && !value.length));
  if (!given.length) return null;
  return h("dl", { class: "facts small" }, given.map(([name, value]) => [h("dt", null, name.replaceAll("_", " ").replace(/ s$/, "")), h("dd", null, content(name, value))]));
}

function content(name, value) {
  if (TIMES.has(name)) return time(value, { both: true });
  if (name === "progress") return [h("progress", { value, max: 1, "aria-label": "Progress" }), ` ${Math.round(100 * value)} %`];
  if (name.endsWith("_s")) return duration(value);
  if (name === "holders") return value.map((id) => h("div", null, link(id)));
  if (name === "tasks") return Object.entries(value).map(([id, status]) => h("div", null, link(id), ` ${status}`));
  return Array.isArray(value) ? value.join(", ") : String(value);
}

const link = (id) => h("a", { class: "mono", href: `/admin/tasks/${id}` }, id);
