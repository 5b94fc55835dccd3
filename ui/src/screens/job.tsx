// One job: what it is, why it waits or where it runs, what it prints, and what can be done to it.

import { useState } from "preact/hooks";
import { me, send } from "../api";
import { between, count, gpuSeconds, gpuTime, nowTime, plural, seatsText, sentence } from "../format";
import { aboutJob, useData } from "../live";
import { Button, ButtonLink, Empty, ErrorNote, Facts, Head, Loading, State, When, Words } from "../parts/basics";
import { Dialog, FormEnd, confirmFirst, useAction } from "../parts/dialog";
import { NumberField } from "../parts/field";
import { Tabs, useTab } from "../parts/tabs";
import { say, sayError } from "../parts/toast";
import { mayTouch } from "../session";
import type { Job } from "../types";
import { JobEvents } from "./job-events";
import { JobFile } from "./job-file";
import { JobLogs } from "./job-logs";
import { JobOverview } from "./job-overview";
import { JobTasks } from "./job-tasks";

const TABS: [string, string][] = [
  ["overview", "Overview"],
  ["logs", "Logs"],
  ["tasks", "Tasks"],
  ["events", "Events"],
  ["file", "Job file"],
];

export function JobScreen({ id }: { id: number }) {
  const { data: job, error, missing, reload } = useData<Job>(`/jobs/${id}`, aboutJob(id));
  const tab = useTab(TABS);
  if (!job) {
    if (missing) {
      return (
        <Empty title={`There is no job ${id}, or it is private to somebody else.`} whole>
          <p>
            <a href="/jobs">Look at the jobs there are</a>.
          </p>
        </Empty>
      );
    }
    return error ? <ErrorNote retry={reload}>{error}</ErrorNote> : <Loading />;
  }
  return (
    <>
      <Head
        title={
          <>
            {job.name || "(no name)"} <span class="muted id">{job.id}</span> <State of={job.state} />
          </>
        }
        lead={job.detail ? <Words text={sentence(job.detail)} /> : undefined}
      >
        <Actions job={job} changed={reload} />
      </Head>
      {error && <ErrorNote retry={reload}>{error}</ErrorNote>}
      <JobFacts job={job} />
      <Tabs label="Parts of this job" of={TABS} current={tab} />
      {tab === "overview" && <JobOverview job={job} />}
      {tab === "logs" && <JobLogs job={job} />}
      {tab === "tasks" && <JobTasks job={job} />}
      {tab === "events" && <JobEvents job={job} />}
      {tab === "file" && <JobFile job={job} />}
    </>
  );
}

function JobFacts({ job }: { job: Job }) {
  const facts: [string, preact.ComponentChildren][] = [
    ["GPUs", count(job.gpus)],
    ["User", <a href={`/jobs?user=${encodeURIComponent(job.user)}`}>{job.user}</a>],
    ["Virtual cluster", <a href={`/jobs?tenant=${encodeURIComponent(job.tenant)}`}>{job.tenant}</a>],
    ["Priority", job.priority],
    ["Submitted", <When at={job.submitted} />],
    ["Waited", between(job.submitted, job.started ?? job.ended ?? nowTime())],
  ];
  if (job.started) facts.push([job.over ? "Ran until" : "Runs since", job.over ? <When at={job.ended} /> : <When at={job.started} />]);
  facts.push(["GPU time", gpuTime(gpuSeconds(job))]);
  if (job.launches > 1) facts.push(["Launches", count(job.launches)]);
  if (job.exit_code !== null && job.exit_code !== undefined) facts.push(["Exit code", job.exit_code]);
  if (job.seats.length) facts.push([job.seats.length > 1 ? "Nodes" : "Node", job.seats.length > 3 ? plural(job.seats.length, "node") : seatsText(job.seats)]);
  for (const [key, value] of Object.entries(job.labels ?? {})) facts.push([key, value || "yes"]);
  return <Facts of={facts} />;
}

function Actions({ job, changed }: { job: Job; changed: () => void }) {
  const [asksPriority, setAsksPriority] = useState(false);
  const clone = (
    <ButtonLink href={`/submit?clone=${job.id}`} key="clone">
      Clone
    </ButtonLink>
  );
  if (!mayTouch(me.value, job)) return job.request || job.text ? clone : null;
  const act = async (action: string, words: string) => {
    await send("POST", `/jobs/${job.id}/${action}`);
    say(words);
    changed();
  };
  const now = (action: string, words: string) => void act(action, words).catch(sayError);
  return (
    <>
      {clone}
      {!job.over && job.state !== "held" && ["queued", "preempted"].includes(job.state) && (
        <Button onClick={() => now("hold", "The job is held back until it is released.")}>Hold</Button>
      )}
      {job.state === "held" && <Button onClick={() => now("release", "The job is in line.")}>Release</Button>}
      {!job.over && <Button onClick={() => setAsksPriority(true)}>Priority</Button>}
      {!job.over && (
        <Button
          kind="danger"
          onClick={() =>
            confirmFirst({
              title: `Stop job ${job.id}?`,
              text: job.started ? "It is told to stop and does not run again. What it has not saved is lost." : "It is taken out of the line and does not run.",
              yes: "Stop the job",
              act: () => act("stop", "The job is told to stop."),
            })
          }
        >
          Stop
        </Button>
      )}
      {asksPriority && <PriorityDialog job={job} onClose={() => setAsksPriority(false)} changed={changed} />}
    </>
  );
}

function PriorityDialog({ job, onClose, changed }: { job: Job; onClose: () => void; changed: () => void }) {
  const [priority, setPriority] = useState<number | null>(job.priority);
  const { busy, error, run } = useAction();
  const submit = (event: Event) => {
    event.preventDefault();
    run(async () => {
      await send("POST", `/jobs/${job.id}/priority`, { priority });
      say(`The priority is ${priority} now.`);
      changed();
      onClose();
    });
  };
  return (
    <Dialog title={`Priority of job ${job.id}`} onClose={onClose}>
      <form onSubmit={submit}>
        <NumberField label="Priority" hint="Larger is more urgent." value={priority} onValue={setPriority} step={1} required />
        <FormEnd submit="Set priority" onCancel={onClose} busy={busy} error={error} />
      </form>
    </Dialog>
  );
}

