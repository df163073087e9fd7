// What comes after a task: what follows each of its outcomes, and the tasks that wait for it.
import { get, withQuery } from "../api.js";
import { h } from "../dom.js";
import { badge } from "../format.js";

const SHOWN = 20;
const link = (id) => h("a", { class: "mono", href: `/admin/tasks/${id}` }, id);

/** The panel; null if nothing comes after the task. */
export async function after(task, path, signal) {
  // Null: this role may not see what it is.
  const follows = task.on_success !== undefined || task.on_failure !== undefined;
  const [runs, waiting] = await Promise.all([
    follows ? get(withQuery(`${path}/runs`, { limit: SHOWN }), signal) : null,
    task.finished_at ? null : get(withQuery(`${path}/waiting`, { limit: SHOWN }), signal),
  ]);
  if (!follows && !waiting?.items.length) return null;
  const followed = runs?.items.filter((run) => run.follow_up) ?? [];
  return h("section", { class: "panel", "aria-labelledby": "after" }, h("h2", { id: "after" }, "What comes after it"),
    h("dl", { class: "facts" },
      toCome(task, "On success", "on_success"), toCome(task, "On failure", "on_failure"),
      followed.length > 0 && [h("dt", null, "Followed by"), h("dd", null, followed.map((run) => h("div", null, link(run.follow_up), " ", badge(run.outcome))))],
      waiting?.items.length > 0 && [h("dt", null, "Waiting for it"), h("dd", null,
        waiting.items.map((one) => h("div", null, link(one.id), ` ${one.type}`)),
        waiting.next_cursor && h("div", { class: "dim" }, `and more: the newest ${SHOWN} are shown`))]));
}

function toCome(task, title, name) {
  const spec = task[name];
  if (spec === undefined) return null;
  if (spec === null) return [h("dt", null, title), h("dd", null, h("span", { class: "hidden-value" }, "hidden from this role"))];
  const open = task.finished_at ? "" : task.schedule ? ", after each occurrence that ends so" : ", to be created";
  return [h("dt", null, title), h("dd", null, spec.type, h("span", { class: "dim" }, `, queue ${spec.queue}${open}`))];
}
