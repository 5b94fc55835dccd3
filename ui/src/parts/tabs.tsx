// Tabs that are links: the address says which one is open.

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

/** The open tab, as the address says. */
export function useTab(of: [key: string, text: string][]): string {
  const asked = params.value.get("tab");
  return of.some(([key]) => key === asked) ? asked! : of[0]![0];
}
