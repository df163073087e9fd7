// Tables whose rows become cards on a narrow screen, and pages by cursor.
import { h } from "./dom.js";

/**
 * A table. `columns`: [{ name, cell(item), num, id, tight, long }]; a cell that is null is left out of the cards; `tight` does not
 * break, `long` breaks anywhere, so that a long name pushes no other column out of view.
 * `caption` tells screen readers what it is.
 */
export function table(caption, columns, items, { empty = "Nothing here." } = {}) {
  if (!items.length) return h("div", { class: "panel empty" }, empty);
  const head = columns.map(({ name, num }) => h("th", { scope: "col", class: num && "num" }, name));
  const rows = items.map((item) => h("tr", rowProps(item), columns.map((column) => cell(column, item))));
  return h("div", { class: "panel flush scroll" },
    h("table", { class: "cards" },
      h("caption", { class: "hidden-text" }, caption), h("thead", null, h("tr", null, head)), h("tbody", null, rows)));
}

const rowProps = (item) => (item.id ? { dataset: { id: item.id } } : null);

function cell(column, item) {
  const content = column.cell(item);
  const isBlank = content === null || content === undefined || content === false || content === "" || content.length === 0;
  const kind = [column.num && "num", column.id && "id", column.tight && "tight", column.long && "long", isBlank && "blank"].filter(Boolean).join(" ");
  return h("td", { class: kind || null, dataset: { name: column.name } }, h("div", null, content));
}

/** What to say of a page that is empty. */
export const emptyText = (page, text) => (page.next_cursor ? "None so far; the next page looks further." : text);

/** Links to the first and the next page of a list. */
export function pager(context, page, shown) {
  const query = context.query;
  return h("div", { class: "pager" },
    h("span", { class: "dim" }, shown),
    query.has("cursor") && h("a", { class: "button", href: context.here({ cursor: null }) }, "First page"),
    page.next_cursor && h("a", { class: "button", href: context.here({ cursor: page.next_cursor }) }, "Next page"));
}
