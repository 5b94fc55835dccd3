// Nodes, and draining them.

import { useState } from "preact/hooks";
import { send } from "../api";
import { count } from "../format";
import { anyEvent, useData } from "../live";
import { Button, ErrorNote, Loading, Panel, State, RelativeTime } from "../parts/basics";
import { Dialog, FormButtons, useAction } from "../parts/dialog";
import { TextField } from "../parts/field";
import { Table } from "../parts/table";
import { showToast, showError } from "../parts/toast";
import type { Node } from "../types";

export function Nodes() {
  const { data, error, reload } = useData<Node[]>("/nodes", anyEvent);
  const [draining, setDraining] = useState<Node>();
  const resume = async (node: Node) => {
    await send("POST", `/nodes/${encodeURIComponent(node.name)}/resume`, {});
    showToast(`${node.name} resumed.`);
    reload();
  };
  return (
    <Panel title="Nodes" side={<a href="/cluster">Map</a>}>
      {error && <ErrorNote retry={reload}>{error}</ErrorNote>}
      {!data && !error && <Loading />}
      {data && (
        <Table<Node>
          label="Nodes"
          rows={data}
          rowKey={(node) => node.name}
          columns={[
            { title: "Node", cell: (node) => <a href={`/jobs?node=${encodeURIComponent(node.name)}&state=unfinished`}>{node.name}</a> },
            {
              title: "State",
              cell: (node) => (
                <>
                  <State of={node.connected || node.state === "lost" ? node.state : "unreachable"} /> <span class="muted small">{node.detail}</span>
                </>
              ),
            },
            { title: "GPUs in use", number: true, cell: (node) => `${count(node.used_gpus)} / ${count(node.gpus)}` },
            { title: "GPU type", wide: true, cell: (node) => node.gpu_type },
            { title: "CPUs", number: true, wide: true, cell: (node) => count(node.cpu_milli / 1000) },
            { title: "Memory", number: true, wide: true, cell: (node) => `${count(Math.round(node.memory_mib / 1024))} GiB` },
            { title: "Since", wide: true, cell: (node) => <RelativeTime at={node.since} /> },
            {
              title: "Actions",
              head: <span class="unseen">Actions</span>,
              cell: (node) => (
                <div class="row-actions">
                  {node.state === "up" && (
                    <Button aria-label={`Drain ${node.name}`} onClick={() => setDraining(node)}>
                      Drain
                    </Button>
                  )}
                  {node.state === "draining" && (
                    <Button aria-label={`Resume ${node.name}`} onClick={() => void resume(node).catch(showError)}>
                      Resume
                    </Button>
                  )}
                </div>
              ),
            },
          ]}
        />
      )}
      {draining && <DrainDialog node={draining} onClose={() => (setDraining(undefined), reload())} />}
    </Panel>
  );
}

function DrainDialog({ node, onClose }: { node: Node; onClose: () => void }) {
  const [reason, setReason] = useState("");
  const { busy, error, run } = useAction();
  const submit = (event: Event) => {
    event.preventDefault();
    run(async () => {
      await send("POST", `/nodes/${encodeURIComponent(node.name)}/drain`, { reason });
      showToast(`Draining ${node.name}: no new jobs start on it.`);
      onClose();
    });
  };
  return (
    <Dialog title={`Drain ${node.name}`} onClose={onClose}>
      <form onSubmit={submit}>
        <p>Running jobs continue. No new jobs start on this node until it is resumed.</p>
        <TextField label="Reason" value={reason} onValue={setReason} placeholder="new driver, bad fan, …" autofocus />
        <FormButtons submit="Drain" onCancel={onClose} busy={busy} error={error} />
      </form>
    </Dialog>
  );
}
