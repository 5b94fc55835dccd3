// A scheduler with two nodes, both real processes, for each file of tests; and a page that is signed in.

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

  /** Sends a job and returns its number. */
  async submit(job: Record<string, unknown>): Promise<number> {
    const answer = await this.api.post("/api/v1/jobs", { data: { job: { grace_s: 1, ...job, command: ["/bin/sh", "-c", job.command ?? "true"] } } });
    expect(answer.ok(), await answer.text()).toBe(true);
    return (await answer.json()).id;
  }

  async job(id: number): Promise<{ state: string; over: boolean }> {
    return (await this.api.get(`/api/v1/jobs/${id}`)).json();
  }

  async until(id: number, ...states: string[]): Promise<void> {
    await expect.poll(async () => (await this.job(id)).state, { timeout: 30_000 }).toMatch(new RegExp(`^(${states.join("|")})$`));
  }

  async hasNodes(count: number): Promise<void> {
    await expect.poll(async () => (await (await this.api.get("/api/v1/nodes")).json()).length, { timeout: 30_000 }).toBe(count);
  }

  /** Stops everything that is not over. */
  async clear(): Promise<void> {
    const { jobs } = await (await this.api.get("/api/v1/jobs?state=live&limit=1000")).json();
    for (const job of jobs) await this.api.post(`/api/v1/jobs/${job.id}/stop`);
    for (const job of jobs) await this.until(job.id, "cancelled", "completed", "failed");
  }
}

/** A process that is told to end, and has ended then. */
export class Running {
  said = "";
  private readonly ended: Promise<void>;

  constructor(private readonly child: ChildProcess) {
    const hear = (text: unknown) => (this.said += String(text));
    child.stdout!.on("data", hear);
    child.stderr!.on("data", hear);
    this.ended = new Promise((done) => child.on("exit", () => done()));
  }

  static start(flags: string[], env: NodeJS.ProcessEnv = process.env): Running {
    if (!existsSync(BIN)) throw new Error(`${BIN} is not there: cargo build --locked -p dovetail, or set DOVETAIL_BIN`);
    return new Running(spawn(BIN, flags, { stdio: ["ignore", "pipe", "pipe"], env }));
  }

  async end(): Promise<void> {
    this.child.kill("SIGTERM");
    await this.ended;
  }
}

/** Starts a scheduler on free ports, with its files in a folder, and gives its administrator a known password. */
export async function serve(command: string[], data: string): Promise<{ cluster: Cluster; server: Running }> {
  const server = Running.start([...command, "--data", data, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]);
  await expect.poll(() => existsSync(join(data, "client.yaml")) && server.said.includes("is up"), { timeout: 60_000, message: server.said }).toBe(true);
  const client = readFileSync(join(data, "client.yaml"), "utf8");
  const found = (key: string) => new RegExp(`^${key}: *(.*)$`, "m").exec(client)![1]!.trim();
  const url = found("server");
  const api = await request.newContext({ baseURL: url, ignoreHTTPSErrors: true, extraHTTPHeaders: { authorization: `Bearer ${found("token")}` } });
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
    const wrong = await watch(page, cluster.url);
    await use(page);
    expect(wrong).toEqual([]);
  },
});

/** Writes down what must not be: a request to another host, an error nobody sees, a script that is not the page's. */
export async function watch(page: Page, url: string): Promise<string[]> {
  const wrong: string[] = [];
  // While developing: the page as it was just built, in the place of the one in the binary.
  for (const name of process.env.DOVETAIL_PAGE ? ["app.js", "app.css"] : []) {
    await page.route(`${url}/${name}`, async (route) => route.fulfill({ response: await route.fetch(), path: join(process.env.DOVETAIL_PAGE!, name) }));
  }
  page.on("request", (asked) => {
    const to = new URL(asked.url());
    if (to.origin !== url && !["blob:", "data:"].includes(to.protocol)) wrong.push(`asked ${asked.url()}`);
  });
  page.on("pageerror", (error) => wrong.push(error.message));
  page.on("console", (message) => {
    if (message.text().includes("Content Security Policy")) wrong.push(message.text());
  });
  page.on("dialog", (dialog) => {
    wrong.push(`a dialog of the browser: ${dialog.message()}`);
    void dialog.dismiss();
  });
  return wrong;
}

/** Signs in as people do. */
export async function signIn(page: Page, name = "admin", password = PASSWORD): Promise<void> {
  await page.goto("/");
  await page.getByLabel("Name").fill(name);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("heading", { name: `Hello, ${name}` })).toBeVisible();
}

export { expect };
