// The sign-in page.

import { useEffect, useState } from "preact/hooks";
import { get } from "../api";
import { Logo } from "../app";
import { Button, ErrorNote } from "../parts/basics";
import { useAction } from "../parts/dialog";
import { TextField } from "../parts/field";
import { signIn } from "../session";
import { params, path } from "../router";
import type { Info, SignInOptions } from "../types";

/** Messages for failed sign-ins with the organisation. */
const FAILURES: Record<string, string> = {
  denied: "Your organisation refused the sign-in.",
  expired: "The sign-in expired, or was started in another window. Try again.",
  untrusted: "The answer of your organisation's sign-in is not valid. Contact an administrator.",
  unavailable: "Your organisation's sign-in does not respond. Try again later.",
  forbidden: "You are not in a group that may use this cluster.",
  name: "Your user name there cannot be used here. Contact an administrator.",
};

export function SignIn() {
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [info, setInfo] = useState<Info>();
  const [options, setOptions] = useState<SignInOptions>({ password: true, oidc: null });
  const { busy, error, run } = useAction();
  useEffect(() => {
    // Without these answers, sign-in with a password still works.
    get<Info>("/info").then(setInfo, () => undefined);
    get<SignInOptions>("/session/options").then(setOptions, () => undefined);
  }, []);
  const submit = (event: Event) => {
    event.preventDefault();
    run(() => signIn(name.trim(), password));
  };
  const failed = FAILURES[params.value.get("sign_in") ?? ""];
  return (
    <main class="alone sign-in">
      <form class="panel" onSubmit={submit}>
        <div class="brand big">
          <Logo /> <h1>{info && info.name !== "dovetail" ? info.name : "Dovetail"}</h1>
        </div>
        {failed && <ErrorNote>{failed}</ErrorNote>}
        {options.oidc && (
          <a class={`button ${options.password ? "" : "main"}`} href={`${options.oidc.url}?to=${encodeURIComponent(path.value)}`}>
            {options.oidc.label}
          </a>
        )}
        {options.oidc && options.password && <p class="or muted small">or</p>}
        {options.password && (
          <>
            <TextField label="Name" value={name} onValue={setName} autocomplete="username" required autofocus />
            <TextField label="Password" type="password" value={password} onValue={setPassword} autocomplete="current-password" required />
            {error && <ErrorNote>{error}</ErrorNote>}
            <Button kind="main" type="submit" disabled={busy}>
              Sign in
            </Button>
            <p class="muted small">
              No account? Ask an administrator. The server prints the password of the first administrator at its first start.
            </p>
          </>
        )}
      </form>
      {info && <p class="muted small">Dovetail {info.version}</p>}
    </main>
  );
}
