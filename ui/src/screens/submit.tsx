// Sending a job: a form and a file that are two views of the same text, and beside them what would happen.

import { useEffect, useState } from "preact/hooks";
import { get, me, send } from "../api";
import { plural, sentence } from "../format";
import { useData } from "../live";
import { Button, ErrorNote, Head, Panel } from "../parts/basics";
import { useAction } from "../parts/dialog";
import { Area } from "../parts/field";
import { Tabs, useTab } from "../parts/tabs";
import { say, sayError } from "../parts/toast";
import { navigate, params } from "../router";
import type { Job, Submitted, Template } from "../types";
import { withKey } from "../job-file";
import { textOf } from "./job-file";
import { JobForm } from "./submit-form";
import { Plan } from "./submit-plan";
import { TemplateDialog } from "./submit-template";

const FIRST = `name: my-job
command: python3 train.py
gpus: 1
`;
const DRAFT = "dovetail-draft";

const TABS: [string, string][] = [
  ["form", "Form"],
  ["text", "File"],
];

/** What was being written when the page was left. */
function draft(): string {
  try {
    return sessionStorage.getItem(DRAFT) ?? FIRST;
  } catch {
    return FIRST;
  }
}

function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}

/** What is asked for in the address: `gpus:4`, `tenant:vision`. */
function changed(text: string, set: string | null): string {
  const found = /^(gpus|tenant|priority):(.+)$/.exec(set ?? "");
  if (!found) return text;
  const [, key, value] = found as unknown as [string, string, string];
  return withKey(text, key, key === "tenant" ? value : Number(value));
}

export function Submit() {
  const clone = params.value.get("clone");
  const [text, setText] = useState(draft);
  const [key, setKey] = useState(newKey);
  const tab = useTab(TABS);
  const { busy, error, run } = useAction();
  const change = (next: string) => {
    setText(next);
    // Sent twice by mistake it is one job; changed, it is another.
    setKey(newKey());
    try {
      sessionStorage.setItem(DRAFT, next);
    } catch {
      // It is only not kept.
    }
  };
  useEffect(() => {
    if (!clone) return;
    get<Job>(`/jobs/${clone}`).then((job) => {
      const found = textOf(job);
      if (found) change(changed(found, params.value.get("set")));
      else say("Only the owner of a job and administrators can clone it.", true);
    }, sayError);
  }, [clone]);
  const submit = () =>
    run(async () => {
      const sent = await send<Submitted>("POST", "/jobs", text, { type: "application/yaml", headers: { "idempotency-key": key } });
      setKey(newKey());
      if (sent.last && sent.id && sent.last > sent.id) {
        say(`${plural(sent.last - sent.id + 1, "job")} were sent, from ${sent.id} to ${sent.last}.`);
        navigate("/jobs?user=@me&state=live");
      } else {
        say(`Job ${sent.id} was sent.`);
        navigate(`/jobs/${sent.id}`);
      }
    });
  return (
    <>
      <Head title={clone ? `Submit again what job ${clone} was` : "Submit a job"} />
      <Gallery use={change} />
      <div class="columns">
        <div>
          <Tabs label="Form or file" of={TABS} current={tab} />
          {tab === "form" ? (
            <JobForm text={text} change={change} />
          ) : (
            <Panel side={<OpenFile use={change} />} title="Job file">
              <Area
                label="YAML"
                hint="Dovetail's own keys, or an OpenPAI file (protocol version 2)."
                value={text}
                onValue={change}
                rows={Math.min(36, Math.max(18, text.split("\n").length + 2))}
              />
            </Panel>
          )}
        </div>
        <div class="stack plan-side">
          <Plan text={text} />
          {error && <ErrorNote>{sentence(error)}</ErrorNote>}
          <Button kind="main" disabled={busy} onClick={submit}>
            Submit
          </Button>
          <p class="muted small">It runs as {me.value?.name}. What you write is kept in this tab until it is sent.</p>
        </div>
      </div>
    </>
  );
}

function OpenFile({ use }: { use: (text: string) => void }) {
  const open = async (event: Event) => {
    const input = event.currentTarget as HTMLInputElement;
    const file = input.files?.[0];
    input.value = "";
    if (!file) return;
    if (file.size > 1 << 20) say(`${file.name} is larger than a job file can be (1 MiB).`, true);
    else use(await file.text());
  };
  return (
    <label class="button">
      Open a file
      <input class="unseen" type="file" accept=".yaml,.yml,.json,text/yaml" onChange={(event) => void open(event)} />
    </label>
  );
}

/** Job files that others prepared. */
function Gallery({ use }: { use: (text: string) => void }) {
  const { data } = useData<Template[]>("/templates");
  const [chosen, setChosen] = useState<Template>();
  if (!data || data.length === 0) return null;
  return (
    <details class="gallery">
      <summary>Begin with a template ({data.length})</summary>
      <ul>
        {data.map((template) => (
          <li key={template.name}>
            <button type="button" class="template" onClick={() => setChosen(template)}>
              <b>{template.title || template.name}</b>
              <span class="muted">{template.description}</span>
            </button>
          </li>
        ))}
      </ul>
      {chosen && <TemplateDialog template={chosen} use={use} onClose={() => setChosen(undefined)} />}
    </details>
  );
}
