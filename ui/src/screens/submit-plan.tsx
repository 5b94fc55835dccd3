// What would happen if the job were sent now: where it would run, when, why it would wait, and who would be stopped.

import { useEffect, useState } from "preact/hooks";
import { messageOf, send } from "../api";
import { plural, seatsText, sentence } from "../format";
import { anyEvent, useEvents } from "../live";
import { ErrorNote, Looking, Note, Panel, Words } from "../parts/basics";
import type { Submitted } from "../types";
import { EtaLine } from "./job-overview";

export function Plan({ text }: { text: string }) {
  const [plan, setPlan] = useState<Submitted>();
  const [error, setError] = useState<string>();
  const [turn, setTurn] = useState(0);
  useEvents(anyEvent, () => setTurn((n) => n + 1));
  useEffect(() => {
    const abort = new AbortController();
    const timer = window.setTimeout(() => {
      send<Submitted>("POST", "/jobs?dry_run=true", text, { type: "application/yaml", signal: abort.signal }).then(
        (found) => {
          setPlan(found);
          setError(undefined);
        },
        (problem) => abort.signal.aborted || setError(messageOf(problem)),
      );
    }, 400);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text, turn]);
  return (
    <Panel title="What would happen" class="plan">
      <div aria-live="polite" class="stack">
        {error ? <ErrorNote>{sentence(error)}</ErrorNote> : plan ? <Outcome plan={plan} /> : <Looking />}
      </div>
    </Panel>
  );
}

function Outcome({ plan }: { plan: Submitted }) {
  const outlook = plan.outlook;
  const ignored = plan.ignored ?? [];
  return (
    <>
      {outlook && (
        <div>
          <p class="sentence">
            {outlook.starts_now ? (
              <>
                <b>It starts at once.</b>
              </>
            ) : outlook.seats.length ? (
              <b>It starts as soon as others have stopped for it.</b>
            ) : (
              <>
                <b>It waits.</b> {sentence(outlook.why.sentence)}
              </>
            )}
          </p>
          {outlook.seats.length > 0 && <p>On {outlook.seats.length > 6 ? plural(outlook.seats.length, "node") : seatsText(outlook.seats)}.</p>}
          {!outlook.starts_now && outlook.why.reasons.length > 0 && (
            <ul class="reasons">
              {outlook.why.reasons.map((reason) => (
                <li key={reason}>
                  <Words text={reason} />
                </li>
              ))}
            </ul>
          )}
          {!outlook.starts_now && <EtaLine eta={outlook.eta ?? outlook.why.eta} hidden={outlook.why.eta_hidden} />}
          {!!outlook.why.instead?.length && (
            <>
              <h3>What would start now</h3>
              <ul class="instead">
                {outlook.why.instead.map((option) => (
                  <li key={option.sentence}>{sentence(option.sentence)}</li>
                ))}
              </ul>
            </>
          )}
        </div>
      )}
      {!!outlook?.stops.length && (
        <Note tone="warn">
          <span>
            It stops {plural(outlook.stops.length, "other job")}:{" "}
            {outlook.stops.slice(0, 10).map((id) => (
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
            <b>{plural(ignored.length, "field")} of the file would be ignored:</b>
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
