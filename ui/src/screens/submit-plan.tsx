// Preview of a submission: where and when the job would start, why it would wait, and which jobs it would preempt.

import { useEffect, useState } from "preact/hooks";
import { messageOf, send } from "../api";
import { plural, placementText, sentence } from "../format";
import { anyEvent, useEvents } from "../live";
import { ErrorNote, Checking, Note, Panel, ServerText } from "../parts/basics";
import type { SubmitResponse } from "../types";
import { EtaLine } from "./job-overview";

export function Preview({ text }: { text: string }) {
  const [response, setResponse] = useState<SubmitResponse>();
  const [error, setError] = useState<string>();
  const [version, setVersion] = useState(0);
  useEvents(anyEvent, () => setVersion((n) => n + 1));
  useEffect(() => {
    const abort = new AbortController();
    const timer = window.setTimeout(() => {
      send<SubmitResponse>("POST", "/jobs?dry_run=true", text, { type: "application/yaml", signal: abort.signal }).then(
        (found) => {
          setResponse(found);
          setError(undefined);
        },
        (problem) => abort.signal.aborted || setError(messageOf(problem)),
      );
    }, 400);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text, version]);
  return (
    <Panel title="Preview" class="plan">
      <div aria-live="polite" class="stack">
        {error ? <ErrorNote>{sentence(error)}</ErrorNote> : response ? <Result response={response} /> : <Checking />}
      </div>
    </Panel>
  );
}

function Result({ response }: { response: SubmitResponse }) {
  const preview = response.preview;
  const ignored = response.ignored ?? [];
  return (
    <>
      {preview && (
        <div>
          <p class="sentence">
            {preview.starts_now ? (
              <>
                <b>Would start now.</b>
              </>
            ) : preview.placement.length ? (
              <b>Would start as soon as the preempted jobs have stopped.</b>
            ) : (
              <>
                <b>Would wait.</b> {sentence(preview.explanation.sentence)}
              </>
            )}
          </p>
          {preview.placement.length > 0 && <p>On {preview.placement.length > 6 ? plural(preview.placement.length, "node") : placementText(preview.placement)}.</p>}
          {!preview.starts_now && preview.explanation.reasons.length > 0 && (
            <ul class="reasons">
              {preview.explanation.reasons.map((reason) => (
                <li key={reason}>
                  <ServerText text={reason} />
                </li>
              ))}
            </ul>
          )}
          {!preview.starts_now && <EtaLine eta={preview.eta ?? preview.explanation.eta} unavailable={preview.explanation.no_eta_reason} />}
          {!!preview.explanation.alternatives?.length && (
            <>
              <h3>Alternatives that would start now</h3>
              <ul class="alternatives">
                {preview.explanation.alternatives.map((option) => (
                  <li key={option.sentence}>{sentence(option.sentence)}</li>
                ))}
              </ul>
            </>
          )}
        </div>
      )}
      {!!preview?.preempts.length && (
        <Note tone="warn">
          <span>
            Would preempt {plural(preview.preempts.length, "job")}:{" "}
            {preview.preempts.slice(0, 10).map((id) => (
              <>
                <a href={`/jobs/${id}`}>{id}</a>{" "}
              </>
            ))}
          </span>
        </Note>
      )}
      {ignored.length > 0 && (
        <Note tone="warn">
          <div>
            <b>{plural(ignored.length, "field")} of the file will be ignored:</b>
            <ul class="reasons">
              {ignored.map((field) => (
                <li key={field}>{field}</li>
              ))}
            </ul>
          </div>
        </Note>
      )}
    </>
  );
}
