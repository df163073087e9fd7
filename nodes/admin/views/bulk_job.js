// One bulk action: how far it is, and a button to stop it.
import { change, get, may } from "../api.js";
import { said } from "../bulk.js";
import { ask } from "../dialog.js";
import { fill, h, refresh } from "../dom.js";
import { badge, count, time } from "../format.js";

export async function show(main, context) {
  const path = `/v1/bulk/${encodeURIComponent(context.params.id)}`;
  const status = h("span");
  const stopButton = h("button", { type: "button", class: "danger", onclick: () => stop(path, load) }, "Stop");
  const bar = h("progress", { "aria-label": "Progress" });
  const facts = h("dl", { class: "facts" });
  let shown = "";
  const load = async () => {
    const job = await get(path, context.signal);
    const key = JSON.stringify(job);
    if (key === shown) return job;
    shown = key;
    // The button stays the same one: a new one in its place would have no focus, and lose a press.
    if (job.status !== "running") stopButton.remove();
    fill(status, badge(job.status));
    move(bar, job);
    refresh(facts, factsOf(job).map(([name, content]) => [h("dt", null, name), h("dd", null, content)]));
    return job;
  };
  const actions = h("div", { class: "actions" }, may("admin") && stopButton);
  const { action } = await load();
  fill(main,
    h("div", { class: "head" }, h("h1", null, `Bulk ${action}`), status, actions),
    h("div", { class: "panel" }, h("p", null, bar), facts),
    h("p", null, h("a", { href: "/admin/bulk" }, "All bulk actions")));
  context.every(1, load);
}

function move(bar, job) {
  const through = job.done + job.refused;
  bar.max = Math.max(job.total, through, 1);
  bar.value = job.status === "done" ? bar.max : through; // the total may have been a guess
}

const factsOf = (job) => [
  ["Filter", said(job.filter)],
  ["Done", `${count(job.done)} of ${job.exact ? "" : "about "}${count(job.total)}`],
  ["Refused", `${count(job.refused)} whose state did not allow it any more`],
  ["Rate", `${count(job.rate)}/s at most`],
  ["Due then", job.run_at && time(job.run_at, { both: true })],
  ["Begun", [time(job.created_at, { both: true }), job.created_by && ` by ${job.created_by}`]],
  ["Ended", job.finished_at && time(job.finished_at, { both: true })],
  ["Error", job.error && h("span", { class: "bad-text" }, job.error)],
].filter(([, content]) => content);

async function stop(path, load) {
  await ask({
    title: "Stop this bulk action", body: h("p", null, "It changes no more tasks. What is done, stays done."), confirm: "Stop it", danger: true,
    apply: () => change("POST", `${path}/stop`),
  });
  await load();
}
