// Numbers and times as text.

import type { Job, NodeSlots, Time } from "./types";

const SECOND = 1e6;

/** A duration in seconds: `42 s`, `3 min`, `2 h 5 min`, `4 d 3 h`. */
export function duration(seconds: number): string {
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
  return duration((to - from) / SECOND);
}

export const nowTime = (): Time => Date.now() * 1000;

/** `3 min ago`, `in 2 h`, `just now`. */
export function relative(at: Time, now: Time = nowTime()): string {
  const s = (now - at) / SECOND;
  if (Math.abs(s) < 3) return "just now";
  return s > 0 ? `${duration(s)} ago` : `in ${duration(-s)}`;
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
  return seconds < 3600 ? `${duration(seconds)}` : `${decimal(seconds / 3600)} h`;
}

/** `n1 GPU 0–3, n2 GPU 1`. */
export function placementText(placement: NodeSlots[]): string {
  return placement.map((s) => `${s.node} ${slots(s.gpus)}`).join(", ");
}

/** The GPUs that a job holds, or requests if it holds none: an elastic job may hold more or fewer than it requests. */
export function heldGpus(job: { gpus: number; placement: NodeSlots[] }): number {
  return job.placement.length ? job.placement.reduce((sum, s) => sum + s.gpus.length, 0) : job.gpus;
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

/** A value of a setting as text. */
export function valueText(value: unknown): string {
  if (value === null || value === undefined || value === "") return "none";
  if (typeof value === "object") return JSON.stringify(value);
  return String(value);
}

/** Parses `2h`, `90s`, `1.5d` or plain seconds; null if the text is not a duration. */
export function parseDuration(text: string): number | null {
  const found = /^\s*([0-9]+(?:\.[0-9]+)?)\s*(s|m|h|d)?\s*$/.exec(text);
  if (!found) return null;
  const unit = { s: 1, m: 60, h: 3600, d: 86400 }[found[2] ?? "s"] ?? 1;
  return Number(found[1]) * unit;
}

/** Adds a capital letter at the start and a full stop at the end. */
export function sentence(text: string): string {
  const trimmed = text.trim();
  if (!trimmed) return "";
  const whole = trimmed[0]!.toUpperCase() + trimmed.slice(1);
  return /[.!?…]$/.test(whole) ? whole : `${whole}.`;
}

/** Returns the GPU-seconds until now: the server counts until the last event. */
export function gpuSeconds(job: Job, now: Time = nowTime()): number {
  if (job.ended !== null) return job.gpu_seconds;
  const ofAttempts = (job.attempts ?? []).reduce((sum, a) => {
    const gpus = a.placement.reduce((n, s) => n + s.gpus.length, 0);
    return sum + (((a.until ?? now) - a.since) / SECOND) * gpus;
  }, 0);
  const ofOnly = job.attempt_count === 1 && job.started && job.placement.length ? ((now - job.started) / SECOND) * job.gpus : 0;
  return Math.max(job.gpu_seconds, ofAttempts, ofOnly);
}
