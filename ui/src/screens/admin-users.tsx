import { useState } from "preact/hooks";
import { me, send } from "../api";
import { useData } from "../live";
import { Button, ErrorNote, Loading, Panel, Tag } from "../parts/basics";
import { Dialog, FormEnd, confirmFirst, useAction } from "../parts/dialog";
import { Check, Choice, TextField } from "../parts/field";
import { Table } from "../parts/table";
import { say } from "../parts/toast";
import type { Role, UserRow, Vcs } from "../types";
import { Secret } from "./tokens";

const ROLES: [string, string][] = [
  ["", "like everybody"],
  ["viewer", "viewer – looks"],
  ["member", "member – runs jobs"],
  ["operator", "operator – stops any job"],
  ["administrator", "administrator – all of it"],
];

export function Users() {
  const { data, error, reload } = useData<UserRow[]>("/users");
  const [edits, setEdits] = useState<UserRow | "new">();
  const remove = (user: UserRow) =>
    confirmFirst({
      title: `Remove ${user.name}?`,
      text: "The account and its tokens are gone at once. Its jobs go on.",
      yes: "Remove the user",
      act: async () => {
        await send("DELETE", `/users/${encodeURIComponent(user.name)}`);
        say(`${user.name} was removed.`);
        reload();
      },
    });
  return (
    <Panel
      title="Users"
      side={
        <Button kind="main" onClick={() => setEdits("new")}>
          New user
        </Button>
      }
    >
      {error && <ErrorNote retry={reload}>{error}</ErrorNote>}
      {!data && !error && <Loading />}
      {data && (
        <Table<UserRow>
          label="Users"
          rows={data}
          rowKey={(u) => u.name}
          columns={[
            { title: "Name", cell: (u) => <a href={`/jobs?user=${encodeURIComponent(u.name)}`}>{u.name}</a> },
            { title: "Mail", wide: true, cell: (u) => u.email || <span class="muted">–</span> },
            {
              title: "May",
              cell: (u) => (
                <span class="tags">
                  {u.admin && <Tag tone="accent">administrator of all</Tag>}
                  {Object.entries(u.roles ?? {}).map(([vc, role]) => (
                    <Tag key={vc}>
                      {vc}: {role}
                    </Tag>
                  ))}
                </span>
              ),
            },
            { title: "Tokens", number: true, wide: true, cell: (u) => u.tokens ?? "–" },
            {
              title: "Actions",
              head: <span class="unseen">Actions</span>,
              cell: (u) => (
                <div class="row-actions">
                  <Button aria-label={`Edit ${u.name}`} onClick={() => setEdits(u)}>
                    Edit
                  </Button>
                  {u.name !== me.value?.name && (
                    <Button kind="danger" aria-label={`Remove ${u.name}`} onClick={() => remove(u)}>
                      Remove
                    </Button>
                  )}
                </div>
              ),
            },
          ]}
        />
      )}
      {edits && <UserDialog user={edits === "new" ? null : edits} onClose={() => (setEdits(undefined), reload())} />}
    </Panel>
  );
}

function UserDialog({ user, onClose }: { user: UserRow | null; onClose: () => void }) {
  const vcs = useData<Vcs>("/vcs").data?.vcs ?? [];
  const [name, setName] = useState(user?.name ?? "");
  const [email, setEmail] = useState(user?.email ?? "");
  const [admin, setAdmin] = useState(user?.admin ?? false);
  const [password, setPassword] = useState("");
  const [roles, setRoles] = useState<Record<string, Role>>(user?.roles ?? {});
  const [made, setMade] = useState<{ token?: string; password?: string }>();
  const { busy, error, run } = useAction();
  const setRole = (vc: string, role: string) => {
    const { [vc]: _, ...others } = roles;
    setRoles(role ? { ...others, [vc]: role as Role } : others);
  };
  const submit = (event: Event) => {
    event.preventDefault();
    run(async () => {
      const body = { admin, email: email || undefined, roles, password: password || undefined };
      if (user) {
        await send("PATCH", `/users/${encodeURIComponent(user.name)}`, { ...body, email });
        say(`${user.name} was changed.`);
        onClose();
      } else {
        setMade(await send("POST", "/users", { name: name.trim(), ...body }));
      }
    });
  };
  if (made) {
    return (
      <Dialog title={`${name} can sign in`} onClose={onClose}>
        <Secret text={[made.password && `password: ${made.password}`, made.token && `token: ${made.token}`].filter(Boolean).join("\n")} onClose={onClose} />
      </Dialog>
    );
  }
  const names = [...new Set([...vcs.map((vc) => vc.name), ...Object.keys(roles)])];
  return (
    <Dialog title={user ? `Edit ${user.name}` : "New user"} onClose={onClose}>
      <form onSubmit={submit}>
        {!user && <TextField label="Name" value={name} onValue={setName} required autofocus autocomplete="off" />}
        <TextField label="Mail" type="email" value={email} onValue={setEmail} autocomplete="off" />
        <TextField
          label={user ? "New password" : "Password"}
          type="password"
          hint={user ? "Empty: it stays as it is." : "Empty: one is made up and shown once."}
          value={password}
          onValue={setPassword}
          autocomplete="new-password"
        />
        <Check label="Administrator of everything" value={admin} onValue={setAdmin} />
        {names.length > 0 && (
          <fieldset class="two">
            <legend>In virtual clusters</legend>
            {names.map((vc) => (
              <Choice key={vc} label={vc} value={roles[vc] ?? ""} onValue={(role) => setRole(vc, role)} of={ROLES} />
            ))}
          </fieldset>
        )}
        <FormEnd submit={user ? "Save" : "Make the user"} onCancel={onClose} busy={busy} error={error} />
      </form>
    </Dialog>
  );
}
