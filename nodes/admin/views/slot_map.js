// The 256 slots as a grid: each owner has a letter and a colour. The arrow keys move in it.
import { fill, h } from "../dom.js";
import { absolute, relative } from "../format.js";

const WIDTH = 16;
const COLOURS = 8;
const KEYS = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -WIDTH, ArrowDown: WIDTH };

/** A letter and a colour for each owner: the live nodes first, then those that only the slots name. */
export function letters(nodes, slots) {
  const ids = [...new Set([...nodes, ...slots.map((one) => one.owner).filter(Boolean)])];
  return new Map(ids.map((id, at) => [id, { letter: letter(at), colour: at % COLOURS }]));
}

const letter = (at) => (at < 26 ? "" : letter(Math.floor(at / 26) - 1)) + String.fromCharCode(65 + (at % 26));

/** A node's sign, as in the map. */
export const mark = (name) => (name ? h("span", { class: `owner o${name.colour}`, "aria-hidden": "true" }, name.letter) : "");

export class SlotMap {
  constructor() {
    this.cells = Array.from({ length: WIDTH * WIDTH }, (_, slot) =>
      h("td", { role: "gridcell", tabindex: slot ? -1 : 0, dataset: { slot } }));
    const rows = Array.from({ length: WIDTH }, (_, row) => h("tr", { role: "row" }, this.cells.slice(row * WIDTH, (row + 1) * WIDTH)));
    this.grid = h("table", {
      class: "slots", role: "grid", "aria-labelledby": "slots-title",
      onkeydown: (event) => this.move(event), onfocusin: (event) => this.tell(event.target),
      onmouseover: (event) => this.tell(event.target),
    }, h("tbody", null, rows));
    this.legend = h("ul", { class: "legend" });
    this.detail = h("p", { class: "dim", "aria-live": "polite" }, "Point at a slot, or move with the arrow keys, to see its owner.");
    this.element = h("section", { class: "panel", "aria-labelledby": "slots-title" },
      h("h2", { id: "slots-title" }, "Slots"), h("div", { class: "map" }, this.grid, h("div", null, this.legend, this.detail)));
    this.slots = [];
  }

  update(slots, names) {
    this.slots = slots;
    this.names = names;
    for (const one of slots) {
      const cell = this.cells[one.slot];
      const name = names.get(one.owner);
      cell.className = `owner ${name ? `o${name.colour}` : "nobody"}`;
      cell.textContent = name ? name.letter : "–";
      cell.setAttribute("aria-label", `slot ${one.slot}, ${name ? `owner ${name.letter}` : "no owner"}`);
    }
    const counts = [...names].map(([id, name]) => [id, name, slots.filter((one) => one.owner === id).length]);
    const free = slots.filter((one) => !one.owner).length;
    fill(this.legend,
      counts.filter(([, , owned]) => owned).map(([id, name, owned]) => h("li", null, mark(name), ` ${owned} · `, h("span", { class: "mono" }, id))),
      free > 0 && h("li", { class: "bad-text" }, h("span", { class: "owner nobody" }, "–"), ` ${free} without an owner`));
  }

  move(event) {
    const at = Number(event.target.dataset.slot);
    const next = event.key === "Home" ? 0 : event.key === "End" ? this.cells.length - 1 : at + (KEYS[event.key] ?? NaN);
    if (!(next >= 0 && next < this.cells.length)) return;
    event.preventDefault();
    this.cells[at].tabIndex = -1;
    this.cells[next].tabIndex = 0;
    this.cells[next].focus();
  }

  tell(cell) {
    const one = this.slots[Number(cell.dataset?.slot ?? NaN)];
    if (!one) return;
    const since = (text) => `${relative(Date.parse(text))} (${absolute(Date.parse(text))})`;
    const said = one.owner
      ? [one.owner, one.taken_at && `taken ${since(one.taken_at)}`]
      : ["no owner", one.unowned_since && `since ${since(one.unowned_since)}`, one.last_owner && `last ${one.last_owner}`];
    this.detail.textContent = [`Slot ${one.slot}: ${said.filter(Boolean).join(", ")}`, `epoch ${one.epoch}`].join(", ");
  }
}
