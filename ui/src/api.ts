// Talking to the server: JSON in, JSON out, and what goes wrong as an error with the server's own words.

import { signal } from "@preact/signals";
import type { Me } from "./types";

export const API = "/api/v1";

/** Who is signed in; null for nobody, undefined while it is not known yet. */
export const me = signal<Me | null | undefined>(undefined);

/** A request that was not done, with the detail of the problem document. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    detail: string,
    readonly code = "",
  ) {
    super(detail);
  }

  /** The server does not have this (yet): the screen goes on without. */
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
    // Not a problem document: the status has to do.
  }
  return new Problem(response.status, detail, code);
}

export interface Ask {
  method?: string;
  /** Sent as JSON, or as it is where it is a string. */
  body?: unknown;
  type?: string;
  signal?: AbortSignal;
  headers?: Record<string, string>;
}

/** Asks, and returns the response if it is a good one. */
export async function ask(path: string, { method = "GET", body, type, signal, headers = {} }: Ask = {}): Promise<Response> {
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
    throw new Problem(0, "The server cannot be reached. It is tried again.");
  }
  if (response.ok) return response;
  const problem = await problemOf(response);
  // A session that has run out: back to the sign-in page, whatever was asked.
  if (response.status === 401 && path !== "/session") me.value = null;
  throw problem;
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await ask(path, { signal })).json();
}

export async function send<T = unknown>(method: string, path: string, body?: unknown, more: Ask = {}): Promise<T> {
  const response = await ask(path, { ...more, method, body });
  const text = await response.text();
  return (text ? JSON.parse(text) : undefined) as T;
}

/** A query string of what is set; with the question mark, or nothing. */
export function query(values: Record<string, string | number | boolean | null | undefined>): string {
  const params = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) {
    if (value !== undefined && value !== null && value !== "") params.set(key, String(value));
  }
  const text = params.toString();
  return text ? `?${text}` : "";
}
