// The map: racks, their nodes, and every GPU as a square, coloured by who has it.

import { signal } from "@preact/signals";
import { colourOf, colourOfPlace } from "../colours";
import { count, plural } from "../format";
import { anyEvent, useData } from "../live";
import { Button, Empty, ErrorNote, Head, Loading, State } from "../parts/basics";
import { params, setParams } from "../router";
import type { Cluster, Job, JobPage, Node } from "../types";

type By = "job" | "vc" | "health";

/** So many jobs are named beside the map. */
const NAMED = 24;
/** What somebody points at: of all squares only its own keep their colour. */
const pointed = signal<string | null>(null);

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
  const jobs = useData<JobPage>("/jobs?state=live&limit=5000", anyEvent);
  const by = (params.value.get("by") ?? "job") as By;
  const known = new Map((jobs.data?.jobs ?? []).map((job) => [job.id, job]));
  const all = nodes.data ?? [];
  const racks = [...Map.groupBy(all, (node) => node.rack)].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
  const vcs = [...new Set(all.flatMap((node) => squares(node, known).map((s) => s.vc)).filter((vc) => vc !== null))].sort();
  const used = all.reduce((sum, node) => sum + node.used_gpus, 0);
  const total = all.reduce((sum, node) => sum + (node.state === "lost" ? 0 : node.gpus), 0);
  return (
    <>
      <Head
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
      </Head>
      {nodes.error && <ErrorNote retry={nodes.reload}>{nodes.error}</ErrorNote>}
      {!nodes.data && !nodes.error && <Loading />}
      {nodes.data?.length === 0 && (
        <Empty title="There are no nodes yet.">
          <p>Start an agent on each machine that has GPUs:</p>
          <pre class="code">dovetail agent --server HOST:7879 --token-file join-token</pre>
        </Empty>
      )}
      {by === "job" && <JobLegend jobs={[...new Set(all.flatMap((node) => node.jobs))].map((id) => known.get(id)).filter((job) => job !== undefined)} />}
      {by === "vc" && vcs.length > 0 && <Legend vcs={vcs} />}
      {by === "health" && <HealthLegend />}
      <div class={`racks ${pointed.value === null ? "" : "pointing"}`}>
        {racks.map(([rack, members]) => (
          <section key={rack} class="rack" aria-label={rack ? `Rack ${rack}` : "Nodes"}>
            {(rack || racks.length > 1) && <h2>{rack ? `Rack ${rack}` : "No rack"}</h2>}
            <div class="nodes">
              {members.toSorted(byName).map((node) => (
                <NodeCard key={node.name} node={node} known={known} by={by} vcs={vcs} />
              ))}
            </div>
          </section>
        ))}
      </div>
    </>
  );
}

/** Who has which GPU: as the server says, or as it follows from where the jobs are. */
function squares(node: Node, known: Map<number, Job>): Square[] {
  const bySlot = new Map<number, number[]>();
  for (const slot of node.slots ?? []) bySlot.set(slot.index, slot.jobs);
  if (!node.slots) {
    for (const id of node.jobs) {
      const seats = known.get(id)?.seats.find((s) => s.node === node.name);
      for (const gpu of seats?.gpus ?? []) bySlot.set(gpu, [...(bySlot.get(gpu) ?? []), id]);
    }
  }
  return Array.from({ length: node.gpus }, (_, index) => {
    const slot = node.slots?.find((s) => s.index === index);
    const ids = bySlot.get(index) ?? [];
    const job = known.get(ids[0] ?? -1);
    return { index, jobs: ids, job, vc: slot?.vc ?? job?.tenant ?? null, bad: slot?.health === "bad" || node.state === "lost" };
  });
}

const byName = (a: Node, b: Node) => a.name.localeCompare(b.name, "en", { numeric: true });

function NodeCard({ node, known, by, vcs }: { node: Node; known: Map<number, Job>; by: By; vcs: string[] }) {
  return (
    <article class={`node ${node.state}`}>
      <div class="node-head">
        <a href={`/jobs?node=${encodeURIComponent(node.name)}&state=live`} title={`Jobs on ${node.name}`}>
          {node.name}
        </a>
        {(node.state !== "up" || !node.connected) && <State of={node.state === "up" ? "unreachable" : node.state} />}
      </div>
      <div class="gpus">
        {squares(node, known).map((square) => (
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
  const words = [`GPU ${square.index}`];
  if (square.jobs.length) words.push(...square.jobs.map((n) => `job ${n}`));
  if (square.job) words.push(square.job.name, square.job.user);
  if (square.vc) words.push(`virtual cluster ${square.vc}`);
  words.push(square.bad ? "bad" : id === undefined ? "free" : "in use");
  const colour =
    by === "health"
      ? square.bad
        ? "var(--bad-fill)"
        : id === undefined
          ? undefined
          : "var(--good-fill)"
      : by === "vc"
        ? square.vc
          ? colourOfPlace(vcs.indexOf(square.vc))
          : undefined
        : id === undefined
          ? undefined
          : colourOf(id);
  const own = by === "vc" ? square.vc : id === undefined ? null : String(id);
  const common = {
    class: `gpu ${square.bad ? "bad" : ""} ${square.jobs.length > 1 ? "shared" : ""} ${own !== null && own === pointed.value ? "pointed" : ""}`,
    title: words.filter(Boolean).join(", "),
    style: colour ? { background: colour, borderColor: colour } : undefined,
    ...(by === "health" ? {} : pointsAt(own)),
  };
  // Jobs are reached by keyboard through their names above; thousands of stops would help nobody.
  return id === undefined ? <span {...common} /> : <a {...common} href={`/jobs/${id}`} tabIndex={-1} aria-label={common.title} />;
}

function pointsAt(what: string | null) {
  const on = () => (pointed.value = what);
  const off = () => (pointed.value = null);
  return { onMouseEnter: on, onMouseLeave: off, onFocus: on, onBlur: off };
}

/** Who is who; these are also the way to the jobs by keyboard. */
function JobLegend({ jobs }: { jobs: Job[] }) {
  if (jobs.length === 0) return null;
  const largest = jobs.toSorted((a, b) => b.gpus - a.gpus || a.id - b.id);
  return (
    <p class="legend">
      {largest.slice(0, NAMED).map((job) => (
        <a key={job.id} href={`/jobs/${job.id}`} {...pointsAt(String(job.id))}>
          <span class="key-square" style={{ background: colourOf(job.id) }} />
          {job.name || `job ${job.id}`} <span class="muted">{job.user}</span>
        </a>
      ))}
      {largest.length > NAMED && <a href="/jobs?state=running,starting,stopping">and {plural(largest.length - NAMED, "other")}</a>}
    </p>
  );
}

function Legend({ vcs }: { vcs: string[] }) {
  return (
    <p class="legend">
      {vcs.map((name, i) => (
        <a key={name} href={`/jobs?tenant=${encodeURIComponent(name)}&state=live`} {...pointsAt(name)}>
          <span class="key-square" style={{ background: colourOfPlace(i) }} />
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
        bad, or its node is lost
      </span>
    </p>
  );
}
