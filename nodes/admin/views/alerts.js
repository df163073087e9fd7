// Watched schedules that went silent, or were paused after too many failures.
import { get, withQuery } from "../api.js";
import { fill, h, refresh } from "../dom.js";
import { chosen, filters } from "../filters.js";
import { badge, jsonLine, time } from "../format.js";
import { pager, table } from "../table.js";

const FIELDS = [
  { name: "open", label: "State", options: [["", "any"], ["true", "open"], ["false", "over"]] },
  { name: "task_id", label: "Task", placeholder: "UUID", wide: true },
];
const SAYS = { silent: "silent for too long", auto_paused: "paused after failures" };

const COLUMNS = [
  { name: "State", cell: (alert) => (alert.cleared_at ? badge("over", "still") : badge("open", "bad")) },
  { name: "What", cell: (alert) => SAYS[alert.kind] ?? alert.kind },
  { name: "Task", cell: (alert) => h("a", { href: `/admin/tasks/${alert.task_id}`, title: alert.task_id }, alert.type) },
  { name: "Queue", cell: (alert) => alert.queue },
  { name: "Since", cell: (alert) => time(alert.since) },
  { name: "Raised", cell: (alert) => time(alert.raised_at) },
  { name: "Cleared", cell: (alert) => alert.cleared_at && time(alert.cleared_at) },
  { name: "Details", cell: (alert) => alert.details && h("code", null, jsonLine(alert.details)) },
];

export async function show(main, context) {
  const query = { ...chosen(context, ["open", "task_id"]), limit: 50, cursor: context.query.get("cursor") };
  const results = h("div");
  const load = async () => {
    const page = await get(withQuery("/v1/alerts", query), context.signal);
    refresh(results, table("Alerts, newest first", COLUMNS, page.items, { empty: "No alert is like this." }),
      pager(context, page, `${page.items.length} shown, newest first`));
  };
  fill(main, h("div", { class: "head" }, h("h1", null, "Alerts")), filters(context, FIELDS), results);
  await load();
  if (!query.cursor) context.every(10, load);
}
