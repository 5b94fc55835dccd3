// Numbers and times as people read them.

import type { Job, Seats, Time } from "./types";

const SECOND = 1e6;

/** A span in seconds: `42 s`, `3 min`, `2 h 5 min`, `4 d 3 h`. */
export function span(seconds: number): string {
  if (!Number.isFinite(seconds)) return "–";
  const s = Math.max(0, seconds);
  if (s < 1) return s === 0 ? "0 s" : "< 1 s";
  if (s < 120) return `${Math.round(s)} s`;
  const minutes = Math.round(s / 60);
  if (minutes < 120) return `${minutes} min`;
  if (minutes < 48 * 60) {
    const rest = minutes % 60;
    return rest ? `${Math.floor(minutes / 60)} h ${rest} min` : `${Math.floor(minutes / 60)} h`;
  }
  const hours = Math.round(minutes / 60);
  return hours % 24 ? `${Math.floor(hours / 24)} d ${hours % 24} h` : `${hours / 24} d`;
}

export function between(from: Time, to: Time): string {
  return span((to - from) / SECOND);
}

export const nowTime = (): Time => Date.now() * 1000;

/** `3 min ago`, `in 2 h`, `just now`. */
export function relative(at: Time, now: Time = nowTime()): string {
  const s = (now - at) / SECOND;
  if (Math.abs(s) < 3) return "just now";
  return s > 0 ? `${span(s)} ago` : `in ${span(-s)}`;
}

const two = (n: number) => String(n).padStart(2, "0");

/** The exact local time. */
export function exact(at: Time): string {
  const d = new Date(at / 1000);
  const day = `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`;
  return `${day} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

export function clock(at: Time): string {
  const d = new Date(at / 1000);
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

const whole = new Intl.NumberFormat("en");
const fine = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export const count = (n: number): string => whole.format(n);
export const decimal = (n: number): string => (n > 0 && n < 0.05 ? "< 0.1" : fine.format(n));

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

export function gpuTime(seconds: number): string {
  return seconds < 3600 ? `${span(seconds)}` : `${decimal(seconds / 3600)} h`;
}

/** `n1 GPU 0–3, n2 GPU 1`. */
export function seatsText(seats: Seats[]): string {
  return seats.map((s) => `${s.node} ${slots(s.gpus)}`).join(", ");
}

/** `GPU 0–3, 6`. */
export function slots(gpus: number[]): string {
  const runs: string[] = [];
  const sorted = [...gpus].sort((a, b) => a - b);
  for (let i = 0; i < sorted.length; ) {
    let j = i;
    while (sorted[j + 1] === sorted[j]! + 1) j += 1;
    runs.push(i === j ? `${sorted[i]}` : `${sorted[i]}–${sorted[j]}`);
    i = j + 1;
  }
  return `GPU ${runs.join(", ")}`;
}

export function bytes(n: number): string {
  if (n < 1024) return `${n} B`;
  if (n < 1024 ** 2) return `${fine.format(n / 1024)} KiB`;
  if (n < 1024 ** 3) return `${fine.format(n / 1024 ** 2)} MiB`;
  return `${fine.format(n / 1024 ** 3)} GiB`;
}

/** Any value of a setting in words. */
export function valueText(value: unknown): string {
  if (value === null || value === undefined || value === "") return "none";
  if (typeof value === "object") return JSON.stringify(value);
  return String(value);
}

/** `2h`, `90s`, `1.5d` and plain seconds as seconds; null if it is none. */
export function parseSpan(text: string): number | null {
  const found = /^\s*([0-9]+(?:\.[0-9]+)?)\s*(s|m|h|d)?\s*$/.exec(text);
  if (!found) return null;
  const unit = { s: 1, m: 60, h: 3600, d: 86400 }[found[2] ?? "s"] ?? 1;
  return Number(found[1]) * unit;
}

/** What the engine calls a tenant with a guarantee, people know as a virtual cluster with a promise. */
export function plainly(text: string): string {
  return text.replaceAll(/\btenant (?=\S)/g, "virtual cluster ").replaceAll("is guaranteed", "is promised").replaceAll(/\b1 (GPU|node)s\b/g, "1 $1");
}

/** With a capital letter at its start and a full stop at its end. */
export function sentence(text: string): string {
  const trimmed = plainly(text.trim());
  if (!trimmed) return "";
  const whole = trimmed[0]!.toUpperCase() + trimmed.slice(1);
  return /[.!?…]$/.test(whole) ? whole : `${whole}.`;
}

/** GPU-seconds until now: the server counts until the last thing that happened. */
export function gpuSeconds(job: Job, now: Time = nowTime()): number {
  if (job.over) return job.gpu_seconds;
  const held = (job.attempts ?? []).reduce((sum, a) => {
    const gpus = a.seats.reduce((n, s) => n + s.gpus.length, 0);
    return sum + (((a.until ?? now) - a.since) / SECOND) * gpus;
  }, 0);
  const once = job.launches === 1 && job.started && job.seats.length ? ((now - job.started) / SECOND) * job.gpus : 0;
  return Math.max(job.gpu_seconds, held, once);
}
