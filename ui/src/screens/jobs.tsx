// The list of jobs. The server filters, sorts and pages it; the address has all settings.

import { useEffect, useState } from "preact/hooks";
import { me, query, send } from "../api";
import { between, count, gpuSeconds, gpuTime, heldGpus, nowTime, plural } from "../format";
import { anyEvent, useData } from "../live";
import { Button, ButtonLink, Empty, ErrorNote, PageHeader, Loading, State, RelativeTime } from "../parts/basics";
import { confirm } from "../parts/dialog";
import { Choice, TextField } from "../parts/field";
import { type Column, Table } from "../parts/table";
import { showToast, showError } from "../parts/toast";
import { navigate, params, setParams } from "../router";
import { mayControl } from "../session";
import type { Job, JobPage } from "../types";
import { JobLink } from "./home";

const LIMIT = 50;
const FILTERS = ["q", "state", "user", "tenant", "node", "label", "gpus_min", "gpus_max", "from", "to"];

const STATES: [string, string][] = [
  ["", "all"],
  ["unfinished", "unfinished"],
  ["finished", "finished"],
  ...["queued", "held", "starting", "running", "stopping", "completed", "failed", "cancelled"].map((state) => [state, state] as [string, string]),
];

/** Returns the choices of states; several states in the address are a choice of their own. */
function stateChoices(current: string): [string, string][] {
  if (STATES.some(([value]) => value === current)) return STATES;
  return [...STATES, [current, current.replaceAll(",", ", ")]];
}

/** Returns the path of the API for the settings in the address. */
function apiPath(of: URLSearchParams): string {
  const values: Record<string, string> = {};
  for (const key of [...FILTERS, "sort", "cursor", "name"]) {
    const value = of.get(key);
    if (value) values[key] = value;
  }
  if (values.user === "@me") values.user = me.value?.name ?? "";
  // Days in the address are in local time; the server expects microseconds.
  if (values.from) values.from = String(new Date(`${values.from}T00:00`).getTime() * 1000);
  if (values.to) values.to = String(new Date(`${values.to}T23:59:59.999`).getTime() * 1000);
  return `/jobs${query({ ...values, limit: LIMIT })}`;
}

export function Jobs() {
  const address = params.value;
  const { data, error, loading, reload } = useData<JobPage>(apiPath(address), anyEvent);
  const [selected, setSelected] = useState<ReadonlySet<number>>(new Set());
  const filters = FILTERS.filter((key) => address.get(key));
  useEffect(() => setSelected(new Set()), [address.toString()]);

  const select = (id: number, on: boolean) => {
    const next = new Set(selected);
    if (on) next.add(id);
    else next.delete(id);
    setSelected(next);
  };
  const total = data?.total;
  return (
    <>
      <PageHeader title="Jobs" lead={total === undefined ? undefined : plural(total, "job")}>
        <ButtonLink href="/submit" kind="main">
          Submit a job
        </ButtonLink>
      </PageHeader>
      <Filters />
      {error && <ErrorNote retry={reload}>{error}</ErrorNote>}
      {selected.size > 0 && <BulkActions selected={selected} done={() => (setSelected(new Set()), reload())} />}
      {!data && loading && <Loading />}
      {data && data.jobs.length === 0 && (
        <Empty title={filters.length ? "No matching jobs" : "No jobs yet"}>
          {filters.length ? (
            <Button onClick={() => navigate("/jobs")}>Show all jobs</Button>
          ) : (
            <ButtonLink href="/submit" kind="main">
              Submit a job
            </ButtonLink>
          )}
        </Empty>
      )}
      {data && data.jobs.length > 0 && (
        <div class={loading ? "stale" : ""}>
          <Table<Job>
            label="Jobs"
            rows={data.jobs}
            rowKey={(job) => job.id}
            columns={columns(selected, select, data.jobs, setSelected)}
            sort={address.get("sort") ?? "-submitted"}
            onSort={(key) => setParams({ sort: key === "-submitted" ? null : key, cursor: null })}
          />
          <Paging next={data.next} />
        </div>
      )}
    </>
  );
}

function columns(
  selected: ReadonlySet<number>,
  select: (id: number, on: boolean) => void,
  shown: Job[],
  setSelected: (ids: ReadonlySet<number>) => void,
): Column<Job>[] {
  const mine = shown.filter((job) => job.ended === null && mayControl(me.value, job));
  const all = mine.length > 0 && mine.every((job) => selected.has(job.id));
  return [
    {
      title: "Select",
      head: <input type="checkbox" aria-label="Select all jobs on this page that can be stopped" checked={all} disabled={mine.length === 0} onChange={() => setSelected(all ? new Set() : new Set(mine.map((j) => j.id)))} />,
      class: "select",
      cell: (job) =>
        job.ended === null && mayControl(me.value, job) ? (
          <input type="checkbox" aria-label={`Select job ${job.id}`} checked={selected.has(job.id)} onChange={(e) => select(job.id, e.currentTarget.checked)} />
        ) : null,
    },
    { title: "Job", sort: ["name"], cell: (job) => <JobLink job={job} /> },
    { title: "State", cell: (job) => <State of={job.state} reason={job.state_reason} /> },
    { title: "GPUs", number: true, sort: ["-gpus", "gpus"], cell: (job) => count(heldGpus(job)) },
    { title: "User", wide: true, sort: ["user"], cell: (job) => <a href={`/jobs?user=${encodeURIComponent(job.user)}`}>{job.user}</a> },
    { title: "Virtual cluster", wide: true, cell: (job) => <a href={`/jobs?tenant=${encodeURIComponent(job.tenant)}`}>{job.tenant}</a> },
    { title: "Submitted", wide: true, sort: ["-submitted", "submitted"], cell: (job) => <RelativeTime at={job.submitted} /> },
    { title: "Waited", number: true, wide: true, sort: ["-wait"], cell: (job) => between(job.submitted, job.started ?? job.ended ?? nowTime()) },
    { title: "GPU time", number: true, wide: true, sort: ["-gpu_seconds"], cell: (job) => gpuTime(gpuSeconds(job)) },
  ];
}

function Filters() {
  const address = params.value;
  const [text, setText] = useState(address.get("q") ?? "");
  const q = address.get("q") ?? "";
  useEffect(() => setText(q), [q]);
  useEffect(() => {
    if (text === q) return;
    const timer = window.setTimeout(() => setParams({ q: text, cursor: null }, true), 300);
    return () => clearTimeout(timer);
  }, [text]);
  const field = (key: string) => ({
    value: address.get(key) ?? "",
    onValue: (value: string) => setParams({ [key]: value.trim(), cursor: null }, true),
  });
  const more = FILTERS.some((key) => !["q", "state"].includes(key) && address.get(key));
  return (
    <div class="filters" role="group" aria-label="Filters">
      <TextField label="Search" value={text} onValue={setText} placeholder="name, user, id" type="search" />
      <Choice label="State" of={stateChoices(address.get("state") ?? "")} {...field("state")} />
      <div class="filter-buttons">
        <Button aria-pressed={address.get("user") === "@me"} onClick={() => setParams({ user: address.get("user") === "@me" ? null : "@me", cursor: null })}>
          My jobs
        </Button>
        {(FILTERS.some((key) => address.get(key)) || address.get("sort")) && (
          <Button kind="quiet" onClick={() => navigate("/jobs")}>
            Clear
          </Button>
        )}
      </div>
      <details class="more-filters" open={more}>
        <summary>More filters</summary>
        <div class="filters">
          <TextField label="User" {...field("user")} />
          <TextField label="Virtual cluster" {...field("tenant")} />
          <TextField label="Node" {...field("node")} />
          <TextField label="Label" placeholder="key or key=value" {...field("label")} />
          <TextField label="Minimum GPUs" type="number" min={1} {...field("gpus_min")} />
          <TextField label="Maximum GPUs" type="number" min={1} {...field("gpus_max")} />
          <TextField label="Submitted from" type="date" {...field("from")} />
          <TextField label="Submitted until" type="date" {...field("to")} />
        </div>
      </details>
    </div>
  );
}

function Paging({ next }: { next: string | number | null }) {
  const cursor = params.value.get("cursor");
  if (!cursor && next === null) return null;
  return (
    <nav class="paging" aria-label="Pages">
      {cursor && <Button onClick={() => setParams({ cursor: null })}>First page</Button>}
      {next !== null && (
        <Button
          onClick={() => {
            setParams({ cursor: next });
            window.scrollTo(0, 0);
          }}
        >
          Next page
        </Button>
      )}
    </nav>
  );
}

/** Actions on the selected jobs. */
function BulkActions({ selected, done }: { selected: ReadonlySet<number>; done: () => void }) {
  const act = async (action: "stop" | "hold" | "release", past: string) => {
    const answers = await send<{ id: number; ok: boolean; detail: string }[]>("POST", "/jobs/actions", { action, ids: [...selected] });
    const bad = answers.filter((a) => !a.ok);
    if (bad.length < answers.length) showToast(`${plural(answers.length - bad.length, "job")} ${past}.`);
    for (const answer of bad.slice(0, 3)) showToast(`Job ${answer.id}: ${answer.detail}`, true);
    done();
  };
  return (
    <div class="bulk" role="group" aria-label="Selected jobs">
      <span>{plural(selected.size, "job")} selected</span>
      <Button
        kind="danger"
        onClick={() =>
          confirm({
            title: `Stop ${plural(selected.size, "job")}?`,
            text: "The jobs are stopped and do not run again. Unsaved work is lost.",
            yes: `Stop ${plural(selected.size, "job")}`,
            act: () => act("stop", "stopping"),
          })
        }
      >
        Stop
      </Button>
      <Button onClick={() => void act("hold", "held").catch(showError)}>Hold</Button>
      <Button onClick={() => void act("release", "released").catch(showError)}>Release</Button>
    </div>
  );
}
