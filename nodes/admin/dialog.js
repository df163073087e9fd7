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
 * `body`: elements or text. `isLook`: `apply` changes nothing. Resolves to true once it is done, false if it was called off. Who
 * closes it while a change is under way calls nothing off, and is told what became of it.
 */
export function ask({ title, body, confirm, danger = false, isLook = false, apply }) {
  return new Promise((resolve) => {
    const problem = h("div", { role: "alert" });
    const yes = h("button", { type: "submit", class: `primary${danger ? " danger" : ""}` }, confirm);
    const no = h("button", { type: "button", onclick: () => dialog.close() }, "Back");
    const form = h("form", { method: "dialog", class: "stack", onsubmit: submit },
      h("h2", { id: "dialog-title" }, title), body, problem, h("div", { class: "buttons" }, no, yes));
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    let done = false;
    let underWay = false;
    let isClosed = false;

    async function submit(event) {
      event.preventDefault();
      if (underWay) return;
      underWay = yes.disabled = true;
      fill(problem);
      try {
        await apply();
        done = true;
      } catch (error) {
        fill(problem, h("p", { class: "problem-box" }, error.message));
        if (!dialog.isConnected && !isLook) notice(`${title}: ${error.message}`, true);
      }
      underWay = yes.disabled = false;
      if (isClosed) resolve(done);
      else if (done && dialog.isConnected) dialog.close();
      else if (done && !isLook) notice(`${title}: done.`); // the view has been left
    }

    dialog.addEventListener("close", () => {
      isClosed = true;
      dialog.remove();
      if (!underWay || isLook) resolve(done);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** The view is left, by the browser's back button say: what it asked is not asked any more, and gets no answer. */
export function endQuestions() {
  for (const dialog of document.querySelectorAll("dialog")) dialog.remove();
}
