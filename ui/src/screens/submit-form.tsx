// The form of a job. It edits single keys of the job file, so that keys it does not know stay unchanged.

import { useEffect, useState } from "preact/hooks";
import { parseDocument } from "yaml";
import { me } from "../api";
import { plural } from "../format";
import { anyEvent, useData } from "../live";
import { ErrorNote, Note, Panel } from "../parts/basics";
import { Area, Check, Choice, NumberField, TextField } from "../parts/field";
import { isOpenPai, withKey } from "../job-file";
import { mayRun } from "../session";
import type { Node, VcList } from "../types";

type Keys = Record<string, unknown>;

/** Parses the file into keys. */
function read(text: string): { keys: Keys } | { error: string } {
  const doc = parseDocument(text);
  if (doc.errors.length) return { error: doc.errors[0]!.message };
  const keys: unknown = doc.toJS() ?? {};
  if (typeof keys !== "object" || Array.isArray(keys)) return { error: "expected keys with values, such as `gpus: 1`" };
  return { keys: keys as Keys };
}

export function JobForm({ text, change }: { text: string; change: (text: string) => void }) {
  const file = read(text);
  if ("error" in file) {
    return (
      <Panel>
        <ErrorNote>The file cannot be read: {file.error}</ErrorNote>
        <p class="muted">
          Fix it <a href="/submit?tab=text">as text</a> to use the form.
        </p>
      </Panel>
    );
  }
  if (isOpenPai(file.keys)) {
    return (
      <Panel title="OpenPAI job file">
        <Note tone="accent">
          This OpenPAI job file is submitted unchanged. Edit it <a href="/submit?tab=text">as text</a>. The preview lists fields that will be ignored.
        </Note>
      </Panel>
    );
  }
  const set = (key: string, value: unknown) => change(withKey(text, key, value));
  return <Fields keys={file.keys} set={set} />;
}

function Fields({ keys, set }: { keys: Keys; set: (key: string, value: unknown) => void }) {
  const string = (key: string) => (keys[key] === undefined || keys[key] === null ? "" : String(keys[key]));
  const number = (key: string) => (typeof keys[key] === "number" ? (keys[key] as number) : null);
  const text = (key: string) => ({ value: string(key), onValue: (value: string) => set(key, value) });
  const count = (key: string) => ({ value: number(key), onValue: (value: number | null) => set(key, value) });
  const flag = (key: string) => ({ value: keys[key] === true, onValue: (value: boolean) => set(key, value) });
  const command = Array.isArray(keys.command) ? keys.command.map((w) => quote(String(w))).join(" ") : string("command");
  return (
    <Panel>
      <form onSubmit={(event) => event.preventDefault()}>
        <TextField label="Name" {...text("name")} />
        <Area label="Command" hint="One or more lines for the shell." value={command} onValue={(value) => set("command", value)} rows={3} />
        <div class="two">
          <NumberField label="GPUs" hint="All are allocated together." min={1} {...count("gpus")} />
          <VcField value={string("tenant")} onValue={(value) => set("tenant", value)} />
          <NumberField label="Priority" hint="A larger number is more urgent; a negative one borrows idle GPUs." placeholder="0" {...count("priority")} />
          <TextField label="Time limit" hint="The job is stopped after this time: 90s, 30m, 2h, 1.5d." {...text("time_limit")} />
          <TextField label="Expected run time" hint="Your estimate, such as 2h." {...text("expected")} />
          <Choice
            label="Processes"
            value={string("processes") || "per-node"}
            onValue={(value) => set("processes", value === "per-node" ? null : value)}
            of={[
              ["per-node", "one per node"],
              ["per-gpu", "one per GPU"],
              ["first-node", "one, on the first node"],
            ]}
          />
        </div>
        <details open={["workdir", "gpu_type", "cpus_per_gpu", "memory_per_gpu", "min_gpus", "max_gpus"].some((key) => key in keys)}>
          <summary>Placement and resources</summary>
          <div class="two">
            <TextField label="Working directory" hint="Empty for a directory of the job on the node." {...text("workdir")} />
            <GpuTypeField {...text("gpu_type")} />
            <NumberField label="CPUs per GPU" min={0} step="any" {...count("cpus_per_gpu")} />
            <TextField label="Memory per GPU" hint="Such as 16G or 512M." {...text("memory_per_gpu")} />
            <NumberField label="Minimum GPUs" hint="For jobs that can shrink." min={1} {...count("min_gpus")} />
            <NumberField label="Maximum GPUs" hint="For jobs that can grow." min={1} {...count("max_gpus")} />
          </div>
        </details>
        <details open={["env", "labels", "array", "after", "hold", "private"].some((key) => key in keys)}>
          <summary>More options</summary>
          <fieldset>
            <Pairs label="Environment variables" hint="One per line: NAME=value" value={keys.env} onValue={(value) => set("env", value)} />
            <Pairs label="Labels" hint="One per line: key=value" value={keys.labels} onValue={(value) => set("labels", value)} />
            <div class="two">
              <TextField label="Array" hint="One job per index: 1-100, or 1-100%10 for at most ten at a time." {...text("array")} />
              <Dependencies value={keys.after} onValue={(value) => set("after", value)} />
            </div>
            <Check label="Hold until released" {...flag("hold")} />
            <Check label="Private" hint="Only you and administrators can see the job." {...flag("private")} />
          </fieldset>
        </details>
      </form>
    </Panel>
  );
}

/** Quotes a word for the shell. */
function quote(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

function VcField({ value, onValue }: { value: string; onValue: (value: string) => void }) {
  const { data } = useData<VcList>("/vcs", anyEvent);
  const user = me.value!;
  const open = (data?.vcs ?? []).filter((vc) => vc.everyone === "member" || mayRun(user, vc.name));
  if (open.length === 0) return <TextField label="Virtual cluster" hint="Empty for default." value={value} onValue={onValue} />;
  const names = open.map((vc) => vc.name);
  if (!names.includes("default")) names.unshift("default");
  if (value && !names.includes(value)) names.push(value);
  const chosen = data?.vcs.find((vc) => vc.name === (value || "default"));
  const hint = chosen && data?.mode !== "open" ? `${Math.max(0, chosen.guaranteed_gpus - chosen.used_gpus)} of ${plural(chosen.guaranteed_gpus, "guaranteed GPU")} free.` : undefined;
  return <Choice label="Virtual cluster" hint={hint} value={value || "default"} onValue={(name) => onValue(name === "default" ? "" : name)} of={names.map((name) => [name, name])} />;
}

function GpuTypeField({ value, onValue }: { value: string; onValue: (value: string) => void }) {
  const { data } = useData<Node[]>("/nodes");
  const types = [...new Set((data ?? []).map((node) => node.gpu_type).filter(Boolean))].sort();
  if (value && !types.includes(value)) types.push(value);
  return <Choice label="GPU type" value={value} onValue={onValue} of={[["", "any"], ...types.map((type) => [type, type] as [string, string])]} />;
}

/** A map as lines of `KEY=value`. */
function Pairs({ label, hint, value, onValue }: { label: string; hint: string; value: unknown; onValue: (value: Record<string, string> | null) => void }) {
  const map = (value ?? {}) as Record<string, unknown>;
  const stored = Object.entries(map)
    .map(([key, v]) => `${key}=${String(v)}`)
    .join("\n");
  const [text, setText] = useState(stored);
  const parse = (lines: string) =>
    Object.fromEntries(
      lines
        .split("\n")
        .filter((line) => line.includes("=") && !line.startsWith("="))
        .map((line) => [line.slice(0, line.indexOf("=")).trim(), line.slice(line.indexOf("=") + 1)]),
    );
  useEffect(() => {
    // The file was changed elsewhere; an incomplete line stays as typed.
    if (JSON.stringify(parse(text)) !== JSON.stringify(parse(stored))) setText(stored);
  }, [stored]);
  return (
    <Area
      label={label}
      hint={hint}
      value={text}
      rows={2}
      onValue={(next) => {
        setText(next);
        const parsed = parse(next);
        onValue(Object.keys(parsed).length ? parsed : null);
      }}
    />
  );
}

/** Jobs to wait for, separated by commas. */
function Dependencies({ value, onValue }: { value: unknown; onValue: (value: unknown) => void }) {
  const one = (v: unknown): string => {
    if (typeof v === "object" && v !== null && "job" in v) {
      const { job, when } = v as { job: number; when?: string };
      return when && when !== "ok" ? `${job}:${when}` : String(job);
    }
    return String(v);
  };
  const stored = value === undefined || value === null ? "" : (Array.isArray(value) ? value : [value]).map(one).join(", ");
  const [text, setText] = useState(stored);
  useEffect(() => setText((current) => (current.replace(/[\s,]+$/, "") === stored ? current : stored)), [stored]);
  return (
    <TextField
      label="Dependencies"
      hint="7, 8:any waits until job 7 has completed and job 8 has ended."
      value={text}
      onValue={(next) => {
        setText(next);
        const parts = next.split(/[\s,]+/).filter(Boolean);
        onValue(parts.length ? parts.map((part) => (/^\d+$/.test(part) ? Number(part) : part)) : null);
      }}
    />
  );
}
