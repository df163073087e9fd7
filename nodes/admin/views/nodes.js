// The live nodes, and which of them owns each slot.
import { get } from "../api.js";
import { fill, h, refresh } from "../dom.js";
import { badge, count, duration, time } from "../format.js";
import { table } from "../table.js";
import { SlotMap, letters, mark } from "./slot_map.js";

const columns = (names) => [
  { name: "Node", cell: (node) => [mark(names.get(node.id)), " ", h("span", { class: "mono" }, node.id)] },
  { name: "Host", cell: (node) => `${node.host} · ${node.pid}` },
  { name: "Slots", num: true, cell: (node) => count(node.slots) },
  { name: "In the wheel", num: true, cell: (node) => count(node.wheel_entries) },
  { name: "Waiting for room", num: true, cell: (node) => count(node.ready_entries) },
  { name: "Lag p99", num: true, cell: (node) => duration(node.lag_p99_s) },
  { name: "Lease age", num: true, cell: (node) => duration(node.lease_age_s) },
  { name: "Clock off by", num: true, cell: (node) => duration(node.clock_offset_s) },
  { name: "Works", cell: (node) => [works("PostgreSQL", node.postgres), " ", works("Redis", node.redis)] },
  { name: "Version", tight: true, cell: (node) => node.version },
  { name: "Zones", tight: true, cell: (node) => node.tzdata },
  { name: "Started", cell: (node) => time(node.started_at) },
];

const works = (name, ok) => badge(name, ok === null || ok === undefined ? "still" : ok ? "good" : "bad");

export async function show(main, context) {
  const list = h("div");
  const map = new SlotMap();
  const load = async () => {
    const [nodes, slots] = await Promise.all([get("/v1/nodes", context.signal), get("/v1/slots", context.signal)]);
    const names = letters(nodes.items.map((node) => node.id), slots.items);
    const shown = columns(names).filter((one) => one.name !== "Lag p99" || nodes.items.some((node) => node.lag_p99_s !== undefined));
    refresh(list, table("Live nodes, the oldest first", shown, nodes.items, { empty: "No node is registered." }));
    map.update(slots.items, names);
  };
  await load();
  fill(main, h("div", { class: "head" }, h("h1", null, "Nodes")), list, map.element);
  context.every(2, load);
}
