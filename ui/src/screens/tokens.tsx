// Tokens for scripts, each with a scope and an expiry date.

import { useState } from "preact/hooks";
import { send } from "../api";
import { plural } from "../format";
import { useData } from "../live";
import { Button, ErrorNote, Loading, Panel, RelativeTime } from "../parts/basics";
import { Dialog, FormButtons, confirm, useAction } from "../parts/dialog";
import { Choice, TextField } from "../parts/field";
import { Table } from "../parts/table";
import { showToast, showError } from "../parts/toast";
import type { TokenRow } from "../types";

const SCOPES: [string, string][] = [
  ["read", "read only"],
  ["jobs", "read, submit and stop jobs"],
  ["all", "everything that I may do"],
];

export function Tokens() {
  const { data, missing, error, reload } = useData<TokenRow[]>("/me/tokens");
  const [creating, setCreating] = useState(false);
  if (missing) return null;
  const tokens = data?.filter((t) => !t.session) ?? [];
  const sessions = data?.filter((t) => t.session) ?? [];
  const remove = (token: TokenRow) =>
    confirm({
      title: token.session ? "Sign out this browser?" : `Remove token ${token.label}?`,
      text: token.session ? "Its user has to sign in again." : "Scripts that use it will be refused.",
      yes: token.session ? "Sign out" : "Remove token",
      act: async () => {
        await send("DELETE", `/me/tokens/${encodeURIComponent(token.id)}`);
        reload();
      },
    });
  return (
    <Panel title="Tokens" side={<Button onClick={() => setCreating(true)}>New token</Button>}>
      {error && <ErrorNote retry={reload}>{error}</ErrorNote>}
      {!data && !error && <Loading />}
      {data && tokens.length === 0 && <p class="muted">You have no tokens. The command line and scripts authenticate with a token.</p>}
      {tokens.length > 0 && <TokenTable label="Tokens" rows={tokens} remove={remove} />}
      {sessions.length > 0 && (
        <details>
          <summary>{plural(sessions.length, "browser")} signed in</summary>
          <TokenTable label="Browsers" rows={sessions} remove={remove} />
        </details>
      )}
      {creating && <NewToken onClose={() => (setCreating(false), reload())} />}
    </Panel>
  );
}

function TokenTable({ label, rows, remove }: { label: string; rows: TokenRow[]; remove: (token: TokenRow) => void }) {
  return (
    <Table<TokenRow>
      label={label}
      rows={rows}
      rowKey={(t) => t.id}
      columns={[
        { title: "Name", cell: (t) => (t.session ? <span class="muted">browser</span> : t.label) },
        { title: "Scope", cell: (t) => SCOPES.find(([scope]) => scope === t.scope)?.[1] ?? t.scope },
        { title: "Created", wide: true, cell: (t) => <RelativeTime at={t.created} /> },
        { title: "Last used", wide: true, cell: (t) => (t.last_used === null ? <span class="muted">never</span> : <RelativeTime at={t.last_used} />) },
        { title: "Expires", cell: (t) => (t.expires === null ? <span class="muted">never</span> : <RelativeTime at={t.expires} />) },
        {
          title: "Actions",
          head: <span class="unseen">Actions</span>,
          cell: (t) => (
            <div class="row-actions">
              <Button kind="danger" aria-label={t.session ? "Sign out this browser" : `Remove token ${t.label}`} onClick={() => remove(t)}>
                {t.session ? "Sign out" : "Remove"}
              </Button>
            </div>
          ),
        },
      ]}
    />
  );
}

function NewToken({ onClose }: { onClose: () => void }) {
  const [label, setLabel] = useState("");
  const [scope, setScope] = useState("jobs");
  const [days, setDays] = useState("90");
  const [secret, setSecret] = useState<string>();
  const { busy, error, run } = useAction();
  const submit = (event: Event) => {
    event.preventDefault();
    run(async () => {
      const { token } = await send<{ token: string }>("POST", "/me/tokens", { label, scope, expires_s: days ? Number(days) * 86400 : null });
      setSecret(token);
    });
  };
  if (secret) {
    return (
      <Dialog title="New token" onClose={onClose}>
        <Secret text={secret} onClose={onClose} />
      </Dialog>
    );
  }
  return (
    <Dialog title="New token" onClose={onClose}>
      <form onSubmit={submit}>
        <TextField label="Name" hint="To recognize it later." value={label} onValue={setLabel} required autofocus />
        <Choice label="Scope" value={scope} onValue={setScope} of={SCOPES} />
        <Choice
          label="Expires"
          value={days}
          onValue={setDays}
          of={[
            ["7", "in a week"],
            ["30", "in 30 days"],
            ["90", "in 90 days"],
            ["365", "in a year"],
            ["", "never"],
          ]}
        />
        <FormButtons submit="Create token" onCancel={onClose} busy={busy} error={error} />
      </form>
    </Dialog>
  );
}

/** A secret that is shown once. */
export function Secret({ text, onClose }: { text: string; onClose: () => void }) {
  const copy = () => navigator.clipboard.writeText(text).then(() => showToast("Copied."), showError);
  return (
    <div class="stack">
      <p>Copy it now. It will not be shown again.</p>
      <pre class="code secret">{text}</pre>
      <div class="form-end">
        <Button onClick={() => void copy()}>Copy</Button>
        <Button kind="main" onClick={onClose}>
          Done
        </Button>
      </div>
    </div>
  );
}
