// The first tab of a job: why it waits or how it ended, its timeline, progress and GPU utilization.

import { useEffect } from "preact/hooks";
import { between, clock, count, decimal, exact, nowTime, plural, placementText, sentence, duration } from "../format";
import { anyEvent, aboutJob, useData } from "../live";
import { Bar, ErrorNote, Properties, Checking, Note, Panel, State, RelativeTime, ServerText } from "../parts/basics";
import { LineChart } from "../parts/chart";
import { Timeline } from "../parts/timeline";
import type { Attempt, Estimate, Eta, GpuUtilization, Job, Node, ProgressPoint, VcList, Explanation } from "../types";
import { JobLink } from "./home";
import { GatesPanel } from "./job-gates";

const WAITING = ["queued", "held"];

export function JobOverview({ job }: { job: Job }) {
  const isWaiting = WAITING.includes(job.state);
  const attempts = job.attempts ?? [];
  const last = attempts.at(-1);
  return (
    <div class="stack">
      {isWaiting && <WaitingPanel job={job} />}
      {job.ended !== null && <ResultPanel job={job} />}
      {!isWaiting && job.ended === null && <PlacementPanel job={job} />}
      {last?.gates && <GatesPanel job={job.id} gates={last.gates} />}
      <Panel title="Timeline">
        <Timeline job={job} />
        {job.estimate && <p class="muted small">{estimateText(job.estimate)}</p>}
        {attempts.length > 0 ? <Attempts attempts={attempts} /> : <p class="muted">No attempts yet.</p>}
      </Panel>
      {job.started && <Progress job={job} />}
      {job.started && <GpuCharts job={job} />}
    </div>
  );
}

/** The expected run time, and where it comes from. */
function estimateText({ expected_s, source, low_s, high_s, similar_jobs }: Estimate): string {
  const origin = {
    user: "stated by its user",
    steps: "from its steps",
    profile: "from the profile of its model",
    prediction: `predicted from ${plural(similar_jobs ?? 0, "similar job")}: ${duration(low_s ?? 0)} to ${duration(high_s ?? 0)}`,
  };
  return `Expected run time: about ${duration(expected_s)} (${origin[source]}).`;
}

/** Why the job waits, which jobs are ahead of it, when it will start, and alternatives that would start now. */
function WaitingPanel({ job }: { job: Job }) {
  const { data: explanation, error, reload } = useData<Explanation>(`/jobs/${job.id}/explain`, anyEvent);
  if (!explanation) {
    return (
      <Panel title="Why this job is waiting" class="why">
        {error ? <ErrorNote retry={reload}>{error}</ErrorNote> : <Checking />}
      </Panel>
    );
  }
  return (
    <Panel title="Why this job is waiting" class="why">
      <p class="sentence">{sentence(explanation.sentence)}</p>
      {explanation.reasons.length > 0 && (
        <ol class="reasons">
          {explanation.reasons.map((text) => (
            <li key={text}>
              <ServerText text={text} />
            </li>
          ))}
        </ol>
      )}
      <EtaLine eta={explanation.eta} unavailable={explanation.no_eta_reason} />
      {!!explanation.alternatives?.length && (
        <>
          <h3>Alternatives that would start now</h3>
          <ul class="alternatives">
            {explanation.alternatives.map((option) => (
              <li key={option.sentence}>
                {sentence(option.sentence)}{" "}
                {job.request && <a href={`/submit?clone=${job.id}${option.to ? `&set=${encodeURIComponent(`${option.change}:${option.to}`)}` : ""}`}>{resubmitLabel(option)}</a>}
              </li>
            ))}
          </ul>
        </>
      )}
      {(explanation.jobs_ahead?.length ?? 0) > 0 ? (
        <>
          <h3>{plural(explanation.ahead, "job")} ahead of it in the queue</h3>
          <ul class="ahead">
            {explanation.jobs_ahead!.slice(0, 12).map((other) => (
              <li key={other.id}>
                <JobLink job={other} /> <span class="muted">{other.user}</span> <span>{plural(other.gpus, "GPU")}</span> <State of={other.state} />
              </li>
            ))}
          </ul>
          {explanation.ahead > 12 && <a href="/queue">Show the queue</a>}
        </>
      ) : (
        explanation.ahead > 0 && (
          <p class="muted">
            {plural(explanation.ahead, "job")} ahead of it in <a href="/queue">the queue</a>.
          </p>
        )
      )}
    </Panel>
  );
}

/** The label of the link that resubmits a job with a change. */
function resubmitLabel({ change, to }: { change: string; to?: string }): string {
  if (!to) return "Resubmit";
  if (change === "gpus") return `Resubmit with ${plural(Number(to), "GPU")}`;
  if (change === "gpu_type") return `Resubmit with ${to === "any" ? "any GPU type" : `GPU type ${to}`}`;
  return change === "priority" ? `Resubmit with priority ${to}` : `Resubmit to ${to}`;
}

/** When the job will start, or why there is no estimate. */
export function EtaLine({ eta, unavailable }: { eta?: Eta | null; unavailable?: string }) {
  if (eta) {
    return (
      <div class="eta">
        <p class="eta-about">
          Expected to start in <b title={exact(eta.p50)}>{duration(eta.p50_s)}</b>
        </p>
        <p>
          within <b title={exact(eta.p90)}>{duration(eta.p90_s)}</b> in 90 % of cases
        </p>
        <p class="muted small">
          Based on {plural(eta.samples, "simulation")} with {eta.based_on}.
        </p>
      </div>
    );
  }
  return unavailable ? <p class="muted eta">No estimate: {unavailable}</p> : null;
}

/** Why the job holds these GPUs, and whether they are guaranteed. */
function PlacementPanel({ job }: { job: Job }) {
  const isStopping = job.state === "stopping";
  const { data: explanation } = useData<Explanation>(isStopping ? `/jobs/${job.id}/explain` : null, aboutJob(job.id));
  const vcs = useData<VcList>("/vcs", anyEvent).data;
  const nodes = useData<Node[]>("/nodes").data ?? [];
  const last = job.attempts?.at(-1);
  const before = job.attempts?.at(-2)?.end;
  return (
    <Panel title={isStopping ? "Why this job is stopping" : "Placement"}>
      {explanation?.sentence && <p class="sentence">{sentence(explanation.sentence)}</p>}
      {job.placement.length > 0 && <p class="sentence">Running on {job.placement.length > 8 ? plural(job.placement.length, "node") : placementText(job.placement)}.</p>}
      <ul class="reasons">
        <li>{guarantee(job, vcs)}</li>
        <li>{spread(job, nodes)}</li>
        {last && (
          <li>
            <ServerText text={before ? `The previous attempt ended: ${sentence(before)}` : `It waited ${between(job.submitted, job.started ?? nowTime())} in the queue.`} />
          </li>
        )}
        {last?.sharing && (
          <li>
            <ServerText text={`The GPUs are shared with ${last.shared_with?.map((id) => `job ${id}`).join(", ") || "other jobs"} by ${last.sharing}.`} />
          </li>
        )}
      </ul>
    </Panel>
  );
}

/** Whether the GPUs of the job are guaranteed. */
function guarantee(job: Job, vcs: VcList | undefined): string {
  const own = vcs?.vcs.find((vc) => vc.name === job.tenant);
  if (!vcs) return "Guarantees are being loaded.";
  if (!own || vcs.mode === "open") return "The GPUs were free; no GPUs are guaranteed to virtual clusters.";
  if (job.priority < 0) return "The GPUs are borrowed: the job is preempted when their virtual cluster needs them.";
  return `${job.tenant} uses ${count(own.used_gpus)} of its ${plural(own.guaranteed_gpus, "guaranteed GPU")}.`;
}

/** Why the job is on this number of nodes. */
function spread(job: Job, nodes: Node[]): string {
  const held = job.placement.reduce((sum, slots) => sum + slots.gpus.length, 0);
  const largest = Math.max(0, ...nodes.map((node) => node.gpus));
  if (job.placement.length === 1) return "All GPUs are on one node, so there is no network traffic between nodes.";
  if (held > largest && largest > 0) return `No node has ${plural(held, "GPU")}, so the job is spread over ${plural(job.placement.length, "node")}.`;
  return `The job is spread over ${plural(job.placement.length, "node")}.`;
}

function ResultPanel({ job }: { job: Job }) {
  const failed = !["completed", "cancelled"].includes(job.state);
  const output = job.attempts?.findLast((a) => a.last_output)?.last_output;
  if (!failed && !job.hint && !output) return null;
  return (
    <Panel title="Result" class={failed ? "failed" : ""}>
      <p class="sentence">{sentence(job.detail || job.state)}</p>
      {job.hint && (
        <Note tone="accent">
          <span>
            <b>Hint:</b> {job.hint}
          </span>
        </Note>
      )}
      {output && (
        <>
          <h3>Last output</h3>
          <pre class="code">{output}</pre>
        </>
      )}
      <p>
        <a href={`/jobs/${job.id}?tab=logs`}>Show the log</a> · <a href={`/submit?clone=${job.id}`}>Edit and resubmit</a>
      </p>
    </Panel>
  );
}

function Attempts({ attempts }: { attempts: Attempt[] }) {
  const shown = attempts.slice(-20).reverse();
  return (
    <ol class="attempts">
      {shown.map((a) => (
        <li key={a.attempt}>
          <div>
            <b>Attempt {a.attempt}</b> <span class="muted">{clock(a.since)}</span> on {a.placement.length > 4 ? plural(a.placement.length, "node") : placementText(a.placement)}
          </div>
          <div class="muted">
            {a.running_since ? `ran ${between(a.running_since, a.until ?? Date.now() * 1000)}` : a.until ? "did not run" : "starting"}
            {a.end && " · "}
            <ServerText text={a.end ?? ""} />
          </div>
        </li>
      ))}
      {attempts.length > shown.length && <li class="muted">and {plural(attempts.length - shown.length, "earlier attempt")}</li>}
    </ol>
  );
}

function Progress({ job }: { job: Job }) {
  const { data } = useData<ProgressPoint[]>(`/jobs/${job.id}/progress`, aboutJob(job.id));
  const steps = job.steps;
  const points = data ?? [];
  if (!steps && points.length === 0) {
    if (job.ended) return null;
    return (
      <p class="muted small">
        No progress reported. Training scripts report steps and checkpoints with the <code>dovetail</code> package for Python; progress and remaining time then appear here.
      </p>
    );
  }
  const now = steps ?? { step: points.at(-1)!.step, total: points.at(-1)!.total, step_time: points.at(-1)!.step_time_us, checkpoint: points.at(-1)!.checkpoint };
  const left = now.total > now.step && now.step_time > 0 ? ((now.total - now.step) * now.step_time) / 1e6 : null;
  return (
    <Panel title="Progress">
      <Properties
        of={[
          ["Step", now.total ? `${count(now.step)} of ${count(now.total)}` : count(now.step)],
          ["Time per step", now.step_time ? stepTime(now.step_time) : "–"],
          ["Checkpoint", now.checkpoint ? `step ${count(now.checkpoint)}` : "none"],
          ["Remaining time", job.ended ? "–" : left === null ? "unknown" : duration(left)],
          ["Since", <RelativeTime at={points.at(0)?.at ?? job.started} />],
        ]}
      />
      {now.total > 0 && <progress max={now.total} value={now.step} aria-label={`Step ${now.step} of ${now.total}`} />}
      {points.length > 1 && <LineChart label="Steps over time" points={points.map((p) => [p.at, p.step])} max={now.total || undefined} />}
    </Panel>
  );
}

/** GPU utilization, where the nodes report it. */
function GpuCharts({ job }: { job: Job }) {
  const { data, reload } = useData<GpuUtilization>(`/jobs/${job.id}/gpus`, aboutJob(job.id));
  useEffect(() => {
    if (job.ended) return;
    const timer = window.setInterval(() => document.hidden || reload(), 30_000);
    return () => clearInterval(timer);
  }, [job.ended]);
  if (!data) return null;
  if (!data.known) return data.note ? <p class="muted small">{sentence(data.note)}</p> : null;
  const last = data.mean.at(-1);
  const memory = data.mean.filter((point) => point.memory_mib !== null);
  return (
    <Panel title="GPU utilization">
      <Properties
        of={[
          ["Now", last ? `${Math.round(last.busy)} %` : "–"],
          ["Average", data.mean.length ? `${Math.round(data.mean.reduce((sum, p) => sum + p.busy, 0) / data.mean.length)} %` : "–"],
          ["GPU memory now", last?.memory_mib ? `${decimal(last.memory_mib / 1024)} GiB` : "–"],
        ]}
      />
      <LineChart label="GPU utilization over time, in percent" points={data.mean.map((p) => [p.at, p.busy])} max={100} height={140} />
      {memory.length > 1 && (
        <>
          <h3>GPU memory, GiB</h3>
          <LineChart label="GPU memory over time, in GiB" points={memory.map((p) => [p.at, p.memory_mib! / 1024])} height={120} />
        </>
      )}
      {data.gpus.length > 1 && (
        <ul class="gpu-utilization">
          {data.gpus.map(({ node, gpu, points }) => {
            const busy = points.at(-1)?.busy ?? 0;
            return (
              <li key={`${node}/${gpu}`}>
                <span>
                  {node} {gpu}
                </span>
                <Bar whole={100} label={`${node} GPU ${gpu}: ${Math.round(busy)} % utilization`} parts={[{ kind: "used", value: busy, label: "busy" }]} />
                <span class="number">{Math.round(busy)} %</span>
              </li>
            );
          })}
        </ul>
      )}
    </Panel>
  );
}

function stepTime(us: number): string {
  if (us < 1000) return `${us} µs`;
  return us < 1e6 ? `${(us / 1000).toFixed(1)} ms` : `${(us / 1e6).toFixed(2)} s`;
}
