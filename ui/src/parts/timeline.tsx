// The life of a job as one strip: waiting, starting, running, stopped, launch by launch.

import { between, clock, exact, nowTime, seatsText } from "../format";
import type { Job, Time } from "../types";

interface Span {
  kind: "waiting" | "starting" | "running";
  from: Time;
  to: Time;
  text: string;
}

/** Spans that follow from the launches of a job. */
export function spansOf(job: Job, now: Time): Span[] {
  const spans: Span[] = [];
  const end = job.ended ?? now;
  let at = job.submitted;
  const wait = (to: Time) => {
    if (to > at) spans.push({ kind: "waiting", from: at, to, text: "waiting" });
  };
  for (const attempt of job.attempts ?? []) {
    wait(attempt.since);
    const until = attempt.until ?? end;
    const runs = attempt.running_since ?? until;
    const where = seatsText(attempt.seats);
    if (runs > attempt.since) spans.push({ kind: "starting", from: attempt.since, to: runs, text: `starting on ${where}` });
    if (until > runs) spans.push({ kind: "running", from: runs, to: until, text: `running on ${where}` });
    at = until;
  }
  if (!job.over || job.attempts?.length === 0) wait(end);
  return spans;
}

export function Timeline({ job }: { job: Job }) {
  const now = Math.max(nowTime(), job.since);
  const spans = spansOf(job, now);
  const from = job.submitted;
  const to = Math.max(job.ended ?? now, from + 1);
  const width = (span: Span) => `${((span.to - span.from) / (to - from)) * 100}%`;
  return (
    <div class="timeline">
      <div class="timeline-strip" role="img" aria-label={spans.map((s) => `${s.text} for ${between(s.from, s.to)}`).join(", then ")}>
        {spans.map((span) => (
          <span
            key={`${span.kind}${span.from}`}
            class={`span-${span.kind}`}
            style={{ width: width(span) }}
            title={`${span.text}\n${exact(span.from)} – ${exact(span.to)} (${between(span.from, span.to)})`}
          />
        ))}
      </div>
      <div class="timeline-ends muted">
        <span title={exact(from)}>{clock(from)} submitted</span>
        <span class="timeline-key">
          <i class="span-waiting" /> waiting <i class="span-starting" /> starting <i class="span-running" /> running
        </span>
        <span title={exact(to)}>
          {clock(to)} {job.ended ? "over" : "now"}
        </span>
      </div>
    </div>
  );
}
