// The first tab of a job: why it waits or how it ended, its life as a strip, how far it is.

import { between, clock, count, exact, plural, seatsText, sentence, span } from "../format";
import { anyEvent, aboutJob, useData } from "../live";
import { Empty, Facts, Note, Panel, State, When } from "../parts/basics";
import { LineChart } from "../parts/chart";
import { Timeline } from "../parts/timeline";
import type { Attempt, Eta, Job, ProgressPoint, Why } from "../types";
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
    </div>
  );
}

/** Why it waits, who is ahead, when it will start, and what would start now. */
function WhyWaiting({ job }: { job: Job }) {
  const { data: why } = useData<Why>(`/jobs/${job.id}/explain`, anyEvent);
  if (!why) return null;
  return (
    <Panel title="Why it waits" class="why">
      <p class="sentence">{sentence(why.sentence)}</p>
      {why.reasons.length > 0 && (
        <ol class="reasons">
          {why.reasons.map((text) => (
            <li key={text}>{text}</li>
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
        <p>
          Starts <b title={exact(eta.p50)}>in about {span(eta.p50_s)}</b>, and nine times in ten <b title={exact(eta.p90)}>within {span(eta.p90_s)}</b>.
        </p>
        <p class="muted small">
          Played forward {count(eta.samples)} times from now on, with {eta.based_on}.
        </p>
      </div>
    );
  }
  return hidden ? <p class="muted eta">No time is given: {hidden}</p> : null;
}

function WhyHere({ job }: { job: Job }) {
  const { data: why } = useData<Why>(`/jobs/${job.id}/explain`, aboutJob(job.id));
  const sharing = job.attempts?.at(-1)?.sharing;
  return (
    <Panel title={job.state === "stopping" ? "Why it stops" : "Why here"}>
      {why?.sentence && <p class="sentence">{sentence(why.sentence)}</p>}
      {!!why?.reasons.length && (
        <ul class="reasons">
          {why.reasons.map((text) => (
            <li key={text}>{text}</li>
          ))}
        </ul>
      )}
      {job.seats.length > 0 && <p>{job.seats.length > 8 ? plural(job.seats.length, "node") : seatsText(job.seats)}</p>}
      {sharing && <p class="muted">{sharing}</p>}
    </Panel>
  );
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
            {a.end && ` · ${a.end}`}
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
    return (
      <Panel title="Progress">
        <Empty title="The job has not said how far it is.">
          <p>
            A training script can say so with the <code>dovetail</code> package for Python. Then steps, checkpoints and the time left are shown here.
          </p>
        </Empty>
      </Panel>
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

function stepTime(us: number): string {
  if (us < 1000) return `${us} µs`;
  return us < 1e6 ? `${(us / 1000).toFixed(1)} ms` : `${(us / 1e6).toFixed(2)} s`;
}
