// A scheduler with two nodes as real processes, for each test file; and a page that is signed in.

import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { type APIRequestContext, type Page, test as base, expect, request } from "@playwright/test";

export const BIN = resolve(process.env.DOVETAIL_BIN ?? "../target/debug/dovetail");
export const PASSWORD = "correct horse battery staple";

export class Cluster {
  constructor(
    readonly url: string,
    readonly api: APIRequestContext,
  ) {}

  /** Submits a job and returns its id. */
  async submit(job: Record<string, unknown>): Promise<number> {
    const answer = await this.api.post("/api/v1/jobs", { data: { job: { grace_s: 1, ...job, command: ["/bin/sh", "-c", job.command ?? "true"] } } });
    expect(answer.ok(), await answer.text()).toBe(true);
    return (await answer.json()).id;
  }

  async job(id: number): Promise<{ state: string; ended: number | null }> {
    return (await this.api.get(`/api/v1/jobs/${id}`)).json();
  }

  async until(id: number, ...states: string[]): Promise<void> {
    await expect.poll(async () => (await this.job(id)).state, { timeout: 30_000 }).toMatch(new RegExp(`^(${states.join("|")})$`));
  }

  async hasNodes(count: number): Promise<void> {
    await expect.poll(async () => (await (await this.api.get("/api/v1/nodes")).json()).length, { timeout: 30_000 }).toBe(count);
  }

  /** Stops all unfinished jobs. */
  async clear(): Promise<void> {
    const { jobs } = await (await this.api.get("/api/v1/jobs?state=unfinished&limit=1000")).json();
    for (const job of jobs) await this.api.post(`/api/v1/jobs/${job.id}/stop`);
    for (const job of jobs) await this.until(job.id, "cancelled", "completed", "failed");
  }
}

/** A child process, with its output. */
export class ServerProcess {
  output = "";
  private readonly ended: Promise<void>;

  constructor(private readonly child: ChildProcess) {
    const append = (text: unknown) => (this.output += String(text));
    child.stdout!.on("data", append);
    child.stderr!.on("data", append);
    this.ended = new Promise((done) => child.on("exit", () => done()));
  }

  static start(flags: string[], env: NodeJS.ProcessEnv = process.env): ServerProcess {
    if (!existsSync(BIN)) throw new Error(`missing ${BIN}: run cargo build --locked -p dovetail, or set DOVETAIL_BIN`);
    return new ServerProcess(spawn(BIN, flags, { stdio: ["ignore", "pipe", "pipe"], env }));
  }

  /** Stops the process, and waits until it has ended. */
  async end(): Promise<void> {
    this.child.kill("SIGTERM");
    await this.ended;
  }
}

/** Starts a scheduler on free ports, with its files in a directory, and sets the password of its administrator. */
export async function serve(command: string[], data: string): Promise<{ cluster: Cluster; server: ServerProcess }> {
  const server = ServerProcess.start([...command, "--data", data, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]);
  await expect.poll(() => existsSync(join(data, "client.yaml")), { timeout: 60_000, message: server.output }).toBe(true);
  const client = readFileSync(join(data, "client.yaml"), "utf8");
  const setting = (key: string) => new RegExp(`^${key}: *(.*)$`, "m").exec(client)![1]!.trim();
  const url = setting("server");
  const api = await request.newContext({ baseURL: url, ignoreHTTPSErrors: true, extraHTTPHeaders: { authorization: `Bearer ${setting("token")}` } });
  await expect.poll(async () => api.get("/readyz").then((r) => r.ok(), () => false), { timeout: 60_000, message: server.output }).toBe(true);
  const set = await api.patch("/api/v1/users/admin", { data: { password: PASSWORD } });
  expect(set.ok(), await set.text()).toBe(true);
  return { cluster: new Cluster(url, api), server };
}

async function up(): Promise<{ cluster: Cluster; end: () => Promise<void> }> {
  const data = mkdtempSync(join(tmpdir(), "dovetail-page-"));
  const { cluster, server } = await serve(["up", "--virtual-gpus", "4", "--nodes", "2"], data);
  await cluster.hasNodes(2);
  const end = async () => {
    await cluster.clear();
    await cluster.api.dispose();
    await server.end();
    rmSync(data, { recursive: true, force: true });
  };
  return { cluster, end };
}

export const test = base.extend<{ page: Page }, { cluster: Cluster }>({
  cluster: [
    async ({}, use) => {
      const { cluster, end } = await up();
      await use(cluster);
      await end();
    },
    { scope: "worker" },
  ],
  baseURL: async ({ cluster }, use) => use(cluster.url),
  page: async ({ page, cluster }, use) => {
    const problems = await watch(page, cluster.url);
    await use(page);
    expect(problems).toEqual([]);
  },
});

/** Records what must not happen: requests to other hosts, uncaught errors, blocked scripts, and dialogs of the browser. */
export async function watch(page: Page, url: string): Promise<string[]> {
  const problems: string[] = [];
  // For development: the page as just built, in place of the one in the binary.
  for (const name of process.env.DOVETAIL_PAGE ? ["app.js", "app.css"] : []) {
    await page.route(`${url}/${name}`, async (route) => route.fulfill({ response: await route.fetch(), path: join(process.env.DOVETAIL_PAGE!, name) }));
  }
  page.on("request", (sent) => {
    const to = new URL(sent.url());
    if (to.origin !== url && !["blob:", "data:"].includes(to.protocol)) problems.push(`request to ${sent.url()}`);
  });
  page.on("pageerror", (error) => problems.push(error.message));
  page.on("console", (message) => {
    if (message.text().includes("Content Security Policy")) problems.push(message.text());
  });
  page.on("dialog", (dialog) => {
    problems.push(`browser dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  return problems;
}

/** Signs in with the form. */
export async function signIn(page: Page, name = "admin", password = PASSWORD): Promise<void> {
  await page.goto("/");
  await page.getByLabel("Name").fill(name);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("heading", { name: `Hello, ${name}` })).toBeVisible();
}

export { expect };
