// Bulk actions: the jobs, newest first.
import { get, withQuery } from "../api.js";
import { said } from "../bulk.js";
import { fill, h, refresh } from "../dom.js";
import { badge, count, time } from "../format.js";
import { pager, table } from "../table.js";

const COLUMNS = [
  { name: "Begun", cell: (job) => h("a", { href: `/admin/bulk/${job.id}` }, time(job.created_at)) },
  { name: "By", cell: (job) => job.created_by },
  { name: "Action", cell: (job) => job.action },
  { name: "Filter", cell: (job) => said(job.filter) },
  { name: "Status", cell: (job) => badge(job.status) },
  { name: "Done", num: true, cell: (job) => `${count(job.done)} of ${job.exact ? "" : "≈ "}${count(job.total)}` },
  { name: "Refused", num: true, cell: (job) => count(job.refused) },
  { name: "Ended", cell: (job) => job.finished_at && time(job.finished_at) },
];

export async function show(main, context) {
  const list = h("div");
  const query = { limit: 50, cursor: context.query.get("cursor") };
  const load = async () => {
    const page = await get(withQuery("/v1/bulk", query), context.signal);
    refresh(list, table("Bulk actions, newest first", COLUMNS, page.items, { empty: "There was none. Search for tasks, then act on all that were found." }),
      pager(context, page, `${page.items.length} shown, newest first`));
  };
  await load();
  fill(main, h("div", { class: "head" }, h("h1", null, "Bulk actions")), list);
  context.every(2, load);
}
