// Users, their roles and passwords.

import { useState } from "preact/hooks";
import { me, send } from "../api";
import { useData } from "../live";
import { Button, ErrorNote, Loading, Panel, Tag } from "../parts/basics";
import { Dialog, FormButtons, confirm, useAction } from "../parts/dialog";
import { Check, Choice, TextField } from "../parts/field";
import { Table } from "../parts/table";
import { showToast } from "../parts/toast";
import type { Role, UserRow, VcList } from "../types";
import { Secret } from "./tokens";

const ROLES: [string, string][] = [
  ["", "default access"],
  ["viewer", "viewer – sees jobs"],
  ["member", "member – runs jobs"],
  ["operator", "operator – stops all jobs"],
  ["administrator", "administrator – changes the virtual cluster"],
];

export function Users() {
  const { data, error, reload } = useData<UserRow[]>("/users");
  const [editing, setEditing] = useState<UserRow | "new">();
  const remove = (user: UserRow) =>
    confirm({
      title: `Remove ${user.name}?`,
      text: "The account and its tokens are removed immediately. Its jobs continue to run.",
      yes: "Remove user",
      act: async () => {
        await send("DELETE", `/users/${encodeURIComponent(user.name)}`);
        showToast(`User ${user.name} removed.`);
        reload();
      },
    });
  return (
    <Panel
      title="Users"
      side={
        <Button kind="main" onClick={() => setEditing("new")}>
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
              title: "Roles",
              cell: (u) => (
                <span class="tags">
                  {u.admin && <Tag tone="accent">administrator</Tag>}
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
                  <Button aria-label={`Edit ${u.name}`} onClick={() => setEditing(u)}>
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
      {editing && <UserDialog user={editing === "new" ? null : editing} onClose={() => (setEditing(undefined), reload())} />}
    </Panel>
  );
}

function UserDialog({ user, onClose }: { user: UserRow | null; onClose: () => void }) {
  const vcs = useData<VcList>("/vcs").data?.vcs ?? [];
  const [name, setName] = useState(user?.name ?? "");
  const [email, setEmail] = useState(user?.email ?? "");
  const [admin, setAdmin] = useState(user?.admin ?? false);
  const [password, setPassword] = useState("");
  const [roles, setRoles] = useState<Record<string, Role>>(user?.roles ?? {});
  const [secrets, setSecrets] = useState<{ token?: string; password?: string }>();
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
        showToast(`User ${user.name} changed.`);
        onClose();
      } else {
        setSecrets(await send("POST", "/users", { name: name.trim(), ...body }));
      }
    });
  };
  if (secrets) {
    return (
      <Dialog title={`User ${name} created`} onClose={onClose}>
        <Secret text={[secrets.password && `password: ${secrets.password}`, secrets.token && `token: ${secrets.token}`].filter(Boolean).join("\n")} onClose={onClose} />
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
          hint={user ? "Empty to keep the current one." : "Empty to generate one, which is shown once."}
          value={password}
          onValue={setPassword}
          autocomplete="new-password"
        />
        <Check label="Administrator" value={admin} onValue={setAdmin} />
        {names.length > 0 && (
          <fieldset class="two">
            <legend>Roles in virtual clusters</legend>
            {names.map((vc) => (
              <Choice key={vc} label={vc} value={roles[vc] ?? ""} onValue={(role) => setRole(vc, role)} of={ROLES} />
            ))}
          </fieldset>
        )}
        <FormButtons submit={user ? "Save" : "Create user"} onCancel={onClose} busy={busy} error={error} />
      </form>
    </Dialog>
  );
}
