// A form whose fields are the filters in the URL.
import { field, h, select } from "./dom.js";

/**
 * `fields`: [{ name, label, options | type, wide, placeholder }]. A time is written as in this browser's
 * zone and sent as an instant. Submitting shows the view with these filters, from its first page.
 */
export function filters(context, fields, extra = []) {
  const controls = fields.map((one) => [one, control(one, context.query.get(one.name) ?? "")]);
  const form = h("form", { class: "filters", role: "search", onsubmit: submit },
    controls.map(([one, made]) => field(one.label, made, { wide: one.wide, time: one.type === "datetime-local" })),
    h("div", { class: "buttons" },
      h("button", { type: "submit", class: "primary" }, "Search"),
      h("a", { class: "button", href: location.pathname }, "Clear"), extra));

  function submit(event) {
    event.preventDefault();
    const changes = { cursor: null };
    for (const [one, made] of controls) {
      const value = made.value.trim();
      changes[one.name] = value && one.type === "datetime-local" ? new Date(value).toISOString() : value;
    }
    context.go(context.here(changes));
  }

  for (const [one, made] of controls) {
    if (one.options) made.addEventListener("change", () => form.requestSubmit());
  }
  // On a narrow screen it is folded, unless it holds something.
  const isOpen = matchMedia("(min-width: 761px)").matches || fields.some((one) => context.query.get(one.name));
  return h("details", { class: "panel search", open: isOpen }, h("summary", null, "Search"), form);
}

function control({ name, options, type = "text", placeholder, list }, value) {
  if (options) return select(name, options, value);
  const isTime = type === "datetime-local";
  return h("input", {
    name, type, placeholder, list, value: isTime ? localTime(value) : value, step: isTime ? 1 : null,
    autocomplete: "off", spellcheck: "false",
  });
}

/** An instant as the value of a datetime-local field. */
export function localTime(text) {
  const ms = Date.parse(text);
  if (Number.isNaN(ms)) return "";
  return new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** The filters in the URL that have a value, of these names. */
export const chosen = (context, names) =>
  Object.fromEntries(names.filter((name) => context.query.get(name)).map((name) => [name, context.query.get(name)]));
