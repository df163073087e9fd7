// Who changed what, newest first.
import { get, withQuery } from "../api.js";
import { fill, h } from "../dom.js";
import { chosen, filters } from "../filters.js";
import { jsonLine, shortId, time } from "../format.js";
import { pager, table } from "../table.js";

const NAMES = ["who", "action", "task_id", "since", "before"];
const FIELDS = [
  { name: "who", label: "Who" },
  { name: "action", label: "Action" },
  { name: "task_id", label: "Task", placeholder: "UUID", wide: true },
  { name: "since", label: "From", type: "datetime-local" },
  { name: "before", label: "Before", type: "datetime-local" },
];

function details(of) {
  const text = h("code", null, jsonLine(of));
  return typeof of.bulk === "string" ? h("a", { href: `/admin/bulk/${of.bulk}` }, text) : text;
}

const COLUMNS = [
  { name: "When", cell: (note) => time(note.at) },
  { name: "Who", tight: true, cell: (note) => note.who ?? h("span", { class: "dim" }, "no token") },
  { name: "Role", cell: (note) => note.role },
  { name: "Action", cell: (note) => note.action },
  { name: "Task", id: true, cell: (note) => note.task_id && h("a", { class: "mono", href: `/admin/tasks/${note.task_id}`, title: note.task_id }, shortId(note.task_id)) },
  { name: "Details", cell: (note) => note.details && details(note.details) },
];

export async function show(main, context) {
  const query = { ...chosen(context, NAMES), limit: 50, cursor: context.query.get("cursor") };
  const results = h("div");
  fill(main, h("div", { class: "head" }, h("h1", null, "Audit")), filters(context, FIELDS), results);
  const page = await get(withQuery("/v1/audit", query), context.signal);
  fill(results, table("Changes, newest first", COLUMNS, page.items, { empty: "Nobody changed anything like this." }),
    pager(context, page, `${page.items.length} shown, newest first`));
}
