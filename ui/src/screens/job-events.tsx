// The events of a job.

import { useEffect, useState } from "preact/hooks";
import { request, messageOf } from "../api";
import { aboutJob, useEvents } from "../live";
import { ErrorNote, Loading, Panel } from "../parts/basics";
import type { ClusterEvent, Job } from "../types";
import { Events } from "./home";

/** Reads the events of a stream until it ends. */
async function read(path: string, signal: AbortSignal): Promise<ClusterEvent[]> {
  const text = await (await request(path, { signal, headers: { accept: "text/event-stream" } })).text();
  return text
    .split("\n")
    .filter((line) => line.startsWith("data:"))
    .map((line) => JSON.parse(line.slice(5)) as ClusterEvent);
}

export function JobEvents({ job }: { job: Job }) {
  const [events, setEvents] = useState<ClusterEvent[]>();
  const [error, setError] = useState<string>();
  const [version, setVersion] = useState(0);
  useEvents(aboutJob(job.id), () => setVersion((n) => n + 1));
  useEffect(() => {
    const abort = new AbortController();
    read(`/events?since=0&job=${job.id}`, abort.signal).then(
      (all) => setEvents(all.reverse()),
      (problem) => abort.signal.aborted || setError(messageOf(problem)),
    );
    return () => abort.abort();
  }, [job.id, version]);
  return (
    <Panel title="Events">
      {error && <ErrorNote retry={() => setVersion((n) => n + 1)}>{error}</ErrorNote>}
      {events ? <Events of={events} withJob={false} /> : !error && <Loading />}
    </Panel>
  );
}
