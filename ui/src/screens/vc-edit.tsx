// Changing virtual clusters: what would change and what that would do is shown before it is done.

import { useEffect, useState } from "preact/hooks";
import { me, messageOf, send } from "../api";
import { plural, sentence, valueText } from "../format";
import { Button, ErrorNote, Looking, Note } from "../parts/basics";
import { Dialog, FormEnd, useAction } from "../parts/dialog";
import { Area, Choice, NumberField, TextField } from "../parts/field";
import { say } from "../parts/toast";
import type { Vc, VcDiff, Vcs } from "../types";

/** Asks what a change would do whenever it changes, a moment after the last key. */
function usePreview(method: string, path: string | null, body: unknown): { diff?: VcDiff; error?: string } {
  const [state, set] = useState<{ diff?: VcDiff; error?: string }>({});
  const key = path === null ? null : JSON.stringify(body ?? null);
  useEffect(() => {
    if (path === null) {
      set({});
      return;
    }
    const timer = window.setTimeout(() => {
      send<VcDiff>(method, `${path}?dry_run=true`, body).then(
        (diff) => set({ diff }),
        (error) => set({ error: messageOf(error) }),
      );
    }, 350);
    return () => clearTimeout(timer);
  }, [path, key]);
  return state;
}

/** Settings in the words of the form. */
const FIELDS: Record<string, string> = {
  guaranteed_gpus: "promised GPUs",
  most_borrowed: "borrows at most",
  user_cap_gpus: "GPUs for each user",
  max_priority: "highest priority",
  everyone: "everybody else",
  order: "order of its jobs",
  mode: "how GPUs are promised",
};

export function Diff({ diff }: { diff: VcDiff }) {
  return (
    <div class="diff" role="status">
      {diff.refused && <ErrorNote>{diff.refused}</ErrorNote>}
      {diff.changes.length === 0 && !diff.refused && <p class="muted">Nothing would change.</p>}
      {diff.changes.length > 0 && (
        <ul class="diff-list">
          {diff.changes.map((c) => (
            <li key={`${c.vc}${c.field}`}>
              {c.field === "there" ? (
                <>
                  <b>{c.vc}</b> {c.after ? <ins>is made</ins> : <del>is removed</del>}
                </>
              ) : (
                <>
                  <b>{c.vc || "All"}</b> {FIELDS[c.field] ?? c.field.replaceAll("_", " ")}: <del>{valueText(c.before)}</del> → <ins>{valueText(c.after)}</ins>
                </>
              )}
            </li>
          ))}
        </ul>
      )}
      {diff.effects.length > 0 && (
        <ul class="reasons">
          {diff.effects.map((text) => (
            <li key={text}>{sentence(text)}</li>
          ))}
        </ul>
      )}
      {diff.stops.length > 0 && (
        <Note tone="warn">
          <span>
            It would stop {plural(diff.stops.length, "job")}: {diff.stops.slice(0, 20).join(", ")}
            {diff.stops.length > 20 && " …"}
          </span>
        </Note>
      )}
      {diff.starts.length > 0 && (
        <Note tone="good">
          <span>
            It would start {plural(diff.starts.length, "job")}: {diff.starts.slice(0, 20).join(", ")}
            {diff.starts.length > 20 && " …"}
          </span>
        </Note>
      )}
    </div>
  );
}

type Settings = Pick<Vc, "guaranteed_gpus" | "most_borrowed" | "user_cap_gpus" | "max_priority" | "everyone" | "order">;

/** In which order the jobs of one virtual cluster may stand in line. */
const ORDERS: [string, string][] = [
  ["", "as the cluster's policy"],
  ["fifo", "first come, first served"],
  ["fifo:priority=true", "by priority, then first come"],
  ["sjf", "short jobs first"],
  ["srtf", "least time left first"],
  ["srsf", "least GPU time left first"],
  ["las", "least served first"],
  ["tiresias", "least served first, in steps (Tiresias)"],
  ["gittins", "likely to end soon first (Gittins)"],
];

export function VcDialog({ vc, all, onClose, applied }: { vc: Vc | null; all: Vcs; onClose: () => void; applied: () => void }) {
  const [name, setName] = useState(vc?.name ?? "");
  const [set, change] = useState<Settings>({
    guaranteed_gpus: vc?.guaranteed_gpus ?? 0,
    most_borrowed: vc?.most_borrowed ?? null,
    user_cap_gpus: vc?.user_cap_gpus ?? null,
    max_priority: vc?.max_priority ?? null,
    everyone: vc?.everyone ?? "member",
    // A server that knows of none is told of none.
    ...(all.vcs.some((other) => other.order !== undefined) && { order: vc?.order ?? null }),
  });
  const { busy, error, run } = useAction();
  // Cells say themselves how many GPUs are promised, and only administrators of everything promise any.
  const promises = all.mode !== "cells" && !!me.value?.admin;
  const { guaranteed_gpus, most_borrowed, ...others } = set;
  const body = promises ? { guaranteed_gpus, most_borrowed, ...others } : others;
  const path = name.trim() ? `/vcs/${encodeURIComponent(name.trim())}` : null;
  const preview = usePreview("PUT", path, body);
  const submit = (event: Event) => {
    event.preventDefault();
    run(async () => {
      await send("PUT", path!, body);
      say(vc ? `${name} was changed.` : `${name} was made.`);
      applied();
      onClose();
    });
  };
  return (
    <Dialog title={vc ? `Edit ${vc.name}` : "New virtual cluster"} onClose={onClose}>
      <form onSubmit={submit}>
        {!vc && <TextField label="Name" value={name} onValue={setName} required autofocus />}
        <div class="two">
          {promises && (
            <>
              <NumberField
                label="Promised GPUs"
                hint={`Of ${all.gpus} there are.`}
                value={set.guaranteed_gpus}
                onValue={(n) => change({ ...set, guaranteed_gpus: n ?? 0 })}
                min={0}
                required
              />
              <NumberField
                label="Borrows at most"
                hint="Empty: whatever is idle."
                value={set.most_borrowed}
                onValue={(n) => change({ ...set, most_borrowed: n })}
                min={0}
              />
            </>
          )}
          <NumberField label="GPUs for each user" hint="Empty: no limit." value={set.user_cap_gpus} onValue={(n) => change({ ...set, user_cap_gpus: n })} min={0} />
          <NumberField label="Highest priority" hint="Empty: no limit." value={set.max_priority} onValue={(n) => change({ ...set, max_priority: n })} />
          <Choice
            label="Everybody else"
            value={set.everyone}
            onValue={(value) => change({ ...set, everyone: value as Settings["everyone"] })}
            of={[
              ["member", "may run jobs"],
              ["viewer", "may look"],
              ["none", "stays out"],
            ]}
          />
          {set.order !== undefined && all.mode !== "open" && (
            <Choice
              label="Order of its jobs"
              value={set.order ?? ""}
              onValue={(order) => change({ ...set, order: order || null })}
              of={ORDERS.some(([name]) => name === (set.order ?? "")) ? ORDERS : [...ORDERS, [set.order!, set.order!]]}
            />
          )}
        </div>
        {all.mode === "open" && promises && (
          <Note tone="accent">
            This is the first promise. From then on jobs run on what their virtual cluster is promised; those of the others, <i>default</i> too unless it is given a share, only borrow (priority below 0).
          </Note>
        )}
        <h3>What that would do</h3>
        {preview.error && <ErrorNote>{preview.error}</ErrorNote>}
        {preview.diff ? <Diff diff={preview.diff} /> : !preview.error && (path ? <Looking /> : <p class="muted">Give it a name first.</p>)}
        <FormEnd submit={vc ? "Apply" : "Make it"} onCancel={onClose} busy={busy || !!preview.diff?.refused} error={error} />
      </form>
    </Dialog>
  );
}

export function RemoveDialog({ name, onClose, applied }: { name: string; onClose: () => void; applied: () => void }) {
  const path = `/vcs/${encodeURIComponent(name)}`;
  const preview = usePreview("DELETE", path, undefined);
  const { busy, error, run } = useAction();
  const submit = (event: Event) => {
    event.preventDefault();
    run(async () => {
      await send("DELETE", path);
      say(`${name} was removed.`);
      applied();
      onClose();
    });
  };
  return (
    <Dialog title={`Remove ${name}?`} onClose={onClose}>
      <form onSubmit={submit}>
        <p>Nobody can send jobs to it any more.</p>
        {preview.error && <ErrorNote>{preview.error}</ErrorNote>}
        {preview.diff && <Diff diff={preview.diff} />}
        <FormEnd submit="Remove it" kind="danger" onCancel={onClose} busy={busy || !!preview.diff?.refused} error={error} />
      </form>
    </Dialog>
  );
}

/** The whole configuration as text. */
export function ConfigDialog({ all, onClose, applied }: { all: Vcs; onClose: () => void; applied: () => void }) {
  const settings = (vc: Vc) => ({
    guaranteed_gpus: vc.guaranteed_gpus,
    most_borrowed: vc.most_borrowed,
    user_cap_gpus: vc.user_cap_gpus,
    max_priority: vc.max_priority,
    everyone: vc.everyone,
    ...(vc.order !== undefined && { order: vc.order }),
  });
  const [mode, setMode] = useState<string>(all.mode);
  const [text, setText] = useState(JSON.stringify(Object.fromEntries(all.vcs.map((vc) => [vc.name, settings(vc)])), null, 2));
  const [cells, setCells] = useState("");
  const [shown, setShown] = useState<{ diff?: VcDiff; error?: string }>({});
  const { busy, error, run } = useAction();
  const body = () => ({ mode, vcs: JSON.parse(text) as unknown, cells: mode === "cells" && cells.trim() ? cells : null });
  const put = (dry: boolean) => send<VcDiff>("PUT", `/vcs${dry ? "?dry_run=true" : ""}`, body());
  const look = () =>
    run(async () => {
      setShown({ diff: await put(true) });
    });
  const submit = (event: Event) => {
    event.preventDefault();
    run(async () => {
      await put(false);
      say("The virtual clusters were changed.");
      applied();
      onClose();
    });
  };
  return (
    <Dialog title="Virtual clusters, all at once" onClose={onClose} wide>
      <form onSubmit={submit}>
        <Choice
          label="How GPUs are promised"
          value={mode}
          onValue={setMode}
          of={[
            ["open", "not at all: everybody takes what is free"],
            ["quota", "by number"],
            ["cells", "by cells: GPUs that are close together"],
          ]}
        />
        <Area label="Virtual clusters (JSON)" value={text} onValue={(value) => (setText(value), setShown({}))} rows={12} />
        {mode === "cells" && (
          <Area
            label="Cells (YAML)"
            hint="The physical cluster and the virtual ones as in a HiveD configuration. Empty leaves the cells as they are."
            value={cells}
            onValue={(value) => (setCells(value), setShown({}))}
            rows={10}
          />
        )}
        {shown.diff && <Diff diff={shown.diff} />}
        {shown.error && <ErrorNote>{shown.error}</ErrorNote>}
        <div>
          <Button onClick={look}>See what that would do</Button>
        </div>
        <FormEnd submit="Apply" onCancel={onClose} busy={busy || !!shown.diff?.refused} error={error} />
      </form>
    </Dialog>
  );
}
