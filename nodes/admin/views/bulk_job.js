// One bulk action: how far it is, and a button to stop it.
import { change, get, may } from "../api.js";
import { said } from "../bulk.js";
import { ask } from "../dialog.js";
import { fill, h } from "../dom.js";
import { badge, count, time } from "../format.js";

export async function show(main, context) {
  const path = `/v1/bulk/${encodeURIComponent(context.params.id)}`;
  let shown = "";
  const load = async () => {
    const job = await get(path, context.signal);
    const key = JSON.stringify(job);
    if (key !== shown) draw(main, job, path, load);
    shown = key;
  };
  await load();
  context.every(1, load);
}

function draw(main, job, path, load) {
  const isOpen = job.status === "running" || job.status === "stopping";
  const through = job.done + job.refused;
  const bar = h("progress", { max: Math.max(job.total, through, 1), value: isOpen || job.status === "stopped" ? through : Math.max(job.total, through, 1), "aria-label": "Progress" });
  const facts = [
    ["Filter", said(job.filter)],
    ["Done", `${count(job.done)} of ${job.exact ? "" : "about "}${count(job.total)}`],
    ["Refused", `${count(job.refused)} whose state did not allow it any more`],
    ["Rate", `${count(job.rate)}/s at most`],
    ["Due then", job.run_at && time(job.run_at, { both: true })],
    ["Begun", [time(job.created_at, { both: true }), job.created_by && ` by ${job.created_by}`]],
    ["Ended", job.finished_at && time(job.finished_at, { both: true })],
    ["Error", job.error && h("span", { class: "bad-text" }, job.error)],
  ].filter(([, content]) => content);
  fill(main,
    h("div", { class: "head" }, h("h1", null, `Bulk ${job.action}`), badge(job.status, job.status === "failed" ? "bad" : undefined),
      h("div", { class: "actions" }, job.status === "running" && may("admin") && h("button", { type: "button", class: "danger", onclick: () => stop(path, load) }, "Stop"))),
    h("div", { class: "panel" }, h("p", null, bar), h("dl", { class: "facts" }, facts.map(([name, content]) => [h("dt", null, name), h("dd", null, content)]))),
    h("p", null, h("a", { href: "/admin/bulk" }, "All bulk actions")));
}

async function stop(path, load) {
  await ask({
    title: "Stop this bulk action", body: h("p", null, "It changes no more tasks. What is done, stays done."), confirm: "Stop it", danger: true,
    apply: () => change("POST", `${path}/stop`),
  });
  await load();
}
