// The smallest parts: buttons, tags, times, bars, notes.

import { computed, signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { exact, plainly, relative } from "../format";
import type { Time } from "../types";

type Tone = "plain" | "good" | "busy" | "warn" | "bad" | "accent";

export function Button({
  kind = "plain",
  class: more = "",
  ...rest
}: JSX.IntrinsicElements["button"] & { kind?: "plain" | "main" | "danger" | "quiet" }) {
  return <button type="button" {...rest} class={`button ${kind} ${more}`} />;
}

/** A link that looks like a button. */
export function ButtonLink({ href, kind = "plain", children }: { href: string; kind?: string; children: ComponentChildren }) {
  return (
    <a class={`button ${kind}`} href={href}>
      {children}
    </a>
  );
}

export function Tag({ tone = "plain", children, title }: { tone?: Tone; children: ComponentChildren; title?: string }) {
  return (
    <span class={`tag ${tone}`} title={title}>
      {children}
    </span>
  );
}

const TONES: Record<string, Tone> = {
  running: "good",
  starting: "busy",
  stopping: "busy",
  queued: "warn",
  preempted: "warn",
  held: "plain",
  completed: "plain",
  cancelled: "plain",
  failed: "bad",
  "time-limit": "bad",
  rejected: "bad",
  "dependency-failed": "bad",
  up: "good",
  draining: "warn",
  lost: "bad",
};

/** The state of a job or a node. */
export function State({ of }: { of: string }) {
  return <Tag tone={TONES[of] ?? "plain"}>{of.replaceAll("-", " ")}</Tag>;
}

/** Ticks twice a minute, so that relative times stay true without asking anybody. */
const tick = signal(0);
setInterval(() => {
  if (!document.hidden) tick.value += 1;
}, 20_000);
const nowTick = computed(() => (tick.value, Date.now() * 1000));

/** A time, relative; the exact one in a tooltip. */
export function When({ at }: { at: Time | null | undefined }) {
  if (at === null || at === undefined) return <span class="muted">–</span>;
  const now = Math.max(nowTick.value, Date.now() * 1000);
  return (
    <time dateTime={new Date(at / 1000).toISOString()} title={exact(at)}>
      {relative(at, now)}
    </time>
  );
}

export interface Part {
  value: number;
  kind: "used" | "borrowed" | "lent" | "free";
  label: string;
}

/** Parts of a whole, side by side. */
export function Bar({ parts, whole, label }: { parts: Part[]; whole: number; label: string }) {
  const of = (value: number) => `${whole > 0 ? Math.min(100, (value / whole) * 100) : 0}%`;
  return (
    <div class="bar" role="img" aria-label={label} title={label}>
      {parts
        .filter((part) => part.value > 0)
        .map((part) => (
          <span key={part.kind} class={`bar-${part.kind}`} style={{ width: of(part.value) }} />
        ))}
    </div>
  );
}

/** Something to be said in the place where data would be, or in the place of a whole screen. */
export function Empty({ title, whole = false, children }: { title: string; whole?: boolean; children?: ComponentChildren }) {
  return (
    <div class="empty">
      {whole ? <h1>{title}</h1> : <p class="empty-title">{title}</p>}
      {children && <div class="muted">{children}</div>}
    </div>
  );
}

export function ErrorNote({ children, retry }: { children: ComponentChildren; retry?: () => void }) {
  return (
    <div class="note bad" role="alert">
      <span>{children}</span>
      {retry && (
        <Button kind="quiet" onClick={retry}>
          Try again
        </Button>
      )}
    </div>
  );
}

export function Note({ tone = "plain", children }: { tone?: Tone; children: ComponentChildren }) {
  return <div class={`note ${tone}`}>{children}</div>;
}

export function Loading() {
  return (
    <p class="loading muted" role="status">
      Loading…
    </p>
  );
}

/** Words of the server; the jobs they name are links. */
export function Words({ text }: { text: string }) {
  const parts = plainly(text).split(/\b(job \d+)\b/);
  return <>{parts.map((part, i) => (i % 2 ? <a href={`/jobs/${part.slice(4)}`}>{part}</a> : part))}</>;
}

/** Something is being thought about; what is there already stays. */
export function Looking() {
  return (
    <p class="looking muted" role="status">
      Looking…
    </p>
  );
}

/** A part of a screen with a heading. */
export function Panel({
  title,
  side,
  children,
  class: more = "",
}: {
  title?: ComponentChildren;
  side?: ComponentChildren;
  children: ComponentChildren;
  class?: string;
}) {
  return (
    <section class={`panel ${more}`}>
      {(title || side) && (
        <div class="panel-head">
          {title && <h2>{title}</h2>}
          {side && <div class="panel-side">{side}</div>}
        </div>
      )}
      {children}
    </section>
  );
}

/** The heading of a screen and what can be done there. */
export function Head({ title, children, lead }: { title: ComponentChildren; children?: ComponentChildren; lead?: ComponentChildren }) {
  return (
    <div class="head">
      <div class="head-words">
        <h1>{title}</h1>
        {lead && <p class="muted">{lead}</p>}
      </div>
      {children && <div class="head-actions">{children}</div>}
    </div>
  );
}

/** Names and values, side by side. */
export function Facts({ of }: { of: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {of.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
