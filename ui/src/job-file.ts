// Job files: the keys of a request in the forms people write, and only those that say something.

import { parseDocument } from "yaml";

const DEFAULTS: Record<string, unknown> = {
  tenant: "default",
  gpus: 1,
  grace_s: 30,
  priority: 0,
  processes: "per-node",
};

/** Keys people would write, of a request as the server keeps it. */
export function nativeFile(request: Record<string, unknown>): Record<string, unknown> {
  const file: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(request)) {
    // An array is sent beside the job, and the account is the sender's own.
    if (key === "array" || key === "run_as" || isNothing(value)) continue;
    if (key !== "gpus" && DEFAULTS[key] === value) continue;
    if (key === "command" && Array.isArray(value) && value.length === 3 && /^(\/bin\/)?sh$/.test(String(value[0])) && value[1] === "-c") {
      file.command = value[2];
    } else if (key === "time_limit_s" || key === "expected_s" || key === "grace_s") {
      file[key.slice(0, -2)] = spanWord(value as number);
    } else if (key === "retries" && isDefaultRetries(value)) {
      continue;
    } else {
      file[key] = value;
    }
  }
  return file;
}

function isNothing(value: unknown): boolean {
  if (value === null || value === undefined || value === "" || value === false || value === 0) return true;
  if (Array.isArray(value)) return value.length === 0;
  return typeof value === "object" && Object.keys(value).length === 0;
}

/** What the server would set by itself. */
function isDefaultRetries(value: unknown): boolean {
  const retries = value as Record<string, unknown>;
  return retries.user === 0 && retries.platform === 3 && retries.node === 10;
}

/** Seconds with the largest unit that fits. */
export function spanWord(seconds: number): string {
  for (const [unit, size] of [
    ["d", 86400],
    ["h", 3600],
    ["m", 60],
  ] as const) {
    if (seconds >= size && seconds % size === 0) return `${seconds / size}${unit}`;
  }
  return `${seconds}s`;
}

/** A file with one key set, or taken out where the value says nothing; all else stays as it is written. */
export function withKey(text: string, key: string, value: unknown): string {
  const doc = parseDocument(text);
  const isNone = value === null || value === "" || value === undefined || value === false;
  if (!doc.contents) doc.contents = doc.createNode({}) as never;
  if (isNone) doc.delete(key);
  else doc.set(key, value);
  const written = doc.toString({ lineWidth: 0 });
  return written.trim() === "{}" ? "" : written;
}

/** Whether a file is one of OpenPAI's. */
export function isOpenPai(keys: unknown): boolean {
  return typeof keys === "object" && keys !== null && ("protocolVersion" in keys || "taskRoles" in keys);
}
