// Periodic tasks: when each fires next, and after that.
import { getPage } from "../api.js";
import { fill, h } from "../dom.js";
import { chosen, filters } from "../filters.js";
import { badge, errorLine, schedule, time } from "../format.js";
import { emptyText, pager, table } from "../table.js";
import { fireTimes } from "./fire_times.js";

const NAMES = ["type", "queue", "name", "tag", "paused", "status"];
const FIELDS = [
  { name: "type", label: "Type" },
  { name: "queue", label: "Queue" },
  { name: "name", label: "Name" },
  { name: "tag", label: "Tag", placeholder: "name:value" },
  { name: "paused", label: "Paused", options: [["", "any"], ["true", "paused"], ["false", "not paused"]] },
  { name: "status", label: "Status", options: [["", "any"], ["pending", "pending"], ["running", "running"], ["completed", "completed (over)"], ["failed", "failed"], ["cancelled", "cancelled"]] },
];

const columns = (context) => [
  { name: "Type", cell: (task) => h("a", { href: `/admin/tasks/${task.id}`, title: task.id }, task.type) },
  { name: "Name", cell: (task) => task.name },
  { name: "Queue", cell: (task) => task.queue },
  { name: "Schedule", cell: (task) => h("span", { class: "mono" }, schedule(task.schedule)) },
  { name: "Status", cell: (task) => [badge(task.status), task.paused && [" ", badge("paused")]] },
  { name: "Next", cell: (task) => task.next_run_at && time(task.next_run_at) },
  { name: "After that", cell: (task) => !task.finished_at && later(task, context.signal) },
  { name: "Tags", cell: (task) => Object.entries(task.tags).map(([name, value]) => h("span", { class: "tag" }, `${name}: ${value}`)) },
  { name: "Last error", cell: (task) => task.error !== null && h("span", { class: "bad-text" }, errorLine(task.error).slice(0, 120)) },
];

/** The next fire times, asked for when they are wanted. */
function later(task, signal) {
  const box = h("div");
  return h("details", {
    ontoggle: async (event) => {
      if (event.target.open && !box.childNodes.length) {
        fill(box, await fireTimes(task, signal).catch((error) => h("span", { class: "bad-text" }, error.message)));
      }
    },
  }, h("summary", null, "show"), box);
}

export async function show(main, context) {
  const query = { ...chosen(context, NAMES), periodic: "true", limit: 50, cursor: context.query.get("cursor") };
  const results = h("div");
  fill(main, h("div", { class: "head" }, h("h1", null, "Schedules")), filters(context, FIELDS), results);
  const page = await getPage("/v1/tasks", query, context.signal);
  fill(results, table("Periodic tasks", columns(context), page.items, { empty: emptyText(page, "No periodic task is like this.") }),
    pager(context, page, `${page.items.length} shown, newest first`));
}
