// One thing done to all tasks that a filter finds: a look at what it would be first, then a job.
import { change, may } from "./api.js";
import { ask } from "./dialog.js";
import { field, fill, h, select } from "./dom.js";
import { badge, count, duration, shortId } from "./format.js";

const ACTIONS = [["cancel", "cancel"], ["retry", "retry"], ["pause", "pause"], ["resume", "resume"], ["reschedule", "reschedule"]];

/** The filter of a job from that of a list. */
const filterOf = (query) => Object.fromEntries(Object.entries(query).map(([name, value]) => [name, value === "true" ? true : value === "false" ? false : value]));

/** A button that acts on all tasks of the list; none without a filter, or for a role that may not. */
export function bulkButton(context, query, action, name) {
  if (!may("admin") || !Object.keys(query).length) return null;
  return h("button", { type: "button", onclick: () => choose(context, filterOf(query), action) }, name);
}

async function choose(context, filter, action) {
  const what = select("action", ACTIONS, action);
  const rate = h("input", { type: "number", name: "rate", min: 0.1, max: 10_000, step: "any", value: 500, required: true });
  const delay = h("input", { type: "number", name: "delay", min: 0, step: "any", value: 0, required: true });
  const delayField = field("Due in, seconds from now", delay);
  const fit = () => {
    delayField.hidden = what.value !== "reschedule";
    delay.disabled = delayField.hidden; // what is not asked for is not checked either
  };
  what.addEventListener("change", fit);
  fit();
  let request = null;
  let found = null;
  const looked = await ask({
    title: "Act on all of these", confirm: "Look first", isLook: true,
    body: [h("p", null, "All tasks with ", said(filter), ", on this page and all others."), field("Action", what), delayField, field("Tasks a second, at most", rate)],
    apply: async () => {
      request = { action: what.value, filter, rate: Number(rate.value) };
      if (what.value === "reschedule") request.delay = Number(delay.value);
      found = await change("POST", "/v1/bulk", { ...request, dry_run: true });
    },
  });
  if (looked) await apply(context, request, found);
}

async function apply(context, request, found) {
  let job = null;
  const number = `${found.exact ? "" : "about "}${count(found.count)} ${found.count === 1 ? "task" : "tasks"}`;
  const title = `${request.action[0].toUpperCase()}${request.action.slice(1)} ${number}`;
  const done = await ask({
    title, confirm: title, danger: request.action === "cancel",
    body: [
      h("p", null, "Nothing has been changed yet. With ", said(request.filter), ":"),
      request.action === "reschedule" && h("p", null, request.delay ? `They become due ${duration(request.delay)} from now.` : "They become due now."),
      h("ul", { class: "sample", "aria-label": "Some of them" }, found.sample.map((task) => h("li", null, h("span", { class: "mono" }, shortId(task.id)), ` ${task.type} `, badge(task.status)))),
      found.count > found.sample.length && h("p", { class: "dim" }, `and ${count(found.count - found.sample.length)} more.`),
    ],
    apply: async () => { job = await change("POST", "/v1/bulk", request); },
  });
  if (done) context.go(`/admin/bulk/${job.id}`);
}

/** A filter in words. */
export function said(filter) {
  const parts = Object.entries(filter).map(([name, value]) => h("code", { class: "tag" }, `${name.replace("_", " ")}: ${value}`));
  const box = h("span");
  return fill(box, parts);
}
