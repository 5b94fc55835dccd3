// The list of jobs: pages, filters and order are the server's, and all of them are in the address.

import { useEffect, useState } from "preact/hooks";
import { me, query, send } from "../api";
import { between, count, gpuSeconds, gpuTime, nowTime, plural } from "../format";
import { anyEvent, useData } from "../live";
import { Button, ButtonLink, Empty, ErrorNote, Head, Loading, State, When } from "../parts/basics";
import { confirmFirst } from "../parts/dialog";
import { Choice, TextField } from "../parts/field";
import { type Column, Table } from "../parts/table";
import { say, sayError } from "../parts/toast";
import { navigate, params, setParams } from "../router";
import { mayTouch } from "../session";
import type { Job, JobPage } from "../types";
import { JobLink } from "./home";

const LIMIT = 50;
const FILTERS = ["q", "state", "user", "tenant", "node", "label", "gpus_min", "gpus_max", "from", "to"];

const STATES: [string, string][] = [
  ["", "all"],
  ["live", "not over"],
  ["running,starting,stopping", "running"],
  ["queued,preempted,held", "waiting"],
  ["over", "over"],
  ["completed", "completed"],
  ["failed,time-limit,rejected,dependency-failed", "failed"],
  ["cancelled", "cancelled"],
];

/** What the server is asked, of what the address says. */
function asked(of: URLSearchParams): string {
  const values: Record<string, string> = {};
  for (const key of [...FILTERS, "sort", "cursor", "name"]) {
    const value = of.get(key);
    if (value) values[key] = value;
  }
  if (values.user === "@me") values.user = me.value?.name ?? "";
  // Days in the address are days where the reader is; the server counts microseconds.
  if (values.from) values.from = String(new Date(`${values.from}T00:00`).getTime() * 1000);
  if (values.to) values.to = String(new Date(`${values.to}T23:59:59.999`).getTime() * 1000);
  return `/jobs${query({ ...values, limit: LIMIT })}`;
}

export function Jobs() {
  const address = params.value;
  const { data, error, loading, reload } = useData<JobPage>(asked(address), anyEvent);
  const [chosen, setChosen] = useState<ReadonlySet<number>>(new Set());
  const filters = FILTERS.filter((key) => address.get(key));
  useEffect(() => setChosen(new Set()), [address.toString()]);

  const choose = (id: number, on: boolean) => {
    const next = new Set(chosen);
    if (on) next.add(id);
    else next.delete(id);
    setChosen(next);
  };
  const total = data?.total;
  return (
    <>
      <Head title="Jobs" lead={total === undefined ? undefined : plural(total, "job")}>
        <ButtonLink href="/submit" kind="main">
          Submit a job
        </ButtonLink>
      </Head>
      <Filters />
      {error && <ErrorNote retry={reload}>{error}</ErrorNote>}
      {chosen.size > 0 && <Bulk chosen={chosen} done={() => (setChosen(new Set()), reload())} />}
      {!data && loading && <Loading />}
      {data && data.jobs.length === 0 && (
        <Empty title={filters.length ? "No job is like that." : "There are no jobs yet."}>
          {filters.length ? (
            <Button onClick={() => navigate("/jobs")}>Show all jobs</Button>
          ) : (
            <ButtonLink href="/submit" kind="main">
              Submit the first one
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
            columns={columns(chosen, choose, data.jobs, setChosen)}
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
  chosen: ReadonlySet<number>,
  choose: (id: number, on: boolean) => void,
  shown: Job[],
  setChosen: (ids: ReadonlySet<number>) => void,
): Column<Job>[] {
  const mine = shown.filter((job) => !job.over && mayTouch(me.value, job));
  const all = mine.length > 0 && mine.every((job) => chosen.has(job.id));
  return [
    {
      title: "Choose",
      head: <input type="checkbox" aria-label="Choose all jobs of this page that can be stopped" checked={all} disabled={mine.length === 0} onChange={() => setChosen(all ? new Set() : new Set(mine.map((j) => j.id)))} />,
      class: "choose",
      cell: (job) =>
        !job.over && mayTouch(me.value, job) ? (
          <input type="checkbox" aria-label={`Choose job ${job.id}`} checked={chosen.has(job.id)} onChange={(e) => choose(job.id, e.currentTarget.checked)} />
        ) : null,
    },
    { title: "Job", sort: ["name"], cell: (job) => <JobLink job={job} /> },
    { title: "State", cell: (job) => <State of={job.state} /> },
    { title: "GPUs", number: true, sort: ["-gpus", "gpus"], cell: (job) => count(job.gpus) },
    { title: "User", wide: true, sort: ["user"], cell: (job) => <a href={`/jobs?user=${encodeURIComponent(job.user)}`}>{job.user}</a> },
    { title: "Virtual cluster", wide: true, cell: (job) => <a href={`/jobs?tenant=${encodeURIComponent(job.tenant)}`}>{job.tenant}</a> },
    { title: "Submitted", wide: true, sort: ["-submitted", "submitted"], cell: (job) => <When at={job.submitted} /> },
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
      <TextField label="Search" value={text} onValue={setText} placeholder="name, user, number" type="search" />
      <Choice label="State" of={STATES} {...field("state")} />
      <div class="filter-buttons">
        <Button aria-pressed={address.get("user") === "@me"} onClick={() => setParams({ user: address.get("user") === "@me" ? null : "@me", cursor: null })}>
          Only mine
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
          <TextField label="GPUs, at least" type="number" min={1} {...field("gpus_min")} />
          <TextField label="GPUs, at most" type="number" min={1} {...field("gpus_max")} />
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

/** What can be done to several jobs at once. */
function Bulk({ chosen, done }: { chosen: ReadonlySet<number>; done: () => void }) {
  const act = async (action: "stop" | "hold" | "release", past: string) => {
    const answers = await send<{ id: number; ok: boolean; detail: string }[]>("POST", "/jobs/actions", { action, ids: [...chosen] });
    const bad = answers.filter((a) => !a.ok);
    if (bad.length < answers.length) say(`${plural(answers.length - bad.length, "job")} ${past}.`);
    for (const answer of bad.slice(0, 3)) say(`Job ${answer.id}: ${answer.detail}`, true);
    done();
  };
  return (
    <div class="bulk" role="group" aria-label="Chosen jobs">
      <span>{plural(chosen.size, "job")} chosen</span>
      <Button
        kind="danger"
        onClick={() =>
          confirmFirst({
            title: `Stop ${plural(chosen.size, "job")}?`,
            text: "They are told to stop and do not run again. What they have not saved is lost.",
            yes: "Stop them",
            act: () => act("stop", "told to stop"),
          })
        }
      >
        Stop
      </Button>
      <Button onClick={() => void act("hold", "held back").catch(sayError)}>Hold</Button>
      <Button onClick={() => void act("release", "released").catch(sayError)}>Release</Button>
    </div>
  );
}
