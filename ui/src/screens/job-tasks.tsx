// The tasks of a job; only those in view are in the DOM.

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

/** Returns the tasks that the server lists, or those of the last attempt. */
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
  return (last?.placement ?? []).map((slots, index) => ({
    role: "task",
    index,
    node: slots.node,
    gpus: numbers(slots.gpus),
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
  if (all.length === 0) return <Empty title="No tasks yet">Tasks appear when the job starts.</Empty>;
  return (
    <Panel title={shown.length === all.length ? plural(all.length, "task") : `${shown.length} of ${plural(all.length, "task")}`}>
      {all.length > 8 && (
        <div class="filters">
          <TextField label="Search" value={text} onValue={setText} placeholder="role, index, node" type="search" />
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
              <span>{t.node === "–" ? t.node : <a href={`/jobs/${job.id}?tab=logs&node=${encodeURIComponent(t.node)}`} title={`Log on ${t.node}`}>{t.node}</a>}</span>
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
