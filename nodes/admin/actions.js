// What can be done to one task: which buttons it has, what they ask first, and what they send.
import { change, may } from "./api.js";
import { ask, notice } from "./dialog.js";
import { h } from "./dom.js";
import { editTask } from "./edit.js";

const isOpen = (task) => task.status === "pending" || task.status === "running";

const ACTIONS = [
  {
    name: "Run now", path: "run-now", fits: (task) => task.status === "pending" && !task.paused,
    says: () => "It becomes due now.", done: "is due now",
  },
  {
    name: "Retry", path: "retry", fits: (task) => task.status === "failed",
    says: () => "It becomes due now, with all its retries again.", done: "is due now",
  },
  {
    name: "Pause", path: "pause", fits: (task) => isOpen(task) && !task.paused,
    says: (task) => task.status === "running" ? "What runs, runs on. Nothing is started after it until the task is resumed."
      : "It is not started until it is resumed.", done: "is paused",
  },
  {
    name: "Resume", path: "resume", fits: (task) => isOpen(task) && task.paused,
    says: () => "It runs again when it is due.", done: "goes on",
  },
  {
    name: "Cancel", path: "cancel", danger: true, fits: isOpen,
    says: (task) => task.status === "running" ? "Its worker is told to stop, and whatever it still reports does not count."
      : task.schedule ? "It never runs again." : "It never runs.", done: "is cancelled",
  },
];

/** The buttons that fit the task and the role of who is signed in. `then` is called after a change. */
export function buttons(task, text, then) {
  if (!may("submit")) return [];
  const made = ACTIONS.filter((action) => action.fits(task)).map((action) =>
    h("button", { type: "button", class: action.danger && "danger", onclick: () => run(action, task, then) }, action.name));
  if (task.status === "pending") {
    made.splice(-1, 0, h("button", { type: "button", onclick: () => editTask(task, text, then) }, "Edit"));
  }
  return made;
}

async function run(action, task, then) {
  const done = await ask({
    title: `${action.name}: ${task.type}`,
    body: [h("p", null, action.says(task)), h("p", { class: "mono dim" }, task.id)],
    confirm: action.name === "Cancel" ? "Cancel the task" : action.name,
    danger: action.danger,
    apply: () => change("POST", `/v1/tasks/${task.id}/${action.path}`),
  });
  if (done) notice(`${task.type} ${action.done}.`);
  then();
}
