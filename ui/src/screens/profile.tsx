// My account: password, tokens and notifications.

import { useEffect, useState } from "preact/hooks";
import { me, send } from "../api";
import { Button, ErrorNote, PageHeader, Loading, Panel, Tag } from "../parts/basics";
import { useAction } from "../parts/dialog";
import { Check, NumberField, TextField } from "../parts/field";
import { showToast } from "../parts/toast";
import { useData } from "../live";
import { signIn } from "../session";
import type { Notify, NotifyTest } from "../types";
import { Tokens } from "./tokens";

export function Profile() {
  const user = me.value!;
  const roles = Object.entries(user.roles ?? {});
  return (
    <>
      <PageHeader title={user.name} lead={[user.email, user.admin ? "administrator" : ""].filter(Boolean).join(" · ") || undefined} />
      <div class="stack narrow">
        {roles.length > 0 && (
          <Panel title="My virtual clusters">
            <p class="legend">
              {roles.map(([vc, role]) => (
                <span key={vc}>
                  {vc} <Tag tone="accent">{role}</Tag>
                </span>
              ))}
            </p>
          </Panel>
        )}
        <Password />
        <Tokens />
        <Notifications />
      </div>
    </>
  );
}

function Password() {
  const [old, setOld] = useState("");
  const [next, setNext] = useState("");
  const [again, setAgain] = useState("");
  const { busy, error, run } = useAction();
  const differs = again !== "" && next !== again;
  const submit = (event: Event) => {
    event.preventDefault();
    if (next !== again) return;
    run(async () => {
      await send("PUT", "/me/password", { old, new: next });
      // A new password ends all sessions, including this one.
      await signIn(me.value!.name, next);
      setOld("");
      setNext("");
      setAgain("");
      showToast("Password changed.");
    });
  };
  return (
    <Panel title="Password">
      <form onSubmit={submit}>
        <TextField label="Current password" type="password" autocomplete="current-password" value={old} onValue={setOld} required />
        <div class="two">
          <TextField label="New password" type="password" autocomplete="new-password" value={next} onValue={setNext} required />
          <TextField label="Repeat new password" type="password" autocomplete="new-password" value={again} onValue={setAgain} required hint={differs ? "The passwords differ." : undefined} />
        </div>
        {error && <ErrorNote>{error}</ErrorNote>}
        <div>
          <Button type="submit" kind="main" disabled={busy || differs}>
            Change password
          </Button>
        </div>
      </form>
    </Panel>
  );
}

const EVENTS: [string, string][] = [
  ["running", "starts running"],
  ["completed", "completes"],
  ["failed", "fails"],
  ["preempted", "is preempted"],
  ["pending-too-long", "waits too long"],
  ["low-gpu-use", "has low GPU utilization"],
];

function Notifications() {
  const { data, missing, error } = useData<Notify>("/me/notify");
  if (missing) return null;
  return <Panel title="Notify me when a job …">{error ? <ErrorNote>{error}</ErrorNote> : data ? <NotifyForm first={data} /> : <Loading />}</Panel>;
}

function NotifyForm({ first }: { first: Notify }) {
  const [settings, setSettings] = useState(first);
  const { busy, error, run } = useAction();
  useEffect(() => setSettings(first), [first]);
  const save = async (of: Notify) => {
    setSettings(await send<Notify>("PUT", "/me/notify", of));
    showToast(of.on.length && (of.email || of.webhook) ? "Notifications saved." : "Notifications are off.");
  };
  const submit = (event: Event) => {
    event.preventDefault();
    run(() => save(settings));
  };
  const test = () =>
    run(async () => {
      const results = await send<NotifyTest>("POST", "/me/notify/test", {});
      for (const [channel, result] of [["Webhook", results.webhook], ["Mail", results.email]] as const) {
        if (result) showToast(`${channel} ${result.ok ? "delivered" : "failed"}${result.detail ? `: ${result.detail}` : "."}`, !result.ok);
      }
      if (!results.webhook && !results.email) showToast("Notifications are off: choose mail or a webhook, and save.", true);
    });
  const has = (kind: string) => settings.on.includes(kind);
  return (
    <form onSubmit={submit}>
      <div class="two">
        {EVENTS.map(([kind, text]) => (
          <Check key={kind} label={text} value={has(kind)} onValue={(on) => setSettings({ ...settings, on: on ? [...settings.on, kind] : settings.on.filter((k) => k !== kind) })} />
        ))}
      </div>
      <div class="two">
        {has("pending-too-long") && (
          <NumberField
            label="Waiting time, in minutes"
            hint="Empty for the default of the server."
            min={1}
            value={settings.pending_s ? settings.pending_s / 60 : null}
            onValue={(n) => setSettings({ ...settings, pending_s: (n ?? 0) * 60 })}
          />
        )}
        {has("low-gpu-use") && settings.low_gpu_percent !== undefined && (
          <NumberField
            label="GPU utilization below, in percent"
            hint="Empty for the default of the server."
            min={1}
            max={100}
            value={settings.low_gpu_percent || null}
            onValue={(n) => setSettings({ ...settings, low_gpu_percent: n ?? 0 })}
          />
        )}
      </div>
      <h3>Channels</h3>
      <div class="two">
        <Check label="Mail" hint={me.value?.email ? `To ${me.value.email}.` : "An administrator must add your mail address first."} value={settings.email} onValue={(email) => setSettings({ ...settings, email })} />
        <TextField label="Webhook" type="url" hint="URL that receives POST requests." value={settings.webhook} onValue={(webhook) => setSettings({ ...settings, webhook })} />
      </div>
      {settings.secret && (
        <details>
          <summary>Signature of webhook requests</summary>
          <p class="muted">Requests are signed with this secret, so that the receiver can verify them.</p>
          <pre class="code secret">{settings.secret}</pre>
          <Button disabled={busy} onClick={() => run(() => save({ ...settings, secret: "" }))}>
            Generate a new secret
          </Button>
        </details>
      )}
      {error && <ErrorNote>{error}</ErrorNote>}
      <div class="joined">
        <Button type="submit" kind="main" disabled={busy}>
          Save
        </Button>
        {settings.low_gpu_percent !== undefined && (
          <Button disabled={busy} onClick={test}>
            Send a test
          </Button>
        )}
      </div>
    </form>
  );
}
