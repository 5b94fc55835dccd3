// Short messages at the edge of the page that disappear after a while.

import { signal } from "@preact/signals";
import { messageOf } from "../api";

interface Toast {
  id: number;
  text: string;
  bad: boolean;
}

const toasts = signal<Toast[]>([]);
let next = 1;

export function showToast(text: string, bad = false): void {
  const toast = { id: next++, text, bad };
  toasts.value = [...toasts.value, toast].slice(-4);
  setTimeout(() => dismiss(toast.id), bad ? 12_000 : 5_000);
}

export function showError(error: unknown): void {
  showToast(messageOf(error), true);
}

function dismiss(id: number): void {
  toasts.value = toasts.value.filter((n) => n.id !== id);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((n) => (
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
