// JSON as it is: numbers keep every digit, which JSON.parse would lose.
import { h } from "./dom.js";

const TOKEN = /"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null|[{}[\],:]/g;
const COLOURED_MAX = 200_000;

/** The text of the value at a path ("items", 0, "result") inside a JSON text; undefined if there is none. */
export function rawAt(text, ...path) {
  const tokens = [...text.matchAll(TOKEN)];
  let at = 0;
  for (const step of path) {
    at = enter(tokens, at, step);
    if (at < 0) return undefined;
  }
  const end = after(tokens, at) - 1;
  return text.slice(tokens[at].index, tokens[end].index + tokens[end][0].length);
}

function enter(tokens, at, step) {
  const isObject = tokens[at][0] === "{";
  if (!isObject && tokens[at][0] !== "[") return -1;
  let index = 0;
  for (at += 1; tokens[at][0] !== "}" && tokens[at][0] !== "]"; index += 1) {
    const key = isObject ? JSON.parse(tokens[at][0]) : index;
    if (isObject) at += 2;
    if (key === step) return at;
    at = after(tokens, at);
    if (tokens[at][0] === ",") at += 1;
  }
  return -1;
}

/** The place behind the value that begins at `at`. */
function after(tokens, at) {
  let depth = 0;
  do {
    const word = tokens[at++][0];
    if (word === "{" || word === "[") depth += 1;
    else if (word === "}" || word === "]") depth -= 1;
  } while (depth > 0);
  return at;
}

/** JSON over several lines, as text. */
export function pretty(text) {
  return pieces(text).map(([word]) => word).join("");
}

/** JSON for reading, with its parts told apart. */
export function view(text) {
  const all = pieces(text);
  if (text.length > COLOURED_MAX) return h("pre", { class: "json", tabindex: 0 }, all.map(([word]) => word).join(""));
  return h("pre", { class: "json", tabindex: 0 },
    all.map(([word, kind]) => (kind ? h("span", { class: kind }, word) : word)));
}

function pieces(text) {
  const words = (text.match(TOKEN) ?? []);
  const out = [];
  let depth = 0;
  const line = () => out.push([`\n${"  ".repeat(depth)}`]);
  words.forEach((word, at) => {
    const before = words[at - 1], next = words[at + 1];
    if (word === "}" || word === "]") {
      depth -= 1;
      if (before !== "{" && before !== "[") line();
    }
    if (word === ":") out.push([": "]);
    else out.push([word, kindOf(word, next)]);
    if (word === ",") line();
    if (word === "{" || word === "[") {
      depth += 1;
      if (next !== "}" && next !== "]") line();
    }
  });
  return out;
}

function kindOf(word, next) {
  if (word[0] === '"') return next === ":" ? "k" : "s";
  if (/[-0-9]/.test(word[0])) return "n";
  return /[a-z]/.test(word[0]) ? "w" : undefined;
}
