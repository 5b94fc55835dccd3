// Live updates: one stream of events for the whole page. Data on screen is fetched again when an event concerns it, at
// most once a second, and every 15 seconds while the stream is disconnected.

import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { API, Problem, get, messageOf } from "./api";
import type { Cluster, ClusterEvent } from "./types";

/** The most recent events, newest first. */
export const recentEvents = signal<ClusterEvent[]>([]);
/** Whether the event stream is connected. */
export const connected = signal(true);

const MAX_RECENT = 60;
const MIN_INTERVAL_MS = 1000;
const POLL_INTERVAL_MS = 15_000;

type Listener = (event: ClusterEvent) => void;
const listeners = new Set<Listener>();
let source: EventSource | null = null;
let last = 0;
/** Number of the last event before the page was opened: events up to it trigger no update. */
let initial = 0;
let reconnect = 0;

export async function startLive(): Promise<void> {
  stopLive();
  try {
    const cluster = await get<Cluster>("/cluster");
    initial = cluster.last_event;
    last = Math.max(0, initial - MAX_RECENT);
  } catch {
    reconnect = window.setTimeout(startLive, POLL_INTERVAL_MS);
    return;
  }
  open();
}

export function stopLive(): void {
  clearTimeout(reconnect);
  source?.close();
  source = null;
  recentEvents.value = [];
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
    recentEvents.value = [event, ...recentEvents.value].slice(0, MAX_RECENT);
    if (event.number > initial) for (const listener of listeners) listener(event);
  };
  // The browser would reconnect with the first `since` again; this resumes after the last event received.
  stream.onerror = () => {
    connected.value = false;
    stream.close();
    if (source !== stream) return;
    clearTimeout(reconnect);
    reconnect = window.setTimeout(open, 3000);
  };
}

/** Calls `refresh` on events, at most once a second, and not while the page is hidden. */
export function useEvents(concerns: (event: ClusterEvent) => boolean, refresh: () => void): void {
  const current = useRef({ concerns, refresh });
  current.current = { concerns, refresh };
  useEffect(() => {
    let timer = 0;
    let lastRun = 0;
    let missed = false;
    const run = () => {
      timer = 0;
      lastRun = performance.now();
      if (document.hidden) missed = true;
      else current.current.refresh();
    };
    const listener = (event: ClusterEvent) => {
      if (timer || !current.current.concerns(event)) return;
      timer = window.setTimeout(run, Math.max(50, MIN_INTERVAL_MS - (performance.now() - lastRun)));
    };
    const onShow = () => {
      if (document.hidden || !missed) return;
      missed = false;
      current.current.refresh();
    };
    const poll = window.setInterval(() => {
      if (!connected.value && !document.hidden) current.current.refresh();
    }, POLL_INTERVAL_MS);
    // After a reconnect, errors of requests that failed meanwhile must not stay on screen.
    let wasConnected = connected.peek();
    const unsubscribe = connected.subscribe((isConnected) => {
      if (isConnected && !wasConnected) run();
      wasConnected = isConnected;
    });
    listeners.add(listener);
    document.addEventListener("visibilitychange", onShow);
    return () => {
      unsubscribe();
      listeners.delete(listener);
      document.removeEventListener("visibilitychange", onShow);
      clearTimeout(timer);
      clearInterval(poll);
    };
  }, []);
}

export interface Loaded<T> {
  data: T | undefined;
  error: string | undefined;
  /** The server does not have this resource. */
  missing: boolean;
  loading: boolean;
  reload: () => void;
}

/** Fetches a path and keeps it up to date; null fetches nothing. The previous data stays on screen while it is fetched again. */
export function useData<T>(path: string | null, concerns: (event: ClusterEvent) => boolean = () => false): Loaded<T> {
  const [state, set] = useState<{ data?: T; error?: string; missing?: boolean; loading: boolean }>({ loading: true });
  const [version, setVersion] = useState(0);
  useEffect(() => {
    if (path === null) {
      set({ loading: false });
      return;
    }
    const abort = new AbortController();
    let retry = 0;
    set((previous) => ({ ...previous, loading: true }));
    get<T>(path, abort.signal).then(
      (data) => set({ data, loading: false }),
      (error) => {
        if (abort.signal.aborted) return;
        const missing = error instanceof Problem && error.isMissing;
        const unreachable = error instanceof Problem && (error.status === 0 || error.status >= 502);
        set((previous) => ({ data: missing ? undefined : previous.data, error: messageOf(error), missing, loading: false }));
        if (unreachable) retry = window.setTimeout(() => setVersion((n) => n + 1), 10_000);
      },
    );
    return () => {
      abort.abort();
      clearTimeout(retry);
    };
  }, [path, version]);
  const reload = () => setVersion((n) => n + 1);
  useEvents(concerns, reload);
  return { data: state.data, error: state.error, missing: state.missing ?? false, loading: state.loading, reload };
}

/** Every event. */
export const anyEvent = () => true;
/** Events of one job. */
export const aboutJob = (id: number) => (event: ClusterEvent) => event.job === id;
