// Requests to the server: JSON in and out; failures are errors with the server's message.

import { signal } from "@preact/signals";
import type { CurrentUser } from "./types";

export const API = "/api/v1";

/** The signed-in user; null if signed out, undefined while loading. */
export const me = signal<CurrentUser | null | undefined>(undefined);

/** A failed request, with the detail of the problem document. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    detail: string,
    readonly code = "",
  ) {
    super(detail);
  }

  /** The server does not have this resource; the page works without it. */
  get isMissing(): boolean {
    return this.status === 404 || this.status === 405;
  }
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

async function problemOf(response: Response): Promise<Problem> {
  let detail = `The server answered ${response.status} ${response.statusText}.`;
  let code = "";
  try {
    const body = await response.json();
    if (typeof body.detail === "string" && body.detail) detail = body.detail;
    else if (typeof body.title === "string") detail = body.title;
    code = body.code ?? body.type ?? "";
  } catch {
    // Not a problem document: the status is all there is.
  }
  return new Problem(response.status, detail, code);
}

export interface RequestOptions {
  method?: string;
  /** Sent as JSON; with a `type`, a string is sent unchanged. */
  body?: unknown;
  type?: string;
  signal?: AbortSignal;
  headers?: Record<string, string>;
}

/** Sends a request and returns the response if it succeeded. */
export async function request(path: string, { method = "GET", body, type, signal, headers = {} }: RequestOptions = {}): Promise<Response> {
  const sent: Record<string, string> = { accept: "application/json", ...headers };
  const csrf = me.value?.csrf;
  if (method !== "GET" && csrf) sent["x-csrf-token"] = csrf;
  if (body !== undefined) sent["content-type"] = type ?? "application/json";
  let response: Response;
  try {
    response = await fetch(path.startsWith("/") ? API + path : path, {
      method,
      headers: sent,
      body: body === undefined ? undefined : typeof body === "string" && type ? body : JSON.stringify(body),
      signal,
      credentials: "same-origin",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, "The server cannot be reached.");
  }
  if (response.ok) return response;
  const problem = await problemOf(response);
  // The session has expired: show the sign-in page.
  if (response.status === 401 && path !== "/session") me.value = null;
  throw problem;
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await request(path, { signal })).json();
}

export async function send<T = unknown>(method: string, path: string, body?: unknown, more: RequestOptions = {}): Promise<T> {
  const response = await request(path, { ...more, method, body });
  const text = await response.text();
  return (text ? JSON.parse(text) : undefined) as T;
}

/** Returns the query string of the values that are set, with the question mark; empty if there are none. */
export function query(values: Record<string, string | number | boolean | null | undefined>): string {
  const params = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) {
    if (value !== undefined && value !== null && value !== "") params.set(key, String(value));
  }
  const text = params.toString();
  return text ? `?${text}` : "";
}
