// Submitting a job: a form and a file as two views of the same text, with a preview beside them.

import { useEffect, useState } from "preact/hooks";
import { get, me, send } from "../api";
import { plural, sentence } from "../format";
import { useData } from "../live";
import { Button, ErrorNote, PageHeader, Panel } from "../parts/basics";
import { useAction } from "../parts/dialog";
import { Area } from "../parts/field";
import { Tabs, useTab } from "../parts/tabs";
import { showToast, showError } from "../parts/toast";
import { navigate, params } from "../router";
import type { Job, SubmitResponse, Template } from "../types";
import { withKey } from "../job-file";
import { textOf } from "./job-file";
import { JobForm } from "./submit-form";
import { Preview } from "./submit-plan";
import { TemplateDialog } from "./submit-template";

const DEFAULT_FILE = `name: my-job
command: python3 train.py
gpus: 1
`;
const DRAFT = "dovetail-draft";

const TABS: [string, string][] = [
  ["form", "Form"],
  ["text", "File"],
];

/** Returns the text that was being edited when the page was left. */
function draft(): string {
  try {
    return sessionStorage.getItem(DRAFT) ?? DEFAULT_FILE;
  } catch {
    return DEFAULT_FILE;
  }
}

function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}

/** Applies the change in the address: `gpus:4`, `tenant:vision`. */
function withChange(text: string, set: string | null): string {
  const found = /^(gpus|tenant|priority|gpu_type):(.+)$/.exec(set ?? "");
  if (!found) return text;
  const [, key, value] = found as unknown as [string, string, string];
  if (key === "gpu_type") return withKey(text, key, value === "any" ? null : value);
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
    // Submitting the same text twice by mistake creates one job; a changed text is another job.
    setKey(newKey());
    try {
      sessionStorage.setItem(DRAFT, next);
    } catch {
      // Storage is disabled: the draft is not kept.
    }
  };
  useEffect(() => {
    if (!clone) return;
    get<Job>(`/jobs/${clone}`).then((job) => {
      const found = textOf(job);
      if (found) change(withChange(found, params.value.get("set")));
      else showToast("Only the owner and administrators can resubmit this job.", true);
    }, showError);
  }, [clone]);
  const submit = () =>
    run(async () => {
      const response = await send<SubmitResponse>("POST", "/jobs", text, { type: "application/yaml", headers: { "idempotency-key": key } });
      setKey(newKey());
      if (response.last && response.id && response.last > response.id) {
        showToast(`${plural(response.last - response.id + 1, "job")} submitted: ${response.id} to ${response.last}.`);
        navigate("/jobs?user=@me&state=unfinished");
      } else {
        showToast(`Job ${response.id} submitted.`);
        navigate(`/jobs/${response.id}`);
      }
    });
  return (
    <>
      <PageHeader title={clone ? `Resubmit job ${clone}` : "Submit a job"} />
      <Templates use={change} />
      <div class="columns">
        <div>
          <Tabs label="Form or file" of={TABS} current={tab} />
          {tab === "form" ? (
            <JobForm text={text} change={change} />
          ) : (
            <Panel side={<OpenFile use={change} />} title="Job file">
              <Area
                label="YAML"
                hint="A Dovetail job file, or an OpenPAI job file (protocol version 2)."
                value={text}
                onValue={change}
                rows={Math.min(36, Math.max(18, text.split("\n").length + 2))}
              />
            </Panel>
          )}
        </div>
        <div class="stack plan-side">
          <Preview text={text} />
          {error && <ErrorNote>{sentence(error)}</ErrorNote>}
          <Button kind="main" disabled={busy} onClick={submit}>
            Submit
          </Button>
          <p class="muted small">Jobs are submitted as {me.value?.name}. This tab keeps your draft until you submit it.</p>
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
    if (file.size > 1 << 20) showToast(`${file.name} exceeds the limit for job files (1 MiB).`, true);
    else use(await file.text());
  };
  return (
    <label class="button">
      Open file
      <input class="unseen" type="file" accept=".yaml,.yml,.json,text/yaml" onChange={(event) => void open(event)} />
    </label>
  );
}

/** Prepared job files with parameters. */
function Templates({ use }: { use: (text: string) => void }) {
  const { data } = useData<Template[]>("/templates");
  const [chosen, setChosen] = useState<Template>();
  if (!data || data.length === 0) return null;
  return (
    <details class="gallery">
      <summary>Start from a template ({data.length})</summary>
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
