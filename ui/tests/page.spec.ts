// Behaviour of the page: keyboard, form and file, long lists and logs, missing answers of the server.

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, signIn, test } from "./cluster";

test("the committed page is up to date", () => {
  const built = mkdtempSync(join(tmpdir(), "dovetail-build-"));
  execFileSync("npx", ["vite", "build", "--logLevel", "error", "--outDir", built, "--emptyOutDir"], { stdio: "pipe" });
  const committed = "../crates/web/page";
  expect(readdirSync(built).sort()).toEqual(readdirSync(committed).sort());
  for (const name of readdirSync(built)) {
    const same = readFileSync(join(built, name)).equals(readFileSync(join(committed, name)));
    expect(same, `${name} differs; run make ui and commit crates/web/page`).toBe(true);
  }
});

test("the page is served with security headers", async ({ cluster }) => {
  const page = await cluster.api.get("/jobs/17");
  expect(page.status()).toBe(200);
  const headers = page.headers();
  expect(headers["content-security-policy"]).toContain("default-src 'self'");
  expect(headers["content-security-policy"]).toContain("frame-ancestors 'none'");
  expect(headers["x-content-type-options"]).toBe("nosniff");
  expect(headers["referrer-policy"]).toBe("no-referrer");
  const again = await cluster.api.get("/app.js", { headers: { "if-none-match": (await cluster.api.get("/app.js")).headers().etag! } });
  expect(again.status()).toBe(304);
  const nothing = await cluster.api.get("/api/v1/nothing");
  expect(nothing.status()).toBe(404);
  expect(nothing.headers()["content-type"]).toContain("application/problem+json");
});

test("keyboard shortcuts open all screens", async ({ page }) => {
  await signIn(page);
  await page.locator("h1").click();
  await page.keyboard.press("/");
  await expect(page.getByLabel("Search jobs")).toBeFocused();
  await page.keyboard.press("Escape");
  for (const [key, heading] of [
    ["j", "Jobs"],
    ["n", "Cluster"],
    ["q", "Queue"],
    ["v", "Virtual clusters"],
    ["u", "Usage"],
    ["s", "Submit a job"],
  ] as const) {
    await page.keyboard.press("g");
    await page.keyboard.press(key);
    await expect(page.getByRole("heading", { level: 1, name: heading })).toBeVisible();
  }
  await page.keyboard.press("?");
  await expect(page.getByRole("dialog", { name: "Keyboard shortcuts" })).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("dialog")).toBeHidden();
});

test("the chosen theme is kept", async ({ page }) => {
  await signIn(page);
  await page.getByLabel("Theme").selectOption("dark");
  await page.reload();
  await expect(page.locator("html")).toHaveAttribute("data-theme", "dark");
  const dark = await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  await page.getByLabel("Theme").selectOption("light");
  const light = await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  expect(dark).not.toBe(light);
});

test("the form and the file are the same job", async ({ page }) => {
  await signIn(page);
  await page.goto("/submit?tab=text");
  await page.getByLabel("YAML").fill("# mine\nname: both-ways\ncommand: sleep 1 # short\ngpus: 2\nretries: {user: 2}\n");
  await page.getByRole("link", { name: "Form" }).click();
  await expect(page.getByLabel("Name")).toHaveValue("both-ways");
  await expect(page.getByLabel("GPUs", { exact: true })).toHaveValue("2");
  await page.getByLabel("GPUs", { exact: true }).fill("3");
  await page.getByLabel("Time limit").fill("2h");
  await page.getByText("More options", { exact: true }).click();
  await page.getByLabel("Environment variables").fill("SEED=7\nNAME=a=b");
  await page.getByRole("link", { name: "File" }).click();
  const text = await page.getByLabel("YAML").inputValue();
  // Keys that the form does not know, and comments, stay.
  expect(text).toContain("# mine");
  expect(text).toContain("# short");
  expect(text).toContain("retries: {user: 2}".replace("{", "{ ").replace("}", " }"));
  expect(text).toContain("gpus: 3");
  expect(text).toContain("time_limit: 2h");
  expect(text).toContain("NAME: a=b");
  await page.getByLabel("YAML").fill("gpus: [");
  await page.getByRole("link", { name: "Form" }).click();
  await expect(page.getByRole("alert").first()).toContainText("cannot be read");
});

test("errors in a job file are shown before it is submitted", async ({ page }) => {
  await signIn(page);
  await page.goto("/submit?tab=text");
  await page.getByLabel("YAML").fill("command: true\ngpu: 2\n");
  await expect(page.getByRole("alert")).toContainText("gpus");
});

const OPENPAI = `protocolVersion: 2
name: from-openpai
type: job
jobRetryCount: 0
contributor: ann
prerequisites:
  - {type: dockerimage, name: image, uri: "example/image:1"}
taskRoles:
  worker:
    instances: 1
    dockerImage: image
    resourcePerInstance: {gpu: 1, cpu: 1, memoryMB: 512}
    commands: ["echo from openpai"]
`;

test("an OpenPAI file is previewed, with the fields that will be ignored", async ({ page, cluster }) => {
  const checked = await cluster.api.post("/api/v1/jobs/check", { data: OPENPAI, headers: { "content-type": "application/yaml" } });
  const check = await checked.json();
  expect([check.kind, check.errors]).toEqual(["openpai", []]);
  await signIn(page);
  await page.goto("/submit?tab=text");
  await page.getByLabel("YAML").fill(OPENPAI);
  for (const field of check.ignored) await expect(page.locator(".plan")).toContainText(field);
  await page.getByRole("link", { name: "Form" }).click();
  await expect(page.getByRole("heading", { name: "OpenPAI job file" })).toBeVisible();
});

test("a template becomes the job file", async ({ page, cluster }) => {
  const answer = await cluster.api.get("/api/v1/templates");
  const all = answer.ok() ? await answer.json() : [];
  test.skip(all.length === 0, "the server has no templates");
  await signIn(page);
  await page.goto("/submit?tab=text");
  await page.getByText(/Start from a template/).click();
  await page.locator(".template").first().click();
  await page.getByRole("button", { name: "Use template" }).click();
  await expect(page.getByRole("dialog")).toBeHidden();
  await expect(page.getByLabel("YAML")).toHaveValue(/command/);
});

test("a long log opens at its end, and its start can be read", async ({ page, cluster }) => {
  const id = await cluster.submit({ name: "chatty", command: "seq 1 2000000; echo the-very-end", gpus: 1 });
  await cluster.until(id, "completed");
  await signIn(page);
  await page.goto(`/jobs/${id}?tab=logs`);
  const log = page.getByRole("region", { name: "Log" });
  await expect(log).toContainText("the-very-end");
  await expect(page.getByRole("button", { name: /Load earlier lines/ })).toBeVisible();
  await page.getByRole("button", { name: /Load earlier lines/ }).click();
  await expect(page.locator(".log-end")).toContainText(/1[0-9],[0-9]{3} lines|[2-9][0-9],[0-9]{3} lines/);
  await page.getByRole("button", { name: "Start" }).click();
  await expect(log.locator(".log-line").first()).toHaveText("1");
  await page.getByRole("button", { name: /Load later lines/ }).click();
  await expect(page.locator(".log-end")).toContainText(/2[0-9],[0-9]{3} lines/);
  await page.getByRole("button", { name: "End" }).click();
  await expect(log).toContainText("the-very-end");
});

test("a thousand tasks are a few dozen rows", async ({ page, cluster }) => {
  const id = await cluster.submit({ name: "wide", command: "true", gpus: 1 });
  await cluster.until(id, "completed");
  await page.route(`**/api/v1/jobs/${id}`, async (route) => {
    const answer = await route.fetch();
    const job = await answer.json();
    const instances = Array.from({ length: 1000 }, (_, index) => ({ index, node: `n${index % 125}`, gpus: [index % 8], state: "running", exit_code: null }));
    await route.fulfill({ json: { ...job, roles: [{ name: "worker", instances }] } });
  });
  await signIn(page);
  await page.goto(`/jobs/${id}?tab=tasks`);
  await expect(page.getByRole("heading", { name: "1,000 tasks" })).toBeVisible();
  expect(await page.locator(".tasks .task-row").count()).toBeLessThan(80);
  await page.getByLabel("Search", { exact: true }).fill("worker 999");
  await expect(page.getByRole("heading", { name: "1 of 1,000 tasks" })).toBeVisible();
  await page.getByLabel("Search", { exact: true }).fill("");
  await page.getByRole("region", { name: "Tasks" }).evaluate((box) => (box.scrollTop = box.scrollHeight));
  await expect(page.locator(".tasks .task-row").last()).toContainText("999");
});

test("a screen works without some answers, and shows errors", async ({ page }) => {
  await signIn(page);
  await page.route("**/api/v1/vcs", (route) => route.fulfill({ status: 404, json: { detail: "unknown path" } }));
  await page.route("**/api/v1/usage*", (route) => route.fulfill({ status: 503, contentType: "application/problem+json", body: JSON.stringify({ detail: "the journal cannot be written" }) }));
  await page.goto("/vcs");
  await expect(page.getByText("No virtual clusters")).toBeVisible();
  await page.goto("/usage");
  await expect(page.getByRole("alert")).toContainText("the journal cannot be written");
  await page.goto("/submit");
  await expect(page.getByRole("textbox", { name: "Virtual cluster" })).toBeVisible();
});

test("sign-in with an organisation is offered, and its errors are shown", async ({ page }) => {
  const options = { password: true, oidc: { label: "Sign in with Example", url: "/api/v1/session/oidc" } };
  await page.route("**/api/v1/session/options", (route) => route.fulfill({ json: options }));
  await page.goto("/queue?sign_in=denied");
  await expect(page.getByRole("link", { name: "Sign in with Example" })).toHaveAttribute("href", "/api/v1/session/oidc?to=%2Fqueue");
  await expect(page.getByRole("alert")).toContainText("refused the sign-in");
  await expect(page.getByLabel("Password")).toBeVisible();
  options.password = false;
  await page.goto("/?sign_in=unknown");
  await expect(page.getByRole("link", { name: "Sign in with Example" })).toBeVisible();
  await expect(page.getByLabel("Password")).toBeHidden();
  await expect(page.getByRole("alert")).toBeHidden();
});

test("GPU utilization is drawn where it is reported", async ({ page, cluster }) => {
  const id = await cluster.submit({ name: "busy", command: "true", gpus: 2 });
  await cluster.until(id, "completed");
  const points = Array.from({ length: 40 }, (_, i) => ({ at: 1e15 + i * 30e6, busy: 50 + (i % 7) * 6, memory_mib: 20_000 }));
  let utilization: unknown = { known: false, note: "no GPU utilization data", mean: [], gpus: [] };
  await page.route(`**/api/v1/jobs/${id}/gpus`, (route) => route.fulfill({ json: utilization }));
  await signIn(page);
  await page.goto(`/jobs/${id}`);
  await expect(page.getByText("No GPU utilization data.")).toBeVisible();
  utilization = { known: true, note: "", mean: points, gpus: [0, 1].map((gpu) => ({ node: "n1", gpu, points })) };
  await page.reload();
  await expect(page.getByRole("img", { name: "GPU utilization over time, in percent" })).toBeVisible();
  await expect(page.getByRole("img", { name: "GPU memory over time, in GiB" })).toBeVisible();
  await expect(page.getByRole("img", { name: /n1 GPU 1: \d+ % utilization/ })).toBeVisible();
});

test("notifications are configured and tested", async ({ page }) => {
  let saved: Record<string, unknown> = { email: false, webhook: "", on: [], pending_s: 0, low_gpu_percent: 0, secret: "s3cret" };
  await page.route("**/api/v1/me/notify", (route) => {
    if (route.request().method() === "PUT") saved = { ...saved, ...route.request().postDataJSON() };
    return route.fulfill({ json: saved });
  });
  await page.route("**/api/v1/me/notify/test", (route) => route.fulfill({ json: { webhook: { ok: false, detail: "it answered 500" }, email: null } }));
  await signIn(page);
  await page.goto("/me");
  await page.getByLabel("fails", { exact: true }).check();
  await page.getByLabel("has low GPU utilization").check();
  await page.getByLabel("GPU utilization below, in percent").fill("20");
  await page.getByLabel("Webhook").fill("https://hooks.example.org/a");
  await page.getByRole("button", { name: "Save" }).click();
  await expect(page.getByText("Notifications saved.")).toBeVisible();
  expect(saved).toMatchObject({ on: ["failed", "low-gpu-use"], low_gpu_percent: 20, webhook: "https://hooks.example.org/a" });
  await page.getByRole("button", { name: "Send a test" }).click();
  await expect(page.getByText("Webhook failed: it answered 500")).toBeVisible();
});

test("names and descriptions of templates are shown as text", async ({ page }) => {
  const evil = `<img src=x onerror="alert('t')"><script>alert(4)</script>`;
  const template = { name: "evil", title: evil, description: evil, text: "", parameters: [{ name: evil, type: "choice", choices: [evil], help: evil }] };
  await page.route("**/api/v1/templates", (route) => route.fulfill({ json: [template] }));
  await page.route("**/api/v1/templates/evil/render", (route) => route.fulfill({ json: { text: `name: ${JSON.stringify(evil)}\ncommand: "true"\n` } }));
  await signIn(page);
  await page.goto("/submit");
  await page.getByText(/Start from a template/).click();
  await expect(page.locator(".template b")).toHaveText(evil);
  await page.locator(".template").click();
  await expect(page.getByRole("dialog").getByRole("heading")).toHaveText(evil);
  await page.getByRole("button", { name: "Use template" }).click();
  await expect(page.getByLabel("Name")).toHaveValue(evil);
  expect(await page.locator("main img, main script, dialog img, dialog script").count()).toBe(0);
});
