// Virtual clusters: what each was promised, what it uses, borrows and lends, and the cells it owns.

import { useState } from "preact/hooks";
import { me } from "../api";
import { count, plural } from "../format";
import { anyEvent, useData } from "../live";
import { Bar, Button, Empty, ErrorNote, Head, Loading, Panel, Tag } from "../parts/basics";
import type { Cell, Vc, Vcs } from "../types";
import { ConfigDialog, RemoveDialog, VcDialog } from "./vc-edit";

export function VirtualClusters() {
  const { data, error, missing, reload } = useData<Vcs>("/vcs", anyEvent);
  const [edits, setEdits] = useState<Vc | "new" | "all" | null>(null);
  const admin = me.value?.admin ?? false;
  const modes = { open: "Nobody is promised anything: everybody takes what is free.", quota: "Each virtual cluster is promised GPUs by number.", cells: "Each virtual cluster is promised cells: GPUs that are close together." };
  return (
    <>
      <Head title="Virtual clusters" lead={data && modes[data.mode]}>
        {admin && data && (
          <>
            <Button onClick={() => setEdits("all")}>Whole configuration</Button>
            <Button kind="main" onClick={() => setEdits("new")}>
              New virtual cluster
            </Button>
          </>
        )}
      </Head>
      {error && !missing && <ErrorNote retry={reload}>{error}</ErrorNote>}
      {!data && !error && <Loading />}
      {(missing || data?.vcs.length === 0) && (
        <Empty title="There are no virtual clusters.">
          {admin && data ? "Make the first one to give a team its share of the GPUs." : "Everybody shares all GPUs. An administrator can give teams their share."}
        </Empty>
      )}
      <div class="vc-grid">
        {data?.vcs.map((vc) => (
          <VcPanel key={vc.name} vc={vc} mode={data.mode} edit={() => setEdits(vc)} removed={reload} />
        ))}
      </div>
      {data && edits === "all" && <ConfigDialog all={data} onClose={() => setEdits(null)} applied={reload} />}
      {data && edits && edits !== "all" && <VcDialog vc={edits === "new" ? null : edits} all={data} onClose={() => setEdits(null)} applied={reload} />}
    </>
  );
}

function VcPanel({ vc, mode, edit, removed }: { vc: Vc; mode: Vcs["mode"]; edit: () => void; removed: () => void }) {
  const [removes, setRemoves] = useState(false);
  const may = me.value?.admin || vc.role === "administrator";
  const cells = vc.cells ?? [];
  return (
    <Panel
      title={
        <>
          {vc.name} {vc.role && !me.value?.admin && <Tag tone="accent">{vc.role}</Tag>}
        </>
      }
      side={
        may && (
          <>
            <Button aria-label={`Edit ${vc.name}`} onClick={edit}>
              Edit
            </Button>
            {me.value?.admin && (
              <Button kind="danger" aria-label={`Remove ${vc.name}`} onClick={() => setRemoves(true)}>
                Remove
              </Button>
            )}
          </>
        )
      }
    >
      <VcBar vc={vc} bare promised={mode !== "open"} />
      <p class="muted small">
        <a href={`/jobs?tenant=${encodeURIComponent(vc.name)}&state=running,starting`}>{plural(vc.running_jobs, "job")} running</a>,{" "}
        <a href={`/jobs?tenant=${encodeURIComponent(vc.name)}&state=queued,preempted,held`}>{count(vc.waiting_jobs)} waiting</a>
        {vc.user_cap_gpus !== null && ` · at most ${plural(vc.user_cap_gpus, "GPU")} for each user`}
        {vc.most_borrowed !== null && ` · borrows at most ${count(vc.most_borrowed)}`}
        {vc.order && ` · ordered by ${vc.order}`}
        {vc.max_priority !== null && ` · priority up to ${vc.max_priority}`}
        {vc.everyone === "member" ? " · open to everybody" : vc.everyone === "viewer" ? " · everybody may look" : " · only for its members"}
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
      {removes && <RemoveDialog name={vc.name} onClose={() => setRemoves(false)} applied={removed} />}
    </Panel>
  );
}

/** Promised, used, borrowed and lent as one bar. */
export function VcBar({ vc, bare = false, promised = true }: { vc: Vc; bare?: boolean; promised?: boolean }) {
  const own = vc.used_gpus;
  const whole = Math.max(vc.guaranteed_gpus, own + vc.lent_gpus) + vc.borrowed_gpus;
  const words = [promised ? `${count(own)} in use of ${count(vc.guaranteed_gpus)} promised` : `${plural(own, "GPU")} in use`];
  if (vc.borrowed_gpus) words.push(`${count(vc.borrowed_gpus)} borrowed`);
  if (vc.lent_gpus) words.push(`${count(vc.lent_gpus)} lent`);
  const text = words.join(", ");
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
  const words = (
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
  if (children.length === 0) return <li class="cell">{words}</li>;
  return (
    <li>
      <details open={depth < 1 && cell.used_gpus > 0}>
        <summary class="cell">{words}</summary>
        <ul>
          {children.map((child) => (
            <CellItem key={child.id} cell={child} depth={depth + 1} />
          ))}
        </ul>
      </details>
    </li>
  );
}
