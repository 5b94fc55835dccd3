// Tokens: passwords for scripts, each with what it may do and until when.

import { useState } from "preact/hooks";
import { send } from "../api";
import { plural } from "../format";
import { useData } from "../live";
import { Button, ErrorNote, Loading, Panel, When } from "../parts/basics";
import { Dialog, FormEnd, confirmFirst, useAction } from "../parts/dialog";
import { Choice, TextField } from "../parts/field";
import { Table } from "../parts/table";
import { say, sayError } from "../parts/toast";
import type { TokenRow } from "../types";

const SCOPES: [string, string][] = [
  ["read", "look only"],
  ["jobs", "look, and send and stop jobs"],
  ["all", "everything I may"],
];

export function Tokens() {
  const { data, missing, error, reload } = useData<TokenRow[]>("/me/tokens");
  const [makes, setMakes] = useState(false);
  if (missing) return null;
  const tokens = data?.filter((t) => !t.session) ?? [];
  const sessions = data?.filter((t) => t.session) ?? [];
  const remove = (token: TokenRow) =>
    confirmFirst({
      title: token.session ? "Sign this browser out?" : `Remove the token ${token.label}?`,
      text: token.session ? "Whoever sits there has to sign in again." : "Scripts that use it are refused from now on.",
      yes: token.session ? "Sign it out" : "Remove it",
      act: async () => {
        await send("DELETE", `/me/tokens/${encodeURIComponent(token.id)}`);
        reload();
      },
    });
  return (
    <Panel title="Tokens" side={<Button onClick={() => setMakes(true)}>New token</Button>}>
      {error && <ErrorNote retry={reload}>{error}</ErrorNote>}
      {!data && !error && <Loading />}
      {data && tokens.length === 0 && <p class="muted">You have none. The command line and scripts sign in with a token.</p>}
      {tokens.length > 0 && <TokenTable label="Tokens" rows={tokens} remove={remove} />}
      {sessions.length > 0 && (
        <details>
          <summary>{plural(sessions.length, "browser")} signed in</summary>
          <TokenTable label="Browsers" rows={sessions} remove={remove} />
        </details>
      )}
      {makes && <NewToken onClose={() => (setMakes(false), reload())} />}
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
        { title: "Name", cell: (t) => (t.session ? <span class="muted">a browser</span> : t.label) },
        { title: "May", cell: (t) => SCOPES.find(([scope]) => scope === t.scope)?.[1] ?? t.scope },
        { title: "Made", wide: true, cell: (t) => <When at={t.created} /> },
        { title: "Last used", wide: true, cell: (t) => (t.last_used === null ? <span class="muted">never</span> : <When at={t.last_used} />) },
        { title: "Ends", cell: (t) => (t.expires === null ? <span class="muted">never</span> : <When at={t.expires} />) },
        {
          title: "Actions",
          head: <span class="unseen">Actions</span>,
          cell: (t) => (
            <div class="row-actions">
              <Button kind="danger" aria-label={t.session ? "Sign this browser out" : `Remove the token ${t.label}`} onClick={() => remove(t)}>
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
  const [made, setMade] = useState<string>();
  const { busy, error, run } = useAction();
  const submit = (event: Event) => {
    event.preventDefault();
    run(async () => {
      const { token } = await send<{ token: string }>("POST", "/me/tokens", { label, scope, expires_s: days ? Number(days) * 86400 : null });
      setMade(token);
    });
  };
  if (made) {
    return (
      <Dialog title="Your new token" onClose={onClose}>
        <Secret text={made} onClose={onClose} />
      </Dialog>
    );
  }
  return (
    <Dialog title="New token" onClose={onClose}>
      <form onSubmit={submit}>
        <TextField label="Name" hint="So that you know it again." value={label} onValue={setLabel} required autofocus />
        <Choice label="May" value={scope} onValue={setScope} of={SCOPES} />
        <Choice
          label="Ends"
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
        <FormEnd submit="Make it" onCancel={onClose} busy={busy} error={error} />
      </form>
    </Dialog>
  );
}

/** Something that is shown once. */
export function Secret({ text, onClose }: { text: string; onClose: () => void }) {
  const copy = () => navigator.clipboard.writeText(text).then(() => say("Copied."), sayError);
  return (
    <div class="stack">
      <p>Copy it now. It is not shown again.</p>
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
