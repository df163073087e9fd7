// How values are written: times, durations, numbers.
import { h } from "./dom.js";

let offsetMs = 0;

/** Follow the node's clock where this machine's is wrong: `date` is an answer's Date header. */
export function noteClock(date) {
  const difference = Date.parse(date) - Date.now();
  offsetMs = Math.abs(difference) > 2000 ? difference : 0;
}

/** Now, in milliseconds, by the node's clock. */
export const nowMs = () => Date.now() + offsetMs;

const UNITS = [["y", 31_557_600], ["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
const whole = new Intl.NumberFormat("en");
const stamp = new Intl.DateTimeFormat("en-CA", {
  year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
  hourCycle: "h23",
});

/** A number with its thousands apart; a dash for none. */
export const count = (value) => (value === null || value === undefined ? "–" : whole.format(value));

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** A number for a small place: from a million on in short, 10.2M. */
export const short = (value) => (value >= 1e6 ? compact.format(value) : count(value));

/** Seconds as people say them: 250 ms, 4.2 s, 3 min 5 s, 2 d 4 h. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const size = Math.abs(seconds);
  const sign = seconds < 0 ? "−" : "";
  if (size === 0) return "0 s";
  if (size < 0.001) return `${sign}${Math.round(size * 1e6)} µs`;
  if (size < 1) return `${sign}${Number((size * 1000).toPrecision(3))} ms`;
  if (size < 60) return `${sign}${Number(size.toFixed(size < 10 ? 1 : 0))} s`;
  const at = UNITS.findIndex(([, unit]) => size >= unit);
  const [[big, bigS], [small, smallS]] = [UNITS[at], UNITS[at + 1]];
  const rest = Math.floor((size % bigS) / smallS);
  return `${sign}${Math.floor(size / bigS)} ${big}${rest ? ` ${rest} ${small}` : ""}`;
}

const ROUGH = [["years", 31_556_952], ["months", 2_629_746], ["weeks", 604_800], ["days", 86400]];

/** "in 3 min", "12 s ago"; of what is two days away and more the rough size, "in 13 years". */
export function relative(ms) {
  const seconds = (ms - nowMs()) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  const size = Math.abs(seconds);
  const [name, unit] = ROUGH.find(([, one]) => size >= 2 * one) ?? [];
  const text = unit ? `${Math.round(size / unit)} ${name}` : duration(size < 60 ? Math.round(size) : size);
  return seconds > 0 ? `in ${text}` : `${text} ago`;
}

/** Date and time to the second, in this browser's zone. */
export const absolute = (ms) => stamp.format(ms).replace(",", "");

/** A time, relative to now and kept so; the exact one in its tooltip. `both` shows both. */
export function time(text, { both = false } = {}) {
  if (!text) return h("span", { class: "dim" }, "–");
  const ms = Date.parse(text);
  const made = h("time", { datetime: text, title: `${absolute(ms)} · ${text}`, class: both ? null : "nowrap" });
  made.dataset.relative = both ? "both" : "";
  tick(made);
  return made;
}

function tick(element) {
  const ms = Date.parse(element.getAttribute("datetime"));
  const text = element.dataset.relative === "both" ? `${absolute(ms)} (${relative(ms).replaceAll(" ", "\u00a0")})` : relative(ms);
  if (element.textContent !== text) element.textContent = text;
}

setInterval(() => document.querySelectorAll("time[data-relative]").forEach(tick), 1000);

/** What kind of state a word is: for its colour, beside the word. */
export const KINDS = {
  pending: "still", running: "busy", completed: "good", failed: "bad", cancelled: "still",
  lost: "bad", timed_out: "bad", skipped: "warn", paused: "warn", done: "good", stopped: "warn", stopping: "warn",
};

/** A state in a word and a colour. */
export const badge = (text, kind) => h("span", { class: `badge ${kind ?? KINDS[text] ?? "still"}` }, String(text).replace("_", " "));

/** A schedule in a line. */
export function schedule(value) {
  if (!value) return "–";
  if (value.cron) return `${value.cron}${value.timezone && value.timezone !== "UTC" ? ` ${value.timezone}` : ""}`;
  return `every ${duration(value.every)}`;
}

/** A small JSON value in a line that may break between its parts. */
export const jsonLine = (value) => JSON.stringify(value, null, 1).replace(/\n\s*/g, " ");

/** The last characters of an id, which differ where the first (a time) may not. */
export const shortId = (id) => `…${id.slice(-12)}`;

/** Whether only clients and workers can read it (docs/encryption.md). */
export const isSealed = (value) => typeof value?.$encrypted?.key === "string";

/** What is shown in the place of such a value. */
export const sealed = (value) => h("span", { class: "hidden-value" }, `encrypted with key ${value.$encrypted.key}`);

/** An error in a line: its message, or itself. */
export function errorLine(error) {
  if (error === null || error === undefined) return "";
  if (typeof error === "string") return error;
  if (isSealed(error)) return `${error.type}: encrypted`;
  if (typeof error.message === "string") return error.type ? `${error.type}: ${error.message}` : error.message;
  return JSON.stringify(error);
}
