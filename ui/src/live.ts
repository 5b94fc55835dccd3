// What happens, as it happens: one stream of events for the whole page. What is on screen asks again when an event
// concerns it, at most once a second, and every 15 seconds in any case while the stream is broken.

import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { API, Problem, get, messageOf } from "./api";
import type { Cluster, ClusterEvent } from "./types";

/** The last events, newest first. */
export const recent = signal<ClusterEvent[]>([]);
/** Whether events are coming in. */
export const connected = signal(true);

const KEPT = 60;
const LEAST_BETWEEN_MS = 1000;
const WITHOUT_STREAM_MS = 15_000;

type Listener = (event: ClusterEvent) => void;
const listeners = new Set<Listener>();
let source: EventSource | null = null;
let last = 0;
/** Events up to this one happened before the page was opened, and change nothing on it. */
let old = 0;
let again = 0;

export async function startLive(): Promise<void> {
  stopLive();
  try {
    const cluster = await get<Cluster>("/cluster");
    old = cluster.last_event;
    last = Math.max(0, old - KEPT);
  } catch {
    again = window.setTimeout(startLive, WITHOUT_STREAM_MS);
    return;
  }
  open();
}

export function stopLive(): void {
  clearTimeout(again);
  source?.close();
  source = null;
  recent.value = [];
}

function open(): void {
  const stream = new EventSource(`${API}/events?follow=true&since=${last}`);
  source = stream;
  stream.onopen = () => {
    connected.value = true;
  };
  stream.onmessage = (message) => {
    const event = JSON.parse(message.data) as ClusterEvent;
    if (event.number <= last) return;
    last = event.number;
    recent.value = [event, ...recent.value].slice(0, KEPT);
    if (event.number > old) for (const listener of listeners) listener(event);
  };
  // The browser's own reconnecting would ask with the first `since` again; ours asks for what is missing.
  stream.onerror = () => {
    connected.value = false;
    stream.close();
    if (source !== stream) return;
    clearTimeout(again);
    again = window.setTimeout(open, 3000);
  };
}

/** Calls on events, at most once a second, and not while nobody looks. */
export function useEvents(concerns: (event: ClusterEvent) => boolean, act: () => void): void {
  const now = useRef({ concerns, act });
  now.current = { concerns, act };
  useEffect(() => {
    let timer = 0;
    let before = 0;
    let missed = false;
    const run = () => {
      timer = 0;
      before = performance.now();
      if (document.hidden) missed = true;
      else now.current.act();
    };
    const listener = (event: ClusterEvent) => {
      if (timer || !now.current.concerns(event)) return;
      timer = window.setTimeout(run, Math.max(50, LEAST_BETWEEN_MS - (performance.now() - before)));
    };
    const shown = () => {
      if (document.hidden || !missed) return;
      missed = false;
      now.current.act();
    };
    const slow = window.setInterval(() => {
      if (!connected.value && !document.hidden) now.current.act();
    }, WITHOUT_STREAM_MS);
    listeners.add(listener);
    document.addEventListener("visibilitychange", shown);
    return () => {
      listeners.delete(listener);
      document.removeEventListener("visibilitychange", shown);
      clearTimeout(timer);
      clearInterval(slow);
    };
  }, []);
}

export interface Loaded<T> {
  data: T | undefined;
  error: string | undefined;
  /** The server has no such thing. */
  missing: boolean;
  loading: boolean;
  reload: () => void;
}

/** What is at a path, kept up to date; null asks for nothing. What was there stays on screen while it is asked again. */
export function useData<T>(path: string | null, concerns: (event: ClusterEvent) => boolean = () => false): Loaded<T> {
  const [state, set] = useState<{ data?: T; error?: string; missing?: boolean; loading: boolean }>({ loading: true });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (path === null) {
      set({ loading: false });
      return;
    }
    const abort = new AbortController();
    let retry = 0;
    set((was) => ({ ...was, loading: true }));
    get<T>(path, abort.signal).then(
      (data) => set({ data, loading: false }),
      (error) => {
        if (abort.signal.aborted) return;
        const missing = error instanceof Problem && error.isMissing;
        const unreachable = error instanceof Problem && (error.status === 0 || error.status >= 502);
        set((was) => ({ data: missing ? undefined : was.data, error: messageOf(error), missing, loading: false }));
        if (unreachable) retry = window.setTimeout(() => setTurn((n) => n + 1), 10_000);
      },
    );
    return () => {
      abort.abort();
      clearTimeout(retry);
    };
  }, [path, turn]);
  const reload = () => setTurn((n) => n + 1);
  useEvents(concerns, reload);
  return { data: state.data, error: state.error, missing: state.missing ?? false, loading: state.loading, reload };
}

/** Events that change who holds GPUs. */
export const anyEvent = () => true;
export const aboutJob = (id: number) => (event: ClusterEvent) => event.job === id;
