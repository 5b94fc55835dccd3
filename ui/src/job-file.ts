// Job files: the keys of a request in the forms people write, without defaults.

import { parseDocument } from "yaml";

const DEFAULTS: Record<string, unknown> = {
  tenant: "default",
  gpus: 1,
  grace_s: 30,
  priority: 0,
  processes: "per-node",
};

/** Returns the keys of a job file for a request that the server stores. */
export function nativeFile(request: Record<string, unknown>): Record<string, unknown> {
  const file: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(request)) {
    // The array is not part of the job, and the account is that of the submitting user.
    if (key === "array" || key === "run_as" || isEmpty(value)) continue;
    if (key !== "gpus" && DEFAULTS[key] === value) continue;
    if (key === "command" && Array.isArray(value) && value.length === 3 && /^(\/bin\/)?sh$/.test(String(value[0])) && value[1] === "-c") {
      file.command = value[2];
    } else if (key === "time_limit_s" || key === "expected_s" || key === "grace_s") {
      file[key.slice(0, -2)] = shortDuration(value as number);
    } else if (key === "retries" && hasDefaultRetries(value)) {
      continue;
    } else {
      file[key] = value;
    }
  }
  return file;
}

function isEmpty(value: unknown): boolean {
  if (value === null || value === undefined || value === "" || value === false || value === 0) return true;
  if (Array.isArray(value)) return value.length === 0;
  return typeof value === "object" && Object.keys(value).length === 0;
}

/** Whether the retries are the defaults of the server. */
function hasDefaultRetries(value: unknown): boolean {
  const retries = value as Record<string, unknown>;
  return retries.user === 0 && retries.platform === 3 && retries.node === 10;
}

/** Seconds in the largest unit that divides them. */
export function shortDuration(seconds: number): string {
  for (const [unit, size] of [
    ["d", 86400],
    ["h", 3600],
    ["m", 60],
  ] as const) {
    if (seconds >= size && seconds % size === 0) return `${seconds / size}${unit}`;
  }
  return `${seconds}s`;
}

/** Sets one key of a file, or removes it if the value is empty. All other text stays unchanged. */
export function withKey(text: string, key: string, value: unknown): string {
  const doc = parseDocument(text);
  const isUnset = value === null || value === "" || value === undefined || value === false;
  if (!doc.contents) doc.contents = doc.createNode({}) as never;
  if (isUnset) doc.delete(key);
  else doc.set(key, value);
  const result = doc.toString({ lineWidth: 0 });
  return result.trim() === "{}" ? "" : result;
}

/** Whether a file is an OpenPAI job file. */
export function isOpenPai(keys: unknown): boolean {
  return typeof keys === "object" && keys !== null && ("protocolVersion" in keys || "taskRoles" in keys);
}
