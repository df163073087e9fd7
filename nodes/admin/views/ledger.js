// What became of every due time of all tasks, newest first; and the reports that were refused.
import { getPage } from "../api.js";
import { fill, h, refresh } from "../dom.js";
import { chosen, filters } from "../filters.js";
import { badge, duration, errorLine, shortId, time } from "../format.js";
import { emptyText, pager, table } from "../table.js";

const NAMES = ["verdict", "reason", "type", "queue", "since", "until"];
const options = (...names) => [["", "any"], ...names.map((name) => [name, name])];
const FIELDS = [
  { name: "verdict", label: "Verdict", options: [...options("completed", "failed", "cancelled", "skipped"), ["rejected", "refused reports"]] },
  { name: "reason", label: "Skipped for", options: options("overrun", "misfire", "paused", "ended", "replaced", "expired") },
  { name: "type", label: "Type" },
  { name: "queue", label: "Queue" },
  { name: "since", label: "From", type: "datetime-local" },
  { name: "until", label: "Before", type: "datetime-local" },
];

const took = (entry) => (Date.parse(entry.finished_at) - Date.parse(entry.started_at)) / 1000;

function why(entry) {
  if (entry.verdict !== "rejected") return entry.reason;
  return `said ${entry.outcome.replace("_", " ")}${entry.times > 1 ? `, ${entry.times} times` : ""}; ${entry.reason}`;
}

const COLUMNS = [
  { name: "Recorded", cell: (entry) => time(entry.recorded_at) },
  { name: "Task", id: true, cell: (entry) => h("a", { class: "mono", href: `/admin/tasks/${entry.task_id}`, title: entry.task_id }, shortId(entry.task_id)) },
  { name: "Type", cell: (entry) => entry.type },
  { name: "Queue", cell: (entry) => entry.queue },
  { name: "Due", cell: (entry) => [time(entry.occurrence), entry.through && [" to ", time(entry.through)]] },
  { name: "Verdict", cell: (entry) => (entry.verdict === "rejected" ? badge("refused", "warn") : badge(entry.verdict)) },
  { name: "Why", cell: why },
  { name: "Attempt", num: true, cell: (entry) => entry.attempt },
  { name: "Took", num: true, cell: (entry) => entry.started_at && entry.finished_at && duration(took(entry)) },
  { name: "Worker", tight: true, cell: (entry) => entry.worker && h("span", { class: "mono" }, entry.worker) },
  { name: "Error", cell: (entry) => entry.error !== null && h("span", { class: "bad-text" }, errorLine(entry.error).slice(0, 140)) },
];

export async function show(main, context) {
  const query = { ...chosen(context, NAMES), limit: 50, cursor: context.query.get("cursor") };
  const results = h("div");
  fill(main, h("div", { class: "head" }, h("h1", null, "Ledger")), filters(context, FIELDS), results);
  const load = async () => {
    const page = await getPage("/v1/ledger", query, context.signal);
    refresh(results, table("Verdicts, newest first", COLUMNS, page.items, { empty: emptyText(page, "No verdict is like this.") }),
      pager(context, page, `${page.items.length} shown, newest first`));
  };
  await load();
  if (!query.cursor) context.every(10, load);
}
