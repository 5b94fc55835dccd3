// How the page itself behaves: keys, the form and the file, long lists, long logs, a server without some answers.

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, signIn, test } from "./cluster";

test("the committed page is what the sources build", () => {
  const made = mkdtempSync(join(tmpdir(), "dovetail-build-"));
  execFileSync("npx", ["vite", "build", "--logLevel", "error", "--outDir", made, "--emptyOutDir"], { stdio: "pipe" });
  const committed = "../crates/web/page";
  expect(readdirSync(made).sort()).toEqual(readdirSync(committed).sort());
  for (const name of readdirSync(made)) {
    const same = readFileSync(join(made, name)).equals(readFileSync(join(committed, name)));
    expect(same, `${name} differs; run make ui and commit crates/web/page`).toBe(true);
  }
});

test("the page is served with headers that keep others out", async ({ cluster }) => {
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

test("keys lead everywhere", async ({ page }) => {
  await signIn(page);
  await page.locator("h1").click();
  await page.keyboard.press("/");
  await expect(page.getByLabel("Find jobs")).toBeFocused();
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
  await expect(page.getByRole("dialog", { name: "Keys" })).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("dialog")).toBeHidden();
});

test("the theme that is chosen is kept", async ({ page }) => {
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
  await page.getByText("More", { exact: true }).click();
  await page.getByLabel("Variables").fill("SEED=7\nNAME=a=b");
  await page.getByRole("link", { name: "File" }).click();
  const text = await page.getByLabel("YAML").inputValue();
  // What the form does not know, and what was noted, stays.
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

test("mistakes in a job are said before it is sent", async ({ page }) => {
  await signIn(page);
  await page.goto("/submit?tab=text");
  await page.getByLabel("YAML").fill("command: true\ngpu: 2\n");
  await expect(page.getByRole("alert")).toContainText("gpus");
});

const OPENPAI = `protocolVersion: 2
name: from-openpai
type: job
jobRetryCount: 0
contributor: somebody
prerequisites:
  - {type: dockerimage, name: image, uri: "example/image:1"}
taskRoles:
  worker:
    instances: 1
    dockerImage: image
    resourcePerInstance: {gpu: 1, cpu: 1, memoryMB: 512}
    commands: ["echo from openpai"]
`;

test("a file of OpenPAI is planned as it is, and what would be ignored is named", async ({ page, cluster }) => {
  const checked = await cluster.api.post("/api/v1/jobs/check", { data: OPENPAI, headers: { "content-type": "application/yaml" } });
  const said = await checked.json();
  expect([said.kind, said.errors]).toEqual(["openpai", []]);
  await signIn(page);
  await page.goto("/submit?tab=text");
  await page.getByLabel("YAML").fill(OPENPAI);
  for (const field of said.ignored) await expect(page.locator(".plan")).toContainText(field);
  await page.getByRole("link", { name: "Form" }).click();
  await expect(page.getByRole("heading", { name: "An OpenPAI file" })).toBeVisible();
});

test("a template is filled in and becomes the file", async ({ page, cluster }) => {
  const known = await cluster.api.get("/api/v1/templates");
  const all = known.ok() ? await known.json() : [];
  test.skip(all.length === 0, "the server has no templates");
  await signIn(page);
  await page.goto("/submit?tab=text");
  await page.getByText(/Begin with a template/).click();
  await page.locator(".template").first().click();
  await page.getByRole("button", { name: "Use it" }).click();
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
  await expect(page.getByRole("button", { name: /Show what is before/ })).toBeVisible();
  await page.getByRole("button", { name: /Show what is before/ }).click();
  await expect(page.locator(".log-end")).toContainText(/1[0-9],[0-9]{3} lines|[2-9][0-9],[0-9]{3} lines/);
  await page.getByRole("button", { name: "Start" }).click();
  await expect(log.locator(".log-line").first()).toHaveText("1");
  await page.getByRole("button", { name: /Show what is behind/ }).click();
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
  await page.getByLabel("Text").fill("worker 999");
  await expect(page.getByRole("heading", { name: "1 of 1,000 tasks" })).toBeVisible();
  await page.getByLabel("Text").fill("");
  await page.getByRole("region", { name: "Tasks" }).evaluate((box) => (box.scrollTop = box.scrollHeight));
  await expect(page.locator(".tasks .task-row").last()).toContainText("999");
});

test("a screen without its answer is still of use, and says what is wrong", async ({ page }) => {
  await signIn(page);
  await page.route("**/api/v1/vcs", (route) => route.fulfill({ status: 404, json: { detail: "there is nothing at this path" } }));
  await page.route("**/api/v1/usage*", (route) => route.fulfill({ status: 503, contentType: "application/problem+json", body: JSON.stringify({ detail: "the journal cannot be written" }) }));
  await page.goto("/vcs");
  await expect(page.getByText("There are no virtual clusters.")).toBeVisible();
  await page.goto("/usage");
  await expect(page.getByRole("alert")).toContainText("the journal cannot be written");
  await page.goto("/submit");
  await expect(page.getByRole("textbox", { name: "Virtual cluster" })).toBeVisible();
});

test("signing in with an organisation is offered, and what went wrong there is said", async ({ page }) => {
  const options = { password: true, oidc: { label: "Sign in with Example", url: "/api/v1/session/oidc" } };
  await page.route("**/api/v1/session/options", (route) => route.fulfill({ json: options }));
  await page.goto("/queue?sign_in=denied");
  await expect(page.getByRole("link", { name: "Sign in with Example" })).toHaveAttribute("href", "/api/v1/session/oidc?to=%2Fqueue");
  await expect(page.getByRole("alert")).toContainText("did not sign you in");
  await expect(page.getByLabel("Password")).toBeVisible();
  options.password = false;
  await page.goto("/?sign_in=no-such-word");
  await expect(page.getByRole("link", { name: "Sign in with Example" })).toBeVisible();
  await expect(page.getByLabel("Password")).toBeHidden();
  await expect(page.getByRole("alert")).toBeHidden();
});

test("how busy the GPUs of a job are is drawn where they tell", async ({ page, cluster }) => {
  const id = await cluster.submit({ name: "busy", command: "true", gpus: 2 });
  await cluster.until(id, "completed");
  const points = Array.from({ length: 40 }, (_, i) => ({ at: 1e15 + i * 30e6, busy: 50 + (i % 7) * 6, memory_mib: 20_000 }));
  let use: unknown = { known: false, note: "virtual GPUs do not tell", mean: [], gpus: [] };
  await page.route(`**/api/v1/jobs/${id}/gpus`, (route) => route.fulfill({ json: use }));
  await signIn(page);
  await page.goto(`/jobs/${id}`);
  await expect(page.getByText("Virtual GPUs do not tell.")).toBeVisible();
  use = { known: true, note: "", mean: points, gpus: [0, 1].map((gpu) => ({ node: "n1", gpu, points })) };
  await page.reload();
  await expect(page.getByRole("img", { name: "Busy GPUs over time, in percent" })).toBeVisible();
  await expect(page.getByRole("img", { name: "GPU memory over time, in GiB" })).toBeVisible();
  await expect(page.getByRole("img", { name: /n1 GPU 1: \d+ % busy/ })).toBeVisible();
});

test("one says when and how to be told, and tries it", async ({ page }) => {
  let kept: Record<string, unknown> = { email: false, webhook: "", on: [], pending_s: 0, low_gpu_percent: 0, secret: "s3cret" };
  await page.route("**/api/v1/me/notify", (route) => {
    if (route.request().method() === "PUT") kept = { ...kept, ...route.request().postDataJSON() };
    return route.fulfill({ json: kept });
  });
  await page.route("**/api/v1/me/notify/test", (route) => route.fulfill({ json: { webhook: { ok: false, detail: "it answered 500" }, email: null } }));
  await signIn(page);
  await page.goto("/me");
  await page.getByLabel("has failed").check();
  await page.getByLabel("hardly uses its GPUs").check();
  await page.getByLabel("Hardly, in percent").fill("20");
  await page.getByLabel("By webhook").fill("https://hooks.example.org/a");
  await page.getByRole("button", { name: "Save" }).click();
  await expect(page.getByText("You will be told.")).toBeVisible();
  expect(kept).toMatchObject({ on: ["failed", "low-gpu-use"], low_gpu_percent: 20, webhook: "https://hooks.example.org/a" });
  await page.getByRole("button", { name: "Try it" }).click();
  await expect(page.getByText("did not get through: it answered 500")).toBeVisible();
});

test("what a template is called and says stays text", async ({ page }) => {
  const evil = `<img src=x onerror="alert('t')"><script>alert(4)</script>`;
  const template = { name: "evil", title: evil, description: evil, text: "", parameters: [{ name: evil, type: "choice", choices: [evil], help: evil }] };
  await page.route("**/api/v1/templates", (route) => route.fulfill({ json: [template] }));
  await page.route("**/api/v1/templates/evil/render", (route) => route.fulfill({ json: { text: `name: ${JSON.stringify(evil)}\ncommand: "true"\n` } }));
  await signIn(page);
  await page.goto("/submit");
  await page.getByText(/Begin with a template/).click();
  await expect(page.locator(".template b")).toHaveText(evil);
  await page.locator(".template").click();
  await expect(page.getByRole("dialog").getByRole("heading")).toHaveText(evil);
  await page.getByRole("button", { name: "Use it" }).click();
  await expect(page.getByLabel("Name")).toHaveValue(evil);
  expect(await page.locator("main img, main script, dialog img, dialog script").count()).toBe(0);
});
