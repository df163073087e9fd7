// Elements, made without markup: whatever comes from outside becomes text, never HTML.

/** An element. `props`: attributes; `class`, `dataset`; functions as listeners (`onclick`). */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

/** Add children: elements, text, lists of them; null and false are left out. */
export function append(element, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Put these children in the place of all that was there. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/**
 * The same for what has been shown before and is newer now: where the focus is, what is unfolded and how far a table
 * is scrolled stays as it is. What is meant is known by its link, name or text; of several the last ones are the same, since
 * lists grow at their beginning.
 */
export function refresh(element, ...children) {
  const focused = element.contains(document.activeElement) ? placeOf(element, document.activeElement) : null;
  const open = [...element.querySelectorAll("details[open]")].map((one) => placeOf(element, one));
  const moved = [...element.querySelectorAll(SCROLLED)].map((one) => [one.scrollLeft, one.scrollTop]);
  fill(element, children);
  for (const place of open) {
    const found = at(element, place);
    if (found) found.open = true;
  }
  element.querySelectorAll(SCROLLED).forEach((one, number) => {
    const [left, top] = moved[number] ?? [0, 0];
    if (left || top) one.scrollTo(left, top);
  });
  if (focused) (at(element, focused) ?? element.closest("main"))?.focus({ preventScroll: true });
  return element;
}

const SCROLLED = ".scroll, pre";

const signOf = (one) => one.getAttribute("href") ?? one.getAttribute("aria-label") ?? one.textContent;

const same = (element, { tag, sign }) => [...element.querySelectorAll(tag)].filter((one) => signOf(one) === sign);

function placeOf(element, one) {
  const place = { tag: one.localName, sign: signOf(one) };
  const all = same(element, place);
  return { ...place, fromLast: all.length - all.indexOf(one) };
}

const at = (element, place) => same(element, place).at(-place.fromLast);

let lastId = 0;

/** A label with its control; `control.problem(text)` shows what is wrong with it. */
export function field(label, control, { wide = false, time = false, row = false } = {}) {
  control.id ||= `f${++lastId}`;
  const problem = h("div", { class: "problem", id: `${control.id}-problem` });
  const name = h("label", { for: control.id }, label);
  control.problem = (text) => {
    problem.textContent = text ?? "";
    control.setAttribute("aria-invalid", String(Boolean(text)));
    if (text) control.setAttribute("aria-describedby", problem.id);
    else control.removeAttribute("aria-describedby");
  };
  const parts = row ? [control, name] : [name, control];
  return h("div", { class: `field${wide ? " wide" : ""}${time ? " time" : ""}${row ? " row" : ""}` }, parts, problem);
}

/** A select of [value, text] pairs. */
export function select(name, options, value) {
  const made = h("select", { name }, options.map(([key, text]) => h("option", { value: key }, text)));
  for (const option of made.options) option.selected = option.value === (value ?? "");
  return made;
}
