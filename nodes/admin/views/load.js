// The next 24 hours, minute by minute: each row an hour, each cell a minute. The herd at :00 is a bright column.
import { get, withQuery } from "../api.js";
import { whenLookChanges } from "../canvas.js";
import { fill, field, h, select } from "../dom.js";
import { absolute, count } from "../format.js";
import { table } from "../table.js";

const ROW = 14;
const LEFT = 46;
const TOP = 16;
const ALL = "";

export async function show(main, context) {
  const by = context.query.get("by") === "type" ? "type" : "queue";
  const load = await get(withQuery("/v1/load", { by }), context.signal);
  const name = context.query.get("name") ?? ALL;
  const totals = load.series.map((one) => ({ ...one, total: sum(one.counts) })).sort((a, b) => b.total - a.total);
  const chosen = name === ALL ? totals : totals.filter((one) => label(one) === name);
  const minutes = Array.from({ length: load.minutes }, (_, at) => chosen.reduce((so_far, one) => so_far + one.counts[at], 0));
  const map = new HeatMap(Date.parse(load.from), minutes, context.signal);
  const byField = select("by", [["queue", "queue"], ["type", "type"]], by);
  byField.addEventListener("change", () => context.go(context.here({ by: byField.value, name: null })));
  const nameField = select("name", [[ALL, "all"], ...totals.map((one) => [label(one), label(one)])], name);
  nameField.addEventListener("change", () => context.go(context.here({ name: nameField.value })));
  fill(main,
    h("div", { class: "head" }, h("h1", null, "Due load"), h("span", { class: "dim" }, "the next 24 hours, by minute")),
    h("div", { class: "panel" }, h("form", { class: "filters" }, field("By", byField), field(by === "queue" ? "Queue" : "Type", nameField))),
    h("section", { class: "panel", "aria-labelledby": "map-title" }, h("h2", { id: "map-title" }, "Tasks due in each minute"),
      h("p", null, herd(Date.parse(load.from), minutes)),
      load.sampled < 1 && h("p", { class: "dim" }, `Estimates from ${Number((load.sampled * 100).toPrecision(2))} % of the tasks.`),
      map.element),
    h("div", { class: "cols" },
      h("section", null, h("h2", null, "The fullest minutes"), table("The ten fullest minutes", [
        { name: "Minute", cell: (one) => absolute(one.ms).slice(0, -3) }, { name: "Tasks", num: true, cell: (one) => count(one.count) }],
      fullest(Date.parse(load.from), minutes), { empty: "Nothing is due." })),
      h("section", null, h("h2", null, by === "queue" ? "Queues" : "Types"), table("Totals", [
        { name: by === "queue" ? "Queue" : "Type", cell: (one) => h("a", { href: context.here({ name: label(one) }) }, label(one)) },
        { name: "Due in 24 h", num: true, cell: (one) => count(one.total) },
        { name: "At :00", num: true, cell: (one) => share(atZero(Date.parse(load.from), one.counts), one.total) }],
      totals, { empty: "Nothing is due." }))));
  map.draw();
}

const label = (one) => one.name ?? "all others";
const sum = (counts) => counts.reduce((so_far, one) => so_far + one, 0);
const share = (part, whole) => (whole ? `${Math.round((100 * part) / whole)} %` : "–");
// Of this browser's zone, as all times: some zones are half an hour off.
const minuteOf = (ms) => new Date(ms).getMinutes();

const atZero = (from, counts) => counts.reduce((so_far, one, at) => so_far + (minuteOf(from + at * 60_000) === 0 ? one : 0), 0);

function herd(from, minutes) {
  const total = sum(minutes);
  if (!total) return "Nothing is due in the next 24 hours.";
  const zero = atZero(from, minutes);
  return `${count(total)} ${total === 1 ? "task is" : "tasks are"} due, ${count(zero)} of them (${share(zero, total)}) in a minute :00; spread evenly it would be 2 %.`;
}

const fullest = (from, minutes) => minutes
  .map((tasks, at) => ({ count: tasks, ms: from + at * 60_000 }))
  .filter((one) => one.count > 0).sort((a, b) => b.count - a.count).slice(0, 10);

/** Drawn on a canvas; pointing at a minute tells its count, and so do the arrow keys. */
class HeatMap {
  constructor(from, minutes, signal) {
    this.from = from;
    this.minutes = minutes;
    this.most = Math.max(1, ...minutes);
    this.offset = minuteOf(from);
    this.rows = Math.ceil((minutes.length + this.offset) / 60);
    this.at = 0;
    this.canvas = h("canvas", {
      tabindex: 0, role: "img", "aria-label": "Map of the minutes: each row is an hour. The arrow keys move from minute to minute.",
      onmousemove: (event) => this.point(event), onkeydown: (event) => this.move(event),
    });
    this.said = h("p", { class: "dim", "aria-live": "polite" }, "Point at a minute, or move with the arrow keys.");
    this.element = h("div", { class: "heat" }, this.canvas, this.said, this.scale());
    const draw = () => this.draw();
    whenLookChanges(this.element, signal, { size: draw, colours: draw });
  }

  scale() {
    const steps = [0, 0.25, 0.5, 0.75, 1].map((part) => {
      const cell = h("i");
      cell.style.background = part ? `color-mix(in srgb, var(--heat) ${shade(part)}%, var(--sunken))` : "var(--sunken)";
      return [cell, ` ${count(Math.round(part * part * this.most))} `];
    });
    return h("p", { class: "dim heat-scale" }, steps);
  }

  draw() {
    const width = this.element.clientWidth;
    if (!width) return;
    const height = TOP + this.rows * ROW;
    const dense = devicePixelRatio || 1;
    this.canvas.width = width * dense;
    this.canvas.height = height * dense;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.cell = (width - LEFT) / 60;
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const pen = this.canvas.getContext("2d");
    pen.scale(dense, dense);
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = colour("--dim");
    for (let minute = 0; minute < 60; minute += this.cell < 7 ? 15 : 5) {
      pen.fillText(`:${String(minute).padStart(2, "0")}`, LEFT + minute * this.cell, 11);
    }
    for (let row = 0; row < this.rows; row += 1) {
      const hour = new Date(this.from + (row * 60 - this.offset) * 60_000);
      pen.fillStyle = colour("--dim");
      pen.fillText(`${String(hour.getHours()).padStart(2, "0")}:00`, 0, TOP + row * ROW + ROW - 4);
    }
    this.minutes.forEach((tasks, at) => {
      const [x, y] = this.place(at);
      pen.globalAlpha = 1;
      pen.fillStyle = colour("--sunken");
      pen.fillRect(x, y, this.cell - 0.6, ROW - 1);
      if (!tasks) return;
      pen.globalAlpha = shade(Math.sqrt(tasks / this.most)) / 100;
      pen.fillStyle = colour("--heat");
      pen.fillRect(x, y, this.cell - 0.6, ROW - 1);
    });
    pen.globalAlpha = 1;
    if (this.marked) {
      const [x, y] = this.place(this.at);
      pen.strokeStyle = colour("--text");
      pen.strokeRect(x - 0.5, y - 0.5, this.cell, ROW);
    }
  }

  place(at) {
    const number = at + this.offset;
    return [LEFT + (number % 60) * this.cell, TOP + Math.floor(number / 60) * ROW];
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - LEFT) / this.cell);
    const row = Math.floor((event.clientY - box.top - TOP) / ROW);
    if (column >= 0 && column < 60) this.tell(row * 60 + column - this.offset);
  }

  move(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -60, ArrowDown: 60 }[event.key];
    if (!step) return;
    event.preventDefault();
    this.tell(this.at + step);
  }

  tell(at) {
    if (!(at >= 0 && at < this.minutes.length)) return;
    this.at = at;
    this.marked = true;
    this.said.textContent = `${absolute(this.from + at * 60_000).slice(0, -3)}: ${count(this.minutes[at])} tasks`;
    this.draw();
  }
}

const shade = (part) => 15 + 85 * part;
