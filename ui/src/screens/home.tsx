// Home: my jobs, my virtual clusters, free GPUs, and recent events.

import { me } from "../api";
import { count, plural } from "../format";
import { anyEvent, recentEvents, useData } from "../live";
import { Button, ButtonLink, Empty, ErrorNote, PageHeader, Loading, Panel, State, RelativeTime } from "../parts/basics";
import { Table } from "../parts/table";
import { navigate } from "../router";
import type { Cluster, ClusterEvent, Job, JobPage, VcList } from "../types";
import { VcUsageBar } from "./vcs";

export function Home() {
  const name = me.value!.name;
  const cluster = useData<Cluster>("/cluster", anyEvent);
  const mine = useData<JobPage>(`/jobs?user=${encodeURIComponent(name)}&limit=10`, anyEvent);
  const c = cluster.data;
  const waiting = (c?.jobs.queued ?? 0) + (c?.jobs.held ?? 0);
  const running = (c?.jobs.running ?? 0) + (c?.jobs.starting ?? 0);
  return (
    <>
      <PageHeader title={`Hello, ${name}`}>
        <ButtonLink href="/submit" kind="main">
          Submit a job
        </ButtonLink>
      </PageHeader>
      {cluster.error && !cluster.missing && <ErrorNote retry={cluster.reload}>{cluster.error}</ErrorNote>}
      {c?.journal_error && <ErrorNote>The journal cannot be written, so no change can be saved: {c.journal_error}</ErrorNote>}
      {c?.paused && <div class="note warn">Scheduling is paused. No job starts until an administrator resumes it.</div>}
      {c && (
        <div class="tiles">
          <Tile href="/cluster" number={c.gpus - c.used_gpus} text={`of ${plural(c.gpus, "GPU")} free`} />
          <Tile href="/jobs?state=running,starting" number={running} text={running === 1 ? "job running" : "jobs running"} />
          <Tile href="/queue" number={waiting} text={waiting === 1 ? "job waiting" : "jobs waiting"} />
          <Tile href="/cluster" number={c.nodes} text={c.nodes === 1 ? "node" : "nodes"} />
        </div>
      )}
      <div class="columns">
        <Panel title="My jobs" side={<a href={`/jobs?user=@me`}>All my jobs</a>}>
          <MyJobs mine={mine.data} error={mine.error} retry={mine.reload} />
        </Panel>
        <div class="stack">
          <MyClusters />
          <Panel title="Recent events">
            <Events of={recentEvents.value.slice(0, 10)} />
          </Panel>
        </div>
      </div>
    </>
  );
}

function Tile({ href, number, text }: { href: string; number: number; text: string }) {
  return (
    <a class="tile" href={href}>
      <strong>{count(number)}</strong> <span>{text}</span>
    </a>
  );
}

function MyJobs({ mine, error, retry }: { mine?: JobPage; error?: string; retry: () => void }) {
  if (error) return <ErrorNote retry={retry}>{error}</ErrorNote>;
  if (!mine) return <Loading />;
  if (mine.jobs.length === 0) {
    return (
      <Empty title="You have no jobs yet">
        <p>Submit one here, or on the command line:</p>
        <pre class="code">dovetail run --gpus 1 -- python3 train.py</pre>
        <Button kind="main" onClick={() => navigate("/submit")}>
          Submit a job
        </Button>
      </Empty>
    );
  }
  return (
    <Table<Job>
      label="My jobs"
      rows={mine.jobs}
      rowKey={(job) => job.id}
      columns={[
        { title: "Job", cell: (job) => <JobLink job={job} /> },
        { title: "State", cell: (job) => <State of={job.state} reason={job.state_reason} /> },
        { title: "GPUs", number: true, cell: (job) => count(job.gpus) },
        { title: "Since", wide: true, cell: (job) => <RelativeTime at={job.since} /> },
      ]}
    />
  );
}

export function JobLink({ job }: { job: { id: number; name: string } }) {
  return (
    <a class="job-link" href={`/jobs/${job.id}`}>
      <span class="id">{job.id}</span> <span class="name">{job.name || "(no name)"}</span>
    </a>
  );
}

function MyClusters() {
  const { data } = useData<VcList>("/vcs", anyEvent);
  if (!data || data.mode === "open") return null;
  const mine = data.vcs.filter((vc) => vc.role || vc.everyone !== "none");
  if (mine.length === 0) return null;
  return (
    <Panel title="My virtual clusters" side={<a href="/vcs">All</a>}>
      {mine.slice(0, 6).map((vc) => (
        <VcUsageBar key={vc.name} vc={vc} />
      ))}
    </Panel>
  );
}

/** A list of events, newest first. */
export function Events({ of, withJob = true }: { of: ClusterEvent[]; withJob?: boolean }) {
  if (of.length === 0) return <p class="muted">No events yet.</p>;
  return (
    <ol class="events">
      {of.map((event) => (
        <li key={event.number}>
          <span class="event-words">
            {withJob && event.job !== undefined && event.job !== null && <a href={`/jobs/${event.job}`}>Job {event.job}</a>}{" "}
            <b>{event.kind.replaceAll("-", " ")}</b>
            {event.text && <span class="muted"> {event.text}</span>}
          </span>
          <RelativeTime at={event.at} />
        </li>
      ))}
    </ol>
  );
}
