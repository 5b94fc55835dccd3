// My account: password, tokens for scripts, and what I want to be told.

import { useEffect, useState } from "preact/hooks";
import { me, send } from "../api";
import { Button, ErrorNote, Head, Loading, Panel, Tag } from "../parts/basics";
import { useAction } from "../parts/dialog";
import { Check, NumberField, TextField } from "../parts/field";
import { say } from "../parts/toast";
import { useData } from "../live";
import { signIn } from "../session";
import type { Notify, NotifyTried } from "../types";
import { Tokens } from "./tokens";

export function Profile() {
  const user = me.value!;
  const roles = Object.entries(user.roles ?? {});
  return (
    <>
      <Head title={user.name} lead={[user.email, user.admin ? "administrator" : ""].filter(Boolean).join(" · ") || undefined} />
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
      // A new password signs out every browser, this one too.
      await signIn(me.value!.name, next);
      setOld("");
      setNext("");
      setAgain("");
      say("You have a new password.");
    });
  };
  return (
    <Panel title="Password">
      <form onSubmit={submit}>
        <TextField label="Current password" type="password" autocomplete="current-password" value={old} onValue={setOld} required />
        <div class="two">
          <TextField label="New password" type="password" autocomplete="new-password" value={next} onValue={setNext} required />
          <TextField label="New password again" type="password" autocomplete="new-password" value={again} onValue={setAgain} required hint={differs ? "They differ." : undefined} />
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

const KINDS: [string, string][] = [
  ["running", "runs"],
  ["completed", "has completed"],
  ["failed", "has failed"],
  ["preempted", "was stopped for another"],
  ["pending-too-long", "waits for too long"],
  ["low-gpu-use", "hardly uses its GPUs"],
];

function Notifications() {
  const { data, missing, error } = useData<Notify>("/me/notify");
  if (missing) return null;
  return <Panel title="Tell me when a job of mine …">{error ? <ErrorNote>{error}</ErrorNote> : data ? <NotifyForm first={data} /> : <Loading />}</Panel>;
}

function NotifyForm({ first }: { first: Notify }) {
  const [set, change] = useState(first);
  const { busy, error, run } = useAction();
  useEffect(() => change(first), [first]);
  const save = async (of: Notify) => {
    change(await send<Notify>("PUT", "/me/notify", of));
    say("You will be told.");
  };
  const submit = (event: Event) => {
    event.preventDefault();
    run(() => save(set));
  };
  const attempt = () =>
    run(async () => {
      const tried = await send<NotifyTried>("POST", "/me/notify/test", {});
      for (const [way, got] of [["The webhook", tried.webhook], ["The mail", tried.email]] as const) {
        if (got) say(`${way} ${got.ok ? "got through" : "did not get through"}${got.detail ? `: ${got.detail}` : "."}`, !got.ok);
      }
      if (!tried.webhook && !tried.email) say("Choose mail or a webhook first, and save.", true);
    });
  const has = (kind: string) => set.on.includes(kind);
  return (
    <form onSubmit={submit}>
      <div class="two">
        {KINDS.map(([kind, text]) => (
          <Check key={kind} label={text} value={has(kind)} onValue={(on) => change({ ...set, on: on ? [...set.on, kind] : set.on.filter((k) => k !== kind) })} />
        ))}
      </div>
      <div class="two">
        {has("pending-too-long") && (
          <NumberField
            label="Too long, in minutes"
            hint="Empty: as the server has it."
            min={1}
            value={set.pending_s ? set.pending_s / 60 : null}
            onValue={(n) => change({ ...set, pending_s: (n ?? 0) * 60 })}
          />
        )}
        {has("low-gpu-use") && set.low_gpu_percent !== undefined && (
          <NumberField
            label="Hardly, in percent"
            hint="Empty: as the server has it."
            min={1}
            max={100}
            value={set.low_gpu_percent || null}
            onValue={(n) => change({ ...set, low_gpu_percent: n ?? 0 })}
          />
        )}
      </div>
      <h3>How</h3>
      <div class="two">
        <Check label="By mail" hint={me.value?.email ? `To ${me.value.email}.` : "An administrator has to enter your address first."} value={set.email} onValue={(email) => change({ ...set, email })} />
        <TextField label="By webhook" type="url" hint="The address it is posted to." value={set.webhook} onValue={(webhook) => change({ ...set, webhook })} />
      </div>
      {set.secret && (
        <details>
          <summary>The webhook is signed</summary>
          <p class="muted">With this secret, so that whoever gets it knows that it comes from here.</p>
          <pre class="code secret">{set.secret}</pre>
          <Button disabled={busy} onClick={() => run(() => save({ ...set, secret: "" }))}>
            Draw a new secret
          </Button>
        </details>
      )}
      {error && <ErrorNote>{error}</ErrorNote>}
      <div class="joined">
        <Button type="submit" kind="main" disabled={busy}>
          Save
        </Button>
        {set.low_gpu_percent !== undefined && (
          <Button disabled={busy} onClick={attempt}>
            Try it
          </Button>
        )}
      </div>
    </form>
  );
}
