// Changing a pending task. Only what was changed is sent, and only if nobody else changed it meanwhile.
import { change } from "./api.js";
import { ask, notice } from "./dialog.js";
import { field, h } from "./dom.js";
import { localTime } from "./filters.js";
import { isSealed } from "./format.js";
import { pretty, rawAt } from "./json.js";

/** Ask for new values. `text`: the task as it came, for the digits of its numbers. */
export async function editTask(task, text, then) {
  const fields = made(task, text);
  const done = await ask({
    title: `Edit: ${task.type}`,
    body: fields.map((one) => field(one.label, one.control)),
    confirm: "Save",
    apply: () => save(task, fields),
  });
  if (done) notice(`${task.type} is changed.`);
  then();
}

function made(task, text) {
  const json = (name) => (task[name] === null ? "" : pretty(rawAt(text, name)));
  const area = (name, rows) => h("textarea", { name, rows, spellcheck: "false", value: json(name) });
  const all = [
    { name: "run_at", label: "Due", control: h("input", { type: "datetime-local", name: "run_at", step: 1, value: localTime(task.next_run_at) }), read: (value) => JSON.stringify(new Date(value).toISOString()) },
    number("priority", "Priority, 0 to 9", task, { min: 0, max: 9 }),
    number("max_retries", "Retries", task, { min: 0 }),
    number("timeout", "Timeout of an attempt, seconds", task, { min: 0, step: "any" }),
    { name: "payload", label: "Payload, JSON", control: area("payload", 6), read: (value) => checked(value || "null") },
    { name: "tags", label: "Tags, a JSON object of texts", control: area("tags", 3), read: (value) => checked(value || "{}") },
  ];
  if (task.schedule) {
    all.splice(1, 0, { name: "schedule", label: "Schedule, JSON", control: area("schedule", 4), read: checked });
  }
  if ((task.hidden ?? []).includes("payload") || isSealed(task.payload)) all.splice(all.findIndex((one) => one.name === "payload"), 1);
  for (const one of all) one.before = one.control.value;
  return all;
}

function number(name, label, task, limits) {
  return { name, label, control: h("input", { type: "number", name, value: task[name], ...limits }), read: checked };
}

function checked(text) {
  JSON.parse(text);
  return text;
}

async function save(task, fields) {
  const members = [];
  for (const one of fields) {
    one.control.problem(null);
    if (one.control.value === one.before) continue;
    try {
      members.push(`${JSON.stringify(one.name)}:${one.read(one.control.value.trim())}`);
    } catch (error) {
      one.control.problem(error.message);
      one.control.focus();
      throw new Error(`${one.label}: cannot be read`);
    }
  }
  if (!members.length) throw new Error("Nothing was changed.");
  try {
    await change("PATCH", `/v1/tasks/${task.id}`, `{${members.join(",")}}`, { "If-Match": `"${task.version}"` });
  } catch (error) {
    for (const { field: name, message } of error.errors ?? []) {
      fields.find((one) => name.split(/[.[]/)[0] === one.name)?.control.problem(message);
    }
    throw error;
  }
}
