// The list of tasks: search, keyset pages, newest first.
import { getPage } from "../api.js";
import { bulkButton } from "../bulk.js";
import { fill, h, refresh } from "../dom.js";
import { chosen, filters } from "../filters.js";
import { badge, errorLine, schedule, shortId, time } from "../format.js";
import { onChange } from "../live.js";
import { emptyText, pager, table } from "../table.js";

const UUID = /^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$/i;
const STATUSES = ["pending", "running", "completed", "failed", "cancelled"];
const NAMES = ["status", "type", "queue", "name", "tag", "paused", "due_after", "due_before"];
const FIELDS = [
  { name: "id", label: "Id", placeholder: "UUID", wide: true },
  { name: "status", label: "Status", options: [["", "any"], ...STATUSES.map((one) => [one, one])] },
  { name: "type", label: "Type" },
  { name: "queue", label: "Queue" },
  { name: "name", label: "Name" },
  { name: "tag", label: "Tag", placeholder: "name:value" },
  { name: "paused", label: "Paused", options: [["", "any"], ["true", "paused"], ["false", "not paused"]] },
  { name: "due_after", label: "Due from", type: "datetime-local" },
  { name: "due_before", label: "Due before", type: "datetime-local" },
];
const LIMIT = 50;

const COLUMNS = [
  { name: "Id", id: true, cell: (task) => h("a", { class: "mono", href: `/admin/tasks/${task.id}`, title: task.id }, shortId(task.id)) },
  { name: "Type", cell: (task) => task.type },
  { name: "Queue", cell: (task) => task.queue },
  { name: "Status", cell: (task) => [badge(task.status), task.paused && [" ", badge("paused")]] },
  { name: "Due", cell: (task) => task.next_run_at && time(task.next_run_at) },
  { name: "Schedule", cell: (task) => task.schedule && h("span", { class: "mono" }, schedule(task.schedule)) },
  { name: "Retries", num: true, cell: (task) => task.retry_count ? `${task.retry_count} of ${task.max_retries}` : null },
  { name: "Created", cell: (task) => time(task.created_at) },
  { name: "About", cell: about },
];

function about(task) {
  if (task.status === "failed" && task.error !== null) {
    return h("span", { class: "bad-text" }, errorLine(task.error).slice(0, 160));
  }
  const tags = Object.entries(task.tags);
  return tags.length ? tags.map(([name, value]) => h("a", { class: "tag", href: `/admin/tasks?${new URLSearchParams({ tag: `${name}:${value}` })}` }, `${name}: ${value}`)) : null;
}

export const show = (main, context) => tasksView(main, context, {
  title: "Tasks", fixed: {}, bulk: "Act on all of these…", empty: "No task is like this.",
});

/** A list of tasks. `fixed`: filters that nobody can change. `bulk`: what the button for all of them is called. */
export async function tasksView(main, context, { title, fixed, bulk, empty }) {
  const id = (context.query.get("id") ?? "").trim();
  if (UUID.test(id)) return context.go(`/admin/tasks/${id}`, { replace: true });
  const results = h("div");
  const filter = { ...chosen(context, NAMES), ...fixed };
  fill(main,
    h("div", { class: "head" }, h("h1", null, title), h("div", { class: "actions" }, bulkButton(context, filter, filter.status === "failed" ? "retry" : "cancel", bulk))),
    filters(context, FIELDS.filter((one) => !(one.name in fixed))), results);
  if (id) {
    fill(results, h("p", { class: "problem-box", role: "alert" }, "An id is a UUID, such as 0198c5a2-7d3e-7a61-9d8e-6a1f0c2b4e55."));
    return undefined;
  }
  const query = { ...filter, limit: LIMIT, cursor: context.query.get("cursor") };
  const load = async () => list(results, context, await getPage("/v1/tasks", query, context.signal), empty);
  await load();
  // A page further back does not change by itself.
  if (!query.cursor) {
    context.every(10, load);
    onChange(context, (event) => (!query.queue || event.queue === query.queue) && (!query.type || event.type === query.type), load);
  }
  return undefined;
}

function list(results, context, page, empty) {
  refresh(results, table("Tasks", COLUMNS, page.items, { empty: emptyText(page, empty) }),
    pager(context, page, `${page.items.length} shown, newest first`));
}
