// The phases of a job as a strip: waiting, starting and running, for each attempt.

import { between, clock, exact, nowTime, placementText } from "../format";
import type { Job, Time } from "../types";

interface Phase {
  kind: "waiting" | "starting" | "running";
  from: Time;
  to: Time;
  text: string;
}

/** Returns the phases of a job, from its attempts. */
export function phasesOf(job: Job, now: Time): Phase[] {
  const phases: Phase[] = [];
  const end = job.ended ?? now;
  let at = job.submitted;
  const wait = (to: Time) => {
    if (to > at) phases.push({ kind: "waiting", from: at, to, text: "waiting" });
  };
  for (const attempt of job.attempts ?? []) {
    wait(attempt.since);
    const until = attempt.until ?? end;
    const runningSince = attempt.running_since ?? until;
    const nodes = placementText(attempt.placement);
    if (runningSince > attempt.since) phases.push({ kind: "starting", from: attempt.since, to: runningSince, text: `starting on ${nodes}` });
    if (until > runningSince) phases.push({ kind: "running", from: runningSince, to: until, text: `running on ${nodes}` });
    at = until;
  }
  if (job.ended === null || job.attempts?.length === 0) wait(end);
  return phases;
}

export function Timeline({ job }: { job: Job }) {
  const now = Math.max(nowTime(), job.since);
  const phases = phasesOf(job, now);
  const from = job.submitted;
  const to = Math.max(job.ended ?? now, from + 1);
  const width = (phase: Phase) => `${((phase.to - phase.from) / (to - from)) * 100}%`;
  return (
    <div class="timeline">
      <div class="timeline-strip" role="img" aria-label={phases.map((s) => `${s.text} for ${between(s.from, s.to)}`).join(", then ")}>
        {phases.map((phase) => (
          <span
            key={`${phase.kind}${phase.from}`}
            class={`phase-${phase.kind}`}
            style={{ width: width(phase) }}
            title={`${phase.text}\n${exact(phase.from)} – ${exact(phase.to)} (${between(phase.from, phase.to)})`}
          />
        ))}
      </div>
      <div class="timeline-ends muted">
        <span title={exact(from)}>{clock(from)} submitted</span>
        <span class="timeline-key">
          <i class="phase-waiting" /> waiting <i class="phase-starting" /> starting <i class="phase-running" /> running
        </span>
        <span title={exact(to)}>
          {clock(to)} {job.ended ? "ended" : "now"}
        </span>
      </div>
    </div>
  );
}
