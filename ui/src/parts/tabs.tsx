// Tabs as links: the address has the open one.

import { params, path } from "../router";

export function Tabs({ label, of, current }: { label: string; of: [key: string, text: string][]; current: string }) {
  const first = of[0]?.[0];
  const href = (key: string) => {
    const next = new URLSearchParams(params.value);
    if (key === first) next.delete("tab");
    else next.set("tab", key);
    const text = next.toString();
    return path.value + (text ? `?${text}` : "");
  };
  return (
    <nav class="tabs" aria-label={label}>
      {of.map(([key, text]) => (
        <a key={key} href={href(key)} aria-current={key === current ? "page" : undefined}>
          {text}
        </a>
      ))}
    </nav>
  );
}

/** Returns the open tab, from the address. */
export function useTab(of: [key: string, text: string][]): string {
  const requested = params.value.get("tab");
  return of.some(([key]) => key === requested) ? requested! : of[0]![0];
}
