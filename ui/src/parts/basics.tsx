// Basic components: buttons, tags, times, bars, notes.

import { computed, signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { exact, relative } from "../format";
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
  held: "plain",
  completed: "plain",
  cancelled: "plain",
  failed: "bad",
  succeeded: "plain",
  unreachable: "bad",
  up: "good",
  draining: "warn",
  lost: "bad",
};

/** The state of a job, a task or a node; of a job also why it is in this state. */
export function State({ of, reason }: { of: string; reason?: string }) {
  return (
    <Tag tone={TONES[of] ?? "plain"}>
      {of}
      {reason && ` (${reason.replaceAll("-", " ")})`}
    </Tag>
  );
}

/** Ticks three times a minute, so that relative times stay correct. */
const tick = signal(0);
setInterval(() => {
  if (!document.hidden) tick.value += 1;
}, 20_000);
const nowTick = computed(() => (tick.value, Date.now() * 1000));

/** A relative time, with the exact one in a tooltip. */
export function RelativeTime({ at }: { at: Time | null | undefined }) {
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

/** Parts of a whole, drawn side by side. */
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

/** An empty state, in place of data or of a whole screen. */
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

/** Text of the server, in which job ids are links. */
export function ServerText({ text }: { text: string }) {
  const parts = text.split(/\b(job \d+)\b/);
  return <>{parts.map((part, i) => (i % 2 ? <a href={`/jobs/${part.slice(4)}`}>{part}</a> : part))}</>;
}

/** Shown while the server computes an answer. */
export function Checking() {
  return (
    <p class="checking muted" role="status">
      Checking…
    </p>
  );
}

/** A section of a screen with a heading. */
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

/** The heading of a screen, with its actions. */
export function PageHeader({ title, children, lead }: { title: ComponentChildren; children?: ComponentChildren; lead?: ComponentChildren }) {
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
export function Properties({ of }: { of: [string, ComponentChildren][] }) {
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
