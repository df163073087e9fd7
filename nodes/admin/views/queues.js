// The queues: what waits in each, and what holds it back. Admins pause them and set their limits.
import { change, get, may, withQuery } from "../api.js";
import { ask, notice } from "../dialog.js";
import { field, fill, h, refresh } from "../dom.js";
import { filters } from "../filters.js";
import { badge, count, time } from "../format.js";
import { pager, table } from "../table.js";

const isSet = (value) => value !== null && value !== undefined;

const FIELDS = [{ name: "contains", label: "Name", placeholder: "a part of it", wide: true }];

const columns = (load) => [
  { name: "Queue", long: true, cell: (one) => h("a", { href: `/admin/tasks?${new URLSearchParams({ queue: one.queue })}` }, one.queue) },
  { name: "State", cell: state },
  { name: "Pending", num: true, cell: (one) => tasks(one, one.pending) },
  { name: "Running", num: true, cell: (one) => tasks(one, one.running) },
  { name: "In the stream", num: true, cell: (one) => count(one.backlog) },
  { name: "Workers", num: true, cell: (one) => (one.workers === 0 && one.pending + one.running > 0 ? h("span", { class: "warn-text" }, "none") : count(one.workers)) },
  { name: "Rate", num: true, cell: (one) => isSet(one.rate) && `${count(one.rate)}/s` },
  { name: "Burst", num: true, cell: (one) => isSet(one.burst) && count(one.burst) },
  { name: "In flight at most", num: true, cell: (one) => isSet(one.max_in_flight) && count(one.max_in_flight) },
  { name: "Last set", cell: (one) => one.updated_at && [time(one.updated_at), one.updated_by && ` by ${one.updated_by}`] },
  ...(may("admin") ? [{ name: "Change", cell: (one) => h("div", { class: "row-buttons" }, buttons(one, load)) }] : []),
];

function tasks(one, number) {
  if (one.exact) return count(number);
  return h("span", { title: "estimated from a part of the tasks" }, `≈ ${count(number)}`);
}

function state(one) {
  if (one.paused) return [badge("paused"), " ", one.paused_at && time(one.paused_at), one.paused_by && ` by ${one.paused_by}`];
  if (one.next_token_at) return [badge("waits for its rate", "warn"), " ", time(one.next_token_at)];
  return badge("open", "good");
}

function buttons(one, load) {
  const toggle = one.paused
    ? { name: "Resume", says: "Its tasks are dispatched again." }
    : { name: "Pause", says: "Nothing of it is dispatched until it is resumed. What runs, runs on." };
  return [
    h("button", { type: "button", "aria-label": `${toggle.name} ${one.queue}`, onclick: () => set(one, toggle.name, h("p", null, toggle.says), () => ({ paused: !one.paused }), load) }, toggle.name),
    h("button", { type: "button", "aria-label": `Limits of ${one.queue}`, onclick: () => limits(one, load) }, "Limits"),
  ];
}

async function limits(one, load) {
  const number = (name, step) => h("input", { type: "number", name, min: 0, step, value: one[name] ?? "", placeholder: "no limit" });
  const controls = { rate: number("rate", "any"), burst: number("burst", 1), max_in_flight: number("max_in_flight", 1) };
  controls.burst.placeholder = "by the rate";
  const body = [
    field("Rate, tasks a second in the whole cluster", controls.rate),
    field("Burst, tasks at once after a silence", controls.burst),
    field("In flight at most: dispatched and not recorded", controls.max_in_flight),
  ];
  const read = () => Object.fromEntries(Object.entries(controls).map(([name, control]) => [name, control.value === "" ? null : Number(control.value)]));
  await set(one, "Save limits", body, read, load, controls);
}

async function set(one, confirm, body, read, load, controls = {}) {
  const done = await ask({
    title: `${one.queue}: ${confirm.toLowerCase()}`, body, confirm,
    apply: async () => {
      for (const control of Object.values(controls)) control.problem(null);
      try {
        await change("PUT", `/v1/queues/${encodeURIComponent(one.queue)}`, read());
      } catch (error) {
        for (const { field: name, message } of error.errors ?? []) controls[name]?.problem(message);
        throw error;
      }
    },
  });
  if (done) notice(`Queue ${one.queue} is set; all nodes follow within a second.`);
  await load();
}

export async function show(main, context) {
  const list = h("div");
  const contains = context.query.get("contains");
  const query = { limit: 100, cursor: context.query.get("cursor"), contains };
  const load = async () => {
    const page = await get(withQuery("/v1/queues", query), context.signal);
    refresh(list, table("Queues by name", columns(load), page.items, { empty: contains ? "No queue is named like this." : "No queue has been used yet." }),
      pager(context, page, `${page.items.length} shown`));
  };
  fill(main, h("div", { class: "head" }, h("h1", null, "Queues")), filters(context, FIELDS), list);
  await load();
  // Not under the fingers of somebody who is about to press a button in it.
  context.every(3, async () => {
    if (!list.contains(document.activeElement)) await load();
  });
}
