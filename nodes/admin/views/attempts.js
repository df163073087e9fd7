// The story of a task: each ended attempt with a bar that shows when it ran, the newest first.
import { h } from "../dom.js";
import { KINDS, badge, duration, errorLine, nowMs, time } from "../format.js";
import { rawAt, view as jsonView } from "../json.js";
import { table } from "../table.js";

/** `runs`: the answer of /runs, decoded and as it came. */
export function attempts(task, runs) {
  const items = runs.value.items.map((run, at) => ({ ...run, at, key: `${run.token}` }));
  const running = task.status === "running" && task.started_at
    ? [{ occurrence: null, attempt: task.retry_count + 1, outcome: "running", worker: task.worker, started_at: task.started_at, finished_at: null, error: null, token: task.version }]
    : [];
  const all = [...running, ...items];
  const span = spanOf(all);
  const columns = [
    { name: "Occurrence", cell: (run) => run.occurrence && time(run.occurrence) },
    { name: "Attempt", num: true, cell: (run) => run.attempt },
    { name: "Outcome", cell: (run) => badge(run.outcome) },
    { name: "Started", cell: (run) => run.started_at && time(run.started_at) },
    { name: "Late", num: true, cell: (run) => run.started_at && run.occurrence && run.attempt === 1 ? duration(seconds(run.occurrence, run.started_at)) : null },
    { name: "Took", num: true, cell: (run) => run.started_at && run.finished_at ? duration(seconds(run.started_at, run.finished_at)) : null },
    { name: "When", cell: (run) => bar(run, span) },
    { name: "Worker", tight: true, cell: (run) => run.worker && h("span", { class: "mono" }, run.worker) },
    { name: "Token", num: true, cell: (run) => run.token },
    { name: "Said", cell: (run) => said(run, runs.text) },
  ];
  return h("section", { "aria-labelledby": "attempts" },
    h("h2", { id: "attempts" }, "Attempts"),
    table("Attempts, the newest first", columns, all, { empty: "None has ended yet." }),
    runs.value.next_cursor && h("p", { class: "dim" }, "Older ones are not shown."));
}

const seconds = (from, to) => (Date.parse(to) - Date.parse(from)) / 1000;

function spanOf(all) {
  const starts = all.map((run) => Date.parse(run.started_at ?? run.finished_at ?? run.occurrence));
  const ends = all.map((run) => Date.parse(run.finished_at ?? "") || nowMs());
  return [Math.min(...starts), Math.max(...ends)];
}

function bar(run, [from, to]) {
  if (!run.started_at) return null;
  const whole = Math.max(1, to - from);
  const begin = (Date.parse(run.started_at) - from) / whole;
  const end = ((Date.parse(run.finished_at ?? "") || nowMs()) - from) / whole;
  const mark = h("i", { class: KINDS[run.outcome] });
  mark.style.left = `${Math.min(98, begin * 100)}%`;
  mark.style.width = `${Math.max(0, end - begin) * 100}%`;
  return h("div", { class: "bar", "aria-hidden": "true" }, mark);
}

function said(run, text) {
  if (run.error !== null) {
    return h("details", null, h("summary", { class: "bad-text" }, errorLine(run.error).slice(0, 120) || "error"),
      jsonView(rawAt(text, "items", run.at, "error")));
  }
  if ((run.hidden ?? []).includes("result")) return h("span", { class: "hidden-value" }, "hidden");
  if (run.result === null || run.result === undefined) return null;
  return h("details", null, h("summary", null, "result"), jsonView(rawAt(text, "items", run.at, "result")));
}
