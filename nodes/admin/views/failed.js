// The tasks that have failed for good, to be looked at and retried.
import { tasksView } from "./tasks.js";

export const show = (main, context) => tasksView(main, context, {
  title: "Failed", fixed: { status: "failed" }, bulk: "Retry all of these…", empty: "Nothing has failed.",
});
