// Charts over time, by uPlot, in the page's colours. What a chart shows last is also there as text.
import { whenLookChanges } from "./canvas.js";
import { fill, h } from "./dom.js";
import uPlot from "./vendor/uPlot.esm.js";

const HEIGHT = 150;
const clockTime = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

const WHOLE = [1, 2, 5].flatMap((one) => Array.from({ length: 9 }, (_, power) => one * 10 ** power)).sort((a, b) => a - b);

/** The points that no line leads to: those are drawn. */
function alone(plot, series) {
  const values = plot.data[series];
  return [...values.keys()].filter((at) => values[at] !== null && (values[at - 1] ?? null) === null && (values[at + 1] ?? null) === null);
}

/**
 * A chart. `lines`: [{ name, colour }] with `colour` the name of a CSS variable; `write` makes a value's text.
 * `whole`: there are no fractions. `update(times, columns)`: seconds since 1970, and a column for each line; a value may be null.
 */
export class Chart {
  constructor(title, lines, write, signal, whole = false) {
    this.whole = whole;
    this.lines = lines;
    this.write = write;
    this.title = title;
    this.data = [[], ...lines.map(() => [])];
    this.box = h("div", { class: "chart", role: "img", "aria-label": title });
    this.legend = h("div", { class: "chart-legend" });
    this.values = lines.map(() => h("b"));
    fill(this.legend, lines.map(({ name, colour }, at) => {
      const sign = h("i");
      sign.style.background = `var(${colour})`;
      return h("span", null, sign, name, " ", this.values[at]);
    }));
    const id = `chart-${title.toLowerCase().replace(/\W+/g, "-")}`;
    this.element = h("section", { class: "panel", "aria-labelledby": id },
      h("div", { class: "chart-head" }, h("h2", { id }, title), this.legend), this.box);
    whenLookChanges(this.box, signal, { size: () => this.fit(), colours: () => this.draw() });
    signal.addEventListener("abort", () => this.plot?.destroy());
  }

  update(times, columns) {
    this.data = [times, ...columns];
    if (this.plot) this.plot.setData(this.data);
    else this.draw();
    this.tell(this.last());
    const last = this.lines.map(({ name }, at) => `${name} ${this.text(at, this.last())}`);
    this.box.setAttribute("aria-label", `${this.title} of the last hour; now ${last.join(", ")}`);
    this.element.dataset.points = String(times.length);
  }

  /** The newest point that says anything: the last, or the one before it while the minute that runs has no value yet. */
  last() {
    const [times, ...columns] = this.data;
    const end = times.length - 1;
    return columns.some((column) => (column[end] ?? null) !== null) ? end : Math.max(0, end - 1);
  }

  text(line, at) {
    return this.write(this.data[line + 1]?.[at] ?? null);
  }

  tell(at) {
    this.values.forEach((value, line) => { value.textContent = this.text(line, at); });
  }

  fit() {
    const width = this.box.clientWidth;
    if (!width) return;
    if (this.plot) this.plot.setSize({ width, height: HEIGHT });
    else this.draw();
  }

  draw() {
    const width = this.box.clientWidth;
    if (!width) return;
    this.plot?.destroy();
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    this.plot = new uPlot({
      width, height: HEIGHT, padding: [8, 8, 0, 0], legend: { show: false },
      cursor: { sync: { key: "time" }, drag: { x: false, y: false }, points: { size: 6 } },
      scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.08 : 1] } },
      axes: [
        { ...axis, values: (_, ticks) => ticks.map((one) => clockTime.format(one * 1000)), space: 60, size: 24 },
        { ...axis, values: (_, ticks) => ticks.map((one) => this.write(one)), size: 62, ...(this.whole ? { incrs: WHOLE } : {}) },
      ],
      series: [{}, ...this.lines.map(({ name, colour: of }) => ({ label: name, stroke: colour(of), width: 1.5, points: { show: true, size: 4, filter: alone } }))],
      hooks: { setCursor: [(plot) => this.tell(plot.cursor.idx ?? this.last())] },
    }, this.data, this.box);
  }
}
