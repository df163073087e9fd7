// The live nodes.
import { get } from "../api.js";
import { fill, h } from "../dom.js";
import { count, time } from "../format.js";
import { table } from "../table.js";

const COLUMNS = [
  { name: "Id", cell: (node) => h("span", { class: "mono" }, node.id) },
  { name: "Host", cell: (node) => node.host },
  { name: "Process", num: true, cell: (node) => node.pid },
  { name: "Slots", num: true, cell: (node) => count(node.slots) },
  { name: "Started", cell: (node) => time(node.started_at) },
  { name: "Zones", cell: (node) => node.tzdata },
];

export async function show(main, context) {
  const list = h("div");
  const load = async () => {
    const { items } = await get("/v1/nodes", context.signal);
    fill(list, table("Live nodes, the oldest first", COLUMNS, items, { empty: "No node is registered." }));
  };
  await load();
  fill(main, h("div", { class: "head" }, h("h1", null, "Nodes")), list);
  context.every(2, load);
}
