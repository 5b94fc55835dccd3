// The map of the cluster: racks, nodes, and each GPU as a square, coloured by job, virtual cluster or health.

import { signal } from "@preact/signals";
import { colourOf, colourOfIndex } from "../colours";
import { count, decimal, plural } from "../format";
import { anyEvent, useData } from "../live";
import { Button, Empty, ErrorNote, PageHeader, Loading, Panel, RelativeTime, State } from "../parts/basics";
import { type Column, Table } from "../parts/table";
import { params, setParams } from "../router";
import type { Cluster, Job, JobPage, Measurement, Node, Profile } from "../types";

type By = "job" | "vc" | "health";

/** The most jobs in the legend. */
const MAX_LEGEND = 24;
/** The most rows of the table of measured models. */
const MAX_PROFILES = 200;
/** The job or virtual cluster under the pointer: only its squares keep their colour. */
const highlighted = signal<string | null>(null);

interface Square {
  index: number;
  job: Job | undefined;
  jobs: number[];
  vc: string | null;
  bad: boolean;
}

export function ClusterMap() {
  const nodes = useData<Node[]>("/nodes", anyEvent);
  const cluster = useData<Cluster>("/cluster", anyEvent);
  const jobs = useData<JobPage>("/jobs?state=unfinished&limit=5000", anyEvent);
  const by = (params.value.get("by") ?? "job") as By;
  const jobsById = new Map((jobs.data?.jobs ?? []).map((job) => [job.id, job]));
  const all = nodes.data ?? [];
  const racks = [...Map.groupBy(all, (node) => node.rack)].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
  const vcs = [...new Set(all.flatMap((node) => squares(node, jobsById).map((s) => s.vc)).filter((vc) => vc !== null))].sort();
  const used = all.reduce((sum, node) => sum + node.used_gpus, 0);
  const total = all.reduce((sum, node) => sum + (node.state === "lost" ? 0 : node.gpus), 0);
  return (
    <>
      <PageHeader
        title="Cluster"
        lead={
          nodes.data && `${count(used)} of ${plural(total, "GPU")} on ${plural(all.length, "node")} in use${cluster.data ? `, policy ${cluster.data.policy.split(":")[0]}` : ""}`
        }
      >
        <div class="filter-buttons" role="group" aria-label="Colour by">
          {(["job", "vc", "health"] as By[]).map((kind) => (
            <Button key={kind} aria-pressed={by === kind} onClick={() => setParams({ by: kind === "job" ? null : kind }, true)}>
              {kind === "vc" ? "Virtual cluster" : kind === "job" ? "Job" : "Health"}
            </Button>
          ))}
        </div>
      </PageHeader>
      {nodes.error && <ErrorNote retry={nodes.reload}>{nodes.error}</ErrorNote>}
      {!nodes.data && !nodes.error && <Loading />}
      {nodes.data?.length === 0 && (
        <Empty title="No nodes yet">
          <p>Start an agent on each machine with GPUs:</p>
          <pre class="code">dovetail agent --server HOST:7879 --token-file join-token</pre>
        </Empty>
      )}
      {by === "job" && <JobLegend jobs={[...new Set(all.flatMap((node) => node.jobs))].map((id) => jobsById.get(id)).filter((job) => job !== undefined)} />}
      {by === "vc" && vcs.length > 0 && <Legend vcs={vcs} />}
      {by === "health" && <HealthLegend />}
      <div class={`racks ${highlighted.value === null ? "" : "highlighting"}`}>
        {racks.map(([rack, members]) => (
          <section key={rack} class="rack" aria-label={rack ? `Rack ${rack}` : "Nodes"}>
            {(rack || racks.length > 1) && <h2>{rack ? `Rack ${rack}` : "No rack"}</h2>}
            <div class="nodes">
              {members.toSorted(byName).map((node) => (
                <NodeCard key={node.name} node={node} jobsById={jobsById} by={by} vcs={vcs} />
              ))}
            </div>
          </section>
        ))}
      </div>
      <Profiles />
    </>
  );
}

const PROFILE_COLUMNS: Column<{ profile: Profile; m: Measurement }>[] = [
  { title: "Model", cell: ({ profile }) => profile.model },
  { title: "Jobs", number: true, wide: true, cell: ({ profile }) => count(profile.jobs) },
  { title: "GPUs", number: true, cell: ({ m }) => m.gpus },
  { title: "GPU type", wide: true, cell: ({ m }) => m.gpu_type },
  { title: "Step, ms", number: true, cell: ({ m }) => decimal(m.step_ms) },
  { title: "Waiting for data, ms", number: true, cell: ({ m }) => decimal(m.data_ms) },
  { title: "Samples", number: true, wide: true, cell: ({ m }) => count(m.samples) },
  { title: "Updated", cell: ({ profile }) => <RelativeTime at={profile.updated} /> },
];

/** The models that were measured while their jobs ran, one row for each number of GPUs. */
function Profiles() {
  const profiles = useData<Profile[]>("/profiles").data ?? [];
  const rows = profiles.flatMap((profile) => profile.measurements.filter((m) => m.beside === null).map((m) => ({ profile, m })));
  if (rows.length === 0) return null;
  return (
    <Panel title="Measured models">
      <Table label="Measured models" columns={PROFILE_COLUMNS} rows={rows.slice(0, MAX_PROFILES)} rowKey={(row) => JSON.stringify([row.profile.model, row.m])} />
    </Panel>
  );
}

/** Returns the jobs on each GPU: from the slots of the node, or from the placement of jobs. */
function squares(node: Node, jobsById: Map<number, Job>): Square[] {
  const bySlot = new Map<number, number[]>();
  for (const slot of node.slots ?? []) bySlot.set(slot.index, slot.jobs);
  if (!node.slots) {
    for (const id of node.jobs) {
      const share = jobsById.get(id)?.placement.find((s) => s.node === node.name);
      for (const gpu of share?.gpus ?? []) bySlot.set(gpu, [...(bySlot.get(gpu) ?? []), id]);
    }
  }
  return Array.from({ length: node.gpus }, (_, index) => {
    const slot = node.slots?.find((s) => s.index === index);
    const ids = bySlot.get(index) ?? [];
    const job = jobsById.get(ids[0] ?? -1);
    return { index, jobs: ids, job, vc: slot?.vc ?? job?.tenant ?? null, bad: slot?.health === "bad" || node.state === "lost" };
  });
}

const byName = (a: Node, b: Node) => a.name.localeCompare(b.name, "en", { numeric: true });

function NodeCard({ node, jobsById, by, vcs }: { node: Node; jobsById: Map<number, Job>; by: By; vcs: string[] }) {
  return (
    <article class={`node ${node.state}`}>
      <div class="node-head">
        <a href={`/jobs?node=${encodeURIComponent(node.name)}&state=unfinished`} title={`Jobs on ${node.name}`}>
          {node.name}
        </a>
        {(node.state !== "up" || !node.connected) && <State of={node.state === "up" ? "unreachable" : node.state} />}
      </div>
      <div class="gpus">
        {squares(node, jobsById).map((square) => (
          <Gpu key={square.index} square={square} by={by} vcs={vcs} />
        ))}
      </div>
      <div class="muted small" title={node.detail}>
        {node.used_gpus} of {plural(node.gpus, "GPU")} in use
        {node.gpu_type && node.gpu_type !== "virtual" && ` · ${node.gpu_type}`}
        {node.detail && ` · ${node.detail}`}
      </div>
    </article>
  );
}

function Gpu({ square, by, vcs }: { square: Square; by: By; vcs: string[] }) {
  const id = square.jobs[0];
  const label = [`GPU ${square.index}`];
  if (square.jobs.length) label.push(...square.jobs.map((n) => `job ${n}`));
  if (square.job) label.push(square.job.name, square.job.user);
  if (square.vc) label.push(`virtual cluster ${square.vc}`);
  label.push(square.bad ? "bad" : id === undefined ? "free" : "in use");
  const colour =
    by === "health"
      ? square.bad
        ? "var(--bad-fill)"
        : id === undefined
          ? undefined
          : "var(--good-fill)"
      : by === "vc"
        ? square.vc
          ? colourOfIndex(vcs.indexOf(square.vc))
          : undefined
        : id === undefined
          ? undefined
          : colourOf(id);
  const own = by === "vc" ? square.vc : id === undefined ? null : String(id);
  const common = {
    class: `gpu ${square.bad ? "bad" : ""} ${square.jobs.length > 1 ? "shared" : ""} ${own !== null && own === highlighted.value ? "highlighted" : ""}`,
    title: label.filter(Boolean).join(", "),
    style: colour ? { background: colour, borderColor: colour } : undefined,
    ...(by === "health" ? {} : highlightOn(own)),
  };
  // Jobs are reached by keyboard through the legend; thousands of tab stops would not help.
  return id === undefined ? <span {...common} /> : <a {...common} href={`/jobs/${id}`} tabIndex={-1} aria-label={common.title} />;
}

function highlightOn(what: string | null) {
  const on = () => (highlighted.value = what);
  const off = () => (highlighted.value = null);
  return { onMouseEnter: on, onMouseLeave: off, onFocus: on, onBlur: off };
}

/** The legend of jobs, which also makes them reachable by keyboard. */
function JobLegend({ jobs }: { jobs: Job[] }) {
  if (jobs.length === 0) return null;
  const largest = jobs.toSorted((a, b) => b.gpus - a.gpus || a.id - b.id);
  return (
    <p class="legend">
      {largest.slice(0, MAX_LEGEND).map((job) => (
        <a key={job.id} href={`/jobs/${job.id}`} {...highlightOn(String(job.id))}>
          <span class="key-square" style={{ background: colourOf(job.id) }} />
          {job.name || `job ${job.id}`} <span class="muted">{job.user}</span>
        </a>
      ))}
      {largest.length > MAX_LEGEND && <a href="/jobs?state=running,starting,stopping">and {plural(largest.length - MAX_LEGEND, "other")}</a>}
    </p>
  );
}

function Legend({ vcs }: { vcs: string[] }) {
  return (
    <p class="legend">
      {vcs.map((name, i) => (
        <a key={name} href={`/jobs?tenant=${encodeURIComponent(name)}&state=unfinished`} {...highlightOn(name)}>
          <span class="key-square" style={{ background: colourOfIndex(i) }} />
          {name}
        </a>
      ))}
    </p>
  );
}

function HealthLegend() {
  return (
    <p class="legend">
      <span>
        <span class="key-square" style={{ background: "var(--good-fill)" }} />
        in use
      </span>
      <span>
        <span class="key-square gpu" />
        free
      </span>
      <span>
        <span class="key-square" style={{ background: "var(--bad-fill)" }} />
        bad, or node lost
      </span>
    </p>
  );
}
