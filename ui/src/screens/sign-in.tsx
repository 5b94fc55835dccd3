import { useEffect, useState } from "preact/hooks";
import { get } from "../api";
import { Mark } from "../app";
import { Button, ErrorNote } from "../parts/basics";
import { useAction } from "../parts/dialog";
import { TextField } from "../parts/field";
import { signIn } from "../session";
import { params, path } from "../router";
import type { Info, SignInOptions } from "../types";

/** Why signing in elsewhere came to nothing. */
const FAILED: Record<string, string> = {
  denied: "Your organisation did not sign you in.",
  expired: "That took too long, or began in another window. Try again.",
  untrusted: "What your organisation's sign-in said cannot be trusted. Tell an administrator.",
  unavailable: "Your organisation's sign-in does not answer. Try again later.",
  forbidden: "You are in no group that may use this cluster.",
  name: "Your name there cannot be used here. Tell an administrator.",
};

export function SignIn() {
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [info, setInfo] = useState<Info>();
  const [options, setOptions] = useState<SignInOptions>({ password: true, oidc: null });
  const { busy, error, run } = useAction();
  useEffect(() => {
    // Without these there is still the password.
    get<Info>("/info").then(setInfo, () => undefined);
    get<SignInOptions>("/session/options").then(setOptions, () => undefined);
  }, []);
  const submit = (event: Event) => {
    event.preventDefault();
    run(() => signIn(name.trim(), password));
  };
  const failed = FAILED[params.value.get("sign_in") ?? ""];
  return (
    <main class="alone sign-in">
      <form class="panel" onSubmit={submit}>
        <div class="brand big">
          <Mark /> <h1>{info && info.name !== "dovetail" ? info.name : "Dovetail"}</h1>
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
              No account? Ask an administrator. The first one's password is printed where the server was started for the first time.
            </p>
          </>
        )}
      </form>
      {info && <p class="muted small">Dovetail {info.version}</p>}
    </main>
  );
}
