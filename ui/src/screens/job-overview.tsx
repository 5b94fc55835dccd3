// The first tab of a job: why it waits or how it ended, its life as a strip, how far it is.

import { useEffect } from "preact/hooks";
import { between, clock, count, decimal, exact, nowTime, plural, seatsText, sentence, span } from "../format";
import { anyEvent, aboutJob, useData } from "../live";
import { Bar, ErrorNote, Facts, Looking, Note, Panel, State, When, Words } from "../parts/basics";
import { LineChart } from "../parts/chart";
import { Timeline } from "../parts/timeline";
import type { Attempt, Eta, GpuUse, Job, Node, ProgressPoint, Vcs, Why } from "../types";
import { JobLink } from "./home";

const WAITS = ["queued", "preempted", "held"];

export function JobOverview({ job }: { job: Job }) {
  const waits = WAITS.includes(job.state);
  const attempts = job.attempts ?? [];
  return (
    <div class="stack">
      {waits && <WhyWaiting job={job} />}
      {job.over && <HowItEnded job={job} />}
      {!waits && !job.over && <WhyHere job={job} />}
      <Panel title="Timeline">
        <Timeline job={job} />
        {attempts.length > 0 ? <Launches attempts={attempts} /> : <p class="muted">It has not been launched yet.</p>}
      </Panel>
      {job.started && <Progress job={job} />}
      {job.started && <GpuCharts job={job} />}
    </div>
  );
}

/** Why it waits, who is ahead, when it will start, and what would start now. */
function WhyWaiting({ job }: { job: Job }) {
  const { data: why, error, reload } = useData<Why>(`/jobs/${job.id}/explain`, anyEvent);
  if (!why) {
    return (
      <Panel title="Why it waits" class="why">
        {error ? <ErrorNote retry={reload}>{error}</ErrorNote> : <Looking />}
      </Panel>
    );
  }
  return (
    <Panel title="Why it waits" class="why">
      <p class="sentence">{sentence(why.sentence)}</p>
      {why.reasons.length > 0 && (
        <ol class="reasons">
          {why.reasons.map((text) => (
            <li key={text}>
              <Words text={text} />
            </li>
          ))}
        </ol>
      )}
      <EtaLine eta={why.eta} hidden={why.eta_hidden} />
      {!!why.instead?.length && (
        <>
          <h3>What would start now</h3>
          <ul class="instead">
            {why.instead.map((option) => (
              <li key={option.sentence}>
                {sentence(option.sentence)}{" "}
                {job.request && <a href={`/submit?clone=${job.id}${option.to ? `&set=${encodeURIComponent(`${option.change}:${option.to}`)}` : ""}`}>Clone it so</a>}
              </li>
            ))}
          </ul>
        </>
      )}
      {(why.jobs_ahead?.length ?? 0) > 0 ? (
        <>
          <h3>{why.ahead > 1 ? `${count(why.ahead)} jobs are ahead` : "Ahead of it"}</h3>
          <ul class="ahead">
            {why.jobs_ahead!.slice(0, 12).map((other) => (
              <li key={other.id}>
                <JobLink job={other} /> <span class="muted">{other.user}</span> <span>{plural(other.gpus, "GPU")}</span> <State of={other.state} />
              </li>
            ))}
          </ul>
          {why.ahead > 12 && <a href="/queue">The whole queue</a>}
        </>
      ) : (
        why.ahead > 0 && (
          <p class="muted">
            {why.ahead === 1 ? "One job is" : `${count(why.ahead)} jobs are`} ahead of it in <a href="/queue">the queue</a>.
          </p>
        )
      )}
    </Panel>
  );
}

/** When it will start, as an interval, or why that is not said. */
export function EtaLine({ eta, hidden }: { eta?: Eta | null; hidden?: string }) {
  if (eta) {
    return (
      <div class="eta">
        <p class="eta-about">
          Starts in about <b title={exact(eta.p50)}>{span(eta.p50_s)}</b>
        </p>
        <p>
          nine times in ten within <b title={exact(eta.p90)}>{span(eta.p90_s)}</b>
        </p>
        <p class="muted small">
          Played forward {count(eta.samples)} times from now on, with {eta.based_on}.
        </p>
      </div>
    );
  }
  return hidden ? <p class="muted eta">No time is given: {hidden}</p> : null;
}

/** Why it has these GPUs, and how sure it can be of them. */
function WhyHere({ job }: { job: Job }) {
  const stops = job.state === "stopping";
  const { data: why } = useData<Why>(stops ? `/jobs/${job.id}/explain` : null, aboutJob(job.id));
  const vcs = useData<Vcs>("/vcs", anyEvent).data;
  const nodes = useData<Node[]>("/nodes").data ?? [];
  const last = job.attempts?.at(-1);
  const before = job.attempts?.at(-2)?.end;
  return (
    <Panel title={stops ? "Why it stops" : "Why here"}>
      {why?.sentence && <p class="sentence">{sentence(why.sentence)}</p>}
      {job.seats.length > 0 && <p class="sentence">It runs on {job.seats.length > 8 ? plural(job.seats.length, "node") : seatsText(job.seats)}.</p>}
      <ul class="reasons">
        <li>{whose(job, vcs)}</li>
        <li>{spread(job, nodes)}</li>
        {last && (
          <li>
            <Words text={before ? `It was launched before; that ended: ${sentence(before)}` : `It had waited ${between(job.submitted, job.started ?? nowTime())}.`} />
          </li>
        )}
        {last?.sharing && <li>{sentence(last.sharing)}</li>}
      </ul>
    </Panel>
  );
}

/** Whose GPUs it has. */
function whose(job: Job, vcs: Vcs | undefined): string {
  const own = vcs?.vcs.find((vc) => vc.name === job.tenant);
  if (!vcs || !own || vcs.mode === "open") return "They were free, and nobody is promised any.";
  if (job.priority < 0) return "It borrows what is idle, and gives way as soon as its owner needs it.";
  return `${job.tenant} is promised ${plural(own.guaranteed_gpus, "GPU")}, and ${count(own.used_gpus)} of them ${own.used_gpus === 1 ? "is" : "are"} in use.`;
}

/** Why on so many nodes. */
function spread(job: Job, nodes: Node[]): string {
  const held = job.seats.reduce((sum, seats) => sum + seats.gpus.length, 0);
  const largest = Math.max(0, ...nodes.map((node) => node.gpus));
  if (job.seats.length === 1) return "All of them are on one node, so nothing has to cross the network.";
  if (held > largest && largest > 0) return `No node has ${plural(held, "GPU")}, so it is spread over ${plural(job.seats.length, "node")}.`;
  return `It is spread over ${plural(job.seats.length, "node")}.`;
}

function HowItEnded({ job }: { job: Job }) {
  const failed = !["completed", "cancelled"].includes(job.state);
  const words = job.attempts?.findLast((a) => a.last_words)?.last_words;
  if (!failed && !job.hint && !words) return null;
  return (
    <Panel title="How it ended" class={failed ? "failed" : ""}>
      <p class="sentence">{sentence(job.detail || job.state)}</p>
      {job.hint && (
        <Note tone="accent">
          <span>
            <b>Hint:</b> {job.hint}
          </span>
        </Note>
      )}
      {words && (
        <>
          <h3>What it printed last</h3>
          <pre class="code">{words}</pre>
        </>
      )}
      <p>
        <a href={`/jobs/${job.id}?tab=logs`}>Read the log</a> · <a href={`/submit?clone=${job.id}`}>Change it and send it again</a>
      </p>
    </Panel>
  );
}

function Launches({ attempts }: { attempts: Attempt[] }) {
  const shown = attempts.slice(-20).reverse();
  return (
    <ol class="launches">
      {shown.map((a) => (
        <li key={a.launch}>
          <div>
            <b>Launch {a.launch}</b> <span class="muted">{clock(a.since)}</span> on {a.seats.length > 4 ? plural(a.seats.length, "node") : seatsText(a.seats)}
          </div>
          <div class="muted">
            {a.running_since ? `ran ${between(a.running_since, a.until ?? Date.now() * 1000)}` : a.until ? "never ran" : "is starting"}
            {a.end && " · "}
            <Words text={a.end ?? ""} />
          </div>
        </li>
      ))}
      {attempts.length > shown.length && <li class="muted">and {plural(attempts.length - shown.length, "earlier launch", "earlier launches")}</li>}
    </ol>
  );
}

function Progress({ job }: { job: Job }) {
  const { data } = useData<ProgressPoint[]>(`/jobs/${job.id}/progress`, aboutJob(job.id));
  const steps = job.steps;
  const points = data ?? [];
  if (!steps && points.length === 0) {
    if (job.over) return null;
    return (
      <p class="muted small">
        It has not said how far it is. A training script can, with the <code>dovetail</code> package for Python; steps, checkpoints and the time left are then shown here.
      </p>
    );
  }
  const now = steps ?? { step: points.at(-1)!.step, total: points.at(-1)!.total, step_time: points.at(-1)!.step_time_us, checkpoint: points.at(-1)!.checkpoint };
  const left = now.total > now.step && now.step_time > 0 ? ((now.total - now.step) * now.step_time) / 1e6 : null;
  return (
    <Panel title="Progress">
      <Facts
        of={[
          ["Step", now.total ? `${count(now.step)} of ${count(now.total)}` : count(now.step)],
          ["Time of a step", now.step_time ? stepTime(now.step_time) : "–"],
          ["Checkpoint", now.checkpoint ? `step ${count(now.checkpoint)}` : "none"],
          ["Time left", job.over ? "–" : left === null ? "not known" : span(left)],
          ["Since", <When at={points.at(0)?.at ?? job.started} />],
        ]}
      />
      {now.total > 0 && <progress max={now.total} value={now.step} aria-label={`Step ${now.step} of ${now.total}`} />}
      {points.length > 1 && <LineChart label="Steps over time" points={points.map((p) => [p.at, p.step])} most={now.total || undefined} />}
    </Panel>
  );
}

/** How busy its GPUs are, where they tell. */
function GpuCharts({ job }: { job: Job }) {
  const { data, reload } = useData<GpuUse>(`/jobs/${job.id}/gpus`, aboutJob(job.id));
  useEffect(() => {
    if (job.over) return;
    const timer = window.setInterval(() => document.hidden || reload(), 30_000);
    return () => clearInterval(timer);
  }, [job.over]);
  if (!data) return null;
  if (!data.known) return data.note ? <p class="muted small">{sentence(data.note)}</p> : null;
  const last = data.mean.at(-1);
  const memory = data.mean.filter((point) => point.memory_mib !== null);
  return (
    <Panel title="GPUs">
      <Facts
        of={[
          ["Busy now", last ? `${Math.round(last.busy)} %` : "–"],
          ["Busy on average", data.mean.length ? `${Math.round(data.mean.reduce((sum, p) => sum + p.busy, 0) / data.mean.length)} %` : "–"],
          ["Memory now", last?.memory_mib ? `${decimal(last.memory_mib / 1024)} GiB` : "–"],
        ]}
      />
      <LineChart label="Busy GPUs over time, in percent" points={data.mean.map((p) => [p.at, p.busy])} most={100} height={140} />
      {memory.length > 1 && (
        <>
          <h3>Memory, GiB</h3>
          <LineChart label="GPU memory over time, in GiB" points={memory.map((p) => [p.at, p.memory_mib! / 1024])} height={120} />
        </>
      )}
      {data.gpus.length > 1 && (
        <ul class="gpu-uses">
          {data.gpus.map(({ node, gpu, points }) => {
            const busy = points.at(-1)?.busy ?? 0;
            return (
              <li key={`${node}/${gpu}`}>
                <span>
                  {node} {gpu}
                </span>
                <Bar whole={100} label={`${node} GPU ${gpu}: ${Math.round(busy)} % busy`} parts={[{ kind: "used", value: busy, label: "busy" }]} />
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
