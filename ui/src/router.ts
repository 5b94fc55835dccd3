// The path and the query of the address, as signals. Links within the page do not reload it.

import { computed, signal } from "@preact/signals";

const address = signal(location.pathname + location.search);

export const path = computed(() => address.value.split("?")[0] ?? "/");
export const params = computed(() => new URLSearchParams(address.value.split("?")[1] ?? ""));

export function navigate(to: string, { replace = false } = {}): void {
  if (to === address.value) return;
  const samePage = to.split("?")[0] === path.value;
  history[replace ? "replaceState" : "pushState"](null, "", to);
  address.value = to;
  if (!samePage) window.scrollTo(0, 0);
}

/** Changes some values of the query; empty ones are removed. */
export function setParams(values: Record<string, string | number | null | undefined>, replace = false): void {
  const next = new URLSearchParams(params.value);
  for (const [key, value] of Object.entries(values)) {
    if (value === null || value === undefined || value === "") next.delete(key);
    else next.set(key, String(value));
  }
  const text = next.toString();
  navigate(path.value + (text ? `?${text}` : ""), { replace });
}

/** Handles links within the page, and the back and forward buttons of the browser. */
export function startRouter(): void {
  window.addEventListener("popstate", () => {
    address.value = location.pathname + location.search;
  });
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element | null)?.closest("a");
    if (!link || link.origin !== location.origin || link.target || link.hasAttribute("download")) return;
    if (link.pathname.startsWith("/api/") || link.getAttribute("href")?.startsWith("#")) return;
    event.preventDefault();
    navigate(link.pathname + link.search);
  });
}
