// GPU-hours by day, user and virtual cluster.

import { query } from "../api";
import { count, decimal } from "../format";
import { useData } from "../live";
import { Button, Empty, ErrorNote, PageHeader, Loading, Panel } from "../parts/basics";
import { Columns, type Stack } from "../parts/chart";
import { Choice, TextField } from "../parts/field";
import { Table } from "../parts/table";
import { params, setParams } from "../router";
import type { UsageRow } from "../types";

const DAY_MS = 86_400_000;
const dayName = (ms: number) => new Date(ms).toISOString().slice(0, 10);

export function Usage() {
  const address = params.value;
  const to = address.get("to") ?? dayName(Date.now());
  const from = address.get("from") ?? dayName(Date.parse(to) - 29 * DAY_MS);
  const by = address.get("by") === "tenant" ? "tenant" : "user";
  const { data, error, reload } = useData<UsageRow[]>(`/usage${query({ from, to })}`);
  const sums = new Map<string, { hours: number; jobs: number }>();
  for (const row of data ?? []) {
    const sum = sums.get(row[by]) ?? { hours: 0, jobs: 0 };
    sums.set(row[by], { hours: sum.hours + row.gpu_hours, jobs: sum.jobs + row.jobs });
  }
  const ranked = [...sums].sort((a, b) => b[1].hours - a[1].hours);
  const total = ranked.reduce((sum, [, s]) => sum + s.hours, 0);
  return (
    <>
      <PageHeader title="Usage" lead={data && data.length > 0 ? `${decimal(total)} GPU-hours from ${from} to ${to}` : undefined}>
        <Button disabled={!data?.length} onClick={() => download(data ?? [], from, to)}>
          Download CSV
        </Button>
      </PageHeader>
      <div class="filters">
        <TextField label="From" type="date" value={from} max={to} onValue={(value) => setParams({ from: value }, true)} />
        <TextField label="To" type="date" value={to} onValue={(value) => setParams({ to: value }, true)} />
        <Choice
          label="By"
          value={by}
          onValue={(value) => setParams({ by: value === "user" ? null : value }, true)}
          of={[
            ["user", "user"],
            ["tenant", "virtual cluster"],
          ]}
        />
      </div>
      {error && <ErrorNote retry={reload}>{error}</ErrorNote>}
      {!data && !error && <Loading />}
      {data?.length === 0 && <Empty title="No GPU usage in this period">Choose other days.</Empty>}
      {data && data.length > 0 && (
        <div class="stack">
          <Panel title="GPU-hours by day">
            <Columns label={`GPU-hours by day and ${by === "user" ? "user" : "virtual cluster"}`} stacks={stacks(data, ranked.map(([name]) => name), from, to, by)} unit="GPU-hours" />
            <p class="legend">
              {ranked.slice(0, 7).map(([name], i) => (
                <span key={name}>
                  <span class={`key-square series-${i}`} />
                  {name}
                </span>
              ))}
              {ranked.length > 7 && (
                <span>
                  <span class="key-square series-7" />
                  {ranked.length - 7} more
                </span>
              )}
            </p>
          </Panel>
          <Panel title={by === "user" ? "By user" : "By virtual cluster"}>
            <Table
              label="Totals"
              rows={ranked}
              rowKey={([name]) => name}
              columns={[
                { title: by === "user" ? "User" : "Virtual cluster", cell: ([name]) => <a href={`/jobs?${by}=${encodeURIComponent(name)}`}>{name}</a> },
                { title: "GPU-hours", number: true, cell: ([, sum]) => decimal(sum.hours) },
                { title: "Share", number: true, cell: ([, sum]) => `${total ? Math.round((sum.hours / total) * 100) : 0} %` },
                { title: "Jobs per day, summed", number: true, cell: ([, sum]) => count(sum.jobs) },
              ]}
            />
          </Panel>
        </div>
      )}
    </>
  );
}

/** Returns a column for each day; the seven largest users have their own colours. */
function stacks(rows: UsageRow[], ranked: string[], from: string, to: string, by: "user" | "tenant"): Stack[] {
  const index = new Map(ranked.map((name, i) => [name, Math.min(i, 7)]));
  const days = Map.groupBy(rows, (row) => row.day);
  const all: Stack[] = [];
  const end = Math.min(Date.parse(to), Date.parse(from) + 366 * DAY_MS);
  for (let at = Date.parse(from); at <= end; at += DAY_MS) {
    const day = dayName(at);
    const sums = Map.groupBy(days.get(day) ?? [], (row) => row[by]);
    const parts = [...sums].map(([label, of]) => ({ label, series: index.get(label) ?? 7, value: of.reduce((n, row) => n + row.gpu_hours, 0) }));
    all.push({ name: day, parts: parts.sort((a, b) => a.series - b.series) });
  }
  return all;
}

/** Returns a CSV cell; what a spreadsheet would read as a formula becomes text. */
function csvCell(value: string | number): string {
  const text = String(value);
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function download(rows: UsageRow[], from: string, to: string): void {
  const lines = rows.map((r) => [r.day, r.user, r.tenant, r.gpu_hours, r.jobs].map(csvCell).join(","));
  const text = `day,user,virtual_cluster,gpu_hours,jobs\n${lines.join("\n")}\n`;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = `usage-${from}-${to}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
