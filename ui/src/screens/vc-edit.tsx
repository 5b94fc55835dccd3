// Editing virtual clusters, with a preview of the effects.

import { useEffect, useState } from "preact/hooks";
import { me, messageOf, send } from "../api";
import { plural, sentence, valueText } from "../format";
import { Button, ErrorNote, Checking, Note } from "../parts/basics";
import { Dialog, FormButtons, useAction } from "../parts/dialog";
import { Area, Choice, NumberField, TextField } from "../parts/field";
import { showToast } from "../parts/toast";
import type { Vc, VcDiff, VcList } from "../types";

/** Fetches a preview whenever the change is edited, shortly after the last keystroke. */
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

/** Labels of settings. */
export const FIELDS: Record<string, string> = {
  guaranteed_gpus: "guaranteed GPUs",
  most_borrowed: "maximum borrowed GPUs",
  user_cap_gpus: "maximum GPUs per user",
  max_priority: "maximum priority",
  everyone: "default access",
  order: "queue order",
  mode: "guarantees",
};

export function Diff({ diff }: { diff: VcDiff }) {
  return (
    <div class="diff" role="status">
      {diff.refused && <ErrorNote>{diff.refused}</ErrorNote>}
      {diff.changes.length === 0 && !diff.refused && <p class="muted">No changes.</p>}
      {diff.changes.length > 0 && (
        <ul class="diff-list">
          {diff.changes.map((c) => (
            <li key={`${c.vc}${c.field}`}>
              {c.field === "exists" ? (
                <>
                  <b>{c.vc}</b> {c.after ? <ins>created</ins> : <del>removed</del>}
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
            Would preempt {plural(diff.stops.length, "job")}: {diff.stops.slice(0, 20).join(", ")}
            {diff.stops.length > 20 && " …"}
          </span>
        </Note>
      )}
      {diff.starts.length > 0 && (
        <Note tone="good">
          <span>
            Would start {plural(diff.starts.length, "job")}: {diff.starts.slice(0, 20).join(", ")}
            {diff.starts.length > 20 && " …"}
          </span>
        </Note>
      )}
    </div>
  );
}

type Settings = Pick<Vc, "guaranteed_gpus" | "most_borrowed" | "user_cap_gpus" | "max_priority" | "everyone" | "order">;

/** Queue orders for the jobs of one virtual cluster. */
const ORDERS: [string, string][] = [
  ["", "that of the policy"],
  ["fifo", "first come, first served"],
  ["fifo:priority=true", "by priority, then first come, first served"],
  ["sjf", "shortest job first"],
  ["srtf", "shortest remaining time first"],
  ["srsf", "shortest remaining service first"],
  ["las", "least attained service first"],
  ["tiresias", "least attained service first, in queues (Tiresias)"],
  ["gittins", "highest Gittins index first"],
];

export function VcDialog({ vc, all, onClose, applied }: { vc: Vc | null; all: VcList; onClose: () => void; applied: () => void }) {
  const [name, setName] = useState(vc?.name ?? "");
  const [settings, setSettings] = useState<Settings>({
    guaranteed_gpus: vc?.guaranteed_gpus ?? 0,
    most_borrowed: vc?.most_borrowed ?? null,
    user_cap_gpus: vc?.user_cap_gpus ?? null,
    max_priority: vc?.max_priority ?? null,
    everyone: vc?.everyone ?? "member",
    // Older servers do not have this setting.
    ...(all.vcs.some((other) => other.order !== undefined) && { order: vc?.order ?? null }),
  });
  const { busy, error, run } = useAction();
  // Cells determine the guaranteed GPUs, and only administrators of the cluster can change guarantees.
  const editsGuarantees = all.mode !== "cells" && !!me.value?.admin;
  const { guaranteed_gpus, most_borrowed, ...others } = settings;
  const body = editsGuarantees ? { guaranteed_gpus, most_borrowed, ...others } : others;
  const path = name.trim() ? `/vcs/${encodeURIComponent(name.trim())}` : null;
  const preview = usePreview("PUT", path, body);
  const submit = (event: Event) => {
    event.preventDefault();
    run(async () => {
      await send("PUT", path!, body);
      showToast(vc ? `Virtual cluster ${name} changed.` : `Virtual cluster ${name} created.`);
      applied();
      onClose();
    });
  };
  return (
    <Dialog title={vc ? `Edit ${vc.name}` : "New virtual cluster"} onClose={onClose}>
      <form onSubmit={submit}>
        {!vc && <TextField label="Name" value={name} onValue={setName} required autofocus />}
        <div class="two">
          {editsGuarantees && (
            <>
              <NumberField
                label="Guaranteed GPUs"
                hint={`The cluster has ${plural(all.gpus, "GPU")}.`}
                value={settings.guaranteed_gpus}
                onValue={(n) => setSettings({ ...settings, guaranteed_gpus: n ?? 0 })}
                min={0}
                required
              />
              <NumberField
                label="Maximum borrowed GPUs"
                hint="Empty for no limit."
                value={settings.most_borrowed}
                onValue={(n) => setSettings({ ...settings, most_borrowed: n })}
                min={0}
              />
            </>
          )}
          <NumberField label="Maximum GPUs per user" hint="Empty for no limit." value={settings.user_cap_gpus} onValue={(n) => setSettings({ ...settings, user_cap_gpus: n })} min={0} />
          <NumberField label="Maximum priority" hint="Empty for no limit." value={settings.max_priority} onValue={(n) => setSettings({ ...settings, max_priority: n })} />
          <Choice
            label="Default access"
            value={settings.everyone}
            onValue={(value) => setSettings({ ...settings, everyone: value as Settings["everyone"] })}
            of={[
              ["member", "all users may run jobs"],
              ["viewer", "all users may see jobs"],
              ["none", "only users with a role"],
            ]}
          />
          {settings.order !== undefined && all.mode !== "open" && (
            <Choice
              label="Queue order"
              value={settings.order ?? ""}
              onValue={(order) => setSettings({ ...settings, order: order || null })}
              of={ORDERS.some(([name]) => name === (settings.order ?? "")) ? ORDERS : [...ORDERS, [settings.order!, settings.order!]]}
            />
          )}
        </div>
        {all.mode === "open" && editsGuarantees && (
          <Note tone="accent">
            This is the first guarantee: <i>default</i> gets the remaining GPUs. Jobs of virtual clusters without guaranteed GPUs can only borrow idle GPUs (priority below 0).
          </Note>
        )}
        <h3>Preview</h3>
        {preview.error && <ErrorNote>{preview.error}</ErrorNote>}
        {preview.diff ? <Diff diff={preview.diff} /> : !preview.error && (path ? <Checking /> : <p class="muted">Enter a name first.</p>)}
        <FormButtons submit={vc ? "Apply" : "Create"} onCancel={onClose} busy={busy || !!preview.diff?.refused} error={error} />
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
      showToast(`Virtual cluster ${name} removed.`);
      applied();
      onClose();
    });
  };
  return (
    <Dialog title={`Remove ${name}?`} onClose={onClose}>
      <form onSubmit={submit}>
        <p>No more jobs can be submitted to it.</p>
        {preview.error && <ErrorNote>{preview.error}</ErrorNote>}
        {preview.diff && <Diff diff={preview.diff} />}
        <FormButtons submit="Remove" kind="danger" onCancel={onClose} busy={busy || !!preview.diff?.refused} error={error} />
      </form>
    </Dialog>
  );
}

/** The configuration of all virtual clusters, as text. */
export function ConfigDialog({ all, onClose, applied }: { all: VcList; onClose: () => void; applied: () => void }) {
  const settingsOf = (vc: Vc) => ({
    guaranteed_gpus: vc.guaranteed_gpus,
    most_borrowed: vc.most_borrowed,
    user_cap_gpus: vc.user_cap_gpus,
    max_priority: vc.max_priority,
    everyone: vc.everyone,
    ...(vc.order !== undefined && { order: vc.order }),
  });
  const [mode, setMode] = useState<string>(all.mode);
  const [text, setText] = useState(JSON.stringify(Object.fromEntries(all.vcs.map((vc) => [vc.name, settingsOf(vc)])), null, 2));
  const [cells, setCells] = useState("");
  const [shown, setShown] = useState<{ diff?: VcDiff; error?: string }>({});
  const { busy, error, run } = useAction();
  const body = () => ({ mode, vcs: JSON.parse(text) as unknown, cells: mode === "cells" && cells.trim() ? cells : null });
  const put = (dry: boolean) => send<VcDiff>("PUT", `/vcs${dry ? "?dry_run=true" : ""}`, body());
  const preview = () =>
    run(async () => {
      setShown({ diff: await put(true) });
    });
  const submit = (event: Event) => {
    event.preventDefault();
    run(async () => {
      await put(false);
      showToast("Virtual clusters changed.");
      applied();
      onClose();
    });
  };
  return (
    <Dialog title="All virtual clusters" onClose={onClose} wide>
      <form onSubmit={submit}>
        <Choice
          label="Guarantees"
          value={mode}
          onValue={setMode}
          of={[
            ["open", "none: all virtual clusters share all GPUs"],
            ["quota", "quota: a number of GPUs"],
            ["cells", "cells: GPUs that are close together"],
          ]}
        />
        <Area label="Virtual clusters (JSON)" value={text} onValue={(value) => (setText(value), setShown({}))} rows={12} />
        {mode === "cells" && (
          <Area
            label="Cells (YAML)"
            hint="A HiveD configuration with the physical and the virtual clusters. Empty to keep the current cells."
            value={cells}
            onValue={(value) => (setCells(value), setShown({}))}
            rows={10}
          />
        )}
        {shown.diff && <Diff diff={shown.diff} />}
        {shown.error && <ErrorNote>{shown.error}</ErrorNote>}
        <div>
          <Button onClick={preview}>Preview</Button>
        </div>
        <FormButtons submit="Apply" onCancel={onClose} busy={busy || !!shown.diff?.refused} error={error} />
      </form>
    </Dialog>
  );
}
