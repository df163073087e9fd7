// One task: its facts, what it was given and gave, and the story of its attempts.
import { buttons } from "../actions.js";
import { getExact, withQuery } from "../api.js";
import { fill, h, refresh } from "../dom.js";
import { badge, count, duration, errorLine, isSealed, schedule, sealed, time } from "../format.js";
import { rawAt, view as jsonView } from "../json.js";
import { onChange } from "../live.js";
import { after } from "./after.js";
import { attempts } from "./attempts.js";
import { Explain } from "./explain.js";
import { fireTimes } from "./fire_times.js";

export async function show(main, context) {
  const path = `/v1/tasks/${encodeURIComponent(context.params.id)}`;
  const explain = new Explain(path);
  let version = null;

  async function load() {
    const { value: task, text } = await getExact(path, context.signal);
    const known = `${task.version} ${task.status} ${task.paused} ${task.updated_at}`;
    if (known !== version) await drawAll(task, text);
    version = known;
    await explain.update(task, context.signal);
  }

  async function drawAll(task, text) {
    const query = { limit: 50, cursor: context.query.get("cursor") };
    const [ledger, times, next] = await Promise.all([
      getExact(withQuery(`${path}/ledger`, query), context.signal), fireTimes(task, context.signal), after(task, path, context.signal),
    ]);
    const put = version === null ? fill : refresh;
    draw(main, put, context, { task, text, ledger, times, next, load, explain });
  }

  await load();
  context.every(2, load);
  onChange(context, (event) => event.task_id === context.params.id, load, 300);
}

function draw(main, put, context, { task, text, ledger, times, next, load, explain }) {
  document.title = `${task.type} · Duly`;
  const again = () => load().catch(() => context.reload());
  put(main,
    h("div", { class: "head" },
      h("h1", null, task.type), badge(task.status), task.paused && badge("paused"),
      h("div", { class: "actions" }, buttons(task, text, again))),
    h("div", { class: "cols" },
      h("section", { class: "panel", "aria-labelledby": "facts" }, h("h2", { id: "facts" }, "Facts"), facts(task)),
      h("div", null,
        explain.element,
        times && h("section", { class: "panel", "aria-labelledby": "times" }, h("h2", { id: "times" }, "Next fire times"), times),
        next,
        value("Payload", task, "payload", text),
        task.status === "completed" && value("Result", task, "result", text),
        task.error !== null && value("Error", task, "error", text))),
    attempts(context, task, ledger));
}

function facts(task) {
  const rows = [
    ["Id", h("span", { class: "mono" }, task.id)],
    ["Name", task.name],
    ["Queue", h("a", { href: `/admin/tasks?${new URLSearchParams({ queue: task.queue })}` }, task.queue)],
    ["Due", task.next_run_at && time(task.next_run_at, { both: true })],
    ["Schedule", task.schedule && h("span", { class: "mono" }, schedule(task.schedule))],
    ["Watched", watched(task.schedule)],
    ["Priority", task.priority],
    ["Retries", `${count(task.retry_count)} of ${count(task.max_retries)} used`],
    ["Timeout", duration(task.timeout)],
    ["Back-off", backoff(task.backoff)],
    ["Overrun", task.schedule && task.overrun],
    ["Misfire grace", task.misfire_grace !== null && duration(task.misfire_grace)],
    ["If its worker is lost", task.on_lost === "fail" ? "fail, never start twice" : "retry"],
    ["Idempotency key", task.idempotency_key],
    ["Concurrency key", task.concurrency_key && `${task.concurrency_key}, at most ${task.concurrency_limit} at once`],
    ["Fairness key", task.fairness_key],
    ["Region", task.forwarding ? `${task.forwarding.region}, ${task.forwarding.state} here` : task.region],
    ["Follows", task.parent && link(task.parent.id)],
    ["Waits for", task.waits_for?.map(link)],
    ["Came after", !task.waits_for && task.after?.map(link)],
    ["Tags", Object.keys(task.tags).length > 0 && Object.entries(task.tags).map(([name, text]) => h("span", { class: "tag" }, `${name}: ${text}`))],
    ["Created", time(task.created_at, { both: true })],
    ["Changed", time(task.updated_at, { both: true })],
    ["Started", task.started_at && time(task.started_at, { both: true })],
    ["Finished", task.finished_at && time(task.finished_at, { both: true })],
    ["Worker", task.worker && h("span", { class: "mono" }, task.worker)],
    ["Claimed by", task.owner && h("span", { class: "mono" }, task.owner)],
    ["Slot", task.slot],
    ["Version", task.version],
  ];
  const given = rows.filter(([, content]) => content !== null && content !== false && content !== undefined);
  return h("dl", { class: "facts" }, given.map(([name, content]) => [h("dt", null, name), h("dd", null, content)]));
}

const link = (id) => [h("a", { class: "mono", href: `/admin/tasks/${id}` }, id), " "];

function watched(of) {
  const parts = [
    of?.expect_within && `alert after ${duration(of.expect_within)} without a success`,
    of?.pause_after && `pause after ${of.pause_after} failures in a row`,
  ];
  return parts.filter(Boolean).join(", ") || null;
}

function backoff({ kind, delay, factor, max_delay: most, jitter }) {
  const grows = kind === "exponential" ? `, × ${factor} each time, at most ${duration(most)}`
    : kind === "linear" ? `, that much longer each time, at most ${duration(most)}` : "";
  return `${duration(delay)}${grows}${jitter ? ` ± ${Math.round(jitter * 100)} %` : ""}`;
}

function value(title, task, name, text) {
  const id = `value-${name}`;
  return h("section", { class: "panel", "aria-labelledby": id },
    h("h2", { id }, title),
    body(task, name, text));
}

function body(task, name, text) {
  if ((task.hidden ?? []).includes(name)) return h("span", { class: "hidden-value" }, "hidden from this role");
  if (isSealed(task[name])) return [name === "error" && h("p", { class: "bad-text" }, task.error.type), sealed(task[name])];
  if (name !== "error") return jsonView(rawAt(text, name));
  const trace = task.error?.traceback;
  return [
    h("p", { class: "bad-text" }, errorLine(task.error)),
    typeof trace === "string" && h("pre", { class: "plain", tabindex: 0 }, trace.trimEnd()),
    typeof task.error === "object" && h("details", null, h("summary", null, "As JSON"), jsonView(rawAt(text, name))),
  ];
}
