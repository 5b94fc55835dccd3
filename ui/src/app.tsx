// The layout of the page: header, navigation, and the screen of the current path.

import { useEffect, useState } from "preact/hooks";
import type { ComponentChild } from "preact";
import { me } from "./api";
import { KeyHelp, startKeys } from "./keys";
import { connected } from "./live";
import { ConfirmDialogHost } from "./parts/dialog";
import { Button, Empty, ErrorNote, Loading } from "./parts/basics";
import { Toasts, showError } from "./parts/toast";
import { navigate, path } from "./router";
import { Admin } from "./screens/admin";
import { ClusterMap } from "./screens/cluster";
import { Home } from "./screens/home";
import { JobScreen } from "./screens/job";
import { Jobs } from "./screens/jobs";
import { Profile } from "./screens/profile";
import { Queue } from "./screens/queue";
import { SignIn } from "./screens/sign-in";
import { Submit } from "./screens/submit";
import { Usage } from "./screens/usage";
import { VirtualClusters } from "./screens/vcs";
import { loadUser, signOut } from "./session";
import { type Theme, theme } from "./theme";

const NAVIGATION: [href: string, text: string, icon: string, adminOnly?: boolean][] = [
  ["/", "Home", "M2 7.5 8 3l6 4.5V13.5H10V10H6v3.5H2z"],
  ["/jobs", "Jobs", "M2.5 4h.01M5.5 4h8M2.5 8h.01M5.5 8h8M2.5 12h.01M5.5 12h8"],
  ["/submit", "Submit", "M8 3v10M3 8h10"],
  ["/queue", "Queue", "M3 4h10M3 8h7M3 12h4"],
  ["/cluster", "Cluster", "M2.5 2.5h4.5v4.5H2.5zM9 2.5h4.5v4.5H9zM2.5 9h4.5v4.5H2.5zM9 9h4.5v4.5H9z"],
  ["/vcs", "Virtual clusters", "m8 2 6 3-6 3-6-3zM2 8l6 3 6-3M2 11l6 3 6-3"],
  ["/usage", "Usage", "M3 13V8M8 13V3M13 13V6"],
  ["/admin", "Administration", "M2 5h7M12.5 5H14M2 11h1.5M7 11h7M9 3v4h3V3zM4 9v4h3V9z", true],
];

const TITLES: [start: string, title: string][] = [
  ["/jobs/", "Job"],
  ["/me", "My account"],
  ...NAVIGATION.slice(1).map(([href, text]) => [href, text] as [string, string]),
];

export function App() {
  const [error, setError] = useState<string>();
  useEffect(() => {
    startKeys();
    void loadUser().then(setError);
  }, []);
  const title = TITLES.find(([start]) => path.value.startsWith(start))?.[1];
  useEffect(() => {
    const id = /^\/jobs\/(\d+)/.exec(path.value)?.[1];
    document.title = title ? `${title}${id ? ` ${id}` : ""} · Dovetail` : "Dovetail";
  }, [path.value]);
  if (error) {
    return (
      <main class="alone">
        <ErrorNote retry={() => location.reload()}>{error}</ErrorNote>
      </main>
    );
  }
  if (me.value === undefined) return <Loading />;
  if (me.value === null) {
    return (
      <>
        <SignIn />
        <Toasts />
      </>
    );
  }
  return (
    <>
      <Layout />
      <Toasts />
      <ConfirmDialogHost />
      <KeyHelp />
    </>
  );
}

function screen(): ComponentChild {
  const at = path.value.replace(/\/+$/, "") || "/";
  const job = /^\/jobs\/(\d+)$/.exec(at);
  if (job) return <JobScreen key={job[1]} id={Number(job[1])} />;
  switch (at) {
    case "/":
      return <Home />;
    case "/jobs":
      return <Jobs />;
    case "/submit":
      return <Submit />;
    case "/queue":
      return <Queue />;
    case "/cluster":
      return <ClusterMap />;
    case "/vcs":
      return <VirtualClusters />;
    case "/usage":
      return <Usage />;
    case "/admin":
      return <Admin />;
    case "/me":
      return <Profile />;
    default:
      return (
        <Empty title="Page not found" whole>
          <p>
            Go to the <a href="/">home page</a> or the <a href="/jobs">list of jobs</a>.
          </p>
        </Empty>
      );
  }
}

function Layout() {
  const [open, setOpen] = useState(false);
  useEffect(() => setOpen(false), [path.value]);
  const user = me.value;
  const isCurrent = (href: string) => (href === "/" ? path.value === "/" : path.value.startsWith(href));
  return (
    <div class={`frame ${open ? "menu-open" : ""}`}>
      <a class="skip" href="#main" onClick={() => document.getElementById("main")?.focus()}>
        Skip to content
      </a>
      <header class="top">
        <button type="button" class="button quiet menu-button" aria-label="Menu" aria-expanded={open} onClick={() => setOpen(!open)}>
          ☰
        </button>
        <a class="brand" href="/" aria-label="Dovetail, home">
          <Logo /> <span>Dovetail</span>
        </a>
        <Search />
        <span class={`live ${connected.value ? "on" : "off"}`} title={connected.value ? "Connected: this page updates itself." : "Disconnected. Trying to reconnect…"}>
          {connected.value ? "live" : "offline"}
        </span>
      </header>
      <nav class="side" aria-label="Main">
        <ul>
          {NAVIGATION.filter(([, , , adminOnly]) => !adminOnly || user?.admin).map(([href, text, icon]) => (
            <li key={href}>
              <a href={href} aria-current={isCurrent(href) ? "page" : undefined}>
                <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
                  <path d={icon} />
                </svg>
                {text}
              </a>
            </li>
          ))}
        </ul>
        <div class="side-end">
          <a href="/me" aria-current={isCurrent("/me") ? "page" : undefined}>
            {user?.name}
            <span class="muted"> · account</span>
          </a>
          <label class="theme">
            <span>Theme</span>
            <select value={theme.value} onChange={(e) => (theme.value = e.currentTarget.value as Theme)}>
              <option value="system">system</option>
              <option value="light">light</option>
              <option value="dark">dark</option>
            </select>
          </label>
          {user?.via !== "token" && (
            <Button kind="quiet" onClick={() => void signOut().catch(showError)}>
              Sign out
            </Button>
          )}
        </div>
      </nav>
      <main id="main" tabIndex={-1}>
        {user?.must_change_password && path.value !== "/me" && (
          <div class="note warn">
            <span>
              Your password was set by an administrator. <a href="/me">Change your password</a>.
            </span>
          </div>
        )}
        {screen()}
      </main>
    </div>
  );
}

/** A number opens that job; any other text is searched for in the list of jobs. */
function Search() {
  const go = (event: Event) => {
    event.preventDefault();
    const input = (event.currentTarget as HTMLFormElement).elements.namedItem("q") as HTMLInputElement;
    const text = input.value.trim();
    if (!text) return;
    navigate(/^#?\d+$/.test(text) ? `/jobs/${text.replace("#", "")}` : `/jobs?q=${encodeURIComponent(text)}`);
    input.value = "";
    input.blur();
  };
  return (
    <form class="search" role="search" onSubmit={go}>
      <input id="search" name="q" type="search" placeholder="Search jobs" aria-label="Search jobs" autocomplete="off" />
      <kbd aria-hidden="true">/</kbd>
    </form>
  );
}

export function Logo() {
  return (
    <svg class="mark" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="7" />
      <path d="M6 7h20v7l-4-2.5v9L26 18v7H6v-7l4 2.500v-9L6 14z" />
    </svg>
  );
}
