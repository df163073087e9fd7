// The next fire times of a task's schedule, as the nodes compute them.
import { get, withQuery } from "../api.js";
import { h } from "../dom.js";
import { duration, time } from "../format.js";

const COUNT = 5;

/** Elements to show; null for a task that fires no more. What is wrong with the schedule is shown too. */
export async function fireTimes(task, signal) {
  if (!task.schedule || task.finished_at) return null;
  const { cron, every, timezone, start_at: start } = task.schedule;
  let found;
  try {
    found = await get(withQuery("/v1/schedules/preview", { cron, every, timezone, start_at: start, count: COUNT }), signal);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return h("p", { class: "bad-text" }, error.message);
  }
  return [
    h("ul", null, found.fire_times.map((one) => h("li", null, time(one, { both: true })))),
    task.schedule.jitter && h("p", { class: "dim" }, `Each is up to ${duration(task.schedule.jitter)} later (jitter).`),
    found.notes.map((note) => h("p", { class: "dim" }, note)),
  ];
}
