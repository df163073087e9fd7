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
