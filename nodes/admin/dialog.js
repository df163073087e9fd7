// Questions before changes, and short notices after them.
import { h, fill } from "./dom.js";

/** Say it at the edge of the page, and to screen readers; not while it stands there already. */
export function notice(text, isBad = false) {
  if ([...document.getElementById("notices").children].some((one) => one.textContent === text)) return;
  const made = h("div", { class: `notice${isBad ? " bad" : ""}` }, text);
  document.getElementById("notices").append(made);
  setTimeout(() => made.remove(), isBad ? 10_000 : 5_000);
}

/**
 * Ask, and do it when the answer is yes. The dialog stays open, with what went wrong, while `apply` fails.
 * `body`: elements or text. Resolves to true once it is done, false if it was called off.
 */
export function ask({ title, body, confirm, danger = false, apply }) {
  return new Promise((resolve) => {
    const problem = h("div", { role: "alert" });
    const yes = h("button", { type: "submit", class: `primary${danger ? " danger" : ""}` }, confirm);
    const no = h("button", { type: "button", onclick: () => dialog.close() }, "Back");
    const form = h("form", { method: "dialog", class: "stack", onsubmit: submit },
      h("h2", { id: "dialog-title" }, title), body, problem, h("div", { class: "buttons" }, no, yes));
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    let done = false;

    async function submit(event) {
      event.preventDefault();
      yes.disabled = true;
      fill(problem);
      try {
        await apply();
        done = true;
        dialog.close();
      } catch (error) {
        fill(problem, h("p", { class: "problem-box" }, error.message));
        yes.disabled = false;
      }
    }

    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(done);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** The view is left, by the browser's back button say: what it asked is not asked any more, and gets no answer. */
export function endQuestions() {
  for (const dialog of document.querySelectorAll("dialog")) dialog.remove();
}
