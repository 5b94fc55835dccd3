// A job: its properties, state, log, tasks, events and file, and actions on it.

import { useState } from "preact/hooks";
import { me, send } from "../api";
import { between, count, gpuSeconds, gpuTime, nowTime, plural, placementText, sentence } from "../format";
import { aboutJob, useData } from "../live";
import { Button, ButtonLink, Empty, ErrorNote, Properties, PageHeader, Loading, State, RelativeTime, ServerText } from "../parts/basics";
import { Dialog, FormButtons, confirm, useAction } from "../parts/dialog";
import { NumberField } from "../parts/field";
import { Tabs, useTab } from "../parts/tabs";
import { showToast, showError } from "../parts/toast";
import { mayControl } from "../session";
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
        <Empty title={`Job ${id} does not exist, or is private`} whole>
          <p>
            <a href="/jobs">Show all jobs</a>.
          </p>
        </Empty>
      );
    }
    return error ? <ErrorNote retry={reload}>{error}</ErrorNote> : <Loading />;
  }
  return (
    <>
      <PageHeader
        title={
          <>
            {job.name || "(no name)"} <span class="muted id">{job.id}</span> <State of={job.state} reason={job.state_reason} />
          </>
        }
        lead={job.detail ? <ServerText text={sentence(job.detail)} /> : undefined}
      >
        <Actions job={job} changed={reload} />
      </PageHeader>
      {error && <ErrorNote retry={reload}>{error}</ErrorNote>}
      <JobProperties job={job} />
      <Tabs label="Sections of this job" of={TABS} current={tab} />
      {tab === "overview" && <JobOverview job={job} />}
      {tab === "logs" && <JobLogs job={job} />}
      {tab === "tasks" && <JobTasks job={job} />}
      {tab === "events" && <JobEvents job={job} />}
      {tab === "file" && <JobFile job={job} />}
    </>
  );
}

function JobProperties({ job }: { job: Job }) {
  const properties: [string, preact.ComponentChildren][] = [
    ["GPUs", count(job.gpus)],
    ["User", <a href={`/jobs?user=${encodeURIComponent(job.user)}`}>{job.user}</a>],
    ["Virtual cluster", <a href={`/jobs?tenant=${encodeURIComponent(job.tenant)}`}>{job.tenant}</a>],
    ["Priority", job.priority],
    ["Submitted", <RelativeTime at={job.submitted} />],
    ["Waited", between(job.submitted, job.started ?? job.ended ?? nowTime())],
  ];
  if (job.started) properties.push([job.ended ? "Ended" : "Running since", job.ended ? <RelativeTime at={job.ended} /> : <RelativeTime at={job.started} />]);
  properties.push(["GPU time", gpuTime(gpuSeconds(job))]);
  if (job.attempt_count > 1) properties.push(["Attempts", count(job.attempt_count)]);
  if (job.exit_code !== null && job.exit_code !== undefined) properties.push(["Exit code", job.exit_code]);
  if (job.placement.length) properties.push([job.placement.length > 1 ? "Nodes" : "Node", job.placement.length > 3 ? plural(job.placement.length, "node") : placementText(job.placement)]);
  for (const [key, value] of Object.entries(job.labels ?? {})) properties.push([key, value || "yes"]);
  return <Properties of={properties} />;
}

function Actions({ job, changed }: { job: Job; changed: () => void }) {
  const [editsPriority, setEditsPriority] = useState(false);
  const resubmit = (
    <ButtonLink href={`/submit?clone=${job.id}`} key="resubmit">
      Resubmit
    </ButtonLink>
  );
  if (!mayControl(me.value, job)) return job.request || job.text ? resubmit : null;
  const act = async (action: string, message: string) => {
    await send("POST", `/jobs/${job.id}/${action}`);
    showToast(message);
    changed();
  };
  const actNow = (action: string, message: string) => void act(action, message).catch(showError);
  return (
    <>
      {resubmit}
      {job.state === "queued" && (
        <Button onClick={() => actNow("hold", "Job held until it is released.")}>Hold</Button>
      )}
      {job.state === "held" && <Button onClick={() => actNow("release", "Job released.")}>Release</Button>}
      {job.ended === null && <Button onClick={() => setEditsPriority(true)}>Priority</Button>}
      {job.ended === null && (
        <Button
          kind="danger"
          onClick={() =>
            confirm({
              title: `Stop job ${job.id}?`,
              text: job.started ? "The job is stopped and does not run again. Unsaved work is lost." : "The job is removed from the queue and does not run.",
              yes: "Stop job",
              act: () => act("stop", "Job stopping."),
            })
          }
        >
          Stop
        </Button>
      )}
      {editsPriority && <PriorityDialog job={job} onClose={() => setEditsPriority(false)} changed={changed} />}
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
      showToast(`Priority changed to ${priority}.`);
      changed();
      onClose();
    });
  };
  return (
    <Dialog title={`Priority of job ${job.id}`} onClose={onClose}>
      <form onSubmit={submit}>
        <NumberField label="Priority" hint="A larger number is more urgent." value={priority} onValue={setPriority} step={1} required />
        <FormButtons submit="Set priority" onCancel={onClose} busy={busy} error={error} />
      </form>
    </Dialog>
  );
}

