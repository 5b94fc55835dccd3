// Keyboard shortcuts: search, navigation and help.

import { signal } from "@preact/signals";
import { Dialog } from "./parts/dialog";
import { me } from "./api";
import { navigate } from "./router";

const SHORTCUTS: [key: string, href: string, text: string][] = [
  ["h", "/", "home"],
  ["j", "/jobs", "jobs"],
  ["m", "/jobs?user=@me&state=unfinished", "my unfinished jobs"],
  ["s", "/submit", "submit a job"],
  ["q", "/queue", "queue"],
  ["n", "/cluster", "nodes"],
  ["v", "/vcs", "virtual clusters"],
  ["u", "/usage", "usage"],
  ["a", "/admin", "administration"],
  ["p", "/me", "my account"],
];

const helpOpen = signal(false);
let afterG = 0;

export function startKeys(): void {
  document.addEventListener("keydown", (event) => {
    const target = event.target as HTMLElement;
    if (!me.value || event.ctrlKey || event.metaKey || event.altKey) return;
    if (target.matches("input, textarea, select, [contenteditable]")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    const shortcut = performance.now() - afterG < 1500 ? SHORTCUTS.find(([key]) => key === event.key) : undefined;
    afterG = 0;
    if (shortcut) navigate(shortcut[1]);
    else if (event.key === "g") afterG = performance.now();
    else if (event.key === "?") helpOpen.value = true;
    else if (event.key === "/") document.getElementById("search")?.focus();
    else return;
    event.preventDefault();
  });
}

export function KeyHelp() {
  if (!helpOpen.value) return null;
  return (
    <Dialog title="Keyboard shortcuts" onClose={() => (helpOpen.value = false)}>
      <dl class="keys">
        <div>
          <dt>
            <kbd>/</kbd>
          </dt>
          <dd>search jobs</dd>
        </div>
        {SHORTCUTS.map(([key, , text]) => (
          <div key={key}>
            <dt>
              <kbd>g</kbd> <kbd>{key}</kbd>
            </dt>
            <dd>{text}</dd>
          </div>
        ))}
        <div>
          <dt>
            <kbd>Esc</kbd>
          </dt>
          <dd>close a dialog, or leave a field</dd>
        </div>
        <div>
          <dt>
            <kbd>?</kbd>
          </dt>
          <dd>this help</dd>
        </div>
      </dl>
    </Dialog>
  );
}
