// The tasks of a job: a thousand of them are as quick as one, because only those in view are in the page.

import { useState } from "preact/hooks";
import { plural, slots } from "../format";
import { Choice, TextField } from "../parts/field";
import { Empty, Panel, State } from "../parts/basics";
import { Rows } from "../parts/rows";
import type { Job } from "../types";

interface Task {
  role: string;
  index: number;
  node: string;
  gpus: string;
  state: string;
  exit: string;
}

const numbers = (gpus: number[]) => (gpus.length ? slots(gpus).slice(4) : "–");

/** Tasks as the server names them, or as they follow from the last launch. */
function tasksOf(job: Job): Task[] {
  if (job.roles?.length) {
    return job.roles.flatMap((role) =>
      role.instances.map((i) => ({
        role: role.name,
        index: i.index,
        node: i.node ?? "–",
        gpus: Array.isArray(i.gpus) ? numbers(i.gpus) : i.gpus ? plural(i.gpus, "GPU") : "–",
        state: i.state,
        exit: i.exit_code === null || i.exit_code === undefined ? "–" : String(i.exit_code),
      })),
    );
  }
  const last = job.attempts?.at(-1);
  return (last?.seats ?? []).map((seats, index) => ({
    role: "task",
    index,
    node: seats.node,
    gpus: numbers(seats.gpus),
    state: last?.tasks[index] ?? "–",
    exit: "–",
  }));
}

export function JobTasks({ job }: { job: Job }) {
  const [text, setText] = useState("");
  const [state, setState] = useState("");
  const all = tasksOf(job);
  const states = [...new Set(all.map((t) => t.state))].sort();
  const shown = all.filter((t) => (!state || t.state === state) && (!text || `${t.role} ${t.index} ${t.node}`.includes(text)));
  if (all.length === 0) return <Empty title="It has no tasks yet.">Tasks appear when the job is launched.</Empty>;
  return (
    <Panel title={shown.length === all.length ? plural(all.length, "task") : `${shown.length} of ${plural(all.length, "task")}`}>
      {all.length > 8 && (
        <div class="filters">
          <TextField label="Text" value={text} onValue={setText} placeholder="role, number, node" type="search" />
          <Choice label="State" value={state} onValue={setState} of={[["", "all"], ...states.map((s) => [s, s] as [string, string])]} />
        </div>
      )}
      <div class="task-row task-head" aria-hidden="true">
        <span>Role</span>
        <span>Task</span>
        <span>Node</span>
        <span>GPUs</span>
        <span>State</span>
        <span>Exit</span>
      </div>
      <Rows
        label="Tasks"
        class="tasks"
        height={32}
        count={shown.length}
        row={(i) => {
          const t = shown[i]!;
          return (
            <div class="task-row" key={`${t.role}/${t.index}`}>
              <span>{t.role}</span>
              <span>{t.index}</span>
              <span>{t.node === "–" ? t.node : <a href={`/jobs/${job.id}?tab=logs&node=${encodeURIComponent(t.node)}`} title={`What it printed on ${t.node}`}>{t.node}</a>}</span>
              <span>{t.gpus}</span>
              <span>
                <State of={t.state} />
              </span>
              <span>{t.exit}</span>
            </div>
          );
        }}
      />
    </Panel>
  );
}
