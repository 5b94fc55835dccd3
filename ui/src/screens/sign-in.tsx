import { useEffect, useState } from "preact/hooks";
import { get } from "../api";
import { Mark } from "../app";
import { Button, ErrorNote } from "../parts/basics";
import { useAction } from "../parts/dialog";
import { TextField } from "../parts/field";
import { signIn } from "../session";
import type { Info } from "../types";

export function SignIn() {
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [info, setInfo] = useState<Info>();
  const { busy, error, run } = useAction();
  useEffect(() => {
    // Without it there is still the password.
    get<Info>("/info").then(setInfo, () => undefined);
  }, []);
  const submit = (event: Event) => {
    event.preventDefault();
    run(() => signIn(name.trim(), password));
  };
  const byPassword = !info || info.sign_in.includes("password");
  return (
    <main class="alone sign-in">
      <form class="panel" onSubmit={submit}>
        <div class="brand big">
          <Mark /> <h1>{info && info.name !== "dovetail" ? info.name : "Dovetail"}</h1>
        </div>
        {info?.oidc_url && (
          <a class="button main" href={info.oidc_url}>
            Sign in with your organisation
          </a>
        )}
        {byPassword && (
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
