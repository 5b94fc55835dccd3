import { useEffect, useState } from "preact/hooks";
import { send } from "../api";
import { parseSpan, sentence } from "../format";
import { anyEvent, useData } from "../live";
import { Button, ErrorNote, Facts, Loading, Panel, Tag } from "../parts/basics";
import { useAction } from "../parts/dialog";
import { Choice, TextField } from "../parts/field";
import { say } from "../parts/toast";
import type { Cluster, PolicyInfo } from "../types";

export function Policy() {
  const { data: cluster, error, reload } = useData<Cluster>("/cluster", anyEvent);
  if (!cluster) return error ? <ErrorNote retry={reload}>{error}</ErrorNote> : <Loading />;
  return (
    <div class="stack narrow">
      <Now cluster={cluster} changed={reload} />
      <ChangePolicy cluster={cluster} changed={reload} />
      <ChangeClock cluster={cluster} changed={reload} />
    </div>
  );
}

const operate = (what: unknown) => send("POST", "/operate", { operate: what });

function Now({ cluster, changed }: { cluster: Cluster; changed: () => void }) {
  const { busy, error, run } = useAction();
  const toggle = () =>
    run(async () => {
      await operate(cluster.paused ? "resume" : "pause");
      say(cluster.paused ? "Jobs are started again." : "No job is started until you resume.");
      changed();
    });
  return (
    <Panel
      title="Now"
      side={
        <Button disabled={busy} onClick={toggle}>
          {cluster.paused ? "Resume scheduling" : "Pause scheduling"}
        </Button>
      }
    >
      {error && <ErrorNote>{error}</ErrorNote>}
      <Facts
        of={[
          ["Policy", cluster.policy],
          ["Decides", cluster.clock === "events" ? "whenever something happens" : cluster.clock],
          ["Scheduling", cluster.paused ? <Tag tone="warn">paused</Tag> : <Tag tone="good">on</Tag>],
          ...Object.entries(cluster.parts).map(([part, value]) => [part, value] as [string, string]),
        ]}
      />
    </Panel>
  );
}

/** A policy may carry knobs behind a colon: `fifo-backfill:priority=true`. */
function split(policy: string): [name: string, knobs: string] {
  const at = policy.indexOf(":");
  return at < 0 ? [policy, ""] : [policy.slice(0, at), policy.slice(at + 1)];
}

function ChangePolicy({ cluster, changed }: { cluster: Cluster; changed: () => void }) {
  const known = useData<PolicyInfo[]>("/policies").data ?? [];
  const [name, setName] = useState(split(cluster.policy)[0]);
  const [knobs, setKnobs] = useState(split(cluster.policy)[1]);
  useEffect(() => {
    setName(split(cluster.policy)[0]);
    setKnobs(split(cluster.policy)[1]);
  }, [cluster.policy]);
  const { busy, error, run } = useAction();
  const names = known.map((p) => p.name);
  if (!names.includes(name)) names.unshift(name);
  const chosen = known.find((p) => p.name === name);
  const policy = knobs.trim() ? `${name}:${knobs.trim()}` : name;
  const submit = (event: Event) => {
    event.preventDefault();
    run(async () => {
      await operate({ policy: { policy, parts: {} } });
      say(`The policy is ${policy} now.`);
      changed();
    });
  };
  return (
    <Panel title="Another policy">
      <form onSubmit={submit}>
        <div class="two">
          {known.length ? (
            <Choice label="Policy" value={name} onValue={(next) => (setName(next), setKnobs(""))} of={names.map((n) => [n, n])} />
          ) : (
            <TextField label="Policy" hint="Its name, as `dovetail policies` lists it." value={name} onValue={setName} required />
          )}
          <TextField label="Knobs" hint="key=value, with commas between; empty for the usual." value={knobs} onValue={setKnobs} />
        </div>
        {chosen && (
          <p class="muted">
            {sentence(chosen.what)}
            {chosen.key && ` First: ${sentence(chosen.key)}`}
            {chosen.paper && chosen.paper !== "rule" && ` From ${sentence(chosen.paper)}`}
          </p>
        )}
        {error && <ErrorNote>{error}</ErrorNote>}
        <div>
          <Button type="submit" kind="main" disabled={busy || policy === cluster.policy}>
            Use this policy
          </Button>
        </div>
      </form>
    </Panel>
  );
}

function ChangeClock({ cluster, changed }: { cluster: Cluster; changed: () => void }) {
  const [text, setText] = useState("");
  const { busy, error, run } = useAction();
  const seconds = parseSpan(text);
  const set = (round: number | null) =>
    run(async () => {
      await operate({ round });
      say(round === null ? "It is decided whenever something happens." : "It is decided in rounds.");
      changed();
    });
  return (
    <Panel title="When it is decided">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (seconds) set(Math.round(seconds * 1e6));
        }}
      >
        <TextField label="In rounds of" placeholder="30s" hint="30s, 5m. Policies that look at everything anew are cheaper in rounds." value={text} onValue={setText} />
        {error && <ErrorNote>{error}</ErrorNote>}
        <div class="filter-buttons">
          <Button type="submit" disabled={busy || !seconds}>
            Decide in rounds
          </Button>
          <Button disabled={busy || cluster.clock === "events"} onClick={() => set(null)}>
            Decide at once
          </Button>
        </div>
      </form>
    </Panel>
  );
}
