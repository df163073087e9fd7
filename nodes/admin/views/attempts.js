// The story of a task: what became of each due time, each attempt with a bar that shows when it ran, and the
// reports that were refused. The newest first.
import { h } from "../dom.js";
import { KINDS, badge, duration, errorLine, isSealed, nowMs, sealed, time } from "../format.js";
import { rawAt, view as jsonView } from "../json.js";
import { pager, table } from "../table.js";

const COLUMNS = [
  { name: "Due", cell: (row) => row.occurrence && [time(row.occurrence), row.through && [" to ", time(row.through)]] },
  { name: "Verdict", cell: (row) => row.verdict !== undefined && (row.verdict === null ? badge("open", "still") : [badge(row.verdict), row.reason && h("span", { class: "dim" }, ` ${row.reason}`)]) },
  { name: "Attempt", num: true, cell: (row) => row.attempt },
  { name: "Outcome", cell: (row) => row.outcome && (row.refused ? badge("refused", "warn") : badge(row.outcome)) },
  { name: "Started", cell: (row) => row.started_at && time(row.started_at) },
  { name: "Late", num: true, cell: (row) => row.late },
  { name: "Took", num: true, cell: (row) => row.started_at && row.finished_at && duration(seconds(row.started_at, row.finished_at)) },
  { name: "When", cell: (row) => bar(row) },
  { name: "Worker", tight: true, cell: (row) => row.worker && h("span", { class: "mono" }, row.worker) },
  { name: "Token", num: true, cell: (row) => row.token },
  { name: "Said", cell: (row) => row.said?.() },
];

/** `ledger`: the answer of the task's ledger, decoded and as it came. */
export function attempts(context, task, ledger) {
  const rows = ledger.value.items.flatMap((item, at) => rowsOf(task, item, at, ledger.text));
  const span = spanOf(rows);
  for (const row of rows) row.span = span;
  return h("section", { "aria-labelledby": "attempts" },
    h("h2", { id: "attempts" }, "Attempts and verdicts"),
    table("What became of each due time, the newest first", COLUMNS, rows, { empty: "None has come due yet." }),
    (ledger.value.next_cursor || context.query.has("cursor")) && pager(context, ledger.value, `${ledger.value.items.length} due times shown, newest first`));
}

function rowsOf(task, item, at, text) {
  const running = item.verdict === null && task.status === "running" && task.started_at
    ? [{ attempt: task.retry_count + 1, outcome: "running", worker: task.worker, started_at: task.started_at, token: task.version }]
    : [];
  const ended = item.attempts.map((run, number) => ({
    ...run, occurrence: null, token: digits(run.token, text, "items", at, "attempts", number, "token"), said: () => said(run, (name) => rawAt(text, "items", at, "attempts", number, name)),
    late: run.started_at && run.attempt === 1 ? duration(seconds(item.occurrence, run.started_at)) : null,
  }));
  const refused = item.rejected.map((report, number) => ({
    outcome: report.outcome, refused: true, worker: report.worker, token: digits(report.token, text, "items", at, "rejected", number, "token"), said: () => refusal(report),
  }));
  const rows = [...running, ...ended, ...refused];
  // The due time and its verdict stand in its first row.
  const first = { occurrence: item.occurrence, through: item.through, verdict: item.verdict, reason: item.reason };
  return rows.length ? rows.map((row, number) => (number ? row : { ...row, ...first })) : [first];
}

/** A token with all its digits: a refused one may be any, beyond what a JavaScript number holds too. */
const digits = (token, text, ...path) => (Number.isSafeInteger(token) ? token : rawAt(text, ...path));

const seconds = (from, to) => (Date.parse(to) - Date.parse(from)) / 1000;

function spanOf(rows) {
  const ran = rows.filter((row) => row.started_at);
  const starts = ran.map((row) => Date.parse(row.started_at));
  const ends = ran.map((row) => Date.parse(row.finished_at ?? "") || nowMs());
  return [Math.min(...starts), Math.max(...ends)];
}

function bar(row) {
  if (!row.started_at) return null;
  const [from, to] = row.span;
  const whole = Math.max(1, to - from);
  const begin = (Date.parse(row.started_at) - from) / whole;
  const end = ((Date.parse(row.finished_at ?? "") || nowMs()) - from) / whole;
  const mark = h("i", { class: KINDS[row.outcome] });
  mark.style.left = `${Math.min(98, begin * 100)}%`;
  mark.style.width = `${Math.max(0, end - begin) * 100}%`;
  return h("div", { class: "bar", "aria-hidden": "true" }, mark);
}

function said(run, raw) {
  if (run.error !== null) {
    return h("details", null, h("summary", { class: "bad-text" }, errorLine(run.error).slice(0, 120) || "error"), jsonView(raw("error")));
  }
  if ((run.hidden ?? []).includes("result")) return h("span", { class: "hidden-value" }, "hidden");
  if (run.result === null || run.result === undefined) return null;
  if (isSealed(run.result)) return sealed(run.result);
  return h("details", null, h("summary", null, "result"), jsonView(raw("result")));
}

function refusal(report) {
  const times = report.times > 1 ? `, ${report.times} times` : "";
  return h("span", { class: "dim" }, `said ${report.outcome.replace("_", " ")}${times}; ${report.reason}, `, time(report.received_at));
}
