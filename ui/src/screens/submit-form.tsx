// The form of a job. It changes the text of the file, key by key, so that what it does not know stays as it is.

import { useEffect, useState } from "preact/hooks";
import { parseDocument } from "yaml";
import { me } from "../api";
import { anyEvent, useData } from "../live";
import { ErrorNote, Note, Panel } from "../parts/basics";
import { Area, Check, Choice, NumberField, TextField } from "../parts/field";
import { isOpenPai, withKey } from "../job-file";
import { mayRun } from "../session";
import type { Node, Vcs } from "../types";

type Keys = Record<string, unknown>;

/** The file as keys; none where it cannot be read. */
function read(text: string): { keys: Keys } | { error: string } {
  const doc = parseDocument(text);
  if (doc.errors.length) return { error: doc.errors[0]!.message };
  const keys: unknown = doc.toJS() ?? {};
  if (typeof keys !== "object" || Array.isArray(keys)) return { error: "A job file has keys with values, such as `gpus: 1`." };
  return { keys: keys as Keys };
}

export function JobForm({ text, change }: { text: string; change: (text: string) => void }) {
  const file = read(text);
  if ("error" in file) {
    return (
      <Panel>
        <ErrorNote>The file cannot be read: {file.error}</ErrorNote>
        <p class="muted">
          Mend it <a href="/submit?tab=text">as text</a>. The form is here again when it can be read.
        </p>
      </Panel>
    );
  }
  if (isOpenPai(file.keys)) {
    return (
      <Panel title="An OpenPAI file">
        <Note tone="accent">
          This is a job file of OpenPAI. It is sent as it is; change it <a href="/submit?tab=text">as text</a>. What would be ignored is listed beside it.
        </Note>
      </Panel>
    );
  }
  const set = (key: string, value: unknown) => change(withKey(text, key, value));
  return <Fields keys={file.keys} set={set} />;
}

function Fields({ keys, set }: { keys: Keys; set: (key: string, value: unknown) => void }) {
  const words = (key: string) => (keys[key] === undefined || keys[key] === null ? "" : String(keys[key]));
  const number = (key: string) => (typeof keys[key] === "number" ? (keys[key] as number) : null);
  const text = (key: string) => ({ value: words(key), onValue: (value: string) => set(key, value) });
  const count = (key: string) => ({ value: number(key), onValue: (value: number | null) => set(key, value) });
  const flag = (key: string) => ({ value: keys[key] === true, onValue: (value: boolean) => set(key, value) });
  const command = Array.isArray(keys.command) ? keys.command.map((w) => quote(String(w))).join(" ") : words("command");
  return (
    <Panel>
      <form onSubmit={(event) => event.preventDefault()}>
        <TextField label="Name" {...text("name")} />
        <Area label="Command" hint="A line, or several, for the shell." value={command} onValue={(value) => set("command", value)} rows={3} />
        <div class="two">
          <NumberField label="GPUs" hint="All at once, or none." min={1} {...count("gpus")} />
          <VcField value={words("tenant")} onValue={(value) => set("tenant", value)} />
          <NumberField label="Priority" hint="Larger is more urgent; below 0 borrows idle GPUs." placeholder="0" {...count("priority")} />
          <TextField label="Time limit" hint="It is stopped then: 90s, 30m, 2h, 1.5d." {...text("time_limit")} />
          <TextField label="Expected time" hint="How long you think it runs." {...text("expected")} />
          <Choice
            label="Processes"
            value={words("processes") || "per-node"}
            onValue={(value) => set("processes", value === "per-node" ? null : value)}
            of={[
              ["per-node", "one on each node"],
              ["per-gpu", "one for each GPU"],
              ["first-node", "one on the first node"],
            ]}
          />
        </div>
        <details open={["workdir", "gpu_type", "cpus_per_gpu", "memory_per_gpu", "min_gpus", "max_gpus"].some((key) => key in keys)}>
          <summary>Where it runs</summary>
          <div class="two">
            <TextField label="Folder" hint="Empty: one of its own on the node." {...text("workdir")} />
            <GpuTypeField {...text("gpu_type")} />
            <NumberField label="CPUs for each GPU" min={0} step="any" {...count("cpus_per_gpu")} />
            <TextField label="Memory for each GPU" hint="16G, 512M." {...text("memory_per_gpu")} />
            <NumberField label="As few GPUs as" hint="If it can shrink." min={1} {...count("min_gpus")} />
            <NumberField label="As many GPUs as" hint="If it can grow." min={1} {...count("max_gpus")} />
          </div>
        </details>
        <details open={["env", "labels", "array", "after", "hold", "private"].some((key) => key in keys)}>
          <summary>More</summary>
          <fieldset>
            <Pairs label="Variables" hint="One on each line: NAME=value" value={keys.env} onValue={(value) => set("env", value)} />
            <Pairs label="Labels" hint="One on each line: key=value" value={keys.labels} onValue={(value) => set("labels", value)} />
            <div class="two">
              <TextField label="Array" hint="One job for each: 1-100, or 1-100%10 for ten at once." {...text("array")} />
              <After value={keys.after} onValue={(value) => set("after", value)} />
            </div>
            <Check label="Hold it until it is released" {...flag("hold")} />
            <Check label="Private" hint="Only you and administrators see it." {...flag("private")} />
          </fieldset>
        </details>
      </form>
    </Panel>
  );
}

/** A word as the shell would take it. */
function quote(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

function VcField({ value, onValue }: { value: string; onValue: (value: string) => void }) {
  const { data } = useData<Vcs>("/vcs", anyEvent);
  const user = me.value!;
  const open = (data?.vcs ?? []).filter((vc) => vc.everyone === "member" || mayRun(user, vc.name));
  if (open.length === 0) return <TextField label="Virtual cluster" hint="Empty: default." value={value} onValue={onValue} />;
  const names = open.map((vc) => vc.name);
  if (!names.includes("default")) names.unshift("default");
  if (value && !names.includes(value)) names.push(value);
  const chosen = data?.vcs.find((vc) => vc.name === (value || "default"));
  const hint = chosen && data?.mode !== "open" ? `${Math.max(0, chosen.guaranteed_gpus - chosen.used_gpus)} of ${chosen.guaranteed_gpus} promised are free.` : undefined;
  return <Choice label="Virtual cluster" hint={hint} value={value || "default"} onValue={(name) => onValue(name === "default" ? "" : name)} of={names.map((name) => [name, name])} />;
}

function GpuTypeField({ value, onValue }: { value: string; onValue: (value: string) => void }) {
  const { data } = useData<Node[]>("/nodes");
  const kinds = [...new Set((data ?? []).map((node) => node.gpu_type).filter(Boolean))].sort();
  if (value && !kinds.includes(value)) kinds.push(value);
  return <Choice label="Kind of GPU" value={value} onValue={onValue} of={[["", "any"], ...kinds.map((kind) => [kind, kind] as [string, string])]} />;
}

/** `KEY=value` lines for a map. */
function Pairs({ label, hint, value, onValue }: { label: string; hint: string; value: unknown; onValue: (value: Record<string, string> | null) => void }) {
  const map = (value ?? {}) as Record<string, unknown>;
  const written = Object.entries(map)
    .map(([key, v]) => `${key}=${String(v)}`)
    .join("\n");
  const [text, setText] = useState(written);
  const parse = (lines: string) =>
    Object.fromEntries(
      lines
        .split("\n")
        .filter((line) => line.includes("=") && !line.startsWith("="))
        .map((line) => [line.slice(0, line.indexOf("=")).trim(), line.slice(line.indexOf("=") + 1)]),
    );
  useEffect(() => {
    // The file was changed elsewhere; what is half written here stays.
    if (JSON.stringify(parse(text)) !== JSON.stringify(parse(written))) setText(written);
  }, [written]);
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

/** Jobs to wait for, with commas between. */
function After({ value, onValue }: { value: unknown; onValue: (value: unknown) => void }) {
  const one = (v: unknown): string => {
    if (typeof v === "object" && v !== null && "job" in v) {
      const { job, when } = v as { job: number; when?: string };
      return when && when !== "ok" ? `${job}:${when}` : String(job);
    }
    return String(v);
  };
  const written = value === undefined || value === null ? "" : (Array.isArray(value) ? value : [value]).map(one).join(", ");
  const [text, setText] = useState(written);
  useEffect(() => setText((was) => (was.replace(/[\s,]+$/, "") === written ? was : written)), [written]);
  return (
    <TextField
      label="After jobs"
      hint="7, 8:any: waits until 7 has completed and 8 is over."
      value={text}
      onValue={(next) => {
        setText(next);
        const parts = next.split(/[\s,]+/).filter(Boolean);
        onValue(parts.length ? parts.map((part) => (/^\d+$/.test(part) ? Number(part) : part)) : null);
      }}
    />
  );
}
