// Virtual clusters: guaranteed, used, borrowed and lent GPUs, and cells.

import { useState } from "preact/hooks";
import { me } from "../api";
import { count, plural } from "../format";
import { anyEvent, useData } from "../live";
import { Bar, Button, Empty, ErrorNote, PageHeader, Loading, Panel, Tag } from "../parts/basics";
import type { Cell, Vc, VcList } from "../types";
import { ConfigDialog, RemoveDialog, VcDialog } from "./vc-edit";

export function VirtualClusters() {
  const { data, error, missing, reload } = useData<VcList>("/vcs", anyEvent);
  const [editing, setEditing] = useState<Vc | "new" | "all" | null>(null);
  const admin = me.value?.admin ?? false;
  const modes = { open: "No guarantees: all virtual clusters share all GPUs.", quota: "Each virtual cluster has a guaranteed number of GPUs.", cells: "Each virtual cluster has guaranteed cells: GPUs that are close together." };
  return (
    <>
      <PageHeader title="Virtual clusters" lead={data && modes[data.mode]}>
        {admin && data && (
          <>
            <Button onClick={() => setEditing("all")}>Edit all</Button>
            <Button kind="main" onClick={() => setEditing("new")}>
              New virtual cluster
            </Button>
          </>
        )}
      </PageHeader>
      {error && !missing && <ErrorNote retry={reload}>{error}</ErrorNote>}
      {!data && !error && <Loading />}
      {(missing || data?.vcs.length === 0) && (
        <Empty title="No virtual clusters">
          {admin && data ? "Create one to guarantee GPUs to a team." : "All users share all GPUs. An administrator can guarantee GPUs to teams."}
        </Empty>
      )}
      <div class="vc-grid">
        {data?.vcs.map((vc) => (
          <VcPanel key={vc.name} vc={vc} mode={data.mode} edit={() => setEditing(vc)} removed={reload} />
        ))}
      </div>
      {data && editing === "all" && <ConfigDialog all={data} onClose={() => setEditing(null)} applied={reload} />}
      {data && editing && editing !== "all" && <VcDialog vc={editing === "new" ? null : editing} all={data} onClose={() => setEditing(null)} applied={reload} />}
    </>
  );
}

function VcPanel({ vc, mode, edit, removed }: { vc: Vc; mode: VcList["mode"]; edit: () => void; removed: () => void }) {
  const [removing, setRemoving] = useState(false);
  const mayEdit = me.value?.admin || vc.role === "administrator";
  const cells = vc.cells ?? [];
  return (
    <Panel
      title={
        <>
          {vc.name} {vc.role && !me.value?.admin && <Tag tone="accent">{vc.role}</Tag>}
        </>
      }
      side={
        mayEdit && (
          <>
            <Button aria-label={`Edit ${vc.name}`} onClick={edit}>
              Edit
            </Button>
            {me.value?.admin && (
              <Button kind="danger" aria-label={`Remove ${vc.name}`} onClick={() => setRemoving(true)}>
                Remove
              </Button>
            )}
          </>
        )
      }
    >
      <VcUsageBar vc={vc} bare hasGuarantees={mode !== "open"} />
      <p class="muted small">
        <a href={`/jobs?tenant=${encodeURIComponent(vc.name)}&state=running,starting`}>{plural(vc.running_jobs, "job")} running</a>,{" "}
        <a href={`/jobs?tenant=${encodeURIComponent(vc.name)}&state=queued,held`}>{count(vc.waiting_jobs)} waiting</a>
        {vc.user_cap_gpus !== null && ` · at most ${plural(vc.user_cap_gpus, "GPU")} per user`}
        {vc.most_borrowed !== null && ` · borrows at most ${plural(vc.most_borrowed, "GPU")}`}
        {vc.order && ` · queue order ${vc.order}`}
        {vc.max_priority !== null && ` · priority up to ${vc.max_priority}`}
        {vc.everyone === "member" ? " · all users may run jobs" : vc.everyone === "viewer" ? " · all users may see jobs" : " · only users with a role"}
      </p>
      {mode === "cells" && cells.length > 0 && (
        <details class="cells" open={cells.length <= 4}>
          <summary>{plural(cells.length, "cell")}</summary>
          <ul class="cell-tree">
            {cells.map((cell) => (
              <CellItem key={cell.id} cell={cell} depth={0} />
            ))}
          </ul>
        </details>
      )}
      {removing && <RemoveDialog name={vc.name} onClose={() => setRemoving(false)} applied={removed} />}
    </Panel>
  );
}

/** Guaranteed, used, borrowed and lent GPUs as a bar. */
export function VcUsageBar({ vc, bare = false, hasGuarantees = true }: { vc: Vc; bare?: boolean; hasGuarantees?: boolean }) {
  const own = vc.used_gpus;
  const whole = Math.max(vc.guaranteed_gpus, own + vc.lent_gpus) + vc.borrowed_gpus;
  const parts = [hasGuarantees ? `${count(own)} of ${plural(vc.guaranteed_gpus, "guaranteed GPU")} in use` : `${plural(own, "GPU")} in use`];
  if (vc.borrowed_gpus) parts.push(`${count(vc.borrowed_gpus)} borrowed`);
  if (vc.lent_gpus) parts.push(`${count(vc.lent_gpus)} lent`);
  const text = parts.join(", ");
  return (
    <div class="vc-bar">
      <div class="vc-bar-words">
        {!bare && <a href="/vcs">{vc.name}</a>}
        <span class="muted">{text}</span>
      </div>
      <Bar
        whole={whole}
        label={`${vc.name}: ${text}`}
        parts={[
          { kind: "used", value: own, label: "in use" },
          { kind: "lent", value: vc.lent_gpus, label: "lent" },
          { kind: "free", value: Math.max(0, whole - own - vc.lent_gpus - vc.borrowed_gpus), label: "free" },
          { kind: "borrowed", value: vc.borrowed_gpus, label: "borrowed" },
        ]}
      />
    </div>
  );
}

function CellItem({ cell, depth }: { cell: Cell; depth: number }) {
  const label = (
    <>
      <span class={`cell-dot ${cell.health === "bad" ? "bad" : cell.used_gpus >= cell.gpus ? "full" : cell.used_gpus > 0 ? "part" : cell.lent_gpus ? "lent" : ""}`} />
      <b>{cell.type}</b>{" "}
      <span class="muted">
        {cell.used_gpus}/{cell.gpus}
        {cell.node && ` on ${cell.node}`}
        {!!cell.lent_gpus && ` · ${cell.lent_gpus} lent`}
        {cell.health === "bad" && " · bad"}
      </span>{" "}
      {cell.job !== null && cell.job !== undefined && <a href={`/jobs/${cell.job}`}>job {cell.job}</a>}
    </>
  );
  const children = cell.children ?? [];
  if (children.length === 0) return <li class="cell">{label}</li>;
  return (
    <li>
      <details open={depth < 1 && cell.used_gpus > 0}>
        <summary class="cell">{label}</summary>
        <ul>
          {children.map((child) => (
            <CellItem key={child.id} cell={child} depth={depth + 1} />
          ))}
        </ul>
      </details>
    </li>
  );
}
