// Signing in with a token.
import { signIn } from "../api.js";
import { field, fill, h } from "../dom.js";

export function show(main, then) {
  const token = h("input", { type: "password", name: "token", autocomplete: "current-password", required: true, spellcheck: "false" });
  const button = h("button", { type: "submit", class: "primary" }, "Sign in");
  const problem = h("div", { role: "alert" });

  async function submit(event) {
    event.preventDefault();
    button.disabled = true;
    try {
      await signIn(token.value.trim());
    } catch (error) {
      const wait = error.retryAfterS ? ` Try again in ${error.retryAfterS} s.` : "";
      fill(problem, h("p", { class: "problem-box" }, `${error.message}.${wait}`));
      button.disabled = false;
      token.select();
      return;
    }
    then();
  }

  fill(main, h("div", { class: "sign-in panel" },
    h("form", { class: "stack", onsubmit: submit },
      h("h1", null, "Sign in"), field("Token", token), problem, button)));
  token.focus();
}
