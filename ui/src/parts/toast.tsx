// Short notices at the edge of the page that go away by themselves.

import { signal } from "@preact/signals";
import { messageOf } from "../api";

interface Notice {
  id: number;
  text: string;
  bad: boolean;
}

const notices = signal<Notice[]>([]);
let next = 1;

export function say(text: string, bad = false): void {
  const notice = { id: next++, text, bad };
  notices.value = [...notices.value, notice].slice(-4);
  setTimeout(() => dismiss(notice.id), bad ? 12_000 : 5_000);
}

export function sayError(error: unknown): void {
  say(messageOf(error), true);
}

function dismiss(id: number): void {
  notices.value = notices.value.filter((n) => n.id !== id);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {notices.value.map((n) => (
        <div key={n.id} class={`toast ${n.bad ? "bad" : ""}`}>
          <span>{n.text}</span>
          <button type="button" class="button quiet" aria-label="Dismiss" onClick={() => dismiss(n.id)}>
            ✕
          </button>
        </div>
      ))}
    </div>
  );
}
