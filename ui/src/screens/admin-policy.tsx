// The policy and the clock of the scheduler.

import { useEffect, useState } from "preact/hooks";
import { send } from "../api";
import { parseDuration, sentence } from "../format";
import { anyEvent, useData } from "../live";
import { Button, ErrorNote, Properties, Loading, Panel, ServerText, Tag } from "../parts/basics";
import { useAction } from "../parts/dialog";
import { Choice, TextField } from "../parts/field";
import { showToast } from "../parts/toast";
import type { Cluster, PolicyInfo } from "../types";

export function Policy() {
  const { data: cluster, error, reload } = useData<Cluster>("/cluster", anyEvent);
  if (!cluster) return error ? <ErrorNote retry={reload}>{error}</ErrorNote> : <Loading />;
  return (
    <div class="stack narrow">
      <CurrentPolicy cluster={cluster} changed={reload} />
      <ChangePolicy cluster={cluster} changed={reload} />
      <ChangeClock cluster={cluster} changed={reload} />
    </div>
  );
}

const operate = (action: unknown) => send("POST", "/operate", { operate: action });

function CurrentPolicy({ cluster, changed }: { cluster: Cluster; changed: () => void }) {
  const { busy, error, run } = useAction();
  const toggle = () =>
    run(async () => {
      await operate(cluster.paused ? "resume" : "pause");
      showToast(cluster.paused ? "Scheduling resumed." : "Scheduling paused: no job starts until you resume it.");
      changed();
    });
  return (
    <Panel
      title="Current settings"
      side={
        <Button disabled={busy} onClick={toggle}>
          {cluster.paused ? "Resume scheduling" : "Pause scheduling"}
        </Button>
      }
    >
      {error && <ErrorNote>{error}</ErrorNote>}
      <PolicyWarnings cluster={cluster} />
      <Properties
        of={[
          ["Policy", cluster.policy],
          ["Clock", cluster.clock === "events" ? "at every event" : cluster.clock],
          ["Scheduling", cluster.paused ? <Tag tone="warn">paused</Tag> : <Tag tone="good">active</Tag>],
          ...Object.entries(cluster.parts).map(([part, value]) => [part, value] as [string, string]),
        ]}
      />
    </Panel>
  );
}

/** Data that the policy needs and that jobs do not have. */
function PolicyWarnings({ cluster }: { cluster: Cluster }) {
  if (!cluster.warnings?.length) return null;
  return (
    <ul class="reasons">
      {cluster.warnings.map((warning) => (
        <li key={warning.text}>
          <Tag tone="warn">warning</Tag> <ServerText text={sentence(warning.text)} /> {warning.help && <ServerText text={sentence(warning.help)} />}
        </li>
      ))}
    </ul>
  );
}

/** Splits a policy into its name and its parameters: `fifo-backfill:priority=true`. */
function split(policy: string): [name: string, parameters: string] {
  const at = policy.indexOf(":");
  return at < 0 ? [policy, ""] : [policy.slice(0, at), policy.slice(at + 1)];
}

function ChangePolicy({ cluster, changed }: { cluster: Cluster; changed: () => void }) {
  const known = useData<PolicyInfo[]>("/policies").data ?? [];
  const [name, setName] = useState(split(cluster.policy)[0]);
  const [parameters, setParameters] = useState(split(cluster.policy)[1]);
  useEffect(() => {
    setName(split(cluster.policy)[0]);
    setParameters(split(cluster.policy)[1]);
  }, [cluster.policy]);
  const { busy, error, run } = useAction();
  const names = known.map((p) => p.name);
  if (!names.includes(name)) names.unshift(name);
  const chosen = known.find((p) => p.name === name);
  const policy = parameters.trim() ? `${name}:${parameters.trim()}` : name;
  const submit = (event: Event) => {
    event.preventDefault();
    run(async () => {
      await operate({ policy: { policy, parts: {} } });
      showToast(`Policy changed to ${policy}.`);
      changed();
    });
  };
  return (
    <Panel title="Change policy">
      <form onSubmit={submit}>
        <div class="two">
          {known.length ? (
            <Choice label="Policy" value={name} onValue={(next) => (setName(next), setParameters(""))} of={names.map((n) => [n, n])} />
          ) : (
            <TextField label="Policy" hint="A name that `dovetail policies` lists." value={name} onValue={setName} required />
          )}
          <TextField label="Parameters" hint="key=value, separated by commas; empty for the defaults." value={parameters} onValue={setParameters} />
        </div>
        {chosen && (
          <p class="muted">
            {sentence(chosen.what)}
            {chosen.key && ` Sorted by: ${sentence(chosen.key)}`}
            {chosen.paper && chosen.paper !== "rule" && ` Source: ${sentence(chosen.paper)}`}
          </p>
        )}
        {chosen?.refused && <ErrorNote>{chosen.refused}</ErrorNote>}
        {error && <ErrorNote>{error}</ErrorNote>}
        <div>
          <Button type="submit" kind="main" disabled={busy || policy === cluster.policy || !!chosen?.refused}>
            Change policy
          </Button>
        </div>
      </form>
    </Panel>
  );
}

function ChangeClock({ cluster, changed }: { cluster: Cluster; changed: () => void }) {
  const [text, setText] = useState("");
  const { busy, error, run } = useAction();
  const seconds = parseDuration(text);
  const set = (round: number | null) =>
    run(async () => {
      await operate({ round });
      showToast(round === null ? "The scheduler now decides at every event." : "The scheduler now decides in rounds.");
      changed();
    });
  return (
    <Panel title="Clock">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (seconds) set(Math.round(seconds * 1e6));
        }}
      >
        <TextField label="Round length" placeholder="30s" hint="Such as 30s or 5m. Policies that reconsider all jobs cost less in rounds." value={text} onValue={setText} />
        {error && <ErrorNote>{error}</ErrorNote>}
        <div class="filter-buttons">
          <Button type="submit" disabled={busy || !seconds}>
            Decide in rounds
          </Button>
          <Button disabled={busy || cluster.clock === "events"} onClick={() => set(null)}>
            Decide at every event
          </Button>
        </div>
      </form>
    </Panel>
  );
}
