// The live workers.
import { get } from "../api.js";
import { fill, h, refresh } from "../dom.js";
import { count, duration } from "../format.js";
import { table } from "../table.js";

const COLUMNS = [
  { name: "Id", cell: (worker) => h("span", { class: "mono" }, worker.id) },
  { name: "Host", cell: (worker) => worker.host && `${worker.host} · ${worker.pid}` },
  { name: "Queues", cell: (worker) => worker.queues?.map((queue) => h("a", { class: "tag", href: `/admin/tasks?${new URLSearchParams({ queue, status: "running" })}` }, queue)) },
  { name: "Running", num: true, cell: (worker) => `${count(worker.running)} of ${count(worker.concurrency)}` },
  { name: "Held", num: true, cell: (worker) => count(worker.held) },
  { name: "No handler for", cell: (worker) => worker.unknown_types.map((type) => h("span", { class: "badge warn" }, type)) },
  { name: "Cannot read", cell: (worker) => worker.unreadable.map((reason) => h("span", { class: "badge warn" }, reason)) },
  { name: "SDK", cell: (worker) => worker.sdk },
  { name: "Last heard of", num: true, cell: (worker) => h("span", { class: worker.seen_s > 6 ? "warn-text" : null }, `${duration(worker.seen_s)} ago`) },
];

export async function show(main, context) {
  const list = h("div");
  const total = h("span", { class: "dim" });
  const load = async () => {
    const { items } = await get("/v1/workers", context.signal);
    const sum = (name) => items.reduce((so_far, one) => so_far + (one[name] ?? 0), 0);
    fill(total, items.length > 0 && `${count(items.length)} worker${items.length === 1 ? "" : "s"}, ${count(sum("running"))} of ${count(sum("concurrency"))} places in use`);
    refresh(list, table("Live workers", COLUMNS, items, { empty: "No worker is alive." }));
  };
  await load();
  fill(main, h("div", { class: "head" }, h("h1", null, "Workers"), total), list);
  context.every(2, load);
}
