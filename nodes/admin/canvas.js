// What is drawn on a canvas does not follow the page's size and colours by itself.
const dark = matchMedia("(prefers-color-scheme: dark)");

/** Until `signal` ends: call `size` when the element's size has changed, `colours` when the page has become dark or light. */
export function whenLookChanges(element, signal, { size, colours }) {
  const sizes = new ResizeObserver(size);
  sizes.observe(element);
  dark.addEventListener("change", colours, { signal });
  signal.addEventListener("abort", () => sizes.disconnect());
}
