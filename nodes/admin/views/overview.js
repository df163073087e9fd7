// How the whole cluster does: counts, and charts of the last hour that go on by themselves.
import { get } from "../api.js";
import { Chart } from "../charts.js";
import { fill, h, refresh } from "../dom.js";
import { badge, count, duration, short } from "../format.js";
import { listen } from "../live.js";
import { table } from "../table.js";

const MINUTES = 60;
const rate = (value) => (value === null ? "–" : `${Number(value.toPrecision(3))}/s`);
const percent = (value) => (value === null ? "–" : `${Number((value * 100).toPrecision(3))} %`);

export async function show(main, context) {
  const live = h("span", { "aria-live": "polite" });
  const tiles = h("div", { class: "tiles" });
  const tables = h("div");
  const note = h("span", { class: "dim" });
  const board = new Board(context.signal);
  const series = await get(`/v1/stats/series?minutes=${MINUTES}`, context.signal);
  await load();
  fill(main, h("div", { class: "head" }, h("h1", null, "Overview"), live, note), tiles,
    h("div", { class: "charts" }, board.charts.map((one) => one.element)), tables);
  board.start(series.points);
  let isLive = false;
  let breaks = 0; // how often the stream was away, and how many of these times the charts have made up for
  let madeUpFor = 0;
  context.every(5, () => Promise.all([load(), makeUp()]));
  listen(context.signal, {
    stats: (point) => board.add(point),
    state: (state) => {
      fill(live, badge(state.live ? "live" : "not live", state.live ? "good" : "warn"), !state.live && state.detail && h("span", { class: "dim" }, ` ${state.detail}`));
      isLive = state.live;
      if (isLive) makeUp().catch(() => {}); // the round tries again, and says what is wrong
      else breaks += 1;
    },
  });

  /** Ask for what happened while the stream was away. */
  async function makeUp() {
    const now = breaks;
    if (!isLive || madeUpFor === now) return;
    const { points } = await get(`/v1/stats/series?minutes=${MINUTES}`, context.signal);
    board.start(points);
    madeUpFor = now;
  }

  async function load() {
    const [stats, alerts] = await Promise.all([get("/v1/stats", context.signal), get("/v1/alerts?open=true&limit=1", context.signal)]);
    fill(note, stats.scope === "node" && "Redis does not answer: figures of this node alone.");
    refresh(tiles, tilesOf(stats, alerts.items.length > 0));
    refresh(tables, tablesOf(stats));
  }
}

function tilesOf({ counts, windows }, hasAlerts) {
  const five = windows["5m"];
  const about = counts && !counts.exact ? "≈ " : "";
  const status = (name) => [name, counts && `${about}${short(counts.by_status[name])}`, `/admin/tasks?status=${name}`,
    counts && `${about}${count(counts.by_status[name])}${about && ", estimated from a part of the tasks"}`];
  const all = [
    status("pending"), status("running"), status("completed"), status("failed"),
    ["lag p50", duration(five.lag.p50)], ["lag p99", duration(five.lag.p99)],
    ["failure rate", percent(five.failure_rate)],
    ["started, 5 min", short(five.started)],
  ];
  return [
    hasAlerts && h("a", { class: "tile bad-text", href: "/admin/alerts?open=true" }, h("span", null, "alerts"), h("b", null, "open")),
    all.map(([name, text, href, title]) => h(href ? "a" : "div", { class: "tile", href, title }, h("span", null, name), h("b", null, text ?? "–"))),
  ];
}

function tablesOf({ counts, windows }) {
  const hour = windows["1h"];
  const queues = Object.entries(counts?.by_queue ?? {}).map(([name, depth]) => ({ name, ...depth }));
  const types = Object.entries(hour.durations).map(([name, of]) => ({ name, ...of }));
  const stages = ["ticked", "claimed", "published", "started"].map((name) => ({ name, ...hour.stages[name] }));
  const times = ["p50", "p95", "p99"].map((name) => ({ name, num: true, cell: (row) => duration(row[name]) }));
  const about = counts && !counts.exact ? "≈ " : "";
  const numbers = (names, sign = "") => names.map((name) => ({ name, num: true, cell: (row) => `${sign}${count(row[name])}` }));
  const named = (title) => ({ name: title, long: true, cell: (row) => (row.name === "_other" ? h("i", null, "all others") : row.name) });
  const section = (title, content) => h("section", { "aria-label": title }, h("h2", null, title), content);
  return h("div", { class: "cols" },
    section("Queues", table("Tasks by queue", [
      { name: "Queue", long: true, cell: (row) => (row.name === "_other" ? h("i", null, "all others") : h("a", { href: `/admin/tasks?${new URLSearchParams({ queue: row.name })}` }, row.name)) },
      ...numbers(["pending", "due", "paused", "running"], about)], queues, { empty: about ? "None in the part of the tasks that was counted." : "No task is waiting or running." })),
    h("div", null,
      section("From the due time until a task was …, last hour", table("Lag by stage", [named("Stage"), ...times], stages)),
      section("How long attempts took, last hour", table("Durations by type", [named("Type"), ...numbers(["count"]), ...times], types, { empty: "No attempt has ended." }))));
}

/** The charts, and the points that they show. */
class Board {
  constructor(signal) {
    const lines = (...names) => names.map((name, at) => ({ name, colour: `--s${at + 1}` }));
    this.lag = new Chart("Firing lag", lines("p50", "p95", "p99"), duration, signal);
    this.flow = new Chart("Throughput", lines("started", "completed"), rate, signal);
    this.failures = new Chart("Failure rate", [{ name: "failed", colour: "--bad" }], percent, signal);
    this.depth = new Chart("Due and not claimed", lines("tasks"), count, signal, true);
    this.charts = [this.lag, this.flow, this.failures, this.depth];
    this.points = new Map();
  }

  start(points) {
    this.points = new Map(points.map((point) => [point.at, point]));
    this.draw();
  }

  /** The newest minute, as it stands. */
  add(point) {
    this.points.set(point.at, point);
    const old = [...this.points.keys()].sort().slice(0, -MINUTES);
    for (const at of old) this.points.delete(at);
    this.draw();
  }

  draw() {
    const all = [...this.points.values()].sort((one, other) => (one.at < other.at ? -1 : 1));
    const times = all.map((point) => Date.parse(point.at) / 1000);
    const column = (read) => all.map(read);
    // The minute that runs has not had its 60 s yet: as a rate it would dip.
    const perSecond = (name) => column((point, at) => (at === all.length - 1 ? null : point[name] / 60));
    this.lag.update(times, ["lag_p50", "lag_p95", "lag_p99"].map((name) => column((point) => point[name])));
    this.flow.update(times, [perSecond("started"), perSecond("completed")]);
    this.failures.update(times, [column((point) => (point.completed + point.failed ? point.failed / (point.completed + point.failed) : null))]);
    this.depth.update(times, [column((point) => point.queue_depth)]);
  }
}
